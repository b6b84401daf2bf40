"""fastact.fuse_: batch norm, additions, activations and gates of a model in fused operators."""

import copy
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import fastact
from fastact import _fuse
from support import assert_same_bits, values
from test_replace import Asking, Branching, Constant, calls

fused = torch.ops.fastact


@pytest.fixture(autouse=True)
def every_form(monkeypatch):
    """Also where it was not faster on a CPU: what is fused does not depend on the machine."""
    monkeypatch.setattr(_fuse, "_is_faster", lambda device, name: True)
    monkeypatch.setattr(_fuse, "_takes_norm_alone", lambda device: False)
    monkeypatch.setattr(_fuse, "FEWEST_ON_CPU", 0)


def norm(channels, kind=nn.BatchNorm2d, **settings):
    """Batch norm with statistics, as after training."""
    made = kind(channels, **settings)
    made.running_mean.copy_(values(channels))
    made.running_var.copy_(values(channels).abs() + 0.1)
    if made.affine:
        nn.init.normal_(made.weight)
        nn.init.normal_(made.bias)
    return made


def affine(made):
    scale = made.weight * torch.rsqrt(made.running_var + made.eps)
    return scale, torch.addcmul(made.bias, made.running_mean, scale, value=-1)


class Block(nn.Module):
    """As torchvision's: one activation in place for both, and an addition in place."""

    def __init__(self, act=None, downsample=False):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(4, 4, 3, padding=1, bias=False), norm(4)
        self.conv2, self.norm2 = nn.Conv2d(4, 4, 3, padding=1, bias=False), norm(4)
        self.act = act or nn.ReLU(inplace=True)
        self.downsample = nn.Sequential(nn.Conv2d(4, 4, 1), norm(4)) if downsample else None

    def forward(self, x):
        identity = x
        out = self.norm2(self.conv2(self.act(self.norm1(self.conv1(x)))))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.act(out)

    def by_hand(self, x):
        name = type(self.act).__name__.lower()
        call = getattr(fused, f"fused_{name}")
        y = call(self.conv1(x), *affine(self.norm1), dim=1)
        identity = x if self.downsample is None else self.downsample(x)
        return call(self.conv2(y), *affine(self.norm2), identity, dim=1)


class Gated(nn.Module):
    """A gated unit: `way` says how it is written."""

    def __init__(self, way):
        super().__init__()
        self.both, self.way = nn.Linear(8, 16), way

    def forward(self, x):
        y = self.both(x)
        if self.way == "chunk":
            a, b = y.chunk(2, dim=-1)
            return F.silu(a) * b
        if self.way == "split, the gate first":
            b, a = torch.split(y, 8, -1)
            return torch.mul(b, F.silu(a))
        if self.way == "slices, in place":
            z = F.silu(y[..., :8])
            z *= y[..., 8:]
            return z
        a, b = y.unflatten(-1, (2, 8)).unbind(-2)
        return F.silu(a).mul(b)

    def by_hand(self, x):
        a, b = self.both(x).chunk(2, -1)
        if self.way == "split, the gate first":
            a, b = b, a
        return fused.fused_silu(a, gate=b)


class Functional(nn.Module):
    """Functions and methods; a bias along the last dimension, and parameters."""

    def __init__(self):
        super().__init__()
        self.bias, self.norm = nn.Parameter(torch.randn(6)), norm(6, nn.BatchNorm1d)

    def forward(self, x):
        y = F.leaky_relu(x + self.bias, 0.2)
        n = self.norm
        z = F.batch_norm(y, n.running_mean, n.running_var, n.weight, n.bias, eps=n.eps)
        return (z.tanh() + F.gelu(torch.add(y, z), approximate="tanh")) * F.elu(x + z, alpha=0.5)

    def by_hand(self, x):
        n = self.norm
        y = fused.fused_leaky_relu(x, bias=self.bias, negative_slope=0.2)
        z = F.batch_norm(y, n.running_mean, n.running_var, n.weight, n.bias, eps=n.eps)
        left = z.tanh() + fused.fused_gelu_tanh(y, residual=z)
        return fused.fused_elu(x, residual=z, gate=left, alpha=0.5)


