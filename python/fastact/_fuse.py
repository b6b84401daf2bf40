"""torch.compile's backend "fastact" for a whole model, with a check of the result."""

import contextlib
import dataclasses
from collections import OrderedDict, deque
from collections.abc import Iterator
from importlib.metadata import EntryPoint

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.utils import _pytree

from fastact._replace import restore_classes
from fastact._report import Report

# The attribute in which a model keeps its compiled call, and the attribute of fuse_'s call that
# keeps the previous call.
_COMPILED, _BEFORE = "_compiled_call_impl", "_fastact_before"
# Classes of containers that fuse_ restores, a subclass before its base class.
_CONTAINERS = (OrderedDict, dict, list, set, deque)


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
    value, where n operations were replaced and eps is torch.finfo(dtype).eps. Only tensors in the
    result are compared, also those in containers and dataclasses. After each run, `fuse_` restores
    random number generators, and the buffers and other attributes of all modules, with the contents
    of tensors, lists, dicts, sets and deques in them. It does not restore the attributes of other
    objects.

    `fastact.restore_` undoes `fuse_`.

    Raises TypeError if `model` is not a module, or is a torch.jit.ScriptModule. With a sample,
    raises RuntimeError if the results differ by more or contain no tensor, if the unchanged model's
    results differ from call to call, or if a parameter or buffer is uninitialized. The model is
    then unchanged. Also raises RuntimeError if the unchanged model's first call writes to a
    parameter, which keeps its new value.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"fastact.fuse_: expected a torch.nn.Module, but got {type(model)}")
    if isinstance(model, torch.jit.ScriptModule):
        raise TypeError(
            "fastact.fuse_: expected a torch.nn.Module that Python runs, but got a "
            "torch.jit.ScriptModule: fastact.convert takes it"
        )
    report = Report()
    if sample is None:
        _compile(model, report)
        return report
    if any(map(is_lazy, (*model.parameters(), *model.buffers()))):
        raise RuntimeError(
            "fastact.fuse_: expected an initialized model, but got uninitialized parameters: call "
            "the model once before"
        )
    versions = _versions(model)
    expected = _results(model, sample)
    written = [name for name, version in _versions(model).items() if version != versions.get(name)]
    if written:
        raise RuntimeError(
            "fastact.fuse_: expected a call of the model to change no parameter, but got one that "
            f"writes to '{written[0]}': call fuse_ without a sample"
        )
    again = _results(model, sample)
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


def _versions(model: torch.nn.Module) -> dict[str, int]:
    """Returns the number of in-place writes to each parameter. Inference tensors do not count."""
    return {k: p._version for k, p in model.named_parameters() if not p.is_inference()}


@contextlib.contextmanager
def _state_is_kept(model: torch.nn.Module) -> Iterator[None]:
    """Restores random number generators, and the state that is reachable from the model through
    attributes of modules and through containers: attributes, contents of containers, and values of
    tensors that are not parameters."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    # If a callback of the stack raises, the stack still runs the others.
    with torch.random.fork_rng(devices), contextlib.ExitStack() as restoring:
        # Buffers of a ScriptModule are not among its attributes.
        queue, seen = [*model.modules(), *model.buffers()], set()
        for each in queue:
            if id(each) in seen:
                continue
            seen.add(id(each))
            if isinstance(each, torch.nn.Module):
                seen.update(map(id, each.parameters(recurse=False)))
                queue.append(vars(each))
            elif isinstance(each, tuple):
                queue.extend(each)
            elif isinstance(each, Tensor):
                restoring.callback(_write, each, *_read(each))
            elif kind := next((k for k in _CONTAINERS if isinstance(each, k)), None):
                # The methods of `kind`, because a subclass can override them.
                items = kind.items if issubclass(kind, dict) else kind.__iter__
                content = list(items(each))
                restoring.callback(_refill, each, kind, content)
                queue += (*content, getattr(each, "__dict__", None))
        yield


def _refill(container, kind: type, content: list) -> None:
    """Replaces a container's contents by the methods of `kind`, one of its classes."""
    kind.clear(container)
    if not issubclass(kind, dict):
        (kind.update if kind is set else kind.extend)(container, content)
        return
    for key, value in content:
        kind.__setitem__(container, key, value)


def _read(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Returns an alias of a tensor's data, and a copy of the elements that differ in memory."""
    data = tensor.data
    return data, _without_expansion(data).clone()


def _write(tensor: Tensor, data: Tensor, value: Tensor) -> None:
    """Restores a tensor from what `_read` returned."""
    # In inference mode, PyTorch also writes to inference tensors. `data` has a version counter of
    # its own, so writing to it does not invalidate an autograd graph that saved the tensor.
    with torch.inference_mode():
        _without_expansion(data).copy_(value)
        tensor.data = data  # which the model can replace or resize


def _without_expansion(tensor: Tensor) -> Tensor:
    """Returns the first of the elements that an expanded tensor repeats, because PyTorch does not
    write to expanded tensors."""
    if tensor.layout != torch.strided or tensor.is_nested or 0 not in tensor.stride():
        return tensor
    return tensor[tuple(slice(None if stride else 1) for stride in tensor.stride())]


def _results(model: torch.nn.Module, sample) -> list[Tensor]:
    """Returns the tensors that a model returns for a copy of a sample."""
    args, kwargs = (sample if isinstance(sample, tuple) else (sample,)), {}
    if isinstance(sample, dict):
        args, kwargs = (), sample
    args, kwargs = _pytree.tree_map_only(Tensor, torch.clone, (args, kwargs))
    with _state_is_kept(model), torch.no_grad():
        found = model(*args, **kwargs)
        leaves, seen = _pytree.tree_leaves(found), set()
        for leaf in leaves:
            if dataclasses.is_dataclass(leaf) and id(leaf) not in seen:
                seen.add(id(leaf))
                fields = [getattr(leaf, f.name, None) for f in dataclasses.fields(leaf)]
                leaves += _pytree.tree_leaves(fields)
        tensors = [leaf.clone() for leaf in leaves if isinstance(leaf, Tensor)]
    if not tensors:
        raise RuntimeError(
            "fastact.fuse_: expected the model's result to contain a tensor, but got "
            f"{type(found).__name__}: call fuse_ without a sample"
        )
    return tensors


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
