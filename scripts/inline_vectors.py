"""Writes inline assembly of the formulas for x86 from the assembly of ops/cpu/one_vector.cpp.

    python scripts/inline_vectors.py avx2=one.s avx512=other.s --output vectors.json

The output contains, for each instruction set, by the names that ops/forms/given.h explains:

    functions  the number of operands, and the code for asm statements of GNU C++. Straight-line
               code (straight_code.py) is a list of instructions, one statement for each: its text,
               in which its result is called o0 and its inputs o1, o2 and so on; its result, a
               vector (v5) or a mask (k5); the previous value of the result, if the instruction
               changes it; its inputs. v0, v1 and so on are the operands, c0 and so on the
               constants: all bytes of a vector, or four bytes that it repeats, or @0, a parameter
               as float64 in every place.
               Other code is one text. It takes the operands in %xmm0, %xmm1 and so on (or %ymm0,
               %zmm0) and leaves the result in the first of these. Also listed: whether it reads
               parameters, which are float64 numbers at .Lfastact_parameters_%=; which registers it
               changes; and which data it reads
    data       by label, the directives that define it, in a separate section
    ordinary   the bounds of the parameters, for the functions with ordinary parameters

A function that calls another one is omitted. Needs only Python. CMake calls this script.
"""

import argparse
import json
import re
import struct
import sys
from pathlib import Path

from straight_code import NotStraight, StraightCode

FUNCTION = re.compile(r"^(\w+__(?:\d|unrounded)__\w+__\w+):\n(.*?)^\t\.size", re.S | re.M)
LABEL = re.compile(r"^([\w.$]+):$")
# Lines of a function that are neither instructions nor labels of jumps.
NO_INSTRUCTION = re.compile(r"^(?:\.LF[BE]\d+:|\s+\.(?:cfi_\w+|p2align|loc|align)\b.*)$")
MISSING = re.compile(r"^\s+ud2\b", re.M)
# Code that an inlined function cannot contain: a call, or an instruction that clears other
# registers.
FOREIGN = re.compile(
    r"^\s+(?:call|vzero\w+)\b|@PLT|^\s+\.(?:section|text)\b|^\s+j\w+\s+(?!\.L)", re.M
)
# The number 1 that is hidden from the compiler, in a variable of another file.
HIDDEN_ONE = re.compile(r"movq\s+\w*kHiddenOneE@GOTPCREL\(%rip\)")
REFERENCE = re.compile(r"([.\w$]+)((?:\+\d+)?\(%rip\))")
REGISTER = re.compile(
    r"%(?:[xyz]mm(\d+)|(k[0-7])|r(\d+)[dwb]?|[re]?([abcd])[xlh]\b|[re]?(si|di|bp|sp)l?\b)"
)
SIZES = {"avx2": 32, "avx512": 64}
DATA = {".long": "<I", ".quad": "<Q", ".value": "<H", ".byte": "<B"}


