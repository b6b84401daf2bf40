"""The problems, one for each activation: `Model` calls PyTorch, `ModelNew` calls FastAct."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

SHAPES = {"cuda": (4096, 393216), "cpu": (1024, 4096)}

Function = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Problem:
    """PyTorch's function, and the arguments of FastAct's operator after the tensor."""

    pytorch: Function
    pytorch_in_place: Function | None = None
    arguments: tuple = ()
    # The float64 reference. None: PyTorch's function, which loses no digits that float32 has.
    exact: Function | None = None
    # FastAct's error bounds in ULP, of value and gradient. The gradients of tanh and sigmoid are
    # computed from the results, so their bounds are absolute.
    ulp: tuple[float, float] = (1.0, 1.0)
    # The largest permitted distance in ULP from PyTorch's result; 0 means the same bits. Given only
    # if PyTorch's error is small. PyTorch's SELU has errors of up to 2.3 ULP in the value and 2.9
    # in the gradient (CUDA; 1.6 and 1.8 on a CPU). FastAct's value is within half an ULP.
    agreement_ulp: float | None = None


def quick_gelu(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(1.702 * x)


def squared_relu(x: torch.Tensor) -> torch.Tensor:
    return torch.square(torch.relu(x))


def exact_gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(2 * (2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))


def exact_tanhshrink(x: torch.Tensor) -> torch.Tensor:
    z = x * x
    series = x * z * (1 / 3 - z * (2 / 15 - z * (17 / 315 - z * (62 / 2835 - z * 1382 / 155925))))
    return torch.where(x.abs() < 0.05, series, functional.tanhshrink(x))


PROBLEMS = {
    "relu": Problem(torch.relu, torch.relu_, ulp=(0.0, 0.0), agreement_ulp=0.0),
    "selu": Problem(torch.selu, torch.selu_, ulp=(0.501, 0.85), agreement_ulp=3.5),
    "leaky_relu": Problem(functional.leaky_relu, functional.leaky_relu_),
    "relu6": Problem(functional.relu6, lambda x: functional.relu6(x, inplace=True)),
    "hardtanh": Problem(functional.hardtanh, functional.hardtanh_),
    "threshold": Problem(
        lambda x: functional.threshold(x, 0.5, 0.25),
        lambda x: functional.threshold_(x, 0.5, 0.25),
        (0.5, 0.25),
    ),
    "hardswish": Problem(
        functional.hardswish, lambda x: functional.hardswish(x, inplace=True), ulp=(1.9, 1.0)
    ),
    "hardsigmoid": Problem(
        functional.hardsigmoid, lambda x: functional.hardsigmoid(x, inplace=True), ulp=(1.1, 1.0)
    ),
    "softsign": Problem(functional.softsign, ulp=(1.5, 1.0)),
    "softshrink": Problem(functional.softshrink),
    "hardshrink": Problem(functional.hardshrink),
    "squared_relu": Problem(squared_relu),
    "elu": Problem(functional.elu, functional.elu_),
    "celu": Problem(functional.celu, torch.celu_),
    "sigmoid": Problem(torch.sigmoid, torch.sigmoid_, ulp=(1.7, float("inf"))),
    "tanh": Problem(torch.tanh, torch.tanh_, ulp=(1.0, float("inf"))),
    "silu": Problem(functional.silu, lambda x: functional.silu(x, inplace=True), ulp=(1.7, 2.0)),
    "gelu": Problem(
        functional.gelu,
        exact=lambda x: x * torch.special.ndtr(x),
        ulp=(2.0, 2.0),
    ),
    "gelu_tanh": Problem(
        lambda x: functional.gelu(x, approximate="tanh"), exact=exact_gelu_tanh, ulp=(2.0, 2.0)
    ),
    "quick_gelu": Problem(quick_gelu, ulp=(2.0, 2.0)),
    "mish": Problem(functional.mish, lambda x: functional.mish(x, inplace=True), ulp=(2.0, 2.0)),
    "softplus": Problem(functional.softplus, ulp=(2.0, 2.0)),
    "log_sigmoid": Problem(functional.logsigmoid, ulp=(2.0, 2.0)),
    "tanhshrink": Problem(functional.tanhshrink, exact=exact_tanhshrink, ulp=(2.0, 2.0)),
}


class Model(nn.Module):
    def __init__(self, problem: str) -> None:
        super().__init__()
        self.function = PROBLEMS[problem].pytorch

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


class ModelNew(nn.Module):
    """Requires `torch.ops.load_library(".../libfastact.so")` before the first call."""

    def __init__(self, problem: str) -> None:
        super().__init__()
        self.operator = getattr(torch.ops.fastact, problem).default
        self.arguments = PROBLEMS[problem].arguments

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.operator(x, *self.arguments)


def get_inputs(device: str = "cpu", rows: int | None = None) -> list[torch.Tensor]:
    """Returns normally distributed numbers, which reach every branch of the function."""
    shape = (rows or SHAPES[device][0], SHAPES[device][1])
    generator = torch.Generator(device).manual_seed(0)
    return [torch.randn(shape, device=device, generator=generator)]


def get_init_inputs(problem: str) -> list:
    return [problem]
