"""What a call allocates and what a graph keeps alive: never more than PyTorch."""

import gc
import weakref
from pathlib import Path

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from op_table import ACTIVATIONS
from support import LAYOUTS, make, run_python, values


def allocations(function, device):
    """Returns the number of allocations that a call makes on the device."""
    if device == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_stats()["allocation.all.allocated"]
        function()
        torch.cuda.synchronize()
        return torch.cuda.memory_stats()["allocation.all.allocated"] - before
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        function()
    events = profile.profiler.kineto_results.events()
    return sum(e.name() == "[memory]" and e.nbytes() > 0 for e in events)


def saved_by(function, *arguments):
    """Returns the tensors that a call saves for backward, and its result."""
    saved = []

    def pack(t):
        saved.append(t)
        return t

    with saved_tensors_hooks(pack, lambda t: t):
        result = function(*arguments)
    return saved, result


def saved_bytes(function, *arguments):
    """Returns the bytes of the distinct storages that a call saves for backward."""
    saved, _ = saved_by(function, *arguments)
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in saved}
    return sum(storages.values())


def same_memory(a, b):
    return (a.data_ptr(), a.shape, a.stride()) == (b.data_ptr(), b.shape, b.stride())


def test_allocations_are_counted(device):
    """Tests the measurement: a new tensor is one allocation, a copy none."""
    x, y = torch.ones(100, device=device), torch.ones(100, device=device)
    assert allocations(lambda: torch.add(x, y), device) == 1
    assert allocations(lambda: x.copy_(y), device) == 0


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if "empty" not in name])
def test_one_allocation_for_a_new_result_none_for_a_given_one(act, device, layout):
    x = make(layout, device=device)
    grad, out = torch.empty_like(x), torch.empty_like(x)
    target = x.clone()
    act.op(x), act.op_(target), act.ladder(grad, x)
    assert allocations(lambda: act.op(x), device) == 1
    assert allocations(lambda: act.ladder(grad, x), device) == 1
    assert allocations(lambda: act.ladder(grad, grad, x), device) == 1
    assert allocations(lambda: act.ladder(grad, grad, grad, x), device) == 1
    assert allocations(lambda: act.op_(target), device) == 0
    assert allocations(lambda: act.out(x, out), device) == 0
    assert allocations(lambda: act.grad_input(grad, x, out), device) == 0


def test_in_place_under_grad_allocates_only_what_it_keeps(act, device, dtype):
    kept = int(act.in_place_keeps_input)
    leaf = values(1000, dtype=dtype, device=device).requires_grad_()
    target = leaf * 1
    view = (leaf * 1)[3:]
    assert allocations(lambda: act.op_(target), device) == kept
    assert allocations(lambda: act.op_(view), device) == kept


def test_backward_allocates_one_gradient(act, device):
    x = values(1000, device=device).requires_grad_()
    grad = torch.ones(1000, device=device)
    y = act.op(x)
    assert allocations(lambda: torch.autograd.grad(y, x, grad), device) == 1


def test_functional_saves_one_tensor(act, device):
    x = values(1000, device=device).requires_grad_()
    saved, y = saved_by(act.op, x)
    assert len(saved) == 1
    assert same_memory(saved[0], x if act.saves == "input" else y)
    assert saved_bytes(act.op, x) <= saved_bytes(act.aten, x)


def test_in_place_saves_one_tensor(act, device):
    """An in-place call saves its result, if backward can use it, otherwise a copy of its input."""
    leaf = values(1000, device=device).requires_grad_()
    x = leaf * 1
    saved, y = saved_by(act.op_, x)
    assert y is x and len(saved) == 1
    assert same_memory(saved[0], x) != act.in_place_keeps_input
    assert saved_bytes(act.op_, leaf * 1) <= saved_bytes(act.aten_, leaf * 1)


