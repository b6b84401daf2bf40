"""Splits a function's x86 code into single instructions for asm statements of GNU C++.

Inductor's compiler then chooses the registers and keeps constants in them. With one statement for
all of the code, it would load the constants for each vector. The result of each instruction is
unchanged.

Only code in vector and mask registers, whose addresses are those of constants, can be split. A
whole vector that is spilled to the stack counts as an ordinary value.
"""

import re
import struct

OPERAND = re.compile(
    r"%(?P<width>[xyz])mm(?P<vector>\d+)|%k(?P<mask>\d)|%(?P<general>\w+)|\$(?P<number>-?\w+)"
    r"|(?P<label>\.L\w+)(?:\+(?P<offset>\d+))?\(%rip\)|(?P<at>-?\d*)\(%(?P<base>\w+)\)"
)
SIZES = {"x": 16, "y": 32, "z": 64}
# The operand modifier for a vector register of this width in bytes.
SPELLED = {16: "%x", 32: "%t", 64: "%g"}

# Instructions that read registers, constants and a number and write their last operand; those that
# also read it; copies; loads of one element, or of one element into every lane.
CHANGES = r"vf(?:n?m(?:add|sub)|maddsub|msubadd)\d+[ps][sd]|vperm[it]2\w+|vpternlog[dq]"
CHANGE = re.compile(CHANGES)
INSTRUCTION = re.compile(
    rf"{CHANGES}|v(?:add|sub|mul|div|min|max|and|andn|or|xor)[ps][sd]|vcmp\w*[ps][sd]|vpcmp\w+"
    r"|vp(?:and|andn|or|xor)[dq]?|vp(?:add|sub|min|max)[su]?[bwdq]|vps(?:ll|rl|ra)[dq]"
    r"|vp?blendv?m?[pbdwq][sd]?|vcvt\w+2\w+|vpmov[sz]x\w+|vextract[fi]\w+|vinsert[fi]\w+|vmovs[sd]"
    r"|vperm(?:ps|pd|d|q|ilps|ilpd|2f128|2i128)|vp?unpck\w+|vp?shuf\w+|vround[ps][sd]"
    r"|vrndscale[ps][sd]|k(?:shift[lr]|not|and|andn|or|xor)[bw]"
)
COPY = re.compile(r"vmov(?:[au]p[sd]|dq[au](?:8|16|32|64)?)")
LOAD = re.compile(r"(?:vp?broadcast|vmov)(ss|sd|[bwdq])")
ELEMENTS = {"ss": 4, "sd": 8, "b": 1, "w": 2, "d": 4, "q": 8}
# Instructions that read one element.
SCALAR = re.compile(r"v(?:add|sub|mul|div|min|max|cvt|mov|f\w+\d)(s[sd])")
# Instructions that may read a part of a vector from memory.
PART = re.compile(r"v(?:cvt|pmov|insert|extract|p?broadcast|mov[sdhl])")
# Instructions that reserve stack space, with the number of bytes; and those that move the stack
# pointer by an unknown distance.
MOVES = re.compile(r"pushq %rbp|movq %rsp, %rbp|(?P<how>sub|add)q \$(?P<bytes>-?\d+), %rsp")
LOSES = re.compile(r"andq \$-\d+, %rsp|leave|popq %rbp")


class NotStraight(Exception):
    """The code contains something else."""


