"""GPU features: graphs, streams, synchronization, several devices, 2^31 elements, and the choice
between approximate instructions and IEEE arithmetic."""

import re

import pytest
import torch

from op_table import OPERATORS
from oracle import bits
from support import assert_same_bits, error_of, run_python, values

pytestmark = pytest.mark.usefixtures("cuda")


def test_graph_capture_and_replay(act, dtype):
    """Replays the value, in-place and out= forms and a training step with new data."""
    x = values(3000, dtype=dtype, device="cuda")
    leaf = values(3000, dtype=dtype, device="cuda").requires_grad_()
    out = torch.empty_like(x)
    target = x.clone()

    def step():
        y = act.op(x)
        act.out(x, out)
        act.op_(target)
        (gradient,) = torch.autograd.grad(act.op_(act.op(leaf) * 1).sum(), leaf)
        return y, gradient

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y, gradient = step()
    for seed in (1, 2):
        torch.manual_seed(seed)
        new = values(3000, dtype=dtype, device="cuda")
        x.copy_(new)
        target.copy_(new)
        with torch.no_grad():
            leaf.copy_(new)
        graph.replay()
        assert_same_bits(y, act.op(new))
        assert_same_bits(out, act.op(new))
        assert_same_bits(target, act.op(new))
        fresh = new.clone().requires_grad_()
        (wanted,) = torch.autograd.grad(act.op_(act.op(fresh) * 1).sum(), fresh)
        assert_same_bits(gradient, wanted)


def test_side_streams(act):
    """Work goes to the current stream, and waits only for this stream."""
    streams = [torch.cuda.Stream() for _ in range(4)]
    source = values(1 << 22, device="cuda")
    expected = act.op(source * 2)
    torch.cuda.synchronize()
    results = []
    for stream in streams:
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)
            results.append(act.op(source * 2))
    torch.cuda.synchronize()
    for result in results:
        assert_same_bits(result, expected)


def test_backward_on_a_side_stream(act):
    stream = torch.cuda.Stream()
    leaf = values(1 << 20, device="cuda").requires_grad_()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        y = act.op(leaf * 1)
    torch.cuda.current_stream().wait_stream(stream)
    (gradient,) = torch.autograd.grad(y.sum(), leaf)
    assert_same_bits(gradient, act.gradient(torch.ones_like(leaf), leaf.detach()))


def test_nothing_synchronises(act, dtype):
    x = values(1000, dtype=dtype, device="cuda")
    leaf = values(1000, dtype=dtype, device="cuda").requires_grad_()
    ones = torch.ones_like(x)
    torch.cuda.set_sync_debug_mode("error")
    try:
        act.op(x), act.op_(x), act.out(x, x), act.ladder(x[::2], x[1::2])
        torch.autograd.grad(act.op(leaf), leaf, ones)
        torch.autograd.grad(act.op_(leaf * 1), leaf, ones)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_other_device(act):
    """The device of the tensor counts, not the current one."""
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU only")
    x = values(5000, device="cuda:1").requires_grad_()
    with torch.cuda.device(0):
        y = act.op(x)
        (gradient,) = torch.autograd.grad(y.sum(), x)
    assert y.device == gradient.device == x.device
    assert_same_bits(y, act.op(x.detach().cpu()))
    out = torch.empty(5000, device="cuda:0")
    assert isinstance(error_of(act.out, x.detach(), out), RuntimeError)
    assert isinstance(error_of(act.ladder, out, x.detach()), RuntimeError)


def test_cpu_and_cuda_tensors_do_not_mix(act):
    x, host = values(4, device="cuda"), values(4)
    for call in (
        lambda: act.out(x, host),
        lambda: act.out(host, x),
        lambda: act.ladder(x, host),
        lambda: act.ladder(host, x),
        lambda: act.grad_input(x, x, host),
    ):
        assert isinstance(error_of(call), RuntimeError)
    before = host.clone()
    error_of(act.out, x, host)
    assert torch.equal(host, before)


def enough_memory(count):
    free, _ = torch.cuda.mem_get_info()
    if free < count:
        pytest.skip(f"needs {count >> 30} GiB of free GPU memory")


def same_in_chunks(actual, function, chunk=1 << 28):
    """Compares in chunks, without a second result of full size."""
    for start in range(0, actual.numel(), chunk):
        part = slice(start, start + chunk)
        assert torch.equal(bits(actual[part]), bits(function(part))), start


