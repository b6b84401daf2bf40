"""Models for test_backend.py, which compares several calls of each model with eager mode, in
training and inference."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from fusable_models import norm

torch.library.define("fastact_test::write", "(Tensor(a!) out, Tensor x) -> ()")


@torch.library.impl("fastact_test::write", "CompositeExplicitAutograd")
def _write(out, x):
    out.copy_(x + 7)


torch.library.register_fake("fastact_test::write", lambda out, x: None)


@dataclass
class Case:
    """`forward(model, x)` of a model with the members of Parts, and the expected report."""

    forward: Callable
    #: The replaced operations, once for each line and module; None if they do not matter.
    fused: tuple[str, ...] | None = None
    shape: tuple[int, ...] = (4, 8)
    #: Called as prepare(model, call) before each call.
    prepare: Callable = lambda model, call: None
    modes: tuple[bool, ...] = (False, True)  # training or not
    #: True if Dynamo breaks the graph.
    breaks: bool = False
    dtype: torch.dtype = torch.float32
    tolerance: float = 3e-5
    needs_grad: bool = True


class Parts(nn.Module):
    """The members that the cases use."""

    def __init__(self, forward):
        super().__init__()
        self.linear, self.up = nn.Linear(8, 8), nn.Linear(8, 8)
        self.both = nn.Linear(8, 16)
        self.conv = nn.Conv2d(8, 8, 1, bias=False)
        self.norm, self.norm2 = norm(8), norm(8, eps=1e-3)
        self.norm1 = norm(8, nn.BatchNorm1d)
        self.plain_norm = norm(8, affine=False)
        self.drop = nn.Dropout(0.5)
        self.act, self.in_place = nn.SELU(), nn.ReLU(inplace=True)
        self.w = nn.Parameter(torch.randn(8))
        self.prelu = nn.PReLU(8)
        self.register_buffer("ema", torch.zeros(8))
        self.register_buffer("n", torch.zeros(()))
        self.slope, self.kept, self.list = 0.1, None, []
        self.layers, self.extra = nn.ModuleList([nn.Linear(8, 8)]), None
        self.call = forward

    def forward(self, x):
        return self.call(self, x)


# ---- Side effects


def moving_average(m, x):
    m.ema *= 0.5
    m.ema += x.detach().mean(0)
    return F.relu(x) - m.ema


def decayed(m, x):
    m.ema.mul_(0.9).add_(x.detach().mean(0))
    return F.silu(m.linear(x)) * m.ema


def counter(m, x):
    m.n += 1
    return F.relu(x) * m.n


def keeps(m, x):
    m.kept = F.relu(x)
    m.list.append(m.kept)
    return m.kept + len(m.list)


def dictionary(m, x):
    try:
        found = {"y": F.mish(x), "kind": type(m.list).__name__}
        return found["y"] if found["kind"] == "list" else found["z"]
    except KeyError:
        return x


# ---- Contexts


def no_grad(m, x):
    with torch.no_grad():
        t = torch.sigmoid(m.w * x)
    return F.silu(x) * t


def set_grad(m, x):
    y = m.linear(x)
    with torch.set_grad_enabled(False):
        z = F.mish(y)
    return z + F.mish(y)


def autocast(m, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = m.linear(x)
        with torch.autocast("cpu", enabled=False):
            z = F.mish(m.linear(x.float()) + x)
        return F.silu(y) * m.up(x) + z + F.softplus(y)


def split_context(m, x):
    y = m.linear(x)
    with torch.no_grad():
        z = y + x
    return F.relu(z) * y


def checkpointed(m, x):
    return checkpoint(lambda v: F.silu(m.linear(v)) * m.drop(v), x, use_reentrant=False)


def inner_gradient(m, x):
    with torch.enable_grad():
        v = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(F.silu(v * m.w.detach()).sum(), v)
    return slope * F.relu(m.linear(x))


@torch.no_grad()
def decorated(m, x):
    return F.silu(m.linear(x)) * x


# ---- Decisions


def drawn(m, x):
    return F.relu(x) if torch.rand(()).item() < 0.5 else x * 0 + 7


def drawn_by_python(m, x):
    return F.silu(x + m.w) if random.random() < 0.5 else x * 0 + 7


def asks_for_state(m, x):
    y = F.silu(x) if torch.is_grad_enabled() else F.mish(x)
    return y + 1 if torch.is_autocast_enabled("cpu") else y


def childs_training(m, x):
    return F.mish(F.dropout(x, 0.5, m.drop.training))


def grows(m, x):
    for layer in m.layers:
        x = F.silu(layer(x)) * x
    return x if m.extra is None else m.extra(x)


def grow(m, call):
    if call == 1:
        torch.manual_seed(9)
        m.layers.append(nn.Linear(8, 8))
    if call == 2:
        m.extra = torch.tanh


# ---- Reads and writes


def alias(m, x):
    y = x.clone()
    z = y
    y += 1
    return torch.tanh(z)


def callers_tensor(m, x):
    x = x.detach()
    x += m.linear(x.clone())
    return F.relu(x) + x[:1]


def custom_write(m, x):
    y, r = m.linear(x).detach(), x.detach().clone()
    z = y + r
    torch.ops.fastact_test.write(r, y)
    return F.mish(z) * r


def custom_write_between(m, x):
    r = x.detach().clone()
    z = F.mish(m.linear(x) + r)
    torch.ops.fastact_test.write(r, r * 2)
    return z * r


def written_between(m, x):
    y = m.linear(x)
    z = x.clone()
    s = z + y
    z.mul_(2)
    return F.relu(s) + z


def view_sees_it(m, x):
    y = m.linear(x)
    v = y.view(-1)
    return F.relu_(y).mul(x).view(-1) + v


def shared(m, x):
    y = m.norm(x)
    return F.relu(y) + y


def name_after_writing(m, x):
    y = m.norm(m.conv(x))
    y += x
    m.in_place(y)
    return y * 2


def returns_old_name(m, x):
    y = m.norm(m.conv(x))
    y += x
    m.in_place(y)
    return y


def gate_is_written(m, x):
    y = m.up(x)
    y *= F.silu(m.linear(x))
    return y


# ---- What is fused


def block(m, x):
    y = m.in_place(m.norm(m.conv(x)))
    y = m.drop(m.norm2(m.conv(y)))
    y += x
    return m.in_place(y)


def residual_of_norms(m, x):
    return m.act(m.norm(m.conv(x)) + m.norm2(x)) * m.plain_norm(x).sigmoid()


def functional(m, x):
    y = F.leaky_relu(x + m.w, 0.2)
    n = m.norm1
    z = F.batch_norm(y, n.running_mean, n.running_var, n.weight, n.bias, eps=n.eps)
    return (z.tanh() + F.gelu(torch.add(y, z), approximate="tanh")) * F.elu(x + z, alpha=0.5)


def chunks(m, x):
    a, b = m.both(x).chunk(2, dim=-1)
    return F.silu(a) * b


def gate_first(m, x):
    b, a = torch.split(m.both(x), 8, -1)
    return torch.mul(b, F.silu(a))


def slices_in_place(m, x):
    y = m.both(x)
    z = F.silu(y[..., :8])
    z *= y[..., 8:]
    return z


def unbind(m, x):
    a, b = m.both(x).unflatten(-1, (2, 8)).unbind(-2)
    return torch.ops.aten.silu(a).mul(b)


def swiglu(m, x):
    y = m.both(x)
    gate, up = y[..., ::2].clamp(min=None, max=1.5), y[..., 1::2].clamp(min=-1.5, max=1.5)
    return (up + 1) * (gate * torch.sigmoid(gate * 1.702))


def compositions(m, x):
    new = 0.5 * x * (1.0 + torch.tanh(0.7978845608028654 * (x + 0.044715 * torch.pow(x, 3.0))))
    fast = 0.5 * x * (1.0 + torch.tanh(x * 0.7978845608 * (1.0 + 0.044715 * x * x)))
    erf = x * 0.5 * (1.0 + torch.erf(x / 2.0**0.5))
    return new + fast + erf + torch.square(F.relu(x)) + x * torch.sigmoid(1.702 * x)


def squeeze(m, x):
    y = m.act(m.norm(x))
    return y * torch.sigmoid(m.conv(F.adaptive_avg_pool2d(y, 1)))


def every_name(m, x):
    y = torch.relu(x) + x.sigmoid() + F.hardswish(x) + F.softsign(x) + F.tanhshrink(x)
    y = y + F.logsigmoid(x) + torch.celu(x) + F.hardtanh(x, -0.5) + F.relu6(x) + F.softplus(x)
    y = y + F.threshold(x, 0.1, 0.2) + torch.ops.aten.mish.default(x) + torch.ops.fastact.silu(x)
    return m.prelu(y) + torch.tanh_(y * 2) + F.hardsigmoid(y - x, inplace=True)


def prelus(m, x):
    y = x.detach() * 2
    with torch.no_grad():
        before = F.prelu(y, m.w)
    y += 1
    after = torch.prelu(weight=m.w, input=y) + y.prelu(m.w * m.w)
    return m.prelu(m.linear(x)) + F.prelu(x, m.w[:1]) + before + after


def shape_in_place(m, x):
    y = x.detach() * 2
    y.unsqueeze_(0)
    return F.mish(m.linear(x)) * y


def written_later(m, x):
    """The operators of these activations must not save what eager mode does not save."""
    y = m.linear(x)
    for act in (F.relu6, F.hardtanh, F.hardshrink, F.relu6):
        y = act(y * 1)
        y += x
    return y


def operand_written_later(m, x):
    h = torch.tanh(m.linear(x) + m.ema)
    m.ema.copy_(h.detach().mean(0))
    h = torch.tanh(h * 2 + m.ema[:1])
    m.ema.view(2, 4)[:1].add_(1)
    return h


def gate_operand_written_later(m, x):
    z, g = m.linear(x), m.up(x)
    y = torch.tanh(z) * g
    z += 1
    return y + torch.tanh(z) * g


def square_written_later(m, x):
    z = m.linear(x)
    y = F.relu(z).square() + F.tanhshrink(z)
    z += 1
    return y


def result_is_viewed(m, x):
    """Eager mode's result has the strides of the first operand."""
    y = m.up(x)[:, :4] * torch.tanh(m.linear(x)[:, :4].t())
    y.reshape(-1)[:3] = 7
    return y


