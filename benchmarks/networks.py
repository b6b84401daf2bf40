"""Models of common families, small enough to be built on any machine.

Each network in NETWORKS uses PyTorch's own operators, as modules and as functions. `width` and
`side` scale the network. library_networks() returns models of torchvision and timm if both are
installed; these libraries have no release for every torch that FastAct supports.
"""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Residual(nn.Module):
    """x + body(x), then an activation."""

    def __init__(self, body: nn.Module, after: nn.Module):
        super().__init__()
        self.body, self.after = body, after

    def forward(self, x: Tensor) -> Tensor:
        return self.after(x + self.body(x))


class Gate(nn.Module):
    """Squeeze and excitation: multiplies channels by a gate that is computed from their means."""

    def __init__(self, channels: int, inner: nn.Module, outer: nn.Module):
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, 8, 1), nn.Conv2d(8, channels, 1)
        self.inner, self.outer = inner, outer

    def forward(self, x: Tensor) -> Tensor:
        return x * self.outer(self.up(self.inner(self.down(F.adaptive_avg_pool2d(x, 1)))))


class Dense(nn.Module):
    """DenseNet's layer: concatenates its result to its input."""

    def __init__(self, channels: int, growth: int):
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(channels), nn.Conv2d(channels, growth, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.conv(F.relu(self.norm(x)))], 1)


class ChannelNorm(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.norm = nn.LayerNorm(channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int = 4):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.qkv(x).reshape(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        return self.out(y.reshape(batch, length, width))


class GatedUnit(nn.Module):
    """SwiGLU, as in Llama."""

    def __init__(self, width: int, inner: int | None = None):
        super().__init__()
        inner = inner or 2 * width
        self.gate, self.up = nn.Linear(width, inner), nn.Linear(width, inner)
        self.down = nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Tokens(nn.Module):
    """Turns an image into a sequence of patches."""

    def __init__(self, width: int):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.patch(x).flatten(2).transpose(1, 2)


class Mean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1)


def unit(inputs: int, outputs: int, act: nn.Module, groups: int = 1, kernel: int = 3) -> nn.Module:
    conv = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), act)


def head(channels: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)]


def resnet(w: int) -> nn.Module:
    body = [nn.Sequential(unit(w, w, nn.ReLU()), unit(w, w, nn.Identity())) for _ in range(3)]
    return nn.Sequential(unit(3, w, nn.ReLU()), *(Residual(b, nn.ReLU()) for b in body), *head(w))


def mobile(w: int, act: Callable, gate: tuple[nn.Module, nn.Module]) -> nn.Module:
    def block() -> nn.Module:
        wide = 3 * w
        layers = [unit(w, wide, act(), kernel=1), unit(wide, wide, act(), groups=wide)]
        return nn.Sequential(*layers, Gate(wide, *gate), unit(wide, w, nn.Identity(), kernel=1))

    blocks = [Residual(block(), nn.Identity()) for _ in range(3)]
    return nn.Sequential(unit(3, w, act()), *blocks, *head(w))


def convnext(w: int) -> nn.Module:
    def block() -> nn.Module:
        layers = [nn.Conv2d(w, w, 7, padding=3, groups=w), ChannelNorm(w), nn.Conv2d(w, 4 * w, 1)]
        return nn.Sequential(*layers, nn.GELU(), nn.Conv2d(4 * w, w, 1))

    blocks = [Residual(block(), nn.Identity()) for _ in range(3)]
    return nn.Sequential(nn.Conv2d(3, w, 4, 4), *blocks, *head(w))


def transformer(w: int, unit_of: Callable) -> nn.Module:
    layers = [Tokens(w)]
    for _ in range(2):
        layers.append(Residual(nn.Sequential(nn.LayerNorm(w), Attention(w)), nn.Identity()))
        layers.append(Residual(nn.Sequential(nn.LayerNorm(w), unit_of(w)), nn.Identity()))
    return nn.Sequential(*layers, Mean(), nn.Linear(w, 10))


def two_linear(act: nn.Module) -> Callable:
    return lambda w: nn.Sequential(nn.Linear(w, 4 * w), act, nn.Linear(4 * w, w))


