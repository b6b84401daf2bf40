"""Trains on the handwritten digits with FastAct, in several processes, with or without GPUs.

    torchrun --nproc-per-node 4 train.py --out RUN                            DDP
    torchrun --nproc-per-node 4 train.py --out RUN --data fsdp                FSDP2
    torchrun --nproc-per-node 4 train.py --out RUN --tensor 4                 tensor parallel
    torchrun --nproc-per-node 4 train.py --out RUN --data fsdp --tensor 2     both, on a 2 x 2 mesh

The processes use NCCL if there is a GPU for each of them, else gloo on CPUs. --model is `selu`, a
self-normalizing network, or `swiglu`, a transformer block. Each epoch is saved in RUN. The next
call resumes from there, with any number of processes and in any of these ways.

At the end, the activations of the held-out digits on this mesh are compared with those of one
process. FastAct's activations have the same bits.
"""

import argparse
import functools
import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from sklearn.datasets import load_digits
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

import fastact

HELD_OUT = 360  # of 1,797: a fifth
BATCH = 64  # of all processes together
# The layer's result stays sharded, as a DTensor, and so does the activation.
IN_PARTS = functools.partial(ColwiseParallel, use_local_output=False)


class SelfNormalizing(nn.Module):
    """Pairs of dense layers with SELU, which keeps the activations scaled."""

    def __init__(self, width: int = 128, wide: int = 250, pairs: int = 3):
        super().__init__()
        self.first = nn.Linear(64, width)
        self.pairs = nn.ModuleList(
            nn.ModuleDict({"up": nn.Linear(width, wide), "down": nn.Linear(wide, width)})
            for _ in range(pairs)
        )
        self.last = nn.Linear(width, 10)
        self.activation = fastact.nn.SELU()
        for layer in self.modules():
            if isinstance(layer, nn.Linear):  # LeCun normal: variance 1 / fan_in
                nn.init.kaiming_normal_(layer.weight, nonlinearity="linear")
                nn.init.zeros_(layer.bias)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        x = self.activation(self.first(pixels))
        for pair in self.pairs:
            x = self.activation(pair["down"](self.activation(pair["up"](x))))
        return self.last(x)

    def tensor_parallel(self) -> dict:
        return {"pairs.*.up": IN_PARTS(), "pairs.*.down": RowwiseParallel()}


def recompute_activations(context, op, *args, **kwargs) -> CheckpointPolicy:
    """Selective checkpointing: saves everything except the results of FastAct's operators."""
    if op.namespace == "fastact":
        return CheckpointPolicy.MUST_RECOMPUTE
    return CheckpointPolicy.PREFER_SAVE


