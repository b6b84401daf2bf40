"""torch.compile's backend "fastact" and fastact.fuse_: results equal to eager, and reports."""

import copy
import dataclasses
import itertools
import pickle
import re
import sys
import threading
from collections import Counter, OrderedDict, defaultdict, deque

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import fastact
from backend_models import CASES, Parts, norm, observed
from fastact._fusion import sites
from fastact._fusion.batch_norm import insert_vectors
from fusable_models import affine
from support import REPOSITORY, assert_same_bits, error_of, run_python, values

fused = torch.ops.fastact


@pytest.fixture(autouse=True)
def every_form(monkeypatch):
    """Also fuses operators that are not faster on a CPU, so that fusion does not depend on the
    machine."""
    monkeypatch.setattr(sites, "is_faster", lambda device, name: True)
    monkeypatch.setattr(sites, "takes_norm_alone", lambda device: False)
    monkeypatch.setattr(sites, "FEWEST_ON_CPU", 0)
    yield
    torch._dynamo.reset()


def compiled(model, report=None, **settings):
    options = {"report": report or fastact.Report()}
    return torch.compile(model, backend="fastact", options=options, **settings)


def replaced(report):
    """Returns pairs of a place and an operation replaced there."""
    return [(where, part) for where, text in report.replaced.items() for part in text.split("; ")]


def what(report):
    """Returns the replaced operations of a report, without their places."""
    return sorted(part for _, part in replaced(report))


def without_reason(text):
    return text.partition(" (not fused")[0]


@pytest.mark.parametrize("name", CASES)
def test_as_eager(name):
    """Compares values, gradients, buffers and state_dict in three calls of each mode."""
    case = CASES[name]
    report, model = fastact.Report(), Parts(case.forward).to(case.dtype)
    theirs = copy.deepcopy(model)
    ours = compiled(model, report, fullgraph=not case.breaks)
    # One compiled model for both modes: TorchDynamo recompiles if the mode matters.
    for training, call in itertools.product(case.modes, range(3)):
        x, found = values(*case.shape, dtype=case.dtype), []
        for m, function in ((model, ours), (theirs, theirs)):
            case.prepare(m.train(training), call)
            found.append(observed(m, function, x, case.needs_grad))
        torch.testing.assert_close(
            *found, rtol=case.tolerance, atol=case.tolerance, msg=lambda m: f"call {call}: {m}"
        )
        assert model.state_dict().keys() == theirs.state_dict().keys()
    assert len(model.list) in (0, len(theirs.list))
    if case.fused is not None:
        found = {(where, without_reason(text)) for where, text in replaced(report)}
        assert sorted(text for _, text in found) == sorted(case.fused), report


def test_dynamic_shapes():
    """One graph serves all sizes except the first."""
    report, model = fastact.Report(), Parts(CASES["functions"].forward).eval()
    ours = compiled(model, report, fullgraph=True, dynamic=True)
    for rows in (3, 5, 64):
        x = values(rows, 8)
        torch.testing.assert_close(ours(x), model(x), rtol=1e-5, atol=1e-5)
    assert report.count == 8, report


@pytest.mark.parametrize("kind", (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d))
def test_batch_norms(device, dtype, kind):
    """Compares with the same model in float64, and with another epsilon."""
    shape = (4, 6, 3, 2, 2)[: {nn.BatchNorm1d: 2, nn.BatchNorm2d: 4, nn.BatchNorm3d: 5}[kind]]
    norms = (norm(6, kind), norm(6, kind, eps=1e-3), norm(6, kind, affine=False))
    layers = [layer for n in norms for layer in (n, nn.Mish())]
    model = nn.Sequential(*layers).eval().to(device, dtype)
    x = values(*shape, dtype=dtype, device=device)
    exact, own, report = copy.deepcopy(model).double()(x.double()), model(x), fastact.Report()
    found = compiled(model, report)(x)
    assert what(report) == ["fused_mish (batch norm)"] * 3, report
    error = (found.double() - exact).abs().max()
    assert found.dtype == dtype and error <= 2 * (own.double() - exact).abs().max() + 1e-6