@pytest.mark.parametrize("act", OPERATORS, ids=lambda act: act.id)
def test_sizes_where_the_launch_changes(act, dtype):
    """From 4 MiB and from 2^23 elements on, a thread takes other numbers of packets
    (ops/cuda/tuning.h), also in rows of strided tensors. The expected bits are those of a short
    tensor, repeated."""
    pattern = values(10007, dtype=dtype, device="cuda")
    forms = (act.op, lambda x: act.ladder(x, x))
    expected = [function(pattern) for function in forms]
    middle, many = (4 << 20) // dtype.itemsize, 1 << 23
    for size in (middle - 9, middle, middle + 1, 2 * middle + 77, many - 1, many, many + 1029):
        repeats = -(-size // len(pattern))
        x = pattern.repeat(repeats)[:size]
        for function, short in zip(forms, expected):
            assert torch.equal(bits(function(x)), bits(short.repeat(repeats)[:size])), size
    rows = pattern.repeat(8500)[: 1029 * 8320].view(1029, 8320)[:, 64:8256]
    for function in forms:
        assert torch.equal(bits(function(rows)), bits(function(rows.contiguous())))


@pytest.mark.parametrize("step", (1, 2), ids=("dense", "strided"))
def test_more_than_2_to_the_31_elements(act, step):
    """Tests 2^31 + 77 contiguous elements, and every second element with an extent above 2^31."""
    count = (1 << 31) + 77
    enough_memory(count * 2 * 3 + (2 << 30))
    base = torch.empty(count, dtype=torch.bfloat16, device="cuda")
    pattern = values(10007, dtype=torch.bfloat16, device="cuda")
    base[: count // 10007 * 10007].view(-1, 10007).copy_(pattern)
    base[count // 10007 * 10007 :] = 1.5
    x = base[::step]
    same_in_chunks(act.op(x), lambda part: act.op(x[part].contiguous()))
    gradients = act.ladder(x, x)
    same_in_chunks(gradients, lambda part: act.ladder(x[part].contiguous(), x[part].contiguous()))
    del gradients
    tail = x[-1000:].clone()
    act.op_(x)
    assert_same_bits(x[-1000:], act.op(tail))


@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_with_cuda_graphs(act):
    """mode="reduce-overhead" replays captured kernels."""

    def f(x):
        return act.op(x * 2).sin()

    compiled = torch.compile(f, mode="reduce-overhead", fullgraph=True)
    for seed in range(3):
        torch.manual_seed(seed)
        x = values(1000, device="cuda")
        torch.compiler.cudagraph_mark_step_begin()
        torch.testing.assert_close(compiled(x), f(x))


# ---- The chosen arithmetic, in processes of their own

LOAD = """
import os, torch
torch.ops.load_library(os.environ["FASTACT_LIBRARY"])
fastact = torch.ops.fastact
def arithmetic():
    (line,) = (t for t in fastact.build_info().splitlines() if t.startswith("cuda arithmetic"))
    return line.removeprefix("cuda arithmetic in use: ")
"""


def test_build_info_leaves_the_gpu_alone():
    script = (
        LOAD
        + """
print(arithmetic())
opened = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
print([path for path in opened if path.startswith("/dev/nvidia")])
x = torch.ones(3, device="cuda")
fastact.relu(x)
print(arithmetic())
fastact.silu(x)
print(arithmetic())
"""
    )
    before, opened, after_relu, after_silu = run_python("-c", script).splitlines()
    assert before == after_relu == "not compared yet"
    assert opened == "[]"
    found = r"device 0 \(compute capability \d+\.\d\): .* results.* \(\d+\.\d ms\)"
    assert re.fullmatch(found, after_silu)


def test_first_use_in_a_capture():
    """Inside the capture IEEE arithmetic is used. The next use outside of a capture compares."""
    script = (
        LOAD
        + """
x = torch.arange(65536, device="cuda", dtype=torch.int32).to(torch.int16).view(torch.float16)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    captured = fastact.silu(x), fastact.mish(x.float())
print(arithmetic())
graph.replay()
eager = fastact.silu(x), fastact.mish(x.float())
print(arithmetic())
for a, b in zip(captured, eager):
    print(torch.equal(a.view(torch.int16), b.view(torch.int16)))
"""
    )
    captured, eager, *equal = run_python("-c", script).splitlines()
    assert captured == "not compared yet"
    assert eager.startswith("device 0 (")
    assert equal == ["True", "True"]


@pytest.mark.parametrize("name", ("ieee", "fast"))
def test_arithmetic_by_the_environment(name):
    script = (
        LOAD
        + """
x = torch.arange(65536, device="cuda", dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
smooth = "elu celu sigmoid tanh silu gelu gelu_tanh quick_gelu mish softplus log_sigmoid tanhshrink"
for name in smooth.split():
    print(torch.equal(*(getattr(fastact, name)(t).cpu().view(torch.int16) for t in (x, x.cpu()))))
print(arithmetic())
"""
    )
    *equal, arithmetic = run_python(
        "-c", script, environment={"FASTACT_CUDA_MATH": name}
    ).splitlines()
    assert equal == ["True"] * 12
    assert arithmetic.lower() == f"{name}, as fastact_cuda_math says"


def test_unknown_arithmetic_is_an_error():
    script = (
        LOAD
        + """
print(arithmetic())
for act in fastact.relu, fastact.silu:
    try:
        act(torch.ones(3, device="cuda"))
    except RuntimeError as error:
        print(str(error).splitlines()[0])
"""
    )
    printed = run_python("-c", script, environment={"FASTACT_CUDA_MATH": "exact"}).splitlines()
    sentence = "fastact: expected FASTACT_CUDA_MATH to be auto, ieee or fast, but got exact"
    assert printed == [f"none ({sentence})", sentence, sentence]
