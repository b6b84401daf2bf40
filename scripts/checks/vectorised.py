"""Checks in the machine code which kernels are vectorized, for a target that cannot be timed here.

    python scripts/checks/vectorised.py build/arm/lib/libfastact_ops.a --objdump OBJDUMP

A kernel is vectorized if one of its innermost loops reads, computes in floating point and writes
whole vector registers, computes no scalars, and calls no function. Exit code 1 if a value or a
first derivative is not vectorized, or if a kernel calls the C library's fma.
"""

import argparse
import re
import subprocess
import sys
from collections import Counter

DTYPES = {"float": "float32", "double": "float64", "BFloat16": "bfloat16", "Float16": "float16"}
# The function over contiguous elements of Loop<Derivative<Activation, Element, Order, FromResult>>.
KERNEL = re.compile(
    r"Loop<[\w:]*::Derivative<[\w:]*::(\w+), (?:[\w:]*::)?(\w+), (\d), (true|false)>\s?>"
    r"::compute\(.*\)>:$"
)
INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+(\S+)\s*(.*)$")
TARGET = re.compile(r"\b([0-9a-f]+) <")
JUMP = re.compile(r"b(\.\w+)?$|cbn?z$|tbn?z$")
VECTOR = re.compile(r"\bv\d+\.(4s|2d|8h|16b)\b")
# Scalar floating-point arithmetic, and scalar branches and selections.
SCALAR = re.compile(
    r"f(n?m(add|sub)|n?mul|add|sub|div|sqrt|cmpe?|ccmpe?|csel|cvt|abs|neg|maxnm|minnm) [sdh]\d"
)


def functions(listing):
    """Yields (name, instructions) of each kernel. An instruction is (address, mnemonic,
    operands)."""
    name, body = None, []
    for line in listing:
        if line.endswith(">:\n"):
            if name:
                yield name, body
            match = KERNEL.search(line)
            name, body = match and match.groups(), []
        elif name and (match := INSTRUCTION.match(line)):
            body.append((int(match[1], 16), match[2], match[3]))
    if name:
        yield name, body


def innermost_loops(body):
    """Yields the code between a backward jump and its target if it contains no other such jump."""
    jumps = []
    for address, mnemonic, operands in body:
        to = JUMP.match(mnemonic) and TARGET.search(operands)
        if to and int(to[1], 16) <= address:
            jumps.append((int(to[1], 16), address))
    for start, end in jumps:
        if not any(start <= s and e <= end and (s, e) != (start, end) for s, e in jumps):
            yield [i for i in body if start <= i[0] <= end]


def is_vectorised(loop):
    reads = writes = computes = False
    for _, mnemonic, operands in loop:
        if mnemonic in ("bl", "blr") or SCALAR.match(f"{mnemonic} {operands}"):
            return False
        whole = re.match(r"q\d+", operands) or VECTOR.search(operands)
        reads |= bool(whole and mnemonic in ("ldr", "ldp", "ldur", "ld1", "ld2"))
        writes |= bool(whole and mnemonic in ("str", "stp", "stur", "st1", "st2"))
        computes |= bool(VECTOR.search(operands) and mnemonic.startswith("f"))
    return reads and writes and computes


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("archive")
    parser.add_argument("--objdump", default="objdump")
    options = parser.parse_args()
    command = [options.objdump, "-d", "--no-show-raw-insn", "-C", options.archive]
    total, failed, plain = Counter(), False, []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for (formula, element, order, from_result), body in functions(process.stdout):
            dtype = DTYPES[element]
            kernel = f"{formula} {dtype} f{chr(39) * int(order)}"
            kernel += " from the result" * (from_result == "true")
            for _, mnemonic, operands in body:
                if mnemonic in ("bl", "b") and re.search(r"<fmaf?(@plt)?>", operands):
                    print(f"vectorised: {kernel} calls {operands}")
                    failed = True
            total[dtype] += 1
            if not any(map(is_vectorised, innermost_loops(body))):
                plain.append(kernel)
                if int(order) <= 1:
                    print(f"vectorised: expected vector instructions in {kernel}, but got none")
                    failed = True
    if process.returncode or not total:
        sys.exit(f"vectorised: expected kernels in {options.archive}, but got none")
    print(
        f"vectorised: {sum(total.values()) - len(plain)} of {sum(total.values())} kernels;"
        f" not: {', '.join(plain) or 'none'}"
    )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