def data_blocks(text: str) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Returns, by label, a section, an alignment and directives; and other names of labels."""
    blocks: dict[str, list[str]] = {}
    others: dict[str, str] = {}
    section, alignment, current = ".text", ".align 1", None
    for line in text.splitlines():
        words = line.split(None, 1)
        if not words:
            continue
        if words[0] in (".section", ".text", ".data", ".bss"):
            section, current = line.strip(), None
        elif words[0] in (".align", ".balign"):
            alignment = line.strip()
        elif words[0] == ".set":
            name, same = words[1].split(",")
            others[name.strip()] = same.strip()
        elif found := LABEL.match(line):
            current = found[1] if "rodata" in section else None
            if current:
                blocks[current] = [section, alignment]
        elif current and words[0] in (*DATA, ".zero"):
            blocks[current].append(line.strip())
    return blocks, others


def bytes_of(directives: list[str]) -> bytes:
    data = b""
    for directive in directives:
        kind, values = directive.split(None, 1)
        if kind == ".zero":
            data += bytes(int(values))
        else:
            size = struct.calcsize(DATA[kind])
            for value in values.split(","):
                data += (int(value, 0) % (1 << 8 * size)).to_bytes(size, "little")
    return data


def block(section: str, alignment: str, directives: list[str]) -> str:
    """Returns the data for a label, with @ in place of the label."""
    lines = [f".pushsection {section}", alignment, "@:", *directives, ".popsection"]
    return "\n".join(" ".join(line.split()) for line in lines)


class Reader:
    """The compiler's output for one instruction set."""

    def __init__(self, isa: str, text: str):
        self.isa = isa
        self.text = text
        self.blocks, self.others = data_blocks(text)
        self.data: dict[str, str] = {}
        self.bytes: dict[str, bytes] = {}
        self.labels: dict[str, str] = {}

    def data_label(self, name: str) -> str | None:
        """Returns our label for data, or None if the name is not that of data."""
        name, _, offset = self.others.get(name, name).partition("+")
        if name not in self.blocks:
            return None
        if name not in self.labels:
            self.labels[name] = f".Lfastact_{self.isa}_{len(self.labels)}"
            section, alignment, *directives = self.blocks[name]
            found = re.search(r"\.rodata\.cst(\d+)", section)
            place = f'{found[0]},"aM",@progbits,{found[1]}' if found else ".rodata"
            self.data[self.labels[name]] = block(place, alignment, directives)
            self.bytes[self.labels[name]] = bytes_of(directives)
        return self.labels[name] + (f"+{offset}" if offset else "")

    def function(self, body: str, operands: int) -> dict | None:
        if FOREIGN.search(body):
            return None
        data: list[str] = []
        changed: set[str] = set()
        code: list[str] = []
        own = set(re.findall(r"^(\.L\w+):$", body, re.M))

        def replaced(found: re.Match) -> str:
            if found[1] in own:
                return found[0]
            label = self.data_label(found[1])
            if label is None:
                raise KeyError(found[1])
            data.append(label.partition("+")[0])
            return label + found[2]

        lines = [line for line in body.splitlines() if line.strip()]
        lines = [line for line in lines if not NO_INSTRUCTION.match(line)]
        while lines and lines[-1].strip() == "ret":
            lines.pop()
        for line in lines:
            text = HIDDEN_ONE.sub("leaq\t.Lfastact_one(%rip)", line.strip())
            if ".Lfastact_one" in text:
                data.append(".Lfastact_one")
                self.data[".Lfastact_one"] = block(
                    ".rodata", ".align 8", [".quad 0x3ff0000000000000"]
                )
            else:
                try:
                    text = REFERENCE.sub(replaced, text)
                except KeyError as unknown:
                    print(f"inline_vectors: unknown data {unknown}", file=sys.stderr)
                    return None
            if text == "ret":
                text = "jmp .Lfastact_end"
            for vector, mask, number, letter, pointer in REGISTER.findall(text):
                changed.add(
                    f"xmm{vector}" if vector else mask if mask else f"r{number}" if number
                    else f"r{letter}x" if letter else f"r{pointer}"
                )  # fmt: skip
            code.append(" ".join(text.split()))
        if any(label not in own for text in code for label in re.findall(r"\.L\d+", text)):
            return None
        try:
            return StraightCode(SIZES[self.isa], self.bytes, operands).read(code)
        except NotStraight:
            pass
        joined = "\n".join(code)
        if ".Lfastact_end" in joined:
            joined += "\n.Lfastact_end:"
        for label in own:
            joined = re.sub(re.escape(label) + r"\b", f".Lfastact_j{label[2:]}", joined)
        reads_parameters = "rdi" in changed
        if reads_parameters:
            joined = "leaq .Lfastact_parameters(%rip), %rdi\n" + joined
        if changed & {"rsp", "rbp"}:
            # A function may keep data below the stack pointer.
            joined = f"leaq -128(%rsp), %rsp\n{joined}\nleaq 128(%rsp), %rsp"
        escaped = re.sub(r"([%{|}])", r"%\1", joined)
        # The labels are local to the statement, which may be copied.
        escaped = re.sub(r"(\.Lfastact_(?:end|parameters|j\w+))", r"\1_%=", escaped)
        return {
            "code": escaped,
            "parameters": reads_parameters,
            "changes": sorted(changed - {"rsp", "rbp"}),
            "data": sorted(set(data)),
        }

    def read(self) -> dict:
        functions, ordinary = {}, {}
        for name, body in FUNCTION.findall(self.text):
            if MISSING.search(body):
                continue
            key = name.rpartition("__")[0]
            (operands,) = struct.unpack("<i", self.value(f"operands_of__{key}"))
            found = self.function(body, operands)
            if found is None:
                print(f"inline_vectors: {name} is called, not inlined", file=sys.stderr)
                continue
            found["operands"] = operands
            functions[name] = found
            if name.endswith("__ordinary") and "__unrounded__" not in name:
                numbers = struct.unpack(
                    f"<{len(data := self.value(f'ordinary_of__{key}')) // 8}d", data
                )
                # As text, because JSON has no infinities.
                ordinary[key] = [
                    [repr(x) for x in numbers[i : i + 2]] for i in range(0, len(numbers), 2)
                ]
        read = {label for found in functions.values() for label in found.get("data", ())}
        data = {label: text for label, text in self.data.items() if label in read}
        return {"functions": functions, "data": data, "ordinary": ordinary}

    def value(self, name: str) -> bytes:
        return bytes_of(self.blocks[name][2:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "outputs", nargs="+", help="an instruction set's name = the compiler's output"
    )
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    found = {}
    for output in arguments.outputs:
        isa, _, path = output.partition("=")
        found[isa] = Reader(isa, Path(path).read_text()).read()
        if not found[isa]["functions"]:
            sys.exit(f"inline_vectors: expected functions of one vector, but {path} has none")
    arguments.output.write_text(json.dumps(found, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
