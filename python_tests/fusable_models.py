"""Models that can be fused, for the tests of fuse_(), convert() and optimize()."""

import torch
from torch import nn
from torch.nn import functional as F

from support import values


def norm(channels, kind=nn.BatchNorm2d, **settings):
    """Returns a batch norm with statistics, as after training."""
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
    """Like torchvision's block: one in-place activation used twice, and an in-place addition."""

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
        call = getattr(torch.ops.fastact, f"fused_{name}")
        y = call(self.conv1(x), *affine(self.norm1), dim=1)
        identity = x if self.downsample is None else self.downsample(x)
        return call(self.conv2(y), *affine(self.norm2), identity, dim=1)


class Gated(nn.Module):
    """A gated unit. `way` chooses how it is written."""

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
        return torch.ops.fastact.fused_silu(a, gate=b)


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