def test_in_place_on_a_view_saves_no_more_than_the_view(act, device):
    leaf = values(10, 100, device=device).requires_grad_()
    base = leaf * 1
    view = base[2:5]
    saved, _ = saved_by(act.op_, view)
    assert len(saved) == 1 and saved[0].shape == view.shape
    assert same_memory(saved[0], view) != act.in_place_keeps_input


def test_without_grad_nothing_is_saved(act, device):
    x = values(10, device=device)
    assert saved_by(act.op, x)[0] == []
    with torch.no_grad():
        assert saved_by(act.op, x.requires_grad_())[0] == []


def test_backward_operator_saves_only_what_the_needed_gradients_take(act, device):
    x = values(10, device=device)
    grad = values(10, device=device).requires_grad_()
    saved, _ = saved_by(act.ladder, grad, x)
    assert [t.data_ptr() for t in saved] == [x.data_ptr()]
    saved, _ = saved_by(act.ladder, grad, x.requires_grad_())
    assert {t.data_ptr() for t in saved} == {x.data_ptr(), grad.data_ptr()}


def test_saved_memory_is_freed_after_backward(act, few_objects):
    """The input of a result-saving activation, and everything after backward, can be collected."""
    leaf = values(1000).requires_grad_()
    z = leaf * 1
    freed = []
    weakref.finalize(z, freed.append, "z")
    y = act.op(z)
    del z
    gc.collect()
    assert bool(freed) == (act.saves == "result")
    y.sum().backward()
    gc.collect()
    assert freed == ["z"]


@pytest.mark.parametrize(
    "call",
    (
        lambda act, z: act.op(z),
        lambda act, z: act.op_(z),
        lambda act, z: act.op_(z[1:]),
    ),
    ids=("functional", "in_place", "in_place_on_view"),
)
def test_dropped_graph_is_freed(act, device, call, few_objects):
    """A node that saves its own result must not keep itself alive."""

    class Token:
        pass

    token = Token()
    alive = weakref.ref(token)
    z = values(4, 4, device=device).requires_grad_() * 1
    z.grad_fn.register_hook(lambda *unused, token=token: None)
    y = call(act, z)
    (first,) = torch.autograd.grad(y.sum(), z, create_graph=True, allow_unused=True)
    del token, y, z, first
    gc.collect()
    assert alive() is None


# Finds the mappings that are advised to use huge pages in /proc/self/smaps.
ADVISED = """
import os, sys, torch
torch.ops.load_library(os.environ["FASTACT_LIBRARY"])

def advised_mappings():
    result = []
    for line in open("/proc/self/smaps"):
        if "-" in line.split()[0]:
            mapping = line.split()
            first, last = (int(end, 16) for end in mapping[0].split("-"))
        elif line.startswith("VmFlags:") and "hg" in line.split():
            result.append((first, last, mapping[5:]))
    return result

def advised(tensor):
    middle = tensor.data_ptr() + tensor.nbytes // 2
    return any(first <= middle < last for first, last, _ in advised_mappings())
"""

# Prints, for a functional result, one with transposed input, an out= result and a small result,
# whether the middle of its memory is advised to use huge pages.
HUGE_PAGES = """
packet = getattr(torch.ops.fastact, sys.argv[1])
x = torch.randn(8, 1 << 21)
y, transposed, small = packet(x), packet(x.t()), packet(x[:, : 1 << 12])
out = torch.empty_like(x)
packet.out(x, out=out)
assert torch.equal(y, out) and torch.equal(y, transposed.t())
print(*map(advised, (y, transposed, out, small)))
"""

