"""Measures the peak memory of forward and backward through layers of Linear and activation."""

import torch

from op_table import Activation
from support import dtype_name

LAYERS = 10
# (batch, features) by device
SHAPES = {"cpu": (2048, 256), "cuda": (16384, 4096)}


class Network(torch.nn.Module):
    def __init__(self, activation, features: int, device: str) -> None:
        super().__init__()
        self.linears = torch.nn.ModuleList(
            torch.nn.Linear(features, features, device=device) for _ in range(LAYERS)
        )
        self.activation = activation

    def forward(self, x):
        for linear in self.linears:
            x = self.activation(linear(x))
        return x


def peak(function, device: str) -> int:
    """Returns the peak memory of a call in bytes, minus the memory in use before it."""
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        function()
        return torch.cuda.max_memory_allocated() - before
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        function()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = most = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most


def measure(acts: list[Activation], device: str) -> list[dict]:
    batch, features = SHAPES[device]
    rows = []
    for act in acts:
        forms = {
            "functional": (act.op, act.aten),
            "in-place": (act.op_, act.aten_),
        }
        for form, functions in forms.items():
            peaks = {}
            for who, function in zip(("fastact", "pytorch"), functions):
                network = Network(function, features, device)
                x = torch.randn(batch, features, device=device)

                def train():
                    network(x).sum().backward()

                train()  # allocates the gradients of the weights, which stay
                peaks[who] = peak(train, device)
            rows.append(
                {
                    "op": act.id,
                    "form": form,
                    "dtype": dtype_name(x.dtype),
                    "device": device,
                    "layers": LAYERS,
                    "batch": batch,
                    "features": features,
                    "bytes": peaks,
                }
            )
            print(line(rows[-1]), flush=True)
    return rows


def line(row: dict) -> str:
    ours, theirs = (row["bytes"][who] / 2**20 for who in ("fastact", "pytorch"))
    more = "  MORE than PyTorch" if row["bytes"]["fastact"] > row["bytes"]["pytorch"] else ""
    return f"{row['op']:16}{row['form']:12}{ours:12.2f} MiB {theirs:12.2f} MiB{more}"
