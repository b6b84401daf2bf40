"""Inputs for digests and for the proof: whole input spaces and fixed pseudo-random sets.

Each element depends only on its index and is computed in 64-bit integers, so that all machines and
devices have the same inputs.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch

# log2 of the number of inputs that are tested where there are too many to test all.
SAMPLE = 27

# Spaces are divided at multiples of this many elements. 2^17 float32 and the words of their digest
# fit the L2 cache: on a Zen 5 core, 2.8 ns per element, and 4.5 with 2^20.
BLOCK = 1 << 17

# splitmix64's increment, and two of its finalizer's three rounds (Steele, Lea and Flood, "Fast
# Splittable Pseudorandom Number Generators", 2014).
_STEP = 0x9E3779B97F4A7C15
_ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))

# The length of the stripes of words that alternately keep their bits and get ordinary exponents.
_STRIPE = 1 << 12


def signed(word):
    """Returns a 64-bit pattern as a signed integer, as torch needs it."""
    word &= (1 << 64) - 1
    return word - (1 << 64) if word >> 63 else word


def mix_(words):
    """Mixes each 64-bit word, in place and invertibly."""
    for shift, factor in _ROUNDS:
        # torch shifts signed words; the mask makes this an unsigned shift.
        shifted = (words >> shift).bitwise_and_((1 << 64 - shift) - 1)
        words.bitwise_xor_(shifted).mul_(signed(factor))
    return words


@lru_cache
def _steps(count, device):
    return torch.arange(count, dtype=torch.int64, device=device).mul_(signed(_STEP))


def counters(first, count, device):
    """Returns a new tensor of `count` words, which differ for every index from `first` on."""
    return _steps(count, device) + signed(first * _STEP)


@lru_cache
def _ordinary_exponents(dtype):
    """Returns (keep, start) such that for every word, the elements of (word & keep) + start are in
    2^-16..2^16 (float16: 2^-8..2^8)."""
    width = 8 * dtype.itemsize
    fraction = -round(math.log2(torch.finfo(dtype).eps))  # the number of fraction bits
    exponent_bits = width - fraction - 1
    kept = min(5, exponent_bits - 1)
    keep = 1 << (width - 1) | (1 << (kept + fraction)) - 1
    bias = (1 << (exponent_bits - 1)) - 1
    start = (bias - (1 << (kept - 1))) << fraction
    lanes = range(0, 64, width)
    return signed(sum(keep << lane for lane in lanes)), signed(sum(start << lane for lane in lanes))


def mixed(dtype, operand, first, count, device):
    """Returns the pseudo-random elements first, first + 1, ...: half have any bits, and half have
    ordinary size."""
    size = dtype.itemsize
    words = mix_(counters(((operand + 1) << 40) + first * size // 8, count * size // 8, device))
    # The high half of a product is more random: mix it into every element.
    words.bitwise_xor_((words >> 32).bitwise_and_((1 << 32) - 1))
    keep, start = _ordinary_exponents(dtype)
    words.view(-1, _STRIPE)[1::2].bitwise_and_(keep).add_(start)
    return words.view(dtype)


@lru_cache
def _patterns(count, device):
    return torch.arange(count, dtype=torch.int32, device=device)


def every_pattern(dtype, first, count, device):
    """Returns elements of a 16-bit or 32-bit type with the bit patterns first, first + 1, ..."""
    if dtype.itemsize == 2:
        return (_patterns(count, device) + first).to(torch.int16).view(dtype)
    first -= (first >> 31) << 32
    return (_patterns(count, device) + first).view(dtype)


@dataclass(frozen=True)
class Space:
    """A set of operands: the incoming gradients, then x."""

    description: str
    elements: int
    # operands(first, count, device), for multiples of BLOCK or for the whole space.
    operands: Callable


def unary_space(dtype, gradients):
    """Returns the space of every x (float64: 2^28 fixed x), with gradients of 1."""
    elements = 1 << min(8 * dtype.itemsize, 28 if dtype == torch.float64 else 32)

    def operands(first, count, device):
        if dtype == torch.float64:
            x = mixed(dtype, 0, first, count, device)
        else:
            x = every_pattern(dtype, first, count, device)
        return [torch.ones_like(x)] * gradients + [x]

    kind = "fixed" if dtype == torch.float64 else "all"
    return Space(f"{kind} 2^{elements.bit_length() - 1} inputs", elements, operands)


def gradient_space(dtype, gradients):
    """Returns 2^30 fixed sets of operands, or all 2^32 pairs for one gradient in bfloat16."""
    if dtype == torch.bfloat16 and gradients == 1:

        def pairs(first, count, device):
            x = every_pattern(dtype, 0, 1 << 16, device)
            g = x[first >> 16 : first + count >> 16]
            return [g.repeat_interleave(1 << 16), x.repeat(len(g))]

        return Space("all 2^32 pairs", 1 << 32, pairs)

    def fixed(first, count, device):
        return [mixed(dtype, i, first, count, device) for i in range(gradients + 1)]

    return Space("fixed 2^30 sets of operands", 1 << 30, fixed)