SITES = [
    (Block(), (2, 4, 5, 5), {"act": "fused_relu (norm1), fused_relu (norm2, residual)"}),
    (Block(nn.SiLU(), downsample=True), (2, 4, 5, 5),
     {"act": "fused_silu (norm1), fused_silu (norm2, residual)"}),
    (Functional(), (3, 6),
     {"": "fused_leaky_relu (residual), fused_gelu_tanh (residual), fused_elu (residual, gate)"}),
    *((Gated(way), (3, 8), {"": "fused_silu (gate)"})
      for way in ("chunk", "split, the gate first", "slices, in place", "unbind")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("made", "shape", "expected"),
    SITES,
    ids=[getattr(m, "way", type(m).__name__) for m, *_ in SITES],
)
@pytest.mark.parametrize("with_sample", (False, True))
def test_what_is_fused(device, made, shape, expected, with_sample):
    model = copy.deepcopy(made).eval().to(device)
    x = values(*shape, device=device)
    own, state = model(x), copy.deepcopy(model.state_dict())
    by_hand = model.by_hand(x)
    report = fastact.fuse_(model, x if with_sample else None)
    assert report.replaced == expected
    assert_same_bits(model(x), by_hand)
    torch.testing.assert_close(model(x), own, rtol=1e-5, atol=1e-5)
    assert model.state_dict().keys() == state.keys()
    number = sum(text.count("fused_") for text in expected.values())
    with torch.no_grad():
        names = calls(model, x) if device == "cpu" else []
    assert device != "cpu" or sum(n.startswith("_fused_") for n in names) == number

    assert isinstance(model, type(made)) and fastact.restore_(model) == 1
    assert type(model) is type(made) and vars(model).keys() == vars(made).keys()
    assert_same_bits(model(x), own)


@pytest.mark.parametrize(
    ("made", "shape"),
    [
        (norm(6, nn.BatchNorm1d), (4, 6)),
        (norm(6, nn.BatchNorm1d, affine=False), (4, 6, 3)),
        (norm(6, nn.BatchNorm2d, eps=0.3), (2, 6, 3, 4)),
        (norm(6, nn.BatchNorm3d), (2, 6, 2, 3, 1)),
        (norm(6, nn.SyncBatchNorm), (2, 6, 3, 4)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_batch_norms(device, dtype, made, shape):
    """Against the same model in float64; beside it another epsilon."""
    if isinstance(made, nn.SyncBatchNorm) and device == "cpu":
        pytest.skip("SyncBatchNorm takes GPU tensors alone")
    model = nn.Sequential(made, nn.Mish(), norm(6, type(made), eps=1e-3), nn.ReLU())
    model = model.eval().to(device, dtype)
    x = values(*shape, dtype=dtype, device=device)
    exact = copy.deepcopy(model).double()(x.double())
    own = model(x)
    report = fastact.fuse_(model, x)
    assert report.replaced == {"1": "fused_mish (0)", "3": "fused_relu (2)"}
    error = (model(x).double() - exact).abs().max()
    assert model(x).dtype == dtype and error <= 2 * (own.double() - exact).abs().max() + 1e-6


def test_float32_statistics_beside_16_bits(device, half):
    model = nn.Sequential(norm(6), nn.ReLU()).eval().to(device)
    x = values(2, 6, 3, 4, dtype=half, device=device)
    own = model(x)
    fastact.fuse_(model, x)
    assert_same_bits(model(x), fused.fused_relu(x, *affine(model[0]), dim=1))
    torch.testing.assert_close(model(x), own)


class Dropping(nn.Module):
    def __init__(self, drop):
        super().__init__()
        self.norm, self.drop, self.act = norm(4), drop, nn.SELU()

    def forward(self, x):
        return self.act(self.drop(self.norm(x)))


class Function(nn.Module):
    def __init__(self, function, **settings):
        super().__init__()
        self.function, self.settings = function, settings

    def forward(self, x):
        return self.function(x, **self.settings, training=self.training)


def stochastic_depth():
    return pytest.importorskip("torchvision.ops").StochasticDepth(0.9, "row")


DROPS = {
    **{name: getattr(nn, name) for name in nn.modules.dropout.__all__},
    **{
        name: lambda name=name: Function(getattr(F, name), p=0.9)
        for name in ("dropout", "dropout2d", "alpha_dropout", "feature_alpha_dropout")
    },
    "in place": lambda: Function(F.dropout, p=0.9, inplace=True),
    "stochastic depth": stochastic_depth,
}


@pytest.mark.parametrize("which", DROPS)
def test_dropout_stands_in_no_ones_way(which):
    x = values(4, 4, 3) if which == "Dropout1d" else values(4, 4, 5, 5)
    model = Dropping(DROPS[which]()).eval()
    if which == "Dropout1d":
        model.norm = norm(4, nn.BatchNorm1d).eval()
    expected = model(x)
    assert fastact.fuse_(model, x).replaced == {"act": "fused_selu (norm)"}
    torch.testing.assert_close(model(x), expected)
    assert_same_bits(model(x), fused.fused_selu(x, *affine(model.norm), dim=1))
    model.drop.train()
    torch.manual_seed(0)
    found = model(x)
    assert not torch.allclose(found, expected)
    torch.manual_seed(0)
    assert_same_bits(found, model.act(model.drop(model.norm(x))))


def test_dropout_that_also_drops_at_inference_stays():
    """As it does by default."""

    class Always(nn.Module):
        def forward(self, x):
            return F.dropout(x, 0.9)

    model, x = Dropping(Always()).eval(), values(4, 4, 5, 5)
    report = fastact.fuse_(model)
    assert report.replaced == {} and set(report.left) == {"norm"}
    assert (model(x) == 0).any()


# ---- Weights that change later


def other_state(model):
    return {k: torch.rand_like(v) + 0.5 if v.is_floating_point() else v
            for k, v in model.state_dict().items()}  # fmt: skip


def edit_data(model, state):
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        tensor.data.copy_(state[name])


def edit_in_place(model, state):
    with torch.no_grad():
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            tensor.copy_(state[name])


def new_parameters(model, state):
    for module in model.modules():
        for name in list(module._parameters):
            module._parameters[name] = None
    model.load_state_dict({k: v for k, v in state.items() if "running" in k}, strict=False)
    for name, tensor in state.items():
        if not any(word in name for word in ("running", "num_batches")):
            owner, _, last = name.rpartition(".")
            setattr(model.get_submodule(owner), last, nn.Parameter(tensor))


@pytest.mark.parametrize(
    "change",
    (
        lambda model, state: model.load_state_dict(state),
        lambda model, state: model.load_state_dict(state, assign=True),
        edit_data,
        edit_in_place,
        new_parameters,
    ),
    ids=("load_state_dict", "assign", "data", "in place", "new parameters"),
)
def test_weights_that_are_written_later_are_used(change):
    """Also after a call, which could have kept something."""
    model = nn.Sequential(Block(), norm(4), nn.SELU()).eval()
    theirs, x, state = copy.deepcopy(model), values(2, 4, 5, 5), other_state(model)
    fastact.fuse_(model, x)
    before = model(x)
    for m in (model, theirs):
        change(m, copy.deepcopy(state))
    assert not torch.allclose(model(x), before)
    torch.testing.assert_close(model(x), theirs(x))
    assert model.state_dict().keys() == theirs.state_dict().keys()
    torch.testing.assert_close(model.double()(x.double()), theirs.double()(x.double()))


def test_gradients_at_inference(device):
    model = nn.Sequential(Block(), norm(4), nn.SELU()).eval().to(device)
    theirs, x = copy.deepcopy(model), values(2, 4, 5, 5, device=device)
    fastact.fuse_(model, x)
    for m in (model, theirs):
        m(x).square().sum().backward()
    for p, q in zip(model.parameters(), theirs.parameters()):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-4)


# ---- When its own forward runs


def count(model, x):
    return sum(n.startswith("_fused_") for n in calls(model, x))


def test_training_mode_runs_its_own_forward():
    model = nn.Sequential(Block(), norm(4), nn.SELU()).eval()
    theirs, x = copy.deepcopy(model), values(2, 4, 5, 5)
    fastact.fuse_(model)
    assert count(model, x) == 3
    for m in (model, theirs):
        m.train()
    assert count(model, x) == 0
    theirs(x)
    assert_same_bits(model[1].running_mean, theirs[1].running_mean)
    assert_same_bits(model(x), theirs(x))
    assert count(model.eval(), x) == 3
    model[0].norm1.train()  # one batch norm alone
    assert count(model, x) == 0


def test_hooks_are_called():
    model, x, seen = nn.Sequential(Block(), norm(4), nn.SELU()).eval(), values(2, 4, 5, 5), []
    fastact.fuse_(model)
    for name in ("0", "0.norm1", "0.act", "1"):
        handle = model.get_submodule(name).register_forward_hook(lambda *_, n=name: seen.append(n))
        model(x)
        assert name in seen
        handle.remove()
    assert count(model, x) == 3


@pytest.mark.parametrize("kind", ("forward", "forward_pre", "full_backward", "full_backward_pre"))
def test_a_hook_of_a_module_that_stays_a_call_is_called(kind):
    """And what is fused stays so."""
    model, x, seen = nn.Sequential(Block(), norm(4), nn.SELU()).eval(), values(2, 4, 5, 5), []
    x.requires_grad_()
    fastact.fuse_(model)
    expected = model(x)
    getattr(model[0].conv1, f"register_{kind}_hook")(lambda *_: seen.append(kind))
    found = model(x)
    assert_same_bits(found, expected)
    found.sum().backward()
    assert seen == [kind] and count(model, x) == 3


def test_hooks_of_all_modules_are_called():
    model, x, seen = nn.Sequential(Block(), norm(4), nn.SELU()).eval(), values(2, 4, 5, 5), []
    fastact.fuse_(model)
    hook = nn.modules.module.register_module_forward_hook(lambda m, *_: seen.append(m))
    model(x)
    hook.remove()
    assert set(seen) == {m for m in model.modules() if m is not model[0].downsample}
    assert count(model, x) == 3


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


class Whole(nn.Module):
    """Of each kind of module one: in place of whose call something is, and whose call stays."""

    def __init__(self):
        super().__init__()
        self.stem, self.drop = nn.Conv2d(4, 4, 1), nn.Dropout()
        self.blocks = nn.ModuleList([Block(nn.SELU()), Block()])
        self.again = self.stem
        self.last = nn.Sequential(norm(4), nn.SELU())
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        y = self.drop(self.stem(x))
        for block in self.blocks:
            y = block(y)
        y = self.last(self.again(y))
        return y if self.head is None else self.head(y)


def both_whole():
    model = Whole().eval()
    theirs, x = copy.deepcopy(model), values(2, 4, 5, 5)
    fastact.fuse_(model, x)
    assert count(model, x) == 5
    return model, theirs, x


EXCHANGES = {
    "head": lambda: nn.Linear(5, 7),
    "head, of another class": nn.Identity,
    "head, of a subclass": lambda: Doubled(5, 3),
    "head, to none": lambda: None,
    "blocks.0.conv1": lambda: nn.Conv2d(4, 4, 5, padding=2),
    "stem": lambda: nn.Conv2d(4, 4, 1),  # also called by another name
    "again": lambda: nn.Conv2d(4, 4, 1),
    "drop": nn.Tanh,
    "blocks.0.norm1": lambda: norm(4),
    "blocks.1.act": nn.ReLU6,
    "blocks.1": lambda: Block(downsample=True),
    "last": lambda: nn.Sequential(norm(4), nn.Tanh()),
    "last.2": nn.Tanh,  # one more
}
STAY_FUSED = {"head", "head, of another class", "head, of a subclass", "blocks.0.conv1"}


@pytest.mark.parametrize("which", EXCHANGES)
def test_modules_that_are_exchanged_later_are_used(which):
    model, theirs, x = both_whole()
    torch.manual_seed(1)
    new = EXCHANGES[which]()
    new = new and new.eval()
    owner, _, name = which.partition(",")[0].rpartition(".")
    for m in (model, theirs):
        m.get_submodule(owner).register_module(name, copy.deepcopy(new))
    torch.testing.assert_close(model(x), theirs(x))
    assert count(model, x) == (5 if which in STAY_FUSED else 0)


PLACES = ("drop", "blocks.0", "blocks.0.norm1", "blocks.1.act", "last", "head", "stem")


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("before", (False, True))
def test_a_forward_that_is_set_on_an_object_is_called(name, before):
    model, x = Whole().eval(), values(2, 4, 5, 5)
    theirs = copy.deepcopy(model)
    if not before:
        fastact.fuse_(model, x)
    for m in (model, theirs):
        part = m.get_submodule(name)
        part.forward = lambda y, forward=part.forward: forward(y) + 1
    if before:
        fastact.fuse_(model, x)
    torch.testing.assert_close(model(x), theirs(x))
    assert (count(model, x) > 0) == (before or name in ("head", "stem"))


def test_a_replica_of_data_parallel_runs_its_own_forward():
    """It shares attributes with its original, and so the modules that are looked at."""
    model, _, x = both_whole()
    expected = model(x)
    replicas = {m: m._replicate_for_data_parallel() for m in model.modules()}
    for module, replica in replicas.items():
        for name, child in module._modules.items():
            replica._modules[name] = child and replicas[child]
        for name, parameter in module._parameters.items():
            setattr(replica, name, None if parameter is None else parameter.detach() * 2)
    copied = replicas[model]
    doubled = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in doubled.parameters():
            parameter.mul_(2)
    torch.testing.assert_close(copied(x), doubled(x), rtol=1e-4, atol=1e-4)
    assert count(copied, x) == 0
    assert_same_bits(model(x), expected)


def test_a_shallow_copy_calls_its_own_modules():
    model, theirs, x = both_whole()
    copied, expected = copy.copy(model), copy.copy(theirs)
    for m in (copied, expected):
        m._modules = dict(m._modules, stem=nn.Sequential(m.stem, nn.SELU()))
    torch.testing.assert_close(copied(x), expected(x))
    assert count(copied, x) == 0 and count(model, x) == 5


@pytest.mark.parametrize("kind", (nn.Conv2d, nn.Linear))
def test_a_forward_that_is_set_on_a_class_is_called(monkeypatch, kind):
    model, theirs, x = both_whole()
    forward = kind.forward
    monkeypatch.setattr(kind, "forward", lambda self, y: forward(self, y) + 1)
    torch.testing.assert_close(model(x), theirs(x))
    assert count(model, x) == 5


def test_who_replaces_modules_calls_sees_the_leaves(monkeypatch):
    model, _, x = both_whole()
    call, seen = nn.Module.__call__, []

    def record(self, *args, **kwargs):
        seen.append(self)
        return call(self, *args, **kwargs)

    monkeypatch.setattr(nn.Module, "__call__", record)
    model(x)
    assert model.stem in seen and model.head in seen


@pytest.mark.parametrize("name", ("head", "blocks.0.conv1", "blocks.0.norm1", "last.0"))
def test_parametrizations_are_computed(name):
    class Twice(nn.Module):
        def forward(self, weight):
            return weight * 2

    model, theirs, x = both_whole()
    for m in (model, theirs):
        nn.utils.parametrize.register_parametrization(m.get_submodule(name), "weight", Twice())
    torch.testing.assert_close(model(x), theirs(x))
    assert count(model, x) == 5
    for m in (model, theirs):
        nn.utils.parametrize.remove_parametrizations(m.get_submodule(name), "weight")
    torch.testing.assert_close(model(x), theirs(x))


def test_functional_call():
    model, x = (
        nn.Sequential(Block(), norm(4), nn.SELU(), nn.Linear(5, 3)).eval(),
        values(2, 4, 5, 5),
    )
    theirs = copy.deepcopy(model)
    fastact.fuse_(model, x)
    state, before = other_state(model), model(x)
    found = torch.func.functional_call(model, state, (x,))
    torch.testing.assert_close(found, torch.func.functional_call(theirs, state, (x,)))
    assert_same_bits(model(x), before)

    def loss(state, m):
        return torch.func.functional_call(m, state, (x,)).square().sum()

    parameters = dict(model.named_parameters())
    for ours, expected in zip(*(torch.func.grad(loss)(parameters, m).values()
                                for m in (model, theirs))):  # fmt: skip
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)


def test_autocast():
    model, theirs, x = both_whole()
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = model(x), theirs(x)
        assert count(model, x) > 0
    assert found.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.1)


def set_tensors(made):
    """In place of parameters, as a sharded model has them for a while."""
    for name, parameter in list(made.named_parameters()):
        delattr(made, name)
        setattr(made, name, parameter.detach() * 2)


def set_weight(made):
    weight = made.weight.detach()
    del made.weight
    made.weight = weight * 2


@pytest.mark.parametrize("change", (None, set_tensors, set_weight))
@pytest.mark.parametrize(
    ("made", "shape"),
    [
        (nn.Conv1d(6, 6, 2, padding="same", dilation=2), (2, 6, 5)),
        (nn.Conv2d(6, 6, 3, padding=1, padding_mode="reflect"), (2, 6, 4, 4)),
        (nn.Conv2d(6, 6, 3, padding=2, groups=3, stride=(1, 2), bias=False), (2, 6, 4, 4)),
        (nn.Conv3d(6, 6, 1, bias=False), (2, 6, 3, 2, 2)),
        (nn.ConvTranspose2d(6, 6, 2), (2, 6, 3, 3)),
        (nn.Linear(6, 6), (2, 6)),
        (nn.Linear(6, 6, bias=False), (2, 6)),
        (nn.LayerNorm(6), (2, 6)),
        (norm(6, nn.BatchNorm1d, eps=0.3), (2, 6)),
        (norm(6), (2, 6, 3, 3)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_what_stays_a_call(made, shape, change):
    kind = getattr(nn, f"BatchNorm{max(len(shape) - 2, 1)}d")
    model = nn.Sequential(copy.deepcopy(made), norm(6, kind), nn.SELU()).eval()
    theirs, x = copy.deepcopy(model), values(*shape)
    fastact.fuse_(model, x)
    for m in (model, theirs) if change else ():
        change(m[0])
    torch.testing.assert_close(model(x), theirs(x))
    assert count(model, x) == 1


def test_a_batch_norm_that_stays_a_call_may_train():
    kinds = (norm(4), norm(4, affine=False), nn.BatchNorm2d(4, track_running_stats=False))
    model, x = nn.Sequential(*kinds, norm(4), nn.SELU()).eval(), values(2, 4, 3, 3)
    theirs = copy.deepcopy(model)
    assert fastact.fuse_(model, x).replaced == {"4": "fused_selu (3)"}
    torch.testing.assert_close(model(x), theirs(x))
    for m in (model, theirs):
        m[0].train()
    torch.testing.assert_close(model(x), theirs(x))
    assert count(model, x) == 1
    theirs(x)
    assert_same_bits(model[0].running_mean, theirs[0].running_mean)
    with pytest.raises(ValueError, match="expected 4D input"):
        model.eval()(x[0])


def test_a_module_that_is_compiled_later_runs_compiled(monkeypatch):
    model, theirs, x = both_whole()
    seen = []
    monkeypatch.setattr(torch, "compile", lambda call: lambda y: seen.append(y) or call(y))
    model.head.compile()
    torch.testing.assert_close(model(x), theirs(x))
    assert len(seen) == 1 and count(model, x) == 5


def python_calls(function):
    number = 0

    def count(frame, event, argument):
        nonlocal number
        number += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(before)
    return number


def test_a_fused_model_takes_fewer_calls_of_python_functions():
    """Half as many: they are what small images wait for."""
    model, theirs, x = both_whole()
    with torch.inference_mode():
        ours, expected = (python_calls(lambda m=m: m(x)) for m in (model, theirs))
    assert ours < 0.5 * expected, (ours, expected)


def test_a_copy_has_its_own_modules():
    model, x = nn.Sequential(norm(4), nn.SELU()).eval(), values(2, 4, 5, 5)
    fastact.fuse_(model)
    copied = copy.deepcopy(model)
    copied[0].weight.data.fill_(3)
    copied[0].train()
    assert count(model, x) == 1 and count(copied, x) == 0
    copied.eval()
    assert count(copied, x) == 1
    assert_same_bits(copied(x), fused.fused_selu(x, *affine(copied[0]), dim=1))


# ---- What is left


class Written(nn.Module):
    """`way` says what writes to a tensor."""

    def __init__(self, way):
        super().__init__()
        self.conv, self.norm, self.way = nn.Conv2d(4, 4, 1), norm(4), way

    def forward(self, x):
        y = self.conv(x)
        if self.way == "the caller's tensor":
            x += y
            return F.relu(x) + x[:1]
        if self.way == "also elsewhere":  # something is fused, and the rest stays what it was
            n = before = x.shape[1]
            n += 1
            x += 1
            z = y
            z *= F.sigmoid(x)
            return F.relu(self.norm(y)) * before + n + z
        if self.way == "in between":
            z = y + x
            x.mul_(2)
            return F.relu(z) + x
        if self.way == "batch norm has two users":
            z = self.norm(y)
            return F.relu(z) + z
        if self.way == "a view":
            v = y.view(-1)
            F.relu_(y).mul(x)
            return v
        if self.way == "flag":
            v = y.flatten()
            z = F.silu(y, True) * x
            return z.flatten() + v
        z = torch.mul(F.relu(y), 3)  # numbers
        return F.relu(torch.add(y, z, alpha=2)) + F.relu(y + 1) + F.relu(y + x.shape[0])


WAYS = (
    "the caller's tensor",
    "also elsewhere",
    "in between",
    "batch norm has two users",
    "a view",
    "flag",
    "numbers",
)


@pytest.mark.parametrize("way", WAYS)
def test_order_of_reads_and_writes_stays(way):
    model, x = Written(way).eval(), values(2, 4, 3, 3)
    first, second = x.clone(), x.clone()
    with torch.no_grad():
        expected = model(first)
        report = fastact.fuse_(model, x)
        assert report.replaced == ({"": "fused_relu (norm)"} if way == "also elsewhere" else {})
        torch.testing.assert_close(model(second), expected)
    assert_same_bits(first, second)


def test_the_batch_norm_of_a_residual_that_is_written_stays_apart():
    """Where the whole cannot be fused, a part can be."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.relu = norm(4), nn.ReLU()

        def forward(self, x):
            y = self.norm(x)
            z = x.clone()
            z.add_(1)
            return self.relu(y + z)

    model, x = Model().eval(), values(2, 4, 3, 3)
    expected = model(x)
    report = fastact.fuse_(model, x)
    assert report.replaced == {"relu": "fused_relu (residual)"}
    assert report.left == {"norm": "a tensor is written in between"}
    torch.testing.assert_close(model(x), expected)


def training_norm():
    model = nn.Sequential(norm(4), nn.ReLU()).eval()
    model[0].train()
    return model


def hooked_norm():
    model = nn.Sequential(norm(4), nn.ReLU()).eval()
    model[0].register_forward_hook(lambda *_: None)
    return model


@pytest.mark.parametrize(
    ("module", "where", "why"),
    [
        (nn.Sequential(norm(4), nn.PReLU()).eval(), "0",
         "no activation with a fused operator follows it"),
        (nn.Sequential(norm(4), nn.Softmax(1)).eval(), "0", "no activation with a fused operator"),
        (training_norm(), "0", "it computes the statistics of a batch"),
        (nn.Sequential(nn.BatchNorm2d(4, track_running_stats=False), nn.ReLU()).eval(), "0",
         "it computes the statistics of a batch"),
        (hooked_norm(), "0", "it has hooks"),
        (nn.Sequential(nn.Sequential(nn.Flatten(), nn.ReLU())), "", "it is in training mode"),
        (nn.Sequential(Asking(), nn.Flatten()).eval(), "0", "it asks for the type of a value"),
        (nn.Sequential(Branching()).eval(), "0", "it cannot be traced"),
        (nn.Sequential(Constant()).eval(), "0", "its forward makes tensors"),
        (nn.Sequential(torch.jit.script(nn.Sequential(norm(4), nn.ReLU()))).eval(), "0",
         "it is a graph already"),
    ],
    ids=lambda value: "",
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_what_is_left_is_said(module, where, why):
    x = values(2, 4, 3, 3)
    expected = copy.deepcopy(module)(x)
    report = fastact.fuse_(module)
    assert report.replaced == {} and why in report.left[where], report
    torch.testing.assert_close(module(x), expected)


class Picky(nn.Module):
    """Its own forward cannot be traced, what is in it can."""

    def __init__(self):
        super().__init__()
        self.block = Block()
        self.last = nn.Sequential(norm(4), nn.SELU())

    def forward(self, x, mask=None):
        y = self.block(x)
        return self.last(y) if y.sum() > 0 else y


@pytest.mark.parametrize("wrap", (lambda m: m, lambda m: nn.Sequential(m, nn.Flatten())))
def test_parts_of_what_cannot_be_traced(wrap):
    model, x = wrap(Picky()).eval(), values(2, 4, 3, 3)
    with torch.no_grad():
        expected = model(x)
        report = fastact.fuse_(model, {"x": x} if isinstance(model, Picky) else (x,))
        prefix = "" if isinstance(model, Picky) else "0."
        assert set(report.replaced) == {f"{prefix}block.act", f"{prefix}last.1"}
        reason = report.left[prefix[:-1]]
        assert "cannot be traced" in reason or "optional arguments" in reason
        torch.testing.assert_close(model(x), expected)
    assert fastact.restore_(model) == 2


class SqueezeExcitation(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.act, self.fc, self.gate = (
            norm(4),
            nn.ReLU(),
            nn.Conv2d(4, 4, 1),
            nn.Sigmoid(),
        )

    def forward(self, x):
        x = self.act(self.norm(x))
        return x * self.gate(self.fc(F.adaptive_avg_pool2d(x, 1)))


def test_an_activation_of_a_smaller_tensor_is_not_computed_of_a_larger_one():
    model, x = SqueezeExcitation().eval(), values(2, 4, 3, 3)
    expected = model(x)
    assert set(fastact.fuse_(model).replaced) == {"act", "gate"}  # shapes are not known
    assert count(model, x) == 1
    torch.testing.assert_close(model(x), expected)
    fastact.restore_(model)
    report = fastact.fuse_(model, x)
    assert set(report.replaced) == {"act"}
    assert report.left["gate"] == "its activation is computed of a smaller tensor, which broadcasts"
    torch.testing.assert_close(model(x), expected)


class InPlace(nn.Module):
    """Its result has the type and the shape of what is written to."""

    def __init__(self):
        super().__init__()
        self.norm, self.conv = norm(4), nn.Conv2d(4, 4, 1)

    def forward(self, x, y):
        a = self.norm(x)
        a += y
        b = F.selu(a).mul_(y)
        c = self.conv(x)
        c *= F.mish(b)
        return F.relu(b.add_(x)) + c


def test_operations_in_place_keep_type_and_shape(half):
    model, x = InPlace().eval(), values(2, 4, 3, 3)
    theirs, mixed = copy.deepcopy(model).to(half), (x.to(half), x)
    expected = theirs(*mixed)
    report = fastact.fuse_(model.to(half))
    assert report.replaced == {"": "fused_selu (norm, residual, gate)"}
    assert expected.dtype == half == model(*mixed).dtype
    torch.testing.assert_close(model(*mixed), expected)
    same = (x.to(half), x.to(half))
    torch.testing.assert_close(model(*same), theirs(*same), rtol=0.05, atol=0.05)
    small = x[:1].to(half)
    for m in (model, theirs):
        with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
            m(small, same[1])


def test_where_the_operators_do_not_take_the_tensors_pytorchs_run():
    class Sum(nn.Module):
        def forward(self, x, y):
            return F.relu(x + y)

    model = Sum().eval()
    report = fastact.fuse_(model)
    assert report.replaced == {"": "fused_relu (residual)"}
    x = values(4, 6)
    for a, b in ((x, x.double()), (x.bfloat16(), x), (x.int(), x), (x[:, :1], x[:1]), (x, 2),
                 (2, x), (x[:1], x), (x, x[0]), (x.cfloat().real, x)):  # fmt: skip
        assert_same_bits(model(a, b), F.relu(a + b))
    model = nn.Sequential(norm(6), nn.ReLU()).eval()
    fastact.fuse_(model)
    with pytest.raises(ValueError, match="expected 4D input"):
        nn.Sequential(norm(6), nn.ReLU()).eval()(x)
    with pytest.raises(ValueError, match="expected 4D input"):
        model(x)


def test_what_was_not_faster_on_a_cpu_is_left(monkeypatch):
    monkeypatch.undo()
    assert not _fuse._is_faster(torch.device("cpu"), "sigmoid")
    assert _fuse._is_faster(torch.device("cuda"), "sigmoid")
    assert {"relu", "sigmoid"} < set(_fuse._NOT_FASTER_ON_CPU) < set(_fuse.OPERATORS)
    report = fastact.fuse_(nn.Sequential(norm(4), nn.Sigmoid()).eval())
    assert report.left == dict.fromkeys(("0", "1"), "fused_sigmoid (0) was not faster on a CPU")


class Shared(nn.Module):
    """Batch norms without an activation: before a residual, an activation of it and one more."""

    def __init__(self):
        super().__init__()
        self.first, self.other, self.last, self.relu = norm(4), norm(4), norm(4), nn.ReLU()

    def forward(self, x):
        y = self.first(x)
        return self.last(self.relu(x + self.other(y)) + F.silu(y) * x)


def test_a_batch_norm_alone(device, dtype, monkeypatch):
    """As the identity's fused operator, where that is wanted."""
    model = Shared().eval().to(device, dtype)
    x = values(2, 4, 3, 3, dtype=dtype, device=device)
    exact, own = copy.deepcopy(model).double()(x.double()), model(x)
    expected = {"relu": "fused_relu (other, residual)", "": "fused_silu (gate)"}
    left = "no activation with a fused operator follows it"
    report = fastact.fuse_(model, x)
    assert report.replaced == expected and report.left == {"first": left, "last": left}
    fastact.restore_(model)
    monkeypatch.setattr(_fuse, "_takes_norm_alone", lambda device: True)
    report = fastact.fuse_(model, x)
    alone = {name: f"fused_leaky_relu ({name})" for name in ("first", "last")}
    assert report.replaced == expected | alone and report.left == {}
    error = (model(x).double() - exact).abs().max()
    assert model(x).dtype == dtype and error <= 2 * (own.double() - exact).abs().max() + 1e-6
    model.last.train()
    theirs = copy.deepcopy(model)
    fastact.restore_(theirs)
    assert_same_bits(model(x), theirs(x))


def test_a_batch_norm_alone_is_fused_on_a_gpu_only(monkeypatch):
    monkeypatch.undo()
    assert _fuse._takes_norm_alone(torch.device("cuda"))
    assert not _fuse._takes_norm_alone(torch.device("cpu"))


# ---- The check, and the way back


def test_a_wrong_result_is_an_error_and_the_model_is_as_it_was(monkeypatch):
    model, x = nn.Sequential(Block(), norm(4), nn.SELU()).eval(), values(2, 4, 5, 5)
    fastact.replace_(model)
    expected, kinds = model(x), [(type(m), set(vars(m))) for m in model.modules()]
    right = _fuse.OPERATORS["selu"]
    monkeypatch.setitem(
        _fuse.OPERATORS,
        "selu",
        lambda x, scale, bias, *rest, **more: right(x, scale, None, *rest, **more),
    )
    message = r"fastact.fuse_: expected the sample's result to differ by at most .* but got: "
    with pytest.raises(RuntimeError, match=message):
        fastact.fuse_(model, x)
    assert [(type(m), set(vars(m))) for m in model.modules()] == kinds
    assert_same_bits(model(x), expected)


def test_a_model_that_fails_is_as_it_was():
    model = nn.Sequential(norm(4), nn.SELU()).eval()
    with pytest.raises(ValueError, match="4D"):
        fastact.fuse_(model, values(2, 4))
    assert type(model) is nn.Sequential and fastact.restore_(model) == 0


def test_the_sample_is_not_written_to():
    model, x = nn.Sequential(nn.ReLU(inplace=True), norm(4), nn.SELU()).eval(), values(2, 4, 5, 5)
    before = x.clone()
    fastact.fuse_(model, x)
    assert_same_bits(x, before)


def test_after_replace_and_before_it():
    x = values(2, 4, 5, 5)
    models = [nn.Sequential(Block(nn.SiLU()), norm(4), nn.SELU(), Calls()).eval()]
    models.append(copy.deepcopy(models[0]))
    types = [type(m) for m in models[0].modules()]
    fastact.replace_(models[0])
    reports = [fastact.fuse_(m, x) for m in models]
    fastact.replace_(models[1])
    assert reports[0].replaced == reports[1].replaced != {}
    assert_same_bits(models[0](x), models[1](x))
    assert count(models[0], x) == count(models[1], x) == 5
    assert fastact.fuse_(models[0], x).left[""] == "it is fused already"
    for model in models:
        fastact.restore_(model)
        assert [type(m) for m in model.modules()] == types


class Calls(nn.Module):
    def forward(self, x):
        return F.gelu(x + 2 * x, approximate="tanh") + torch.sigmoid(x) * x


def test_no_module():
    with pytest.raises(TypeError, match="fastact.fuse_: expected a torch.nn.Module, but got"):
        fastact.fuse_(torch.ones(3))


# ---- Graphs


def test_the_graph_has_the_operators_by_name(fresh_compiler):
    model, x = nn.Sequential(Block(), Gated("chunk").both, nn.SELU()).eval(), values(2, 4, 5, 8)
    fastact.fuse_(model, x)
    expected = model(x)
    with torch.no_grad():
        program = torch.export.export(model, (x,))
    targets = [str(n.target) for n in program.graph.nodes if n.op == "call_function"]
    assert sum("fastact.fused_relu" in t or "fastact._fused_relu" in t for t in targets) == 2
    torch.testing.assert_close(program.module()(x), expected)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), expected)


@pytest.mark.filterwarnings("ignore:.*torch.jit", "ignore::torch.jit.TracerWarning")
def test_a_traced_archive_has_the_operators(tmp_path):
    model, x = nn.Sequential(Block(), norm(4), nn.SELU()).eval(), values(2, 4, 5, 5)
    fastact.fuse_(model, x)
    with torch.no_grad():
        traced = torch.jit.trace(model, x)
    traced.save(tmp_path / "fused.pt")
    loaded = torch.jit.load(tmp_path / "fused.pt")
    assert str(loaded.inlined_graph).count("fastact::fused_") == 3
    torch.testing.assert_close(loaded(x), model(x))