class StraightCode:
    """The instructions of a function, in the format described in inline_vectors.py."""

    def __init__(self, size: int, data: dict[str, bytes], operands: int):
        """`size` is the size of a vector in bytes; `data` contains the constants by label."""
        self.size = size
        self.data = data
        self.constants: list[str] = []
        self.instructions: list[list[str]] = []
        # The contents of each register: the name of a value; for a general register a number or an
        # address.
        self.state = {f"v{i}": f"v{i}" for i in range(operands)}
        self.general: dict[str, int | str] = {"di": "parameters"}
        # The values on the stack by byte offset, and the position of the stack pointer.
        self.slots: dict[int, str] = {}
        self.depth = 0
        self.count = operands

    def read(self, lines: list[str]) -> dict:
        for line in lines:
            self.instruction(line)
        result = self.held("v0")
        read = {name for _, _, *names in self.instructions for name in names} | {result}
        return {
            "constants": {
                f"c{i}": text for i, text in enumerate(self.constants) if f"c{i}" in read
            },
            "instructions": self.instructions,
            "result": result,
        }

    def instruction(self, line: str) -> None:
        if self.moves_stack(line):
            return
        name, _, rest = line.partition(" ")
        mask = re.search(r"\{%(k\d)\}", rest)
        zeroes = "{z}" in rest
        places = re.search(r"\{1to(\d+)\}", rest)
        texts = re.sub(r"\{[^}]*\}", "", rest).split(", ")
        *sources, target = (OPERAND.fullmatch(text) for text in texts)
        if target is None or None in sources:
            raise NotStraight(line)
        if target["general"]:
            self.set_general(name, sources, target)
            return
        if target["base"] and COPY.fullmatch(name) and not mask:
            self.put_on_stack(line, sources[0], target)
            return
        if not (target["vector"] or target["mask"]):
            raise NotStraight(line)
        width = SIZES[target["width"]] if target["vector"] else self.size
        value = self.known(name, sources, width, bool(mask))
        if value and not mask:
            self.state[self.register(target)] = value
            return
        inputs: list[str] = []
        if value:  # a copy under a mask
            name = "vmovdqa64" if self.element_size(name) == 8 else "vmovdqa32"
            inputs, spelled = [value], [f"{SPELLED[width]}[o1]"]
        elif INSTRUCTION.fullmatch(name) or COPY.fullmatch(name) or LOAD.fullmatch(name):
            count = int(places[1]) if places else 1
            spelled = [self.spelled(name, x, inputs, width, count) for x in sources]
        else:
            raise NotStraight(line)
        is_merged = mask and not zeroes and target["vector"] and "blendm" not in name
        changes = CHANGE.fullmatch(name) or is_merged
        before = self.held(self.register(target)) if changes else ""
        condition = ""
        if mask:
            inputs.append(self.held(mask[1]))
            condition = f"%{{%[o{len(inputs)}]%}}" + ("%{z%}" if zeroes else "")
        spelled.append((f"{SPELLED[width]}[o0]" if target["vector"] else "%[o0]") + condition)
        result = f"{'v' if target['vector'] else 'k'}{self.count}"
        self.count += 1
        self.instructions.append([f"{name} {', '.join(spelled)}", result, before, *inputs])
        self.state[self.register(target)] = result

    def moves_stack(self, line: str) -> bool:
        if LOSES.fullmatch(line):
            self.slots.clear()
            return True
        found = MOVES.fullmatch(line)
        if found and line.startswith("push"):
            self.depth += 8
        elif found and found["how"]:
            self.depth += int(found["bytes"]) * (1 if found["how"] == "sub" else -1)
        return found is not None

    def put_on_stack(self, line: str, source: re.Match, target: re.Match) -> None:
        if target["base"] != "rsp" or not source["vector"] or SIZES[source["width"]] != self.size:
            raise NotStraight(line)
        self.slots[self.place(target)] = self.held(self.register(source))

    def place(self, operand: re.Match) -> int:
        return int(operand["at"] or 0) - self.depth

    def on_stack(self, source: re.Match, count: int) -> str | None:
        """Returns the value on the stack if it is a whole vector."""
        if source["base"] == "rsp" and count == self.size:
            return self.slots.get(self.place(source))
        return None

    @staticmethod
    def register(operand: re.Match) -> str:
        return f"v{operand['vector']}" if operand["vector"] else f"k{operand['mask']}"

    @staticmethod
    def element_size(name: str) -> int:
        if found := LOAD.fullmatch(name):
            return ELEMENTS[found[1]]
        return 8 if name.endswith(("pd", "64")) else 4

    def held(self, register: str) -> str:
        if register not in self.state:
            raise NotStraight(f"{register} has no value")
        return self.state[register]

    def constant(self, value: bytes | str) -> str:
        """Returns the name of a constant. Missing bytes are 0."""
        if isinstance(value, str):
            text = value
        else:
            value = value.ljust(self.size, b"\0")
            period = next(n for n in (4, self.size) if value[:n] * (self.size // n) == value)
            text = value[:period].hex()
        if text not in self.constants:
            self.constants.append(text)
        return f"c{self.constants.index(text)}"

    def set_general(self, name: str, sources: list[re.Match], target: re.Match) -> None:
        register = target["general"][-2:]
        if name in ("movl", "movq", "movabsq") and sources[0]["number"]:
            bits = 32 if name == "movl" else 64
            self.general[register] = int(sources[0]["number"], 0) % (1 << bits)
        elif name == "leaq" and sources[0]["label"] == ".Lfastact_one":
            self.general[register] = "one"
        else:
            raise NotStraight(name)

    def memory(self, source: re.Match, count: int) -> bytes | None:
        """Returns `count` bytes of a constant."""
        if source["label"]:
            start = int(source["offset"] or 0)
            value = self.data[source["label"]][start : start + count]
        elif source["base"] and self.general.get(source["base"][-2:]) == "one":
            value = struct.pack("<d", 1.0)
        else:
            return None
        return value if len(value) == count else None

    def parameter(self, source: re.Match) -> str | None:
        if source["base"] and self.general.get(source["base"][-2:]) == "parameters":
            return self.constant(f"@{int(source['at'] or 0) // 8}")
        return None

    def scalar(self, source: re.Match, count: int) -> bytes | None:
        """Returns the first bytes of a constant."""
        if not source["vector"]:
            return self.memory(source, count)
        name = self.held(self.register(source))
        text = self.constants[int(name[1:])] if name.startswith("c") else "@"
        if text.startswith("@"):
            return None
        value = bytes.fromhex(text)
        return (value * (self.size // len(value)))[:count]

    def known(self, name: str, sources: list[re.Match], width: int, masked: bool) -> str | None:
        """Returns the value that an instruction merely copies, or that is a constant."""
        source = sources[0]
        equal = len(sources) == 2 and sources[0][0] == sources[1][0] and not masked
        if equal and re.fullmatch(r"vp?xor\w*", name):
            return self.constant(b"")
        if (equal and name.startswith("vpcmpeq")) or (
            name.startswith("vpternlog") and source["number"] == "0xFF" and not masked
        ):
            return self.constant(b"\xff" * width)
        if len(sources) == 2:
            return self.product(name, sources) or self.negated(name, sources, width)
        if COPY.fullmatch(name):
            if source["vector"]:
                is_whole = SIZES[source["width"]] == self.size
                return self.held(self.register(source)) if is_whole and not masked else None
            value = self.memory(source, width)
            kept = None if masked else self.on_stack(source, width)
            return kept if value is None else self.constant(value)
        if not (found := LOAD.fullmatch(name)):
            return None
        count = ELEMENTS[found[1]]
        times = width // count if "broadcast" in name else 1
        if source["general"]:
            number = self.general.get(source["general"][-2:])
            if not isinstance(number, int):
                raise NotStraight(name)
            value = (number % (1 << 8 * count)).to_bytes(count, "little")
        else:
            value = self.scalar(source, count)
        if value is not None:
            return self.constant(value * times)
        return self.parameter(source) if count == 8 else None

    def product(self, name: str, sources: list[re.Match]) -> str | None:
        """Returns the product of a constant and the number 1 that is hidden from the compiler."""
        if name == "vcvtsd2ss" and self.scalar(sources[0], 8) == struct.pack("<d", 1.0):
            return self.constant(struct.pack("<f", 1.0))
        if name not in ("vmulss", "vmulsd"):
            return None
        kind = "<f" if name == "vmulss" else "<d"
        one = struct.pack(kind, 1.0)
        factors = [self.scalar(source, len(one)) for source in sources]
        if None in factors or one not in factors:
            return None
        factors.remove(one)
        return self.constant(factors[0])

    def negated(self, name: str, sources: list[re.Match], width: int) -> str | None:
        """Returns a constant whose sign an exclusive or with another constant changes."""
        if not re.fullmatch(r"vxorp[sd]", name):
            return None
        values = [self.scalar(source, width) for source in sources]
        if None in values:
            return None
        return self.constant(bytes(a ^ b for a, b in zip(*values)))

    def spelled(
        self, name: str, source: re.Match, inputs: list[str], width: int, places: int
    ) -> str:
        """Returns an operand as a statement spells it, and adds its value to the inputs."""
        if source["number"]:
            return f"${source['number']}"
        if source["general"]:
            raise NotStraight(name)
        if source["vector"] or source["mask"]:
            inputs.append(self.held(self.register(source)))
            size = SIZES[source["width"]] if source["vector"] else 0
        else:
            found = SCALAR.match(name)
            count = ELEMENTS[found[1]] if found else width // places
            value = self.memory(source, count)
            whole = 0 if PART.match(name) else count
            other = self.parameter(source) if count == 8 else self.on_stack(source, whole)
            if value is None and other is None:
                raise NotStraight(name)
            inputs.append(other or self.constant(value * places))
            size = width
        return f"{SPELLED.get(size, '%')}[o{len(inputs)}]"