def test_the_fused_operators_bits(device):
    model = nn.Sequential(norm(6), nn.ReLU()).eval().to(device)
    n = model[0]
    scale = n.weight * torch.rsqrt(n.running_var + n.eps)
    shift = torch.addcmul(n.bias, n.running_mean, scale, value=-1)
    for dtype in (torch.float32, torch.bfloat16):
        x = values(2, 6, 3, 4, dtype=dtype, device=device)
        assert_same_bits(compiled(model)(x), fused.fused_relu(x, scale, shift, dim=1))


def test_several_epsilons(device):
    """In 16-bit types, each epsilon is added in float32."""
    layers = [norm(6, eps=1e-3), nn.ReLU(), norm(6), nn.ReLU()]
    model = nn.Sequential(*layers).eval().to(device, torch.bfloat16)
    x = expected = values(2, 6, 3, 4, dtype=torch.bfloat16, device=device)
    for n in model[::2]:
        expected = fused.fused_relu(expected, *affine(copy.deepcopy(n).float()), dim=1)
    assert_same_bits(compiled(model)(x), expected)


def test_a_batch_norm_in_training_mode_is_left():
    """It uses the statistics of the batch, and updates its own."""
    model = nn.Sequential(nn.BatchNorm2d(4), nn.Mish()).train()
    eager, x = copy.deepcopy(model), torch.randn(2, 4, 64, 64) * 3 + 1
    with torch.no_grad():
        torch.testing.assert_close(compiled(model)(x), eager(x))
    torch.testing.assert_close(model.state_dict(), eager.state_dict())


def test_a_batch_norm_alone(monkeypatch):
    model, x, report = nn.Sequential(norm(4)).eval(), values(2, 4, 3, 3), fastact.Report()
    expected = model(x)
    compiled(model, report)(x)
    assert "no activation with a fused operator follows it" in str(report)
    assert not sites.takes_norm_alone(torch.device("cpu"))
    torch._dynamo.reset()
    monkeypatch.setattr(sites, "takes_norm_alone", lambda device: True)
    torch.testing.assert_close(compiled(model, report)(x), expected)
    assert what(report) == ["fused_leaky_relu (batch norm)"]


def test_batch_norms_compute_their_vectors_together(monkeypatch):
    """This also holds if the model logs the use of a function, like torchvision's models."""
    rewriting = sys.modules["fastact._fusion.rewrite"]
    counts = []

    def counted(graph, norms, facts):
        counts.append(len(norms))
        return insert_vectors(graph, norms, facts)

    monkeypatch.setattr(rewriting, "insert_vectors", counted)

    def forward(parts, x):
        y = F.relu(parts.norm(x))
        torch._C._log_api_usage_once("fastact.tests")
        return F.relu(parts.norm2(y))

    model = Parts(forward).eval()
    x = torch.randn(2, 8, 3, 3)
    torch.testing.assert_close(compiled(model)(x), model(x), rtol=0, atol=1e-5)
    assert counts == [2]


def test_what_was_not_faster_is_renamed_only(monkeypatch):
    monkeypatch.undo()
    assert {"relu", "sigmoid"} < sites._NOT_FASTER_ON_CPU
    assert sites.is_faster(torch.device("cuda"), "sigmoid")
    assert sites.takes_norm_alone(torch.device("cuda"))
    report = fastact.Report()
    compiled(lambda x: F.silu(x) * x.abs() + F.mish(x + 1 + x), report)(values(4, 8))
    assert sorted(what(report)) == [
        "mish (not fused: on a CPU it is faster only from 65536 elements on)",
        "silu (not fused: fused_silu (gate) was not faster on a CPU)",
    ]


def test_alpha_dropout(device):
    """The operator uses its own random numbers, and none at inference."""
    model, x = (
        nn.Sequential(nn.SELU(), nn.AlphaDropout(0.3)).to(device),
        values(64, 8, device=device),
    )
    report = fastact.Report()
    ours = compiled(model, report)
    torch.manual_seed(0)
    found = ours(x)
    torch.manual_seed(0)
    assert_same_bits(found, fused.selu_alpha_dropout(x, 0.3, True))
    model.eval()
    assert_same_bits(ours(x), fused.selu(x))
    assert sorted(what(report)) == ["selu", "selu_alpha_dropout"]


