"""The ways in which test_combinations.py calls an operator: each mode takes a Call and returns an
Outcome, whose parts are compared with PyTorch's compositions in float64."""

import contextlib

import torch
from torch.autograd import forward_ad
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.func import functionalize, grad, jvp, vjp, vmap
from torch.utils.checkpoint import checkpoint

from combinations import Outcome, drawn, incoming_like
from support import no_vmap_fallback


def backward_of(call, value):
    """Runs backward, and returns the outcome with the operands' gradients."""
    incoming = incoming_like(call.c, value)
    value.backward(incoming)
    gradients = {name: call.tensors[name].grad for name in call.needs}
    return Outcome(value.detach(), gradients, incoming)


def value(call):
    with torch.no_grad():
        return Outcome(call.operator(**call.tensors))


def inference(call):
    with torch.inference_mode():
        return Outcome(call.operator(**call.tensors).clone())


def in_place(call):
    with torch.no_grad():
        target = call.tensors[call.c.row.leading]
        result = call.operator_(**call.tensors)
        assert result is target
        return Outcome(result)


def out(call):
    """Writes to a tensor of the right shape, and to one that has to be resized."""
    with torch.no_grad():
        like = call.operator(**call.tensors)
        target = like.new_empty(0) if call.c.seed % 2 else torch.empty_like(like)
        result = call.c.row.call(call.tensors, call.c.dim, out=target)
        assert result is target
        return Outcome(result)


def functionalized(call):
    with torch.no_grad():
        names = tuple(call.tensors)
        return Outcome(functionalize(call.of(names))(*call.tensors.values()))


def functionalized_out(call):
    with torch.no_grad():
        names = tuple(call.tensors)

        def function(*values):
            tensors = dict(zip(names, values))
            out = torch.empty_like(call.operator(**tensors))
            return call.c.row.call(tensors, call.c.dim, out=out)

        return Outcome(functionalize(function)(*call.tensors.values()))


def functionalized_in_place(call):
    with torch.no_grad():
        names = tuple(call.tensors)

        def function(*values):
            copies = dict(zip(names, values))
            copies[call.c.row.leading] = copies[call.c.row.leading].clone()
            return call.operator_(**copies)

        return Outcome(functionalize(function)(*call.tensors.values()))


def backward(call):
    return backward_of(call, call.operator(**call.tensors))


def autocast(call):
    with torch.autocast("cpu", torch.bfloat16):
        result = call.operator(**call.tensors)
    return backward_of(call, result)


def in_place_backward(call):
    """Runs the in-place form of an activation on another operator's result, and backward."""
    x = call.tensors["self"] * 1
    return backward_of(call, call.operator_(self=x))


def checkpointed(use_reentrant):
    def mode(call):
        names = tuple(call.tensors)
        with torch.no_grad():
            # Raises errors before checkpoint(): an error inside can leave its hooks active.
            call.operator(**call.tensors)
        result = checkpoint(call.of(names), *call.tensors.values(), use_reentrant=use_reentrant)
        return backward_of(call, result)

    return mode


def hooked(pack, unpack):
    def mode(call):
        with saved_tensors_hooks(pack, unpack):
            result = call.operator(**call.tensors)
        return backward_of(call, result)

    return mode


def saved_on_cpu(call):
    with save_on_cpu(pin_memory=call.c.device == "cuda"):
        result = call.operator(**call.tensors)
    return backward_of(call, result)


def other_strides(t):
    """Returns a copy whose dimensions are in the opposite order in memory."""
    order = tuple(reversed(range(t.dim())))
    return t.permute(order).contiguous().permute(order)


def through_float64(t):
    return (t.double(), t.dtype) if t.is_floating_point() else (t, t.dtype)


def func_vjp(call):
    result, pull = vjp(call.of_detached(call.needs), *(call.detached()[n] for n in call.needs))
    incoming = incoming_like(call.c, result)
    return Outcome(result, dict(zip(call.needs, pull(incoming))), incoming)


def weighted(call, names, weights):
    """Returns the weighted sum of the result's elements, and the result."""
    of_names = call.of_detached(names)

    def function(*values):
        result = of_names(*values)
        return (result * weights).sum(), result

    return function


def func_grad(call):
    with torch.no_grad():
        incoming = incoming_like(call.c, call.operator(**call.tensors))
    places = tuple(range(len(call.needs)))
    values = [call.detached()[n] for n in call.needs]
    gradients, result = grad(weighted(call, call.needs, incoming), places, has_aux=True)(*values)
    return Outcome(result, dict(zip(call.needs, gradients)), incoming)


