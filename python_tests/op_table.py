"""The table of activations, with one row for each set of parameters. A new activation needs only a
row here: operator_rows.py derives the rows of all other operators from this table.

A row contains the exact mathematics (mathematics.py), PyTorch's own operators as the oracle for
semantics, and what FastAct promises. The formula's header contains the error bounds.
"""

import math

import torch

# isort: off
from activation import (
    FORMULAS as FORMULAS, GRADIENT_NAMES as GRADIENT_NAMES, SUFFIXES as SUFFIXES,
    TOP_ORDER as TOP_ORDER, contract as contract,
)  # fmt: skip
from activation import (
    EXPONENTIAL_BRANCHES, REDUCTIONS, Activation, aten_forms, both_signs, composed,
    full_table_ends, gelu_tanh_inverse, segment_ends,
)  # fmt: skip
from mathematics import (
    SELU_ALPHA, SELU_SCALE, clamp, elu, elu_from_result, gelu, gelu_tanh, hardsigmoid,
    hardswish, leaky_relu, log_sigmoid, mish, quick_gelu, relu, selu, selu_from_result, shrink,
    sigmoid, silu, softplus, softsign, squared_relu, tanh, tanhshrink, threshold,
)  # fmt: skip
# isort: on

ELU_ARGUMENTS = (float(SELU_ALPHA), float(SELU_SCALE), 1)


def others(parameters, **defaults):
    """Returns a row's fields about its parameters."""
    return {"parameters": parameters, "defaults": None if parameters == defaults else defaults}


def leaky_relu_row(slope):
    return Activation(
        name="leaky_relu",
        derivative=lambda m, x, k: leaky_relu(m, x, k, slope),
        exactly_zero=lambda x, k: k >= 2,
        at_minus_zero=-0.0 if slope > 0 else 0.0,
        **aten_forms(
            "leaky_relu",
            slope,
            backward=lambda g, x: torch.ops.aten.leaky_relu_backward(g, x, slope, False),
        ),
        saves="input",
        from_result=lambda m, r, k: leaky_relu(m, r, k, slope),
        result_suffices=slope >= 0,
        **others({"negative_slope": slope}, negative_slope=0.01),
    )


def clamp_forms(low, high):
    """Not ATen's hardtanh, whose result does not have the strides of elementwise operators."""
    return composed(
        lambda x: torch.clamp(x, low, high),
        lambda g, x: torch.ops.aten.hardtanh_backward(g, x, low, high),
    )


def relu6_row():
    return Activation(
        name="relu6",
        derivative=lambda m, x, k: clamp(m, x, k, 0, 6),
        exactly_zero=lambda x, k: k >= 1 and not 0 < x < 6 or k >= 2,
        at_minus_zero=-0.0,
        **clamp_forms(0, 6),
        saves="input",
        in_place_saves_result=True,
        kinks=(0.0, 6.0),
    )


def hardtanh_row(low, high):
    return Activation(
        name="hardtanh",
        derivative=lambda m, x, k: clamp(m, x, k, low, high),
        exactly_zero=lambda x, k: k >= 1 and not low < x < high or k >= 2,
        at_minus_zero=-0.0,
        **clamp_forms(low, high),
        saves="input",
        in_place_saves_result=True,
        kinks=(low, high),
        forbidden=(
            ({"min_val": 2.0, "max_val": 1.0}, ValueError, "min_val to be at most max_val"),
        ),
        **others({"min_val": low, "max_val": high}, min_val=-1.0, max_val=1.0),
    )


def threshold_row(limit, value):
    return Activation(
        name="threshold",
        derivative=lambda m, x, k: threshold(m, x, k, limit, value),
        exactly_zero=lambda x, k: k >= 1 and x <= limit or k >= 2,
        at_minus_zero=-0.0 if limit < 0 else value,
        # ATen's threshold_ writes to tensors that overlap themselves.
        **composed(
            lambda x: torch.ops.aten.threshold(x, limit, value),
            lambda g, x: torch.ops.aten.threshold_backward(g, x, limit),
        ),
        saves="input",
        kinks=(limit,),
        **others({"threshold": limit, "value": value}),
    )


