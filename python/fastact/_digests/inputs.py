"""What digests and proof feed the operators: whole input spaces and fixed pseudo-random sets.

Every element is a function of its index alone, computed in 64-bit integers, so that any machine and
device makes the same inputs.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch

# How many inputs are tried where there are too many to try them all, as a power of two.
SAMPLE = 27

# Spaces are cut at multiples of this many elements. 2^17 float32 with their digest's words fit the
# second-level cache: on a Zen 5 core 2.8 ns an element, with 2^20 4.5.
BLOCK = 1 << 17

# splitmix64's increment, and two of its finalizer's three rounds (Steele, Lea and Flood, "Fast
# Splittable Pseudorandom Number Generators", 2014).
_STEP = 0x9E3779B97F4A7C15
_ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))

# Words that are alternately left as they are and given ordinary exponents.
_STRIPE = 1 << 12


def signed(word):
    """A 64-bit pattern as the signed integer that torch takes."""
    word &= (1 << 64) - 1
    return word - (1 << 64) if word >> 63 else word


def mix_(words):
    """Mixes each 64-bit word, in place and invertibly."""
    for shift, factor in _ROUNDS:
        # torch shifts signed words: the mask makes it a shift of unsigned ones.
        shifted = (words >> shift).bitwise_and_((1 << 64 - shift) - 1)
        words.bitwise_xor_(shifted).mul_(signed(factor))
    return words


@lru_cache
def _steps(count, device):
    return torch.arange(count, dtype=torch.int64, device=device).mul_(signed(_STEP))


def counters(first, count, device):
    """A fresh tensor of count words, a different one for every index from `first`."""
    return _steps(count, device) + signed(first * _STEP)


@lru_cache
def _ordinary_exponents(dtype):
    """(keep, start): the elements of (word & keep) + start lie in 2^-16..2^16 (float16: 2^-8..2^8),
    whatever the word is."""
    width = 8 * dtype.itemsize
    fraction = -round(math.log2(torch.finfo(dtype).eps))  # the bits behind the exponent's
    exponent_bits = width - fraction - 1
    kept = min(5, exponent_bits - 1)
    keep = 1 << (width - 1) | (1 << (kept + fraction)) - 1
    bias = (1 << (exponent_bits - 1)) - 1
    start = (bias - (1 << (kept - 1))) << fraction
    lanes = range(0, 64, width)
    return signed(sum(keep << lane for lane in lanes)), signed(sum(start << lane for lane in lanes))


def mixed(dtype, operand, first, count, device):
    """Pseudo-random elements first, first + 1, ...: half any bits, half of ordinary size."""
    size = dtype.itemsize
    words = mix_(counters(((operand + 1) << 40) + first * size // 8, count * size // 8, device))
    # The high half of a product is its better half; an element has to have some of it.
    words.bitwise_xor_((words >> 32).bitwise_and_((1 << 32) - 1))
    keep, start = _ordinary_exponents(dtype)
    words.view(-1, _STRIPE)[1::2].bitwise_and_(keep).add_(start)
    return words.view(dtype)


@lru_cache
def _patterns(count, device):
    return torch.arange(count, dtype=torch.int32, device=device)


def every_pattern(dtype, first, count, device):
    """Elements with the bit patterns first, first + 1, ... of a 16-bit or 32-bit type."""
    if dtype.itemsize == 2:
        return (_patterns(count, device) + first).to(torch.int16).view(dtype)
    first -= (first >> 31) << 32
    return (_patterns(count, device) + first).view(dtype)


@dataclass(frozen=True)
class Space:
    """A set of operands: the gradients, then x."""

    description: str
    elements: int
    # operands(first, count, device), for multiples of BLOCK or the whole.
    operands: Callable


def unary_space(dtype, gradients):
    """Every x (float64: 2^28 fixed ones), with gradients of 1."""
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
    """2^30 fixed sets of operands; for one gradient in bfloat16, all 2^32 pairs."""
    if dtype == torch.bfloat16 and gradients == 1:

        def pairs(first, count, device):
            x = every_pattern(dtype, 0, 1 << 16, device)
            g = x[first >> 16 : first + count >> 16]
            return [g.repeat_interleave(1 << 16), x.repeat(len(g))]

        return Space("all 2^32 pairs", 1 << 32, pairs)

    def fixed(first, count, device):
        return [mixed(dtype, i, first, count, device) for i in range(gradients + 1)]

    return Space("fixed 2^30 sets of operands", 1 << 30, fixed)
