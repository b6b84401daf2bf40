"""torch.compile's backend "fastact" for a whole model, with a check of the result."""

import contextlib
import copy
from collections import OrderedDict
from collections.abc import Iterator
from importlib.metadata import EntryPoint

import torch
from torch import Tensor
from torch.utils import _pytree

from fastact._replace import restore_classes
from fastact._report import Report

# The attribute in which a model keeps its compiled call, and the attribute of fuse_'s call that
# keeps the previous call.
_COMPILED, _BEFORE = "_compiled_call_impl", "_fastact_before"


def fuse_(model: torch.nn.Module, sample=None) -> Report:
    """Replaces a model's activations, fused with their neighbours, and softmax.

    Compiles the model in place, like `model.compile(backend="fastact")`: TorchDynamo captures the
    model when it is called, and checks its guards at each call. Eager kernels compute the captured
    graphs, in inference and in training. Modules, parameters, buffers and state_dict do not change.
    docs/guides/fusing.md lists what is fused. Fusing can change the last digits, and what is fused
    depends on the device; `replace_` gives the same bits on CPUs and GPUs.

    The returned report lists the replaced operations by line of the program, and why each other
    activation was not replaced. Each captured graph adds to it. Without a sample, the report is
    empty until the model is called.

    `sample` is a tensor, a tuple of arguments or a dict of keyword arguments. With a sample,
    `fuse_` itself runs the model three times, without gradients: twice unchanged, and then with
    FastAct's operators. The results may differ by at most 4 sqrt(n) eps times the largest absolute
    value, where n operations were replaced and eps is torch.finfo(dtype).eps. Afterwards, `fuse_`
    restores random number generators, and the buffers and other attributes of all modules.

    `fastact.restore_` undoes `fuse_`.

    Raises TypeError if `model` is not a module, and RuntimeError if the results differ by more, or
    if the unchanged model's results differ from call to call. The model is then unchanged.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"fastact.fuse_: expected a torch.nn.Module, but got {type(model)}")
    report = Report()
    if sample is None:
        _compile(model, report)
        return report
    expected, again = (_results(model, sample) for _ in range(2))
    if _difference(expected, again, 0):
        raise RuntimeError(
            "fastact.fuse_: expected the model to return the same result for the same sample, but "
            "got different results from two calls: call fuse_ without a sample, or switch off "
            "randomness such as dropout"
        )
    _compile(model, report)
    try:
        difference = _difference(expected, _results(model, sample), report.count)
        if difference:
            raise RuntimeError(
                "fastact.fuse_: expected the fused model's result for the sample to differ from "
                f"the model's by rounding only, but got {difference}. The model is unchanged"
            )
    except BaseException:
        _restore_call(model)
        raise
    return report


def restore_(model: torch.nn.Module) -> int:
    """Undoes `replace_` and `fuse_`, and returns the number of modules that it restored."""
    return restore_classes(model) + sum(map(_restore_call, model.modules()))


def _compile(model: torch.nn.Module, report: Report) -> None:
    from fastact._backend import fastact_backend  # which imports TorchDynamo
    from fastact._frames import reporting

    # Not model.compile(), which compiles a method of torch: if the model's class is also torch's,
    # such as nn.Sequential, torch 2.11 captures nothing.
    def entry(*args, **kwargs):
        return model._call_impl(*args, **kwargs)

    # TorchDynamo counts recompilations by code object, so each model needs its own.
    entry.__code__ = entry.__code__.replace()
    compiled = torch.compile(entry, backend=fastact_backend, options={"report": report})
    call, before = reporting(compiled, report), getattr(model, _COMPILED, None)
    setattr(call, _BEFORE, getattr(before, _BEFORE, before))
    setattr(model, _COMPILED, call)


def _restore_call(model: torch.nn.Module) -> bool:
    call = getattr(model, _COMPILED, None)
    if not hasattr(call, _BEFORE):
        return False
    setattr(model, _COMPILED, getattr(call, _BEFORE))
    return True


@contextlib.contextmanager
def _state_is_kept(model: torch.nn.Module) -> Iterator[None]:
    """Restores modules' attributes, the contents of lists, dicts and sets in these attributes,
    buffers, and random number generators."""
    containers = [
        (each, copy.copy(each))
        for module in model.modules()
        for each in (*vars(module).values(), vars(module))
        if type(each) in (list, dict, OrderedDict, set)
    ]
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, value in buffers:
                    buffer.copy_(value)
            for container, before in containers:
                container.clear()
                (container.extend if isinstance(container, list) else container.update)(before)


def _results(model: torch.nn.Module, sample) -> list[Tensor]:
    """Returns the tensors that a model returns for a copy of a sample."""
    args, kwargs = (sample if isinstance(sample, tuple) else (sample,)), {}
    if isinstance(sample, dict):
        args, kwargs = (), sample
    args, kwargs = _pytree.tree_map_only(Tensor, torch.clone, (args, kwargs))
    with _state_is_kept(model), torch.no_grad():
        found = model(*args, **kwargs)
    return [t.clone() for t in _pytree.tree_leaves(found) if isinstance(t, Tensor)]


def _difference(expected: list[Tensor], found: list[Tensor], operations: int) -> str | None:
    """Describes the difference, or returns None if it is at most four standard deviations of
    `operations` independent roundings, each by an epsilon of the largest absolute value."""
    if len(expected) != len(found):
        return f"{len(found)} tensors instead of {len(expected)}"
    for theirs, ours in zip(expected, found):
        bound = 0.0
        if theirs.is_floating_point() or theirs.is_complex():
            finite = theirs[theirs.isfinite()]
            largest = finite.abs().max().item() if finite.numel() else 0.0
            bound = 4 * operations**0.5 * torch.finfo(theirs.dtype).eps * largest
        try:
            torch.testing.assert_close(ours, theirs, rtol=0, atol=bound, equal_nan=True)
        except AssertionError as error:
            return f"more than {bound:.3g}: {' '.join(str(error).split()).rstrip('.')}"
    return None


def register() -> None:
    """Registers the backend's name with TorchDynamo, like the entry point of the installed package.
    Raises no error: the import of TorchDynamo must not fail."""
    with contextlib.suppress(Exception):  # any type, because torch's internals raise it
        from torch._dynamo.backends import registry

        entry = EntryPoint("fastact", "fastact._backend:fastact_backend", "torch_dynamo_backends")
        registry._BACKENDS.setdefault(entry.name, entry)