def hard_row(derivative):
    """Returns a row of hardswish or hardsigmoid."""
    name = derivative.__name__
    is_swish = derivative is hardswish
    top = 3 if is_swish else 2
    return Activation(
        name=name,
        derivative=derivative,
        exactly_zero=lambda x, k: (
            k >= top
            or k >= 1
            and x <= -3
            or x >= 3
            and k >= (2 if is_swish else 1)
            or is_swish
            and k == 1
            and x == -1.5
        ),
        at_minus_zero=-0.0 if is_swish else 0.5,
        **aten_forms(name, backward=getattr(torch.ops.aten, name + "_backward")),
        saves="input",
        kinks=(-3.0, 3.0),
    )


def shrink_row(name, lambd, shift):
    return Activation(
        name=name,
        derivative=lambda m, x, k: shrink(m, x, k, lambd, shift),
        exactly_zero=lambda x, k: k >= 1 and abs(x) <= lambd or k >= 2,
        at_minus_zero=0.0,
        **aten_forms(
            name,
            lambd,
            backward=lambda g, x: getattr(torch.ops.aten, name + "_backward")(g, x, lambd),
        ),
        saves="input",
        in_place_saves_result=not shift,
        kinks=(-lambd, lambd),
        forbidden=(
            tuple(
                ({"lambd": wrong}, RuntimeError, "lambd to be at least 0")
                for wrong in (-1.0, math.nan)
            )
            if shift
            else ()
        ),
        **others({"lambd": lambd}, lambd=0.5),
    )


def exponential_row(name, alpha, scale, rate, aten_rate, **rest):
    """Returns a row of elu or celu."""
    arguments = alpha, scale, aten_rate

    def backward(g, x):
        return torch.ops.aten.elu_backward(g, *arguments, False, x)

    forms = aten_forms(name, *arguments if name == "elu" else (alpha,), backward=backward)
    return Activation(
        name=name,
        derivative=lambda m, x, k: elu(m, x, k, alpha, scale, rate),
        exactly_zero=lambda x, k: k >= 1 and x == -torch.inf and aten_rate > 0 or k >= 2 and x > 0,
        at_minus_zero=-0.0,
        branch_points=tuple(x / aten_rate for x in EXPONENTIAL_BRANCHES if aten_rate > 0),
        **forms,
        saves="input",
        from_result=lambda m, r, k: elu_from_result(m, r, k, alpha, scale, rate),
        result_suffices=(
            scale > 0
            and alpha * aten_rate >= 0
            and all(
                v == 0 or 2**-100 <= abs(v) <= 2**100 for v in (scale, alpha * scale, aten_rate)
            )
        ),
        **rest,
    )


def elu_row(alpha, scale, input_scale):
    parameters = {"alpha": alpha, "scale": scale, "input_scale": input_scale}
    parameters = others(parameters, alpha=1.0, scale=1.0, input_scale=1.0)
    return exponential_row(
        "elu", alpha, scale, lambda m: m.number(input_scale), input_scale, **parameters
    )


def celu_row(alpha):
    return exponential_row(
        "celu", alpha, 1.0, lambda m: m.number(1) / m.number(alpha), 1 / alpha,
        forbidden=(({"alpha": 0.0}, RuntimeError, "alpha to be other than 0"),),
        **others({"alpha": alpha}, alpha=1.0),
    )  # fmt: skip


def gate_row(derivative, forms, branch_points, zeros=()):
    """Returns a row of x times a function like sigmoid. `zeros` contains pairs (x, k) for which the
    k-th derivative is 0."""
    return Activation(
        name=derivative.__name__,
        derivative=derivative,
        exactly_zero=lambda x, k: (
            k >= 1 and x == -math.inf or k >= 2 and x == math.inf or (x, k) in zeros
        ),
        at_minus_zero=-0.0,
        branch_points=both_signs(branch_points),
        **forms,
        saves="input",
        kinks=(),
    )