def norm_is_viewed(m, x):
    """Eager mode's batch norm returns a contiguous tensor."""
    y = F.mish(m.norm1(m.linear(x).unflatten(0, (2, 2)).transpose(1, 2)))
    y.reshape(2, -1)[:, 0] = 7
    return y


class Scaled(torch.autograd.Function):
    """Has a gradient of its own."""

    @staticmethod
    def forward(ctx, x):
        return torch.tanh(x)

    @staticmethod
    def backward(ctx, g):
        return 10 * g


torch._dynamo.allow_in_graph(Scaled)


@torch.compiler.allow_in_graph
def scaled(x):
    return Scaled.apply(x)


@torch.compiler.allow_in_graph
def called_for_nothing(x):
    torch.relu(x)
    return x


def own_functions(m, x):
    return Scaled.apply(x) + scaled(m.linear(x)) + called_for_nothing(x)


def left(m, x):
    return F.glu(x, -1) + F.rrelu(x)[:, :4]


def rows(m, x):
    y = m.linear(x)
    y = F.softmax(y, 1) + y.softmax(0) + F.log_softmax(y, -1, dtype=torch.float64).float()
    y = (
        y
        + F.softmin(y, 1)
        + checkpoint(lambda z: F.softmin(input=z, dim=0), y, use_reentrant=False)
    )
    return y * torch.log_softmax(x, 0)


