"""Times a training step in several processes with FastAct's activation and with PyTorch's.

    torchrun --standalone --nproc-per-node 2 benchmarks/distributed.py [--layers 8]

The model is a stack of gated units in bfloat16: silu(x W) * x V and a matrix product. The first
table is for FSDP2, where each process has its own batch. The second table is for tensor
parallelism, where the activation's input is a DTensor. PyTorch, FastAct and FastAct's fused
operator, which includes the product, take turns, one step each. The third table is silu(a) * b
alone, forward and backward, with the sizes of one layer under FSDP2. The tables show medians,
quartiles, and PyTorch's median divided by the others'. Without a GPU for each process the script
runs small layers on CPUs, which only tests the script.
"""

import argparse
import functools
import os
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import fastact  # noqa: F401

GATED_SILU = {
    "PyTorch": lambda a, b: nn.functional.silu(a) * b,
    "FastAct": lambda a, b: torch.ops.fastact.silu(a) * b,
    "FastAct, fused": lambda a, b: torch.ops.fastact.fused_silu(a, gate=b),
}


class Gated(nn.Module):
    def __init__(self, gated_silu, width: int, hidden: int):
        super().__init__()
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)
        self.gated_silu = gated_silu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.gated_silu(self.gate(x), self.up(x)))


def make(how: str, gated_silu, sizes: tuple[int, int], layers: int, device):
    """Makes a model. Its weights are the same for every activation."""
    torch.manual_seed(0)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    with device:
        model = nn.Sequential(*(Gated(gated_silu, *sizes) for _ in range(layers))).bfloat16()
    if how == "FSDP2":
        for layer in model:
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)
    in_parts = functools.partial(ColwiseParallel, use_local_output=False)
    plan = {"*.gate": in_parts(), "*.up": in_parts(), "*.down": RowwiseParallel()}
    return parallelize_module(model, mesh, plan)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
    model(x).float().square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def seconds(function, device: torch.device) -> float:
    def wait():
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    dist.barrier()
    wait()
    start = time.perf_counter()
    function()
    wait()
    return time.perf_counter() - start


def compare(title: str, steps: dict, turns: int, device: torch.device) -> None:
    times = {who: [] for who in steps}
    for turn in range(turns + 5):
        # The order is reversed in every second turn.
        for who in list(steps)[:: 1 if turn % 2 else -1]:
            taken = seconds(steps[who], device)
            if turn >= 5:
                times[who].append(taken * 1e3)
    if dist.get_rank() != 0:
        return
    for who, all_times in times.items():
        low, median, high = statistics.quantiles(all_times, n=4)
        ratio = statistics.median(times["PyTorch"]) / median
        print(f"{title}, {who}: {median:.3f} ms ({low:.3f} to {high:.3f}), ratio {ratio:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--steps", type=int, default=40, help="of each contestant, in turn")
    options = parser.parse_args()
    if "LOCAL_RANK" not in os.environ:
        parser.error("expected to be started by torchrun, as the first lines of this file say")
    local = int(os.environ["LOCAL_RANK"])
    if torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"]):
        device, sizes, rows = torch.device("cuda", local), (4096, 14336), 8192
        torch.cuda.set_device(device)
        name = torch.cuda.get_device_name(device)
    else:
        device, sizes, rows, name = torch.device("cpu"), (128, 448), 256, "CPU"
        torch.set_num_threads(1)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    if dist.get_rank() == 0:
        print(f"{dist.get_world_size()} x {name}, torch {torch.__version__}, {dist.get_backend()}")
        print(f"{options.layers} layers of {sizes[0]} to {sizes[1]}, {rows} rows, bfloat16")
    x = torch.randn(rows, sizes[0], device=device, dtype=torch.bfloat16)
    for how in ("FSDP2", "tensor parallel"):
        steps = {}
        for who, gated_silu in GATED_SILU.items():
            model = make(how, gated_silu, sizes, options.layers, device)
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
            steps[who] = functools.partial(step, model, optimizer, x)
        compare(how, steps, options.steps, device)
        del steps, model, optimizer
    a, b = (x.new_empty(rows, sizes[1]).normal_().requires_grad_() for _ in range(2))
    incoming = torch.randn_like(a)

    def alone(gated_silu):
        return torch.autograd.grad(gated_silu(a, b), (a, b), incoming)

    steps = {who: functools.partial(alone, gated_silu) for who, gated_silu in GATED_SILU.items()}
    compare("silu(a) * b", steps, options.steps, device)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