def double_backward(call):
    """Differentiates sum(gradient * direction) by the operands and the incoming gradient."""
    result = call.operator(**call.tensors)
    incoming, directions = incoming_like(call.c, result).requires_grad_(), tangents_of(call)
    inputs = [call.tensors[n] for n in call.needs]
    first = torch.autograd.grad(result, inputs, incoming, create_graph=True)
    gradients = dict(zip(call.needs, first))
    total = sum((gradients[n] * directions[n]).sum().double() for n in call.needs)
    second = dict.fromkeys((*call.needs, "incoming"))
    if total.requires_grad:
        found = torch.autograd.grad(total, [*inputs, incoming], allow_unused=True)
        second = dict(zip(second, found))
    return Outcome(
        result.detach(), gradients, incoming.detach(), directions=directions, second=second
    )


def tangents_of(call):
    result = {}
    for i, name in enumerate(call.needs):
        t = call.tensors[name]
        result[name] = drawn([], tuple(t.shape), "factor", t.dtype, 7 + i, t.device)
    return result


def func_jvp(call):
    tangents = tangents_of(call)
    values = tuple(call.detached()[n] for n in call.needs)
    result, tangent = jvp(call.of_detached(call.needs), values, tuple(tangents.values()))
    return Outcome(result, tangent=tangent, tangents=tangents)


def dual_numbers(call):
    tangents, constant = tangents_of(call), call.detached()
    with forward_ad.dual_level():
        duals = {n: forward_ad.make_dual(constant[n], t) for n, t in tangents.items()}
        result = forward_ad.unpack_dual(call.operator(**{**constant, **duals}))
        return Outcome(result.primal, tangent=result.tangent, tangents=tangents)


def func_jvp_of_vjp(call):
    """Forward over reverse: the derivative of the gradients along the operands' directions. Second
    derivatives are symmetric, so double backward gives the same for the same directions."""
    with torch.no_grad():
        incoming = incoming_like(call.c, call.operator(**call.tensors))
    directions, function = tangents_of(call), call.of_detached(call.needs)

    def gradients(*values):
        result, pull = vjp(function, *values)
        return (result, *pull(incoming))

    values = tuple(call.detached()[n] for n in call.needs)
    (result, *first), (_, *second) = jvp(gradients, values, tuple(directions.values()))
    return Outcome(
        result, dict(zip(call.needs, first)), incoming, directions=directions,
        second=dict(zip(call.needs, second)),
    )  # fmt: skip


def in_dims(call):
    return tuple(call.c.batch_dim(name) for name in call.tensors)


def without_fallback(call):
    """Forbids vmap's fallback, except for dropout with a given seed (docs/reference/fused.md)."""
    return contextlib.nullcontext() if call.c.row.recover else no_vmap_fallback()


def map_slices(call, function, dims=None):
    randomness = "different" if call.c.row.draws else "error"
    return vmap(function, dims or in_dims(call), randomness=randomness)


def mapped(call):
    names = tuple(call.tensors)
    with torch.no_grad(), without_fallback(call):
        return Outcome(map_slices(call, call.of(names))(*call.tensors.values()))


def mapped_in_place(call):
    with torch.no_grad(), without_fallback(call):
        names, values = tuple(call.tensors), call.tensors.values()
        result = map_slices(call, call.of(names, call.operator_))(*values)
        assert torch.equal(result, call.tensors["self"].movedim(call.c.batch_dim("self"), 0)), (
            "the result is not what was written"
        )
        return Outcome(result)


def backward_of_mapped(call):
    names = tuple(call.tensors)
    with without_fallback(call):
        result = map_slices(call, call.of(names))(*call.tensors.values())
    return backward_of(call, result)


def mapped_grad(call):
    """Computes the gradients in each slice, for batched and unbatched operands."""
    names, values = tuple(call.tensors), tuple(call.detached().values())
    with torch.no_grad():
        result = map_slices(call, call.of_detached(names))(*values)
    incoming = incoming_like(call.c, result)
    places = tuple(names.index(n) for n in call.needs)

    def loss(*tensors_and_weights):
        *tensors, weights = tensors_and_weights
        found = call.operator(**dict(zip(names, tensors)))
        return (found * weights).sum(), found

    dims = (*in_dims(call), 0)
    with without_fallback(call):
        gradients, result = map_slices(call, grad(loss, places, has_aux=True), dims)(
            *values, incoming
        )
    return Outcome(result, dict(zip(call.needs, gradients)), incoming)