IMAGE = {"shape": (2, 8, 3, 4), "tolerance": 1e-4}
INFERENCE = {"modes": (False,)}
GATE, SLOPES = ("fused_silu (gate)",), (0.1, 0.1, 0.5, 0.7)


def set_slope(m, call):
    m.slope = SLOPES[call]


def switch_drop(m, call):
    m.drop.train(call % 2 == 0)


CASES = {
    "moving average": Case(moving_average, ("relu",)),
    "decayed average": Case(decayed, ("fused_silu (gate)",)),
    "counter": Case(counter, ("fused_relu (gate)",)),
    "keeps tensors": Case(keeps),
    "dictionary": Case(dictionary, ("mish",)),
    "no_grad": Case(no_grad, ("fused_silu (gate)", "sigmoid")),
    "set_grad_enabled": Case(set_grad, ("mish", "mish")),
    "autocast": Case(autocast, tolerance=0.05),
    "a sum in no_grad": Case(split_context, ("fused_relu (gate)",)),
    "checkpoint": Case(checkpointed, GATE),
    "autograd.grad": Case(inner_gradient, breaks=True),
    "decorated": Case(decorated, GATE, needs_grad=False),
    "torch.rand decides": Case(drawn, breaks=True),
    "random.random decides": Case(drawn_by_python, breaks=True),
    "asks for the state": Case(asks_for_state, ("silu",), modes=(True,)),
    "a child's training": Case(childs_training, ("mish",), prepare=switch_drop),
    "slope changes": Case(lambda m, x: F.leaky_relu(x, m.slope) + F.mish(x), None,
                          prepare=set_slope),
    "grows": Case(grows, None, prepare=grow),
    "alias": Case(alias, ("tanh",)),
    "caller's tensor": Case(callers_tensor, ("relu",), needs_grad=False),
    "custom write": Case(custom_write, needs_grad=False),
    "custom write between": Case(custom_write_between, ("fused_mish (residual)",)),
    "written between": Case(written_between, ("relu",)),
    "a view sees it": Case(view_sees_it, ("relu",)),
    "shared": Case(shared, ("relu",), **IMAGE),
    "name after writing": Case(name_after_writing, ("fused_relu (batch norm, residual)",),
                               **IMAGE | INFERENCE),
    "an old name is returned": Case(returns_old_name, ("fused_relu (batch norm, residual)",),
                                    **IMAGE | INFERENCE),
    "gate is written": Case(gate_is_written, ("silu",)),
    "block": Case(block, ("fused_relu (batch norm)", "fused_relu (batch norm, residual)"),
                  **IMAGE | INFERENCE),
    "block in training": Case(block, ("fused_relu (residual)", "relu"), modes=(True,), **IMAGE),
    "two norms": Case(residual_of_norms, ("fused_selu (batch norm, residual, gate)",
                                          "fused_sigmoid (batch norm)"), **IMAGE | INFERENCE),
    "functions": Case(functional, ("fused_elu (residual, gate)", "fused_gelu_tanh (residual)",
                                   "fused_leaky_relu (residual)", "tanh")),
    "chunks": Case(chunks, GATE),
    "gate first": Case(gate_first, GATE),
    "slices in place": Case(slices_in_place, GATE),
    "unbind": Case(unbind, GATE),
    "clamped swiglu": Case(swiglu, ("clamped_swiglu",)),
    "compositions": Case(compositions, ("gelu", "gelu_tanh", "gelu_tanh", "quick_gelu",
                                        "squared_relu")),
    "squeeze": Case(squeeze, ("fused_selu (batch norm)", "sigmoid"), **IMAGE | INFERENCE),
    "every name": Case(every_name),
    "prelu": Case(prelus, ("prelu",) * 4),
    "rows": Case(rows, ("log_softmax",) * 2 + ("softmax",) * 3),
    "a shape changes in place": Case(shape_in_place, ()),
    "made in the graph": Case(lambda m, x: F.mish(m.linear(x)) + torch.tensor(2.0), ("mish",)),
    "written later": Case(written_later, ("hardshrink", "hardtanh", "relu6")),
    "an operand is written later": Case(operand_written_later, ("tanh", "tanh")),
    "a slope of a fused operator changes": Case(
        lambda m, x: F.leaky_relu(m.linear(x), m.slope) * m.up(x), ("fused_leaky_relu (gate)",),
        prepare=set_slope, needs_grad=False),
    "a gate's operand is written later": Case(gate_operand_written_later,
                                              ("fused_tanh (gate)", "tanh")),
    "a square's operand is written later": Case(square_written_later, ("relu",)),
    "a result is viewed": Case(result_is_viewed, ("tanh",)),
    "a norm is viewed": Case(norm_is_viewed, ("mish",), **INFERENCE),
    "functions of the program": Case(own_functions, ()),
    "left": Case(left, ()),
    "bfloat16": Case(chunks, GATE, dtype=torch.bfloat16, tolerance=0.05),
    "float64": Case(block, None, dtype=torch.float64, **IMAGE | INFERENCE),
    "integers": Case(lambda m, x: F.relu(x.int()), (), needs_grad=False),
    "complex": Case(lambda m, x: torch.tanh(torch.complex(x, x)).abs(), ()),
    "sparse": Case(lambda m, x: torch.relu(x.detach().to_sparse()).to_dense(), None,
                   needs_grad=False, breaks=True),
}  # fmt: skip


def observed(model, function, x, needs_grad):
    """Returns the results of a call and what it changes. Removes the gradients."""
    x = x.clone().requires_grad_(needs_grad)
    seeded()
    y = function(x)
    if y.requires_grad:
        y.float().square().sum().backward()
    grads = [p.grad for p in model.parameters()]
    model.zero_grad()
    state = {name: buffer.clone() for name, buffer in model.named_buffers()}
    return {"y": y.detach(), "x": x.detach(), "x.grad": x.grad, "grads": grads, **state}


def seeded():
    torch.manual_seed(3)
    random.seed(3)