# Frees results, so that malloc() could reuse their memory. Then checks the memory of malloc().
FREED = """
ops = torch.ops.fastact

def calls(x):
    "Makes a fresh result in every way."
    yield ops.selu(x)
    yield ops.selu(x.view(8, -1).t())
    yield ops.selu_backward(x, x)
    yield ops.fused_selu(x.view(8, -1), residual=x.view(8, -1))
    yield ops.selu_alpha_dropout(x, 0.1, True)
    leaf = x.clone().view(8, -1).requires_grad_()
    y = ops.fused_selu(leaf, gate=leaf.detach())
    yield y.detach()
    yield torch.autograd.grad(y, leaf, y.detach())[0]

# malloc() maps only the first block of a size, and takes later ones from its heap.
sizes = [mib << 18 for mib in (4, 8, 16, 31, 48)]
for size in sizes:
    assert all(map(advised, calls(torch.zeros(size)))), size
kept = advised_mappings()
assert sum(last - first for first, last, _ in kept) <= 64 << 20, kept
assert not any(name for _, _, name in kept), kept
for size in sizes:
    tensors = [torch.ones(size) for _ in range(8)]
    assert not any(map(advised, tensors)), size
print("done")
"""

# Uses tensors' memory in the ways that programs do.
USES = """
import io, pickle, threading
import numpy as np
torch.set_num_threads(1)  # torch's threads do not survive fork()
ops = torch.ops.fastact
x = torch.randn(3 << 20)
expected = x.relu()
fresh = lambda: ops.relu(x)

def same(y):
    assert torch.equal(y, expected)

assert advised(fresh()) and fresh().data_ptr() % 64 == 0
assert fresh().untyped_storage().nbytes() == x.nbytes and not fresh().is_pinned()

y = fresh()  # resized to a larger and to a smaller size
y.resize_(4 << 20)
same(y[: 3 << 20])
y.resize_(7)
y.untyped_storage().resize_(7 * 4)
assert torch.equal(y, expected[:7])
y.untyped_storage().resize_(5 << 20)
assert torch.equal(y, expected[:7])
y.untyped_storage().resize_(0)

y = fresh().share_memory_()
assert y.is_shared()
same(y)
same(pickle.loads(pickle.dumps(fresh())))
file = io.BytesIO()
torch.save(fresh(), file)
file.seek(0)
same(torch.load(file))

array = fresh().numpy()  # outlives the tensor
assert np.array_equal(array, expected.numpy())
same(torch.from_numpy(array))
same(torch.from_dlpack(fresh()))
y = torch.empty(0).set_(fresh().untyped_storage(), 0, (3 << 20,))
same(y)
same(y.clone())
lazy = torch._lazy_clone(y)
lazy.add_(0)
same(lazy)
same(torch.empty(0).set_(fresh()))

with torch.profiler.profile(
    activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
) as profile:
    y = fresh()
    del y
sizes = [e.nbytes() for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
assert sorted(sizes) == [-x.nbytes, x.nbytes], sizes

y = fresh()
if (child := os.fork()) == 0:  # the child frees memory, and allocates its own
    same(y)
    del y
    z = fresh()
    same(z)
    z.zero_()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
same(y)

def work():  # also frees results of other threads
    for _ in range(20):
        mine = ops.relu(x)
        results.append(mine)
        same(results.pop(0))

results = [fresh() for _ in range(4)]
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(results) == 4
for y in results:
    same(y)
at_exit = fresh()  # freed when the interpreter exits
print("done")
"""


def run_advised(script, *arguments, setting=None):
    if not Path("/sys/kernel/mm/transparent_hugepage/enabled").exists():
        pytest.skip("a kernel without huge pages")
    environment = {"FASTACT_HUGE_PAGES": setting or "1"}
    return run_python("-c", ADVISED + script, *arguments, environment=environment).split()


@pytest.mark.parametrize("setting, expected", ((None, "True True"), ("0", "False False")))
def test_huge_pages_are_asked_for_large_fresh_results_alone(setting, expected):
    act = next(a for a in ACTIVATIONS if not a.parameters)
    printed = run_advised(HUGE_PAGES, act.name, setting=setting)
    assert printed == [*expected.split(), "False", "False"]


@pytest.mark.slow
@pytest.mark.newest
def test_no_other_memory_is_advised():
    assert run_advised(FREED) == ["done"]


@pytest.mark.slow
@pytest.mark.newest
def test_memory_in_huge_pages_serves_as_any_other():
    assert run_advised(USES) == ["done"]