def mapped_jvp(call):
    """Computes the tangent of each slice. Each slice has its own input tangents."""
    names, values = tuple(call.tensors), tuple(call.detached().values())
    shapes = {name: t.shape for name, t in call.slices[0].items() if name in call.needs}
    tangents = {
        name: drawn(
            [], (len(call.slices), *shape), "factor", call.tensors[name].dtype, 7, call.c.device
        )
        for name, shape in shapes.items()
    }

    def one(tensors, tangents):
        def function(*needed):
            return call.operator(**{**tensors, **dict(zip(call.needs, needed))})

        return jvp(function, tuple(tensors[n] for n in call.needs), tangents)

    with without_fallback(call):
        dims = (dict(zip(names, in_dims(call))), 0)
        result, tangent = map_slices(call, one, dims)(
            dict(zip(names, values)), tuple(tangents.values())
        )
    return Outcome(result, tangent=tangent, tangents=tangents)


def compiled_together(calls, mode):
    """Compiles all calls as one function. Returns their outcomes, forward and backward."""
    backend, *dynamic = mode.split(" ")
    single = [(call.c.row.call, call.c.dim) for call in calls]

    def function(operands):
        return [operator(tensors, dim) for (operator, dim), tensors in zip(single, operands)]

    torch._dynamo.reset()
    compiled = torch.compile(function, backend=backend, fullgraph=True, dynamic=bool(dynamic))
    results = compiled([call.tensors for call in calls])
    incoming = [incoming_like(call.c, result) for call, result in zip(calls, results)]
    torch.autograd.backward(results, incoming)
    return [
        Outcome(result.detach(), {n: call.tensors[n].grad for n in call.needs}, g)
        for call, result, g in zip(calls, results, incoming)
    ]


def compiled_alone(mode):
    return lambda call: compiled_together([call], mode)[0]


COMPILED = ("aot_eager", "aot_eager dynamic", "inductor")
# The mode in which some operands were made under inference_mode.
BESIDE_INFERENCE = "backward_beside_inference"
MODES = {
    "value": value,
    "inference": inference,
    "in_place": in_place,
    "out": out,
    "functionalize": functionalized,
    "functionalize_in_place": functionalized_in_place,
    "functionalize_out": functionalized_out,
    "backward": backward,
    BESIDE_INFERENCE: backward,
    "in_place_backward": in_place_backward,
    "autocast": autocast,
    "checkpoint": checkpointed(use_reentrant=False),
    "checkpoint_reentrant": checkpointed(use_reentrant=True),
    "hook_contiguous": hooked(lambda t: t.contiguous(), lambda t: t),
    "hook_other_strides": hooked(other_strides, lambda t: t),
    "hook_unpacks_other_strides": hooked(lambda t: t, other_strides),
    "hook_clone": hooked(lambda t: t.clone(), lambda t: t),
    "hook_through_float64": hooked(through_float64, lambda saved: saved[0].to(saved[1])),
    "save_on_cpu": saved_on_cpu,
    "double_backward": double_backward,
    "func_vjp": func_vjp,
    "func_grad": func_grad,
    "func_jvp": func_jvp,
    "dual_numbers": dual_numbers,
    "func_jvp_of_vjp": func_jvp_of_vjp,
    "vmap": mapped,
    "vmap_in_place": mapped_in_place,
    "backward_of_vmap": backward_of_mapped,
    "vmap_of_grad": mapped_grad,
    "vmap_of_jvp": mapped_jvp,
    **{mode: compiled_alone(mode) for mode in COMPILED},
}
IN_PLACE = ("in_place", "functionalize_in_place", "in_place_backward", "vmap_in_place")
VMAP = tuple(name for name in MODES if "vmap" in name)
FORWARD_MODE = ("func_jvp", "dual_numbers", "func_jvp_of_vjp", "vmap_of_jvp")
SECOND_ORDER = ("double_backward", "func_jvp_of_vjp")
WITHOUT_GRADIENTS = (
    "value", "inference", "in_place", "out", "functionalize", "functionalize_in_place",
    "functionalize_out", "vmap", "vmap_in_place",
)  # fmt: skip