def test_a_checkpoint_keeps_what_it_kept():
    model, saved = Parts(CASES["checkpoint"].forward), []
    x = values(4, 8).requires_grad_()
    for function in (model, compiled(model)):
        number = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: number.append(t) or t, lambda t: t):
            function(x)
        saved.append(len(number))
    assert saved[0] == saved[1]


class Attention(nn.Module):
    def __init__(self, **settings):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, **settings)

    def forward(self, x, mask=None, need_weights=False):
        y, weights = self.attention(x, x, x, attn_mask=mask, need_weights=need_weights)
        return F.relu(y), weights


class Operators(TorchDispatchMode):
    """Counts calls of the attention operator for inference."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func is torch.ops.aten._native_multi_head_attention.default
        return func(*args, **(kwargs or {}))


def native_calls(model, *args, **kwargs):
    with Operators() as seen, torch.no_grad():
        found = model(*args, **kwargs)
    return seen.count, found


def test_attention_calls_the_operator_of_eager():
    """TorchDynamo captures another operator, which is slower at inference."""
    x, mask = torch.randn(3, 5, 8), torch.ones(5, 5).triu(1).bool()
    for settings, call, count in (
        ({"batch_first": True}, {}, 1),
        ({"batch_first": True}, {"need_weights": True}, 1),
        ({"batch_first": True}, {"mask": mask}, 1),
        ({"batch_first": True, "bias": False}, {}, 0),
        ({"batch_first": True, "add_bias_kv": True}, {}, 0),
        ({"batch_first": False}, {}, 0),
    ):
        model = Attention(**settings).eval()
        in_eager, values = native_calls(model, x, **call)
        found, results = native_calls(compiled(model), x, **call)
        assert found == in_eager == count, (settings, call)
        for a, b in zip(results, values):
            assert a is b is None or torch.allclose(a, b, atol=1e-6), (settings, call)
        trained, same = copy.deepcopy(model).train(), compiled(model.train())
        trained(x, **call)[0].sum().backward()
        same(x, **call)[0].sum().backward()
        for (name, p), q in zip(trained.named_parameters(), model.parameters()):
            assert torch.allclose(p.grad, q.grad, atol=1e-5), (settings, call, name)


def test_other_kinds_of_tensor_are_left():
    """Examples are quantized tensors and subclasses."""

    class Own(torch.Tensor):
        pass

    q = torch.quantize_per_tensor(values(4), 0.1, 0, torch.qint8)
    for x in (values(4).as_subclass(Own), q, values(4).to_sparse(), values(4).int()):
        ours = compiled(lambda x: torch.relu(x))(x)
        theirs = torch.relu(x)
        assert type(ours) is type(theirs) and ours.layout == theirs.layout
        assert torch.equal(*(t.dequantize() if t is q else t.to_dense() for t in (ours, theirs)))


# ---- The backend's name and options


def test_options():
    x, report = values(4, 8), fastact.Report()

    def gated(x):
        return F.silu(x) * x.abs()

    torch.compile(gated, backend="fastact", options={"fuse": False, "report": report})(x)
    torch._dynamo.reset()
    torch.compile(gated, backend="fastact", options={"rename": False, "report": report})(x)
    assert sorted(what(report)) == ["fused_silu (gate)", "silu"]
    for settings, message in (
        (
            {"options": {"fues": 1}},
            "fastact: expected options from 'fuse', 'rename', 'report', but got",
        ),
        ({"mode": "max-autotune"}, "fastact: expected mode to be None or 'default', but got"),
    ):
        torch._dynamo.reset()
        with pytest.raises(Exception, match=message):
            torch.compile(gated, backend="fastact", **settings)(x)


def test_the_name_is_registered_by_the_package_or_by_its_import():
    """An existing entry point, as in the wheel, is not registered twice."""
    assert "fastact" in torch._dynamo.list_backends()
    script = REPOSITORY / "pyproject.toml"
    assert 'fastact = "fastact._backend:fastact_backend"' in script.read_text()


# ---- fuse_


def fusable():
    return nn.Sequential(norm(4), nn.SELU(), nn.Conv2d(4, 4, 1), nn.Dropout(), nn.Mish()).eval()


def test_fuse_and_restore():
    """Checks that only the call is compiled, and that nothing else in the module changes."""
    model, x = fusable(), values(2, 4, 5, 5)
    theirs, expected = copy.deepcopy(model), model(x)
    report = fastact.fuse_(model)
    assert str(report) == ""
    for _ in range(3):
        torch.testing.assert_close(model(x), expected)
    assert what(report) == ["fused_selu (batch norm)", "mish"]
    assert set(report.replaced) == {"1", "4"}
    assert type(model) is nn.Sequential and model.state_dict().keys() == theirs.state_dict().keys()
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert fastact.restore_(other) == 0
        torch.testing.assert_close(other(x), expected)
    state = {k: v * 1.5 for k, v in theirs.state_dict().items()}
    for m in (model, theirs):
        m.load_state_dict(state)
    torch.testing.assert_close(model(x), theirs(x))
    assert fastact.restore_(model) == 1 and fastact.restore_(model) == 0
    assert model._compiled_call_impl is None
    assert_same_bits(model(x), theirs(x))


def test_what_was_compiled_before_returns():
    model = fusable()
    model.compile(backend="eager")
    before = model._compiled_call_impl
    fastact.fuse_(model)
    fastact.fuse_(model)
    fastact.restore_(model)
    assert model._compiled_call_impl is before


def test_a_sample_is_run_at_once_and_leaves_no_trace():
    model, x = Parts(CASES["moving average"].forward), values(4, 8)
    before, seed = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    report = fastact.fuse_(model, (x,))
    assert len(report.replaced) == 1 and report.count == 1
    (place,) = report.replaced
    assert "backend_models.py:" in place
    assert model.training and torch.equal(torch.get_rng_state(), seed)
    torch.testing.assert_close(dict(model.state_dict()), dict(before), rtol=0, atol=0)
    for module in fusable().train(), Parts(CASES["torch.rand decides"].forward):
        torch.manual_seed(0)
        kept = module.training
        message = "expected the model to return the same result for the same sample"
        if isinstance(module, Parts):
            module.call = lambda m, x: F.relu(x) + next(counter)
            counter = iter(range(9))
            with pytest.raises(RuntimeError, match=message):
                fastact.fuse_(module, x)
        else:
            fastact.fuse_(module, values(2, 4, 5, 5))
        assert module.training == kept


def test_a_sample_does_not_change_attributes():
    def call(m, x):
        m.calls += 1
        m.seen.append(m.calls)
        m.last["x"] = x
        m.shapes.add(x.shape)
        m.ema = m.ema * 0.5 + x.detach().mean(0)
        m.feature = torch.tanh(x)
        return F.mish(m.feature)

    model, x = Parts(call), values(4, 8)
    model.register_buffer("ema", torch.zeros(8))
    model.calls, model.seen, model.last, model.shapes = 0, [], {}, set()
    before, ema = dict(vars(model)), model.ema
    report = fastact.fuse_(model, x)
    assert report.count == 2
    assert vars(model).keys() - before.keys() == {"_compiled_call_impl"}
    assert (model.calls, model.seen, model.last, model.shapes) == (0, [], {}, set())
    assert model.ema is ema and not ema.any()
    theirs = Parts(call)
    theirs.ema, theirs.calls, theirs.seen, theirs.last, theirs.shapes = ema, 0, [], {}, set()
    for n in (1, 2):
        torch.testing.assert_close(model(x), theirs(x))
        assert model.calls == n and model.seen == theirs.seen
        torch.testing.assert_close(model.ema, theirs.ema)


class Squares(dict):
    """Has an attribute, and changes what is stored in it."""

    def __setitem__(self, key, value):
        super().__setitem__(key, value**2)


def test_a_sample_does_not_change_contents_of_attributes():
    """Tests tensors, all kinds of container, shared objects and cycles."""

    def call(m, x):
        for t in (m.cache, m.list[0], m.dict["a"][0], m.pair[1], m.detached[0]):
            t += x.sum(0)
        m.resized.resize_(5)
        m.moved.data = x.sum(1)
        m.expanded[0] += 1
        m.queue.append(1)
        m.groups["new"].append(1)
        m.groups["old"].append(1)
        m.counts["a"] += 1
        m.ordered.move_to_end("a")
        m.squares["b"] = 3
        m.squares.seen.append(1)
        m.dict["a"].append(1)
        m.pair[0].add(1)
        m.hidden[0].calls += 1
        return F.mish(x) + m.cache

    model, cache = Parts(call), torch.zeros(8)
    model.cache, model.list, model.dict = cache, [torch.ones(8), cache], {"a": [torch.ones(8)]}
    model.pair, model.detached = (set(), torch.ones(8)), [cache.detach()]
    model.resized, model.moved, model.expanded = torch.ones(3), torch.ones(3), torch.ones(1)
    model.expanded = model.expanded.expand(8)
    model.queue, model.groups = deque([5, 6], maxlen=2), defaultdict(list, {"old": [0]})
    model.counts, model.ordered = Counter("aab"), OrderedDict(a=1, b=2)
    model.squares = Squares(a=2)
    model.squares.seen = []
    model.hidden = [nn.Module()]
    model.hidden[0].calls = 0
    model.list.append(model.list)
    model.alias = model.dict
    fastact.fuse_(model, values(4, 8))  # torch 2.11 captures `.data =`, and leaves the graph
    assert model.cache is cache and model.list[1] is cache and model.list[2] is model.list
    for zeros in (cache, model.detached[0]):
        assert not zeros.any()
    for ones in (model.list[0], model.dict["a"][0], model.pair[1], model.expanded):
        assert_same_bits(ones, torch.ones(8))
    for ones in (model.resized, model.moved):
        assert_same_bits(ones, torch.ones(3))
    assert len(model.list) == 3 and len(model.dict["a"]) == 1 and model.alias is model.dict
    assert model.pair[0] == set() and model.hidden[0].calls == 0
    assert model.queue == deque([5, 6]) and model.queue.maxlen == 2
    assert model.groups == {"old": [0]} and model.counts == {"a": 2, "b": 1}
    assert list(model.ordered.items()) == [("a", 1), ("b", 2)]
    assert model.squares == {"a": 2} and model.squares.seen == []


def test_a_sample_does_not_invalidate_an_autograd_graph():
    model, w = Parts(lambda m, x: F.mish(x) + m.saved), torch.ones(8, requires_grad=True)
    model.saved = torch.tanh(w)
    fastact.fuse_(model, values(4, 8))
    model.saved.sum().backward()
    torch.testing.assert_close(w.grad, 1 - torch.tanh(w.detach()) ** 2)


def test_containers_are_restored_if_a_tensor_cannot_be():
    class Fixed(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func is torch.Tensor.copy_:
                raise RuntimeError("fixed")
            return super().__torch_function__(func, types, args, kwargs or {})

    model = Parts(lambda m, x: m.before.append(1) or m.after.append(1) or F.mish(x))
    model.register_buffer("buffer", torch.ones(8).as_subclass(Fixed))
    model.before, model.fixed, model.after = [], torch.ones(8).as_subclass(Fixed), []
    with pytest.raises(RuntimeError, match="fixed"):
        fastact.fuse_(model, values(4, 8))
    assert model.before == model.after == []


def test_a_model_that_writes_to_a_parameter_is_an_error():
    def call(m, x):
        with torch.no_grad():
            m.v.mul_(0.5)
            m.w.mul_(0.5)
        return F.mish(x * m.w)

    model, x = Parts(call), values(4, 8)
    model.u, model.w, model.v = (nn.Parameter(torch.ones(8)) for _ in range(3))
    message = (
        "fastact.fuse_: expected a call of the model to change no parameter, but got one that "
        "writes to 'w': call fuse_ without a sample"
    )
    with pytest.raises(RuntimeError, match=f"^{re.escape(message)}$"):
        fastact.fuse_(model, x)
    assert model._compiled_call_impl is None
    fastact.fuse_(model)


def test_a_sample_of_a_model_with_inference_tensors():
    x = values(2, 4, 5, 5)
    with torch.inference_mode():
        model = fusable()
    assert set(fastact.fuse_(model, x).replaced) == {"1", "4"}
    model, buffer = Parts(lambda m, x: F.mish(x) + m.calls.add_(1)), torch.zeros(1)
    with torch.inference_mode():
        model.register_buffer("calls", torch.zeros(1))
        model.buffer = buffer
        assert fastact.fuse_(model, x).count == 1
    assert model.calls.is_inference() and model.calls.item() == 0
    assert not buffer.is_inference() and buffer._version == 0


def test_a_sample_of_a_model_with_an_expanded_buffer():
    model, x = Parts(lambda m, x: F.mish(x) + m.ones), values(4, 8)
    model.register_buffer("ones", torch.ones(1).expand(8))
    assert fastact.fuse_(model, x).count == 1
    torch.testing.assert_close(model(x), F.mish(x) + 1)
    assert model.ones.stride() == (0,)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_sample_of_a_model_with_other_kinds_of_tensor():
    model = Parts(lambda m, x: F.mish(x))
    kept = {"sparse": torch.eye(3).to_sparse(), "meta": torch.ones(3, device="meta")}
    kept["nested"] = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    for name, tensor in kept.items():
        model.register_buffer(name, tensor)
    assert fastact.fuse_(model, values(4, 8)).count == 1
    assert all(model.get_buffer(name) is tensor for name, tensor in kept.items())


def test_an_uninitialized_model_with_a_sample_is_an_error():
    message = (
        "fastact.fuse_: expected an initialized model, but got uninitialized parameters: call the "
        "model once before"
    )
    x = values(4, 8)
    for layer in (nn.LazyLinear(8), nn.LazyBatchNorm1d(affine=False)):
        model = nn.Sequential(layer, nn.Mish()).eval()
        with pytest.raises(RuntimeError, match=f"^{re.escape(message)}$"):
            fastact.fuse_(model, x)
        model(x)
        assert fastact.fuse_(model, x).replaced


@dataclasses.dataclass
class Out:
    value: object
    more: object = None


class Cache:
    def __init__(self, value):
        self.value = value


def test_a_sample_whose_result_is_a_dataclass(monkeypatch):
    """Tests that tensors in dataclasses are compared. The result contains itself."""

    def call(m, x):
        out = Out([Out(F.mish(x))])
        out.more = out
        return out

    assert fastact.fuse_(Parts(call), values(4, 8)).replaced
    monkeypatch.setattr(sites, "operator", lambda name: fused.fused_relu.default)
    with pytest.raises(RuntimeError, match="expected the fused model's result"):
        fastact.fuse_(Parts(lambda m, x: Out(F.mish(m.norm(x)))).eval(), values(2, 8, 3, 3))


def test_a_sample_whose_result_contains_no_tensor_is_an_error():
    message = (
        "fastact.fuse_: expected the model's result to contain a tensor, but got Out: call fuse_ "
        "without a sample"
    )
    model = Parts(lambda m, x: Out(Cache(F.mish(x))))
    with pytest.raises(RuntimeError, match=f"^{re.escape(message)}$"):
        fastact.fuse_(model, values(4, 8))
    assert model._compiled_call_impl is None
    assert fastact.fuse_(Parts(lambda m, x: (F.mish(x), Cache(x))), values(4, 8)).count == 1


def test_a_sample_whose_result_is_state():
    """Tests that results are compared before state is restored."""
    model, left = Parts(lambda m, x: m.ema.copy_(F.mish(x).mean(0) + next(left))), iter((0, 1))
    model.register_buffer("ema", torch.zeros(8))
    with pytest.raises(RuntimeError, match="expected the model to return the same result"):
        fastact.fuse_(model, values(4, 8))


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_a_script_module_is_an_error():
    message = (
        "fastact.fuse_: expected a torch.nn.Module that Python runs, but got a "
        "torch.jit.ScriptModule: fastact.convert takes it"
    )
    for model in (torch.jit.script(fusable()), torch.jit.trace(fusable(), values(2, 4, 5, 5))):
        with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
            fastact.fuse_(model)


def test_a_sample_with_a_complex_result():
    model, x = Parts(lambda m, x: torch.fft.fft(F.mish(x))), values(4, 8)
    expected = model(x)
    assert fastact.fuse_(model, x).count == 1
    torch.testing.assert_close(model(x), expected)


@pytest.mark.parametrize("results", ((torch.nan, 0.0), (torch.inf, torch.finfo().max)))
def test_a_sample_whose_special_values_differ(results):
    model, left = Parts(lambda m, x: x * 0 + next(left)), iter(results)
    with pytest.raises(RuntimeError, match="expected the model to return the same result"):
        fastact.fuse_(model, values(4, 8))


def test_a_wrong_result_is_an_error_and_the_model_is_as_it_was(monkeypatch):
    model, x = fusable(), values(2, 4, 5, 5)
    expected = model(x)
    monkeypatch.setattr(sites, "operator", lambda name: fused.fused_relu.default)
    message = "expected the fused model's result for the sample to differ .* but got more than "
    with pytest.raises(RuntimeError, match=message):
        fastact.fuse_(model, x)
    assert model._compiled_call_impl is None and fastact.restore_(model) == 0
    assert_same_bits(model(x), expected)
    with pytest.raises(ValueError, match="4D"):
        fastact.fuse_(model, values(2, 4))
    with pytest.raises(TypeError, match="fastact.fuse_: expected a torch.nn.Module, but got"):
        fastact.fuse_(torch.ones(3))


def loop(m, x):
    for layer in m.layers:
        if x.sum().item() < 1e9:
            x = layer(x)
    return F.mish(x)


def told(m, x):
    y = F.silu(x)
    m.told.append(y.sum().item())
    return F.mish(y)


def keyed(m, x):
    return F.mish(x) + {"0": 1, "1": 2, "2": 3}[m.key]


@pytest.mark.parametrize(
    ("forward", "expected", "reason"),
    (
        (loop, [], r"loop: TorchDynamo leaves it to Python, \".*Tensor.item\(\)"),
        (told, ["mish", "silu"], r"told: TorchDynamo breaks its graph, \".*Tensor.item\(\)"),
        (keyed, ["mish"], r"TorchDynamo leaves it to Python, \".*recompile.limit"),
    ),
)
def test_the_report_says_what_torchdynamo_leaves(forward, expected, reason):
    """A function with a loop, a graph in two parts, and a function that is compiled too often."""
    model, x = Parts(forward), values(4, 8)
    model.told = []
    report = fastact.fuse_(model)
    with torch._dynamo.config.patch(recompile_limit=2):
        for call in range(3):
            model.key = str(call)
            model(x)
    assert what(report) == expected
    assert [text for text in report.left.values() if re.match(reason, text)], report


def test_one_thread_changes_a_model_while_another_infers():
    model, x, errors = fusable(), values(2, 4, 5, 5), []
    expected, stop = model(x), threading.Event()

    def infer():
        while not stop.is_set():
            error = error_of(lambda: torch.testing.assert_close(model(x), expected))
            errors.extend([error] if error else [])

    thread = threading.Thread(target=infer)
    thread.start()
    for _ in range(5):
        fastact.replace_(model)
        fastact.restore_(model)
        fastact.fuse_(model)
        model(x)
        fastact.restore_(model)
    stop.set()
    thread.join()
    assert errors == []


# The program of each rank. It compares fuse_ with eager on its own part of a batch.
RANKS = """
import copy, sys, torch, torch.distributed as dist, torch.multiprocessing as mp
import fastact
from fastact._fusion import sites
from fastact._fusion.batch_norm import insert_vectors
from torch import nn
from torch.distributed.fsdp import fully_shard

