"""The calling thread's floating-point environment, which other libraries and
torch.set_flush_denormal() set, changes no bit of any operator. No operator changes it."""

import pytest

from support import NIGHTLY, build_info, run_python

pytestmark = pytest.mark.newest

# Calls every operator of the library with every type in the default environment, then in others.
# Runs in a process of its own, because torch's threads inherit the environment of the thread that
# starts them. Prints the number of operators called, and those whose bits differ.
SCRIPT = """
import ctypes, functools, itertools, os, platform, re, torch

torch.ops.load_library(os.environ["FASTACT_LIBRARY"])
torch.set_num_threads(2)
libm = ctypes.CDLL("libm.so.6")
ARM = platform.machine() == "aarch64"
UPWARD, DOWNWARD, TOWARD_ZERO = (0x400000, 0x800000, 0xC00000) if ARM else (0x800, 0x400, 0xC00)
ENVIRONMENTS = {
    "upward": (UPWARD, False),
    "downward": (DOWNWARD, False),
    "toward zero": (TOWARD_ZERO, False),
    "flushing subnormals": (0, True),
    "upward, flushing subnormals": (UPWARD, True),
}
TYPES = [
    *((dtype, dtype) for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16)),
    (torch.float32, torch.float16),
    (torch.float32, torch.float64),
    (torch.bfloat16, torch.float32),
]
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def in_environment(name, function):
    rounding, flushes = ENVIRONMENTS[name]
    torch.set_flush_denormal(flushes)
    assert libm.fesetround(rounding) == 0
    try:
        return function()
    finally:
        # The call has not changed the environment.
        left = libm.fegetround()
        libm.fesetround(0)
        flushed = torch.tensor(1e-310, dtype=torch.float64).mul(1).item() == 0
        torch.set_flush_denormal(False)
        assert (left, flushed) == (rounding, flushes), (name, left, flushed)


@functools.cache
def numbers(n, dtype, seed):
    "Ordinary numbers and random bits, which include subnormal numbers and numbers near overflow."
    generator = torch.Generator().manual_seed(seed)
    ordinary = (torch.randn(n, generator=generator, dtype=torch.float64) * 8).to(dtype)
    integer = INTEGERS[dtype.itemsize]
    end = 2 ** (8 * dtype.itemsize - 1)
    any_bits = torch.randint(-end, end - 1, (n,), generator=generator, dtype=integer).view(dtype)
    return torch.where(torch.arange(n) % 2 == 0, ordinary, any_bits)


def float_arguments(schema, scale):
    "The defaults of float arguments times `scale`, or 0.7 for an argument without a default."
    defaults = [a.default_value for a in schema.arguments if str(a.type) == "float"]
    return [0.7 if default is None else default * scale for default in defaults]


def arguments_of(schema, shape, scale, dtype, other):
    "A value for each argument. `other` is the type of gradients and outputs."
    seeds, floats = itertools.count(), iter(float_arguments(schema, scale))
    make = lambda *shape, dtype=dtype: numbers(
        torch.Size(shape).numel(), dtype, next(seeds)
    ).view(shape)
    if schema.name == "fastact::cross_entropy":
        # It adds all losses, so one that is infinite would hide the others.
        plain = make
        make = lambda *shape: plain(*shape).nan_to_num(1.0).clamp(-8, 8)
    result = []
    for argument in schema.arguments:
        kind = str(argument.type)
        if argument.name == "seed":
            value = torch.tensor([12345])
        elif argument.name in ("out", "grad_input"):
            value = torch.empty(0, dtype=other)
        elif argument.name == "grad_output" and not re.search(
            "_fused|softmax|_norm|logsumexp|cross_entropy", schema.name
        ):
            value = make(*shape, dtype=other)
        elif argument.name in ("mean", "rstd") or (
            argument.name == "grad_output" and re.search("logsumexp|cross_entropy", schema.name)
        ):
            wide = torch.float64 if dtype == torch.float64 else torch.float32
            value = make(*shape[:-1], 1, dtype=wide)
        elif argument.name == "target":
            one = () if schema.name == "fastact::cross_entropy" else (1,)
            value = torch.zeros(*shape[:-1], *one, dtype=torch.int64)
        elif argument.name in ("scale", "bias") and "Tensor" in kind:
            value = make(shape[-1])
        elif argument.name == "weight":
            value = make(shape[-1 if "_norm" in schema.name else 1])
        elif argument.name in ("running_mean", "running_var"):
            value = make(shape[1])
        elif argument.name == "num_groups":
            value = 2
        elif argument.name == "normalized_shape":
            value = shape[-1:]
        elif "Tensor" in kind:
            value = make(*shape)
        elif kind == "Optional[float]":
            value = 0.01
        elif argument.name == "label_smoothing":
            value = scale - 1  # float_arguments() gives 0 for both scales
        elif kind == "float":
            value = next(floats)
        elif kind == "int":
            value = -1 if argument.default_value is None else argument.default_value
        elif kind == "bool":
            value = argument.default_value is not False
        elif kind in ("List[int]", "Optional[List[int]]"):
            value = [-1]
        elif kind == "List[bool]":
            value = [True] * len(schema.returns)
        elif argument.name == "dtype":
            value = torch.float32 if dtype == torch.float64 else None
        else:
            raise NotImplementedError(f"{schema.name}: an argument of type {kind}")
        result.append(value)
    return result


def bits(result):
    tensors = result if isinstance(result, (tuple, list)) else [result]
    return [t.view(INTEGERS[t.dtype.itemsize]).clone() for t in tensors if t.numel()]


def call(op, schema, arguments):
    "Calls the operator with fresh copies of the tensors that it writes to."
    arguments = [
        t.clone() if a.alias_info is not None and a.alias_info.is_write else t
        for a, t in zip(schema.arguments, arguments)
    ]
    torch.manual_seed(0)
    split = sum(not a.kwarg_only for a in schema.arguments)
    named = {a.name: t for a, t in zip(schema.arguments[split:], arguments[split:])}
    return op(*arguments[:split], **named)


nightly, names = "FASTACT_NIGHTLY" in os.environ, list(ENVIRONMENTS)
called, different = set(), []
for number, schema in enumerate(torch._C._jit_get_all_schemas()):
    returns = {str(result.type) for result in schema.returns}
    if not schema.name.startswith("fastact::") or returns != {"Tensor"}:
        continue
    packet = getattr(torch.ops.fastact, schema.name.split("::")[1])
    op = getattr(packet, schema.overload_name or "default")
    name = schema.name + "." + schema.overload_name
    # Small tensors with default and other parameters, and large ones, which use several threads.
    # The scope that sets the environment does not depend on parameters or sizes. Each operator
    # meets each environment, and each type does.
    for shape, scale in (((6, 14), 1), ((6, 14), 1.1), ((40, 1000), 1)):
        for i, (dtype, other) in enumerate(TYPES):
            environments = ["upward, flushing subnormals"]
            if shape == (6, 14) and scale == 1:
                environments = names if nightly else [names[(number + i) % len(names)]]
            arguments = arguments_of(schema, shape, scale, dtype, other)
            expected = bits(call(op, schema, arguments))
            called.add(name)
            for environment in environments:
                actual = bits(in_environment(environment, lambda: call(op, schema, arguments)))
                if not all(map(torch.equal, actual, expected)):
                    different.append(f"{name} {dtype} {other} {shape} {scale} {environment}")
print(len(called))
print(*different, sep="\\n")
"""


