"""Trains two small networks on scikit-learn's handwritten digits, and saves them for C++.

    python train.py --library PREFIX/lib/libfastact.so --out OUT

`selu` is a self-normalizing network: SELU, LeCun-normal weights, alpha dropout. `relu` is a small
convolutional network. Both train with `torch.ops.fastact`. Afterwards OUT contains

    selu.pt, relu.pt              the networks as TorchScript archives that call FastAct
    selu.torch.pt, relu.torch.pt  the same weights with PyTorch's operators, for comparison
    heldout.pt                    the held-out digits, their labels, and Python's logits
"""

import argparse
import itertools
import sys
import warnings
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn

HELD_OUT = 360  # of 1,797: a fifth
MODELS = ("selu", "relu")


DROPPED = 0.03


class FastActSelu(nn.Module):
    """SELU and alpha dropout in one pass."""

    p: float

    def __init__(self, p: float):
        super().__init__()
        self.p = p

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.fastact.selu_alpha_dropout(x, self.p, self.training)


class FastActRelu(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.fastact.relu(x)


class SelfNormalizing(nn.Module):
    """Eight dense layers without normalization: SELU keeps the activations scaled."""

    name: str

    def __init__(self, activation: nn.Module, width: int = 128, hidden: int = 7):
        super().__init__()
        self.name = "selu"
        self.register_buffer("scale", torch.ones(64))
        self.register_buffer("shift", torch.zeros(64))
        sizes = [64] + [width] * hidden
        layers: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise(sizes):
            layers += [nn.Linear(inputs, outputs), activation]
        self.layers = nn.Sequential(*layers, nn.Linear(width, 10))
        for layer in self.layers:
            if isinstance(layer, nn.Linear):  # LeCun normal: variance 1 / fan_in
                nn.init.kaiming_normal_(layer.weight, nonlinearity="linear")
                nn.init.zeros_(layer.bias)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.layers(torch.addcmul(self.shift, pixels, self.scale))


class Convolutional(nn.Module):
    """Three convolutions with ReLU over the 8 x 8 image, then one dense layer."""

    name: str

    def __init__(self, activation: nn.Module):
        super().__init__()
        self.name = "relu"
        self.register_buffer("scale", torch.ones(1))
        self.register_buffer("shift", torch.zeros(1))
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            activation,
            nn.Conv2d(16, 32, 3, padding=1),
            activation,
            nn.MaxPool2d(2),
            nn.Conv2d(32, 32, 3, padding=1),
            activation,
            nn.Flatten(),
            nn.Linear(32 * 4 * 4, 10),
        )

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.layers(torch.addcmul(self.shift, pixels, self.scale).view(-1, 1, 8, 8))


def make_model(name: str, library: str) -> nn.Module:
    """Returns the network `name` with the activations of `library`: "fastact" or "torch"."""
    if name == "selu":
        apart = nn.Sequential(nn.SELU(), nn.AlphaDropout(DROPPED))
        return SelfNormalizing(FastActSelu(DROPPED) if library == "fastact" else apart)
    return Convolutional(FastActRelu() if library == "fastact" else nn.ReLU())