def softplus_row(beta, threshold):
    return Activation(
        name="softplus",
        derivative=lambda m, x, k: softplus(m, x, k, beta, threshold),
        exactly_zero=lambda x, k: (
            k >= 1 and x == -math.inf or k >= 2 and x * beta > threshold or k == 3 and x == 0
        ),
        at_minus_zero=math.log(2) / beta,
        branch_points=both_signs(x / beta for x in (*REDUCTIONS, *segment_ends(18))),
        **aten_forms(
            "softplus", beta, threshold,
            backward=lambda g, x: torch.ops.aten.softplus_backward(g, x, beta, threshold),
        ),
        saves="input",
        kinks=(threshold / beta,),
        bounds_of_others={(torch.float32, 0): 2.0},
        **others({"beta": beta, "threshold": threshold}, beta=1.0, threshold=20.0),
    )  # fmt: skip


ACTIVATIONS = (
    Activation(
        name="selu",
        derivative=selu,
        exactly_zero=lambda x, k: k >= 1 and x == -torch.inf or k >= 2 and x > 0,
        at_minus_zero=-0.0,
        # Points where e^x changes its reduction, where the value reaches its limit, and where e^x
        # becomes subnormal.
        branch_points=(*(-(n + 0.5) * math.log(2) for n in range(60)), -40.0, -708.396, -745.133),
        aten=torch.selu,
        aten_=torch.selu_,
        aten_out=lambda x, out: torch.ops.aten.elu.out(x, *ELU_ARGUMENTS, out=out),
        aten_backward=lambda g, x: torch.ops.aten.elu_backward(g, *ELU_ARGUMENTS, False, x),
        saves="input",
        from_result=selu_from_result,
    ),
    Activation(
        name="relu",
        derivative=relu,
        exactly_zero=lambda x, k: k >= 1 and x <= 0 or k >= 2,
        at_minus_zero=-0.0,
        aten=torch.relu,
        aten_=torch.relu_,
        aten_out=lambda x, out: torch.ops.aten.clamp_min.out(x, 0, out=out),
        aten_backward=lambda g, x: torch.ops.aten.threshold_backward(g, x, 0),
        saves="result",
    ),
    *(leaky_relu_row(slope) for slope in (0.01, 0.25, -0.5)),
    relu6_row(),
    *(hardtanh_row(*bounds) for bounds in ((-1.0, 1.0), (-2.5, 0.75))),
    *(threshold_row(*arguments) for arguments in ((0.5, 0.25), (-1.0, 20.0))),
    *(hard_row(hard) for hard in (hardswish, hardsigmoid)),
    Activation(
        name="softsign",
        derivative=softsign,
        exactly_zero=lambda x, k: k >= 1 and abs(x) == torch.inf or k == 2 and x == 0,
        at_minus_zero=-0.0,
        **composed(torch.nn.functional.softsign),
        saves="input",
    ),
    *(shrink_row("softshrink", lambd, lambd) for lambd in (0.5, 0.75)),
    *(shrink_row("hardshrink", lambd, 0) for lambd in (0.5, 0.75)),
    Activation(
        name="squared_relu",
        derivative=squared_relu,
        exactly_zero=lambda x, k: x <= 0 and k >= 1 or k == 3,
        at_minus_zero=0.0,
        **composed(
            lambda x: torch.relu(x).square(),
            lambda g, x: torch.ops.aten.threshold_backward(g * 2 * x, x, 0),
        ),
        saves="input",
    ),
    *(elu_row(*a) for a in ((1.0, 1.0, 1.0), (1.75, 0.875, 0.625), (1.0, 1.0, -1.0))),
    *(celu_row(alpha) for alpha in (1.0, 0.3)),
    Activation(
        name="sigmoid",
        derivative=sigmoid,
        exactly_zero=lambda y, k: k == 1 and y in (0, 1) or k == 2 and y == 0.5,
        at_minus_zero=0.5,
        branch_points=both_signs(REDUCTIONS),
        **aten_forms("sigmoid", backward=torch.ops.aten.sigmoid_backward),
        saves="result",
        takes_output=True,
        kinks=(),
    ),
    Activation(
        name="tanh",
        derivative=tanh,
        exactly_zero=lambda y, k: k == 1 and abs(y) == 1 or k == 2 and y == 0,
        at_minus_zero=-0.0,
        branch_points=both_signs(
            (0.55, 20.0, *(x / 2 for x in REDUCTIONS), *full_table_ends(9.1, 1.6, -0.0878))
        ),
        **aten_forms("tanh", backward=torch.ops.aten.tanh_backward),
        saves="result",
        takes_output=True,
        kinks=(),
    ),
    gate_row(
        silu,
        aten_forms("silu", backward=torch.ops.aten.silu_backward),
        (*REDUCTIONS, *full_table_ends(109, 0.71, -0.004625, 1.927e-5)),
        {(0, 3)},
    ),
    gate_row(
        gelu,
        aten_forms("gelu", backward=torch.ops.aten.gelu_backward),
        (39.0, *(math.sqrt(2 * x) for x in REDUCTIONS), *segment_ends(14.7)),
        {(0, 3), (2, 3), (-2, 3)},
    ),
    gate_row(
        gelu_tanh,
        composed(
            lambda x: torch.ops.aten.gelu(x, approximate="tanh"),
            lambda g, x: torch.ops.aten.gelu_backward(g, x, approximate="tanh"),
        ),
        (6.0, 22.0, *map(gelu_tanh_inverse, REDUCTIONS), *segment_ends(11.1)),
        {(0, 3)},
    ),
    gate_row(
        quick_gelu,
        composed(lambda x: x * torch.sigmoid(1.702 * x)),
        (14.0, 448.0, *(x / 1.702 for x in REDUCTIONS), *segment_ends(11)),
        {(0, 3)},
    ),
    gate_row(
        mish,
        aten_forms("mish", backward=torch.ops.aten.mish_backward),
        (14.0, *REDUCTIONS, *segment_ends(18)),
    ),
    *(softplus_row(*arguments) for arguments in ((1.0, 20.0), (2.0, 3.0))),
    Activation(
        name="log_sigmoid",
        derivative=log_sigmoid,
        exactly_zero=lambda x, k: (
            k >= 1 and x == math.inf or k >= 2 and x == -math.inf or k == 3 and x == 0
        ),
        at_minus_zero=-math.log(2),
        branch_points=both_signs((*REDUCTIONS, *segment_ends(18))),
        # The result of ATen's log_sigmoid does not have the strides of elementwise operators.
        **composed(lambda x: -torch.nn.functional.softplus(-x)),
        saves="input",
        kinks=(),
    ),
    Activation(
        name="tanhshrink",
        derivative=tanhshrink,
        exactly_zero=lambda x, k: x == 0 and k in (1, 2) or k >= 2 and abs(x) == math.inf,
        at_minus_zero=-0.0,
        branch_points=both_signs(
            (0.5, 9.0, 20.0, *(x / 2 for x in REDUCTIONS), *segment_ends(9.2))
        ),
        **composed(torch.nn.functional.tanhshrink),
        saves="input",
        kinks=(),
    ),
)

# Each operator once, with its default parameters if it has defaults.
OPERATORS = tuple({act.name: act for act in reversed(ACTIVATIONS)}.values())[::-1]


def kind(act):
    """Returns what determines the registration templates of an activation's operators."""
    in_place = act.takes_is_result, act.in_place_saves_result
    return (bool(act.parameters), act.saves, act.takes_output, *in_place)


# The first activation of each kind, for tests that do not depend on the formula.
REPRESENTATIVES = tuple({kind(act): act for act in reversed(ACTIVATIONS)}.values())[::-1]