# One scope surrounds the kernels of all instruction sets.
ISAS = build_info()["cpu instruction sets"].split()


@pytest.mark.slow
@pytest.mark.parametrize("isa", ISAS if NIGHTLY else ISAS[-1:])
def test_every_operator(isa):
    printed = run_python("-c", SCRIPT, environment={"FASTACT_CPU_ISA": isa}).splitlines()
    assert int(printed[0]) > 200
    assert printed[1:] == [""], f"{len(printed) - 1} differ"


# Torch's threads start while the main thread flushes subnormal numbers, and keep that environment.
INHERITED = """
import os, torch

torch.set_flush_denormal(True)
torch.ops.load_library(os.environ["FASTACT_LIBRARY"])
torch.set_num_threads(2)
n = 1 << 20
torch.ones(n).exp()
fastact = torch.ops.fastact
tiny = torch.full((n,), 71362, dtype=torch.int32).view(torch.float32)  # 1e-40
assert (tiny * 1 == 0).sum() > n // 4, "torch's threads do not flush"
wide = fastact.relu_backward(tiny, torch.ones(n, dtype=torch.float64))
print((wide.view(torch.int64) == 0).sum().item())
narrow = torch.empty(n, dtype=torch.float32)
fastact.relu.out(wide, out=narrow)
print((narrow.view(torch.int32) == tiny.view(torch.int32)).sum().item() - n)
for shape in ((n, 1), (1, n), (1024, 1024), (3, n // 3)):
    x = wide[: torch.Size(shape).numel()].view(shape)
    out = torch.empty(shape[::-1], dtype=torch.float32).t()
    fastact.relu.out(x, out=out)
    print((out.contiguous().view(torch.int32) == 0).sum().item())
ones, seed = torch.ones(n, dtype=torch.float64), torch.tensor([7])
mask = fastact._alpha_dropout_mask(tiny, ones, seed, 0.25)
expected = fastact._alpha_dropout_mask(torch.ones(n), ones, seed, 0.25)
print(((mask.view(torch.int64) == 0) != (expected == 0)).sum().item())
"""


def test_conversions_on_threads_that_flush():
    """Operands and results of other types, which torch's kernels convert."""
    assert set(run_python("-c", INHERITED).split()) == {"0"}