def load_split() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns training pixels and labels, then held-out ones, in a fixed random order."""
    digits = load_digits()
    pixels = torch.from_numpy(digits.data).float()
    labels = torch.from_numpy(digits.target).long()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    seen, unseen = order[HELD_OUT:], order[:HELD_OUT]
    return pixels[seen], labels[seen], pixels[unseen], labels[unseen]


def predict(model: nn.Module, pixels: torch.Tensor, batch: int) -> torch.Tensor:
    with torch.inference_mode():
        return torch.cat([model(part) for part in pixels.split(batch)])


def accuracy(logits: torch.Tensor, labels: torch.Tensor) -> float:
    return (logits.argmax(1) == labels).float().mean().item()


def show_progress(text: str, last: bool, milestone: bool) -> None:
    """Prints a line that is overwritten by the next one. In a log, prints milestones only."""
    if sys.stdout.isatty():
        print(f"\r{text}\033[K", end="\n" if last else "", flush=True)
    elif milestone or last:
        print(text, flush=True)


def standardize(model: nn.Module, pixels: torch.Tensor, each_pixel: bool) -> None:
    """Makes the model scale its inputs to mean 0 and variance 1, as self-normalization requires."""
    mean, deviation = pixels.mean(0), pixels.std(0).clamp(min=1.0)  # some pixels are always empty
    if not each_pixel:
        mean, deviation = pixels.mean().view(1), pixels.std().view(1)
    model.scale.copy_(1 / deviation)
    model.shift.copy_(-mean / deviation)


def train(name: str, epochs: int) -> nn.Module:
    """Trains the network `name`. Every run on one machine gives the same weights."""
    torch.manual_seed(0)
    pixels, labels, unseen_pixels, unseen_labels = load_split()
    model = make_model(name, "fastact")
    standardize(model, pixels, each_pixel=name == "selu")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for epoch in range(1, epochs + 1):
        model.train()
        total = 0.0
        for part in torch.randperm(len(labels)).split(32):
            loss = nn.functional.cross_entropy(model(pixels[part]), labels[part])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(part)
        schedule.step()
        model.eval()
        right = accuracy(predict(model, unseen_pixels, 64), unseen_labels)
        show_progress(
            f"training {name}: epoch {epoch:2}/{epochs}, loss {total / len(labels):.4f}, "
            f"held-out accuracy {right:.1%}",
            last=epoch == epochs,
            milestone=epoch % 10 == 0,
        )
    return model


def save(models: dict[str, nn.Module], out: Path, devices: list[str], batch: int) -> None:
    """Writes the archives, and the logits of the eager networks on each device."""
    _, _, pixels, labels = load_split()
    heldout = {
        "pixels": pixels,
        "labels": labels,
        "batch": torch.tensor(batch),
        "threads": torch.tensor(torch.get_num_threads()),
    }
    for name, model in models.items():
        twin = make_model(name, "torch")
        twin.load_state_dict(model.state_dict())
        torch.jit.script(model).save(out / f"{name}.pt")
        torch.jit.script(twin.eval()).save(out / f"{name}.torch.pt")
        for device in devices:
            logits = predict(model.to(device), pixels.to(device), batch).cpu()
            heldout[f"logits.{name}.{device}"] = logits
        model.cpu()
    torch.save(heldout, out / "heldout.pt")


def positive(text: str) -> int:
    """Parses a positive number, for argparse."""
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def why_not_loaded(error: Exception) -> str:
    """Returns the end of a sentence whose subject is the library."""
    cause = str(error.__cause__ or error).splitlines()[0]
    return f"cannot be loaded beside torch {torch.__version__}: {cause}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", required=True, help="the installed libfastact.so")
    parser.add_argument("--out", type=Path, required=True, help="folder for the archives")
    parser.add_argument("--device", action="append", choices=["cpu", "cuda"])
    parser.add_argument("--batch", type=positive, default=64, help="digits in one forward call")
    parser.add_argument("--epochs", type=positive, default=30)
    parser.add_argument("--threads", type=positive, default=1, help="CPU threads, here and in C++")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    # This example shows TorchScript, which newer versions of PyTorch call deprecated.
    warnings.filterwarnings("ignore", message=".*torch.jit.* is deprecated")
    try:
        torch.ops.load_library(options.library)
    except (OSError, RuntimeError) as error:
        sys.exit(f"train: FastAct {why_not_loaded(error)}.")
    options.out.mkdir(parents=True, exist_ok=True)
    models = {name: train(name, options.epochs) for name in MODELS}
    save(models, options.out, options.device or ["cpu"], options.batch)


if __name__ == "__main__":
    main()
