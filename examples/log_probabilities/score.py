"""Computes the log-probabilities of sequences twice, whole sequences in a batch and token by token,
and counts the results that differ: python score.py

In reinforcement learning, a server computes log-probabilities token by token, and the trainer those
of whole sequences. If they differ, the trainer takes rounding errors for a change of the policy.
The table shows which operators give different bits, and what it costs to avoid that.
"""

import argparse
import math
import statistics
import time
from collections import Counter
from functools import partial

import torch
from torch import nn
from torch.nn import functional

import fastact

# The ways to compute, by the title of a column.
WAYS = ("PyTorch", "FastAct", "FastAct, products in tiles")
TILE = 32


class Operators:
    """The operators of the model, by one of WAYS. Row i of a result is computed from row i of the
    first operand."""

    def __init__(self, way: str):
        source = functional if way == "PyTorch" else fastact.functional
        self.rms_norm = source.rms_norm
        self.softmax = partial(source.softmax, dim=-1)
        self.silu = source.silu
        self.log_softmax = partial(source.log_softmax, dim=-1)
        self.product = product_in_tiles if way == WAYS[2] else torch.matmul


def product_in_tiles(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Returns x @ y. Every matrix product has TILE rows, however many rows x has."""
    rows = x.shape[-2]
    if y.dim() == 2:  # a weight: all rows are alike
        flat = x.reshape(-1, x.shape[-1])
        return product_in_tiles(flat[None], y[None])[0].reshape(*x.shape[:-1], -1)
    tiles = functional.pad(x, (0, 0, 0, -rows % TILE)).unflatten(-2, (-1, TILE))
    others = y.unsqueeze(-3).expand(*tiles.shape[:-2], -1, -1)
    products = torch.bmm(tiles.flatten(0, -3), others.flatten(0, -3))
    return products.unflatten(0, tiles.shape[:-2]).flatten(-3, -2)[..., :rows, :]


class Block(nn.Module):
    """A block of Llama: attention, and a gated network, each behind an RMSNorm."""

    def __init__(self, width: int, heads: int, inner: int):
        super().__init__()
        self.heads = heads
        self.norms = nn.ParameterList([nn.Parameter(torch.ones(width)) for _ in range(2)])
        self.qkv, self.out = matrix(width, 3 * width), matrix(width, width)
        self.gate, self.up = matrix(width, inner), matrix(width, inner)
        self.down = matrix(inner, width)

    def forward(self, x, cache, start, ops, call):
        """Computes the tokens of x, of which the first is token `start` of its sequence. Writes
        their keys and values to the cache. call(name, operator, *tensors) runs an operator."""

        def linear(x, weight):
            return call("linear layers", lambda x: ops.product(x, weight), x)

        def norm(x, weight):
            return call("RMSNorm", lambda x: ops.rms_norm(x, weight.shape, weight, 1e-5), x)

        end = start + x.shape[1]
        q, *new = (
            linear(norm(x, self.norms[0]), self.qkv).unflatten(-1, (3, self.heads, -1)).unbind(2)
        )
        for kept, each in zip(cache, new):
            kept[:, :, start:end] = each.transpose(1, 2)
        keys, values = cache
        scores = call("products in attention", ops.product, q.transpose(1, 2), keys.transpose(2, 3))
        position = torch.arange(keys.shape[2], device=x.device)
        future = position > position[start:end, None]
        scores = (scores / math.sqrt(q.shape[-1])).masked_fill(future, -math.inf)
        weights = call("softmax", ops.softmax, scores)
        mixed = call("products in attention", ops.product, weights, values)
        x = x + linear(mixed.transpose(1, 2).flatten(2), self.out)
        y = norm(x, self.norms[1])
        gate = call("SiLU", ops.silu, linear(y, self.gate))
        return x + linear(gate * linear(y, self.up), self.down)


class Transformer(nn.Module):
    def __init__(self, vocabulary: int, width: int = 128, heads: int = 4, blocks: int = 2):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads, 344) for _ in range(blocks))
        self.head = matrix(width, vocabulary)
        self.of_cache = heads, width // heads

    def caches(self, tokens):
        """Returns empty caches: for each block, the keys and values of all tokens, set to 0."""
        heads, width = self.of_cache
        shape = len(tokens), heads, tokens.shape[1], width
        return [(self.head.new_zeros(shape), self.head.new_zeros(shape)) for _ in self.blocks]

    def forward(self, tokens, caches, start, ops, call):
        """Returns the log-probabilities of what may follow each token."""
        x = self.embedding(tokens)
        for block, cache in zip(self.blocks, caches):
            x = block(x, cache, start, ops, call)
        logits = call("linear layers", lambda x: ops.product(x, self.head), x)
        return call("log-softmax", ops.log_softmax, logits)

    def by_token(self, tokens, ops):
        """Returns the same log-probabilities, computed token by token."""
        caches = self.caches(tokens)
        each = [
            self(token, caches, i, ops, plain) for i, token in enumerate(tokens.split(1, dim=1))
        ]
        return torch.cat(each, dim=1)


def matrix(rows: int, columns: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(rows, columns) / math.sqrt(rows))


def plain(name, operator, *tensors):
    return operator(*tensors)


class Changes:
    """Calls operators, and counts the results that change if each token is computed alone."""

    def __init__(self):
        self.results, self.changed = Counter(), Counter()

    def call(self, name, operator, x, *others):
        result = operator(x, *others)
        for i in range(len(x)):
            of_sequence = [other[i : i + 1] for other in others]
            rows = [operator(row, *of_sequence) for row in x[i : i + 1].split(1, dim=-2)]
            self.changed[name] += int((torch.cat(rows, dim=-2) != result[i]).sum())
        self.results[name] += result.numel()
        return result


def milliseconds(score, device: str) -> float:
    times = []
    for _ in range(7):
        start = time.perf_counter()
        score()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)


def column(
    model: Transformer, tokens: torch.Tensor, way: str
) -> tuple[Counter, Counter, list[str]]:
    """Returns the number of results by operator, the number of changed results, and two cells: the
    largest difference and the time."""
    ops, changes = Operators(way), Changes()
    whole = model(tokens, model.caches(tokens), 0, ops, changes.call)
    by_token = torch.cat([model.by_token(each, ops) for each in tokens.split(1)])
    changes.results["log-probabilities of the model"] = whole.numel()
    changes.changed["log-probabilities of the model"] = int((whole != by_token).sum())
    took = milliseconds(
        lambda: model(tokens, model.caches(tokens), 0, ops, plain), tokens.device.type
    )
    largest = float((whole - by_token).abs().max())
    return changes.results, changes.changed, [f"{largest:.1e}", f"{took:.1f}"]


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--batch", type=int, default=8, help="sequences")
    parser.add_argument("--length", type=int, default=32, help="tokens of a sequence")
    parser.add_argument("--vocabulary", type=int, default=1000)
    chosen = parser.parse_args()
    torch.manual_seed(0)
    model = Transformer(chosen.vocabulary).to(chosen.device, getattr(torch, chosen.dtype))
    tokens = torch.randint(chosen.vocabulary, (chosen.batch, chosen.length), device=chosen.device)
    print(f"{chosen.batch} sequences of {chosen.length} tokens, {chosen.dtype}, {chosen.device}\n")
    columns = [column(model, tokens, way) for way in WAYS]
    results = columns[0][0]
    print(
        f"{'results that change':30}{'of':>12}" + "".join(f"{way:>{len(way) + 3}}" for way in WAYS)
    )
    lines = [[name, f"{n:,}", *(f"{c[1][name]:,}" for c in columns)] for name, n in results.items()]
    lines.append(["largest difference", "", *(c[2][0] for c in columns)])
    lines.append(["milliseconds for the batch", "", *(c[2][1] for c in columns)])
    for name, of, *cells in lines:
        print(f"{name:30}{of:>12}" + "".join(f"{x:>{len(w) + 3}}" for x, w in zip(cells, WAYS)))


if __name__ == "__main__":
    main()