class SwiGlu(nn.Module):
    """A transformer block over the 8 rows of an image: attention and silu(x W) * x V."""

    def __init__(self, width: int = 64, hidden: int = 192, heads: int = 4):
        super().__init__()
        self.embedding, self.last = nn.Linear(8, width), nn.Linear(8 * width, 10)
        self.places = nn.Parameter(torch.zeros(8, width))
        self.head = width // heads
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.query, self.key, self.value, self.attended = (
            nn.Linear(width, width, bias=False) for _ in range(4)
        )
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)
        self.activation = fastact.nn.SiLU()

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            layer(x).unflatten(-1, (-1, self.head)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        together = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.attended(together.transpose(1, 2).flatten(2))

    def gated(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.activation(self.gate(x)) * self.up(x))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        x = self.embedding(pixels.view(-1, 8, 8)) + self.places
        x = x + self.attention(self.norms[0](x))
        contexts = functools.partial(create_selective_checkpoint_contexts, recompute_activations)
        x = x + checkpoint(self.gated, self.norms[1](x), use_reentrant=False, context_fn=contexts)
        return self.last(x.flatten(1))

    def tensor_parallel(self) -> dict:
        plan = {name: ColwiseParallel() for name in ("query", "key", "value")}
        plan |= {name: IN_PARTS() for name in ("gate", "up")}
        return plan | {name: RowwiseParallel() for name in ("attended", "down")}


MODELS = {"selu": SelfNormalizing, "swiglu": SwiGlu}


def load_split(device: torch.device) -> tuple[torch.Tensor, ...]:
    """Returns training pixels and labels, then held-out ones, in a fixed random order."""
    digits = load_digits()
    pixels = torch.from_numpy(digits.data).float()
    pixels = (pixels - pixels.mean()) / pixels.std()
    labels = torch.from_numpy(digits.target).long()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    seen, unseen = order[HELD_OUT:], order[:HELD_OUT]
    return tuple(t.to(device) for t in (pixels[seen], labels[seen], pixels[unseen], labels[unseen]))


def distribute(model: nn.Module, mesh: DeviceMesh, data: str) -> nn.Module:
    if mesh["tensor"].size() > 1:
        parallelize_module(model, mesh["tensor"], model.tensor_parallel())
    if data == "fsdp":
        return fully_shard(model, mesh=mesh["data"])
    if mesh["data"].size() > 1:
        return DistributedDataParallel(model, process_group=mesh.get_group("data"))
    return model


class Checkpoints:
    """The checkpoints of a run by epoch, in a folder that all processes share."""

    def __init__(self, folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer):
        self.folder, self.model, self.optimizer = folder, model, optimizer

    def save(self, epoch: int) -> None:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        dcp.save({"model": model, "optimizer": optimizer}, checkpoint_id=self.folder / f"{epoch}")

    def load_last(self) -> int:
        """Loads the last checkpoint and returns its epoch, or 0 if there is none."""
        # `.metadata` is written last, so a folder with this file is complete.
        epochs = [int(file.parent.name) for file in self.folder.glob("*/.metadata")]
        if not epochs:
            return 0
        model, optimizer = get_state_dict(self.model, self.optimizer)
        state = {"model": model, "optimizer": optimizer}
        dcp.load(state, checkpoint_id=self.folder / f"{max(epochs)}")
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        return max(epochs)


def own_part(x: torch.Tensor, mesh: DeviceMesh) -> torch.Tensor:
    """Returns this process's part of a batch. Processes that share tensors get the same part."""
    return x.chunk(mesh["data"].size())[mesh["data"].get_local_rank()]


def whole(x: torch.Tensor, mesh: DeviceMesh) -> torch.Tensor:
    """Returns the tensor whose parts the processes hold. All parts have equally many rows."""
    if isinstance(x, DTensor):
        x = x.full_tensor()
    parts = [torch.empty_like(x) for _ in range(mesh["data"].size())]
    dist.all_gather(parts, x.contiguous(), group=mesh.get_group("data"))
    return torch.cat(parts)


@torch.no_grad()
def evaluate(model: nn.Module, pixels, labels, mesh: DeviceMesh) -> tuple[float, dict]:
    """Returns the accuracy, and how many activations differ from those of one process: FastAct's
    and, for the same inputs, PyTorch's."""
    ours = next(m for m in model.modules() if type(m).__module__ == "fastact.nn")
    theirs = type(ours).__mro__[1]()  # the base class from torch.nn
    differ = {"FastAct": 0, "PyTorch": 0, "of": 0}

    def compare(module, arguments, result):
        inputs = whole(arguments[0], mesh)
        differ["of"] += inputs.numel()
        for name, function, parts in (
            ("FastAct", fastact.functional.__dict__[type(ours).__name__.lower()], result),
            ("PyTorch", theirs, theirs(arguments[0])),
        ):
            differ[name] += (whole(parts, mesh) != function(inputs)).sum().item()

    hook = ours.register_forward_hook(compare)
    logits = whole(model(own_part(pixels, mesh)), mesh)
    hook.remove()
    return (logits.argmax(1) == labels).float().mean().item(), differ


def train(options: argparse.Namespace, device: torch.device) -> None:
    world, rank = dist.get_world_size(), dist.get_rank()
    mesh = init_device_mesh(
        device.type, (world // options.tensor, options.tensor), mesh_dim_names=("data", "tensor")
    )

    def say(text: str) -> None:
        if rank == 0:
            print(text, flush=True)

    torch.manual_seed(0)  # the same weights everywhere
    model = distribute(MODELS[options.model]().to(device), mesh, options.data)
    # On a GPU, Adam with foreach groups parameters, and a group cannot mix tensors and DTensors.
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False)
    checkpoints = Checkpoints(options.out, model, optimizer)
    done = checkpoints.load_last()
    say(
        f"{options.model} on {mesh['data'].size()} ({options.data}) x {mesh['tensor'].size()} "
        f"(tensor) processes, {dist.get_backend()}, from epoch {done + 1}"
    )
    pixels, labels, unseen_pixels, unseen_labels = load_split(device)
    for epoch in range(done + 1, options.epochs + 1):
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(epoch))
        losses = []
        for step, batch in enumerate(order.split(BATCH)[:-1]):  # without the incomplete last batch
            if (rank, epoch, step) == (world - 1, options.die_in, 5):
                print(f"rank {rank} dies in epoch {epoch}, as it was told", flush=True)
                os._exit(1)  # without notifying the other processes
            mine = own_part(batch, mesh).to(device)
            loss = nn.functional.cross_entropy(model(pixels[mine]), labels[mine])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        checkpoints.save(epoch)
        say(f"epoch {epoch}: loss {torch.stack(losses).mean():.4f}, saved in {options.out}/{epoch}")
    accuracy, differ = evaluate(model, unseen_pixels, unseen_labels, mesh)
    say(f"held-out accuracy {accuracy:.1%}")
    say(
        f"activations that differ from one process's, of {differ['of']}: "
        f"FastAct {differ['FastAct']}, PyTorch {differ['PyTorch']}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the run's checkpoints")
    parser.add_argument("--model", choices=MODELS, default="selu")
    parser.add_argument("--data", choices=("ddp", "fsdp"), default="ddp", help="data parallel by")
    parser.add_argument("--tensor", type=int, default=1, help="processes that share each tensor")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--die-in", type=int, help="epoch in which the last process is to die")
    options = parser.parse_args()
    if "LOCAL_RANK" not in os.environ:
        parser.error("expected to be started by torchrun, as the first lines of this file say")
    world = int(os.environ["WORLD_SIZE"])
    if options.tensor < 1 or world % options.tensor:
        parser.error(f"--tensor: expected a divisor of {world} processes, but got {options.tensor}")
    if options.data == "ddp" and 1 < options.tensor < world:
        parser.error("--data ddp: expected --tensor 1 or all processes; --data fsdp takes both")
    if BATCH % (world // options.tensor):
        parser.error(f"expected processes that divide a batch of {BATCH}, but got {world}")
    local = int(os.environ["LOCAL_RANK"])
    if torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"]):
        device = torch.device("cuda", local)
        torch.cuda.set_device(device)
    else:
        device = torch.device("cpu")
        torch.set_num_threads(1)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    train(options, device)
    dist.destroy_process_group()
    # A normal exit may abort in gloo's threads after the work is done (seen with torch 2.11).
    os._exit(0)


if __name__ == "__main__":
    main()