class Net(nn.Module):  # Dynamo captures no forward of torch's own behind a hook
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return torch.tanh(self.last(torch.nn.functional.mish(self.first(x))))

def run(rank, folder):
    sites.is_faster, sites.FEWEST_ON_CPU = lambda device, name: True, 0
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = Net()
    x = torch.randn(2, 4, 8)[rank]
    found = []
    for wrap in (nn.parallel.DistributedDataParallel, fully_shard):
        for fuses in (False, True):
            m = wrap(copy.deepcopy(model))
            report = fastact.fuse_(m) if fuses else None
            for _ in range(3):
                m.zero_grad()
                m(x).square().sum().backward()
            grads = [p.grad for p in m.parameters()]
            found.append([g.full_tensor() if hasattr(g, "full_tensor") else g for g in grads])
            assert not fuses or "tanh" in str(report), report
        torch.testing.assert_close(found[-2], found[-1])
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(run, (sys.argv[1],), nprocs=2)
"""


@pytest.mark.slow
def test_two_ranks(tmp_path):
    """Tests DistributedDataParallel and FSDP2."""
    script = tmp_path / "ranks.py"
    script.write_text(RANKS)
    from support import package_path

    run_python(script, tmp_path, environment={"PYTHONPATH": str(package_path().parent)})
