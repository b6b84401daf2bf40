"""What a call allocates and what a graph keeps alive: never more than PyTorch."""

import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from op_table import ACTIVATIONS
from support import LAYOUTS, library_path, make, values


def allocations(function, device):
    """Number of allocations that a call makes on the device."""
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
    """The tensors that a call saves for backward, and its result."""
    saved = []

    def pack(t):
        saved.append(t)
        return t

    with saved_tensors_hooks(pack, lambda t: t):
        result = function(*arguments)
    return saved, result


def saved_bytes(function, *arguments):
    """Bytes of the distinct storages that a call saves for backward."""
    saved, _ = saved_by(function, *arguments)
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in saved}
    return sum(storages.values())


def same_memory(a, b):
    return (a.data_ptr(), a.shape, a.stride()) == (b.data_ptr(), b.shape, b.stride())


def test_allocations_are_counted(device):
    """The measurement itself: one allocation a new tensor, none for a copy."""
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
    """Its result, which serves as activation and as what backward needs, else its input's copy."""
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


def test_saved_memory_is_freed_after_backward(act):
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
def test_dropped_graph_is_freed(act, device, call):
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


# Prints whether the middle of a functional result, of that of out= and of a small one were advised
# to have huge pages.
HUGE_PAGES = """
import sys, torch
torch.ops.load_library(sys.argv[1])
packet = getattr(torch.ops.fastact, sys.argv[2])

def advised(tensor):
    address = tensor.data_ptr() + tensor.nbytes // 2
    inside = False
    for line in open("/proc/self/smaps"):
        if "-" in line.split()[0]:
            first, last = (int(end, 16) for end in line.split()[0].split("-"))
            inside = first <= address < last
        elif inside and line.startswith("VmFlags:"):
            return "hg" in line.split()

x = torch.randn(8, 1 << 21)
y, transposed, small = packet(x), packet(x.t()), packet(x[:, : 1 << 12])
out = torch.empty_like(x)
packet.out(x, out=out)
assert torch.equal(y, out) and torch.equal(y, transposed.t())
print(*map(advised, (y, transposed, out, small)))
"""


@pytest.mark.parametrize("setting, expected", ((None, "True True"), ("0", "False False")))
def test_huge_pages_are_asked_for_large_fresh_results_alone(setting, expected):
    act = next(a for a in ACTIVATIONS if not a.parameters)
    if not Path("/sys/kernel/mm/transparent_hugepage/enabled").exists():
        pytest.skip("a kernel without huge pages")
    environment = {k: v for k, v in os.environ.items() if k != "FASTACT_HUGE_PAGES"}
    if setting is not None:
        environment["FASTACT_HUGE_PAGES"] = setting
    done = subprocess.run(
        [sys.executable, "-c", HUGE_PAGES, library_path(), act.name],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.stdout.split() == [*expected.split(), "False", "False"], done.stderr