def densenet(w: int) -> nn.Module:
    layers = [Dense(w + i * w // 2, w // 2) for i in range(3)]
    return nn.Sequential(nn.Conv2d(3, w, 3, padding=1), *layers, *head(w + 3 * (w // 2)))


def plain(w: int, act: Callable) -> nn.Module:
    return nn.Sequential(unit(3, w, act()), unit(w, w, act()), unit(w, w, act()), *head(w))


def generator(w: int) -> nn.Module:
    """Returns DCGAN's discriminator followed by its generator."""
    down = [
        nn.Conv2d(3, w, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(w, w, 4, 2, 1),
        nn.LeakyReLU(0.2),
    ]
    up = [
        nn.ConvTranspose2d(w, w, 4, 2, 1),
        nn.ReLU(),
        nn.ConvTranspose2d(w, 3, 4, 2, 1),
        nn.Tanh(),
    ]
    return nn.Sequential(*down, *up)


def mlp(w: int, act: Callable) -> nn.Module:
    layers = [nn.Flatten(), nn.LazyLinear(8 * w), act()]
    for _ in range(3):
        layers += [nn.Linear(8 * w, 8 * w), act()]
    return nn.Sequential(*layers, nn.Linear(8 * w, 10))


@dataclass(frozen=True)
class Network:
    name: str
    make: Callable[[int], nn.Module]
    least_side: int = 16

    def model(self, width: int, side: int) -> nn.Module:
        return self.make(width)

    def build(self, width: int, side: int) -> tuple[nn.Module, Callable[[int], Tensor]]:
        """Returns the model for inference, and a function that makes inputs of a batch size. Every
        call returns the same model and inputs."""
        side = max(side, self.least_side)
        torch.manual_seed(0)
        model = self.model(width, side)

        def inputs(batch: int) -> Tensor:
            return torch.randn(batch, 3, side, side, generator=torch.Generator().manual_seed(1))

        model(inputs(8))  # sets the shapes of lazy layers and the statistics of batch norms
        return model.eval(), inputs


NETWORKS = (
    Network("resnet", resnet),
    Network("mobilenetv3", lambda w: mobile(w, nn.Hardswish, (nn.ReLU(), nn.Hardsigmoid()))),
    Network("mobilenetv2", lambda w: mobile(w, nn.ReLU6, (nn.ReLU6(), nn.Sigmoid()))),
    Network("efficientnet", lambda w: mobile(w, nn.SiLU, (nn.SiLU(), nn.Sigmoid()))),
    Network("convnext", convnext),
    Network("vit", lambda w: transformer(w, two_linear(nn.GELU()))),
    Network("vit_gelu_tanh", lambda w: transformer(w, two_linear(nn.GELU("tanh")))),
    Network("llama", lambda w: transformer(w, GatedUnit)),
    Network("densenet", densenet),
    Network("darknet_mish", lambda w: plain(w, nn.Mish)),
    Network("darknet_leaky", lambda w: plain(w, lambda: nn.LeakyReLU(0.1))),
    Network("face_prelu", lambda w: plain(w, nn.PReLU)),
    Network("dcgan", generator),
    Network("mlp_selu", lambda w: mlp(w, nn.SELU)),
    Network("mlp_elu", lambda w: mlp(w, nn.ELU)),
    Network("mlp_celu", lambda w: mlp(w, lambda: nn.CELU(0.7))),
    Network("mlp_softplus", lambda w: mlp(w, nn.Softplus)),
    Network("mlp_logsigmoid", lambda w: mlp(w, nn.LogSigmoid)),
)


@dataclass(frozen=True)
class LibraryNetwork(Network):
    """A network of a library, for images of a given size, in the library's own width.

    Its activations are as large as those of a trained network: build() sets the statistics of batch
    norms with images, and gives weights to a head that starts with zeros, such as that of vit_b_16.
    Dropout is disabled in training, so that a run can be repeated in another type.
    """

    least_side: int = 64

    def model(self, width: int, side: int) -> nn.Module:
        model = self.make(side)
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.momentum = 1.0
            elif type(module).__name__ in ("Dropout", "StochasticDepth"):
                module.p = 0.0
            elif isinstance(module, nn.Linear) and not module.weight.any():
                nn.init.xavier_uniform_(module.weight)
        return model


def library_networks() -> tuple[Network, ...]:
    """Returns models of torchvision and timm with random weights, or none if one of the two is not
    installed. Two models of timm are built with Mish and SELU, because no configuration of timm
    uses these.
    """
    if not all(importlib.util.find_spec(name) for name in ("torchvision", "timm")):
        return ()
    import timm
    from torchvision import models

    def of_timm(name: str, **options: object) -> Callable[[int], nn.Module]:
        return lambda side: timm.create_model(name, scriptable=True, **options)

    return (
        LibraryNetwork("resnet50", lambda side: models.resnet50()),
        LibraryNetwork("mobilenet_v3_large", lambda side: models.mobilenet_v3_large()),
        LibraryNetwork("efficientnet_b0", lambda side: models.efficientnet_b0()),
        LibraryNetwork("convnext_tiny", lambda side: models.convnext_tiny()),
        LibraryNetwork("vit_b_16", lambda side: models.vit_b_16(image_size=side)),
        LibraryNetwork("swin_t", lambda side: models.swin_t()),
        LibraryNetwork("densenet121", lambda side: models.densenet121()),
        LibraryNetwork("timm.cspdarknet53 (mish)", of_timm("cspdarknet53", act_layer=nn.Mish)),
        LibraryNetwork("timm.resnet26 (selu)", of_timm("resnet26", act_layer=nn.SELU)),
        LibraryNetwork("timm.tresnet_m", of_timm("tresnet_m")),
        LibraryNetwork("timm.hardcorenas_a", of_timm("hardcorenas_a")),
        LibraryNetwork("timm.regnety_008", of_timm("regnety_008")),
        LibraryNetwork("timm.efficientnetv2_rw_t", of_timm("efficientnetv2_rw_t")),
        LibraryNetwork("timm.poolformer_s12", of_timm("poolformer_s12")),
    )


class GatedUnitNetwork(Network):
    """The feed-forward half of a language model's block, in a common size, for 128 tokens."""

    def build(self, width: int, side: int) -> tuple[nn.Module, Callable[[int], Tensor]]:
        torch.manual_seed(0)

        def inputs(batch: int) -> Tensor:
            return torch.randn(batch, 128, 4096, generator=torch.Generator().manual_seed(1))

        return self.make(4096).eval(), inputs


SWIGLU = GatedUnitNetwork("swiglu", lambda w: GatedUnit(w, 14336))
