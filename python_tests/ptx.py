"""An interpreter of the formulas' PTX without a GPU: IEEE arithmetic and moves of bits, for many
inputs at a time. Approximate instructions have the largest permitted error. Loops are not
supported."""

import ctypes
import re

import numpy as np

LIBM = ctypes.CDLL("libm.so.6")
FLOATS = {"f32": (np.uint32, np.float32), "f64": (np.uint64, np.float64)}
NAN = {"f32": 0x7FFFFFFF, "f64": 0x7FF8000000000000}
# Relative errors of the approximate instructions: 2 ULP and 1 ULP.
APPROXIMATE = {"ex2": 2.0**-22, "rcp": 2.0**-23}
UNORDERED = ("equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")


def _fma(kind):
    function = getattr(LIBM, "fma" if kind == "f64" else "fmaf")
    c_type = ctypes.c_double if kind == "f64" else ctypes.c_float
    function.argtypes, function.restype = [c_type] * 3, c_type
    return np.frompyfunc(lambda a, b, c: function(float(a), float(b), float(c)), 3, 1)


FMA = {kind: _fma(kind) for kind in FLOATS}


def to_floats(bits, kind):
    unsigned, real = FLOATS[kind]
    return bits.astype(unsigned).view(real)


def to_bits(values, kind):
    """Returns the bits of an arithmetic result. float32 has one NaN on a GPU."""
    unsigned, real = FLOATS[kind]
    values = np.asarray(values).astype(real)
    bits = values.view(unsigned).astype(np.uint64)
    return np.where(np.isnan(values), np.uint64(NAN[kind]), bits) if kind == "f32" else bits


def flushed(values):
    """Replaces each subnormal float32 by a zero of the same sign."""
    return np.where(np.abs(values) < 2.0**-126, np.copysign(0.0, values), values)


def signed(bits, width):
    return bits.astype(f"u{width // 8}").view(f"i{width // 8}")


def to_half(bits, kind):
    """Rounds float32 to 16 bits, to nearest even. Every NaN becomes 0x7fff."""
    x = to_floats(bits, "f32")
    if kind == "f16":
        with np.errstate(over="ignore"):
            half = x.astype(np.float16).view(np.uint16).astype(np.uint64)
    else:
        whole = bits & 0xFFFFFFFF
        half = (whole + 0x7FFF + (whole >> 16 & 1)) >> 16
    return np.where(np.isnan(x), np.uint64(0x7FFF), half)


class Machine:
    """Registers with the bits of a value for every input. Branches only go forward: the inputs that
    take a branch wait for its label."""

    def __init__(self, count, table=()):
        self.count = count
        self.table = np.array(table, dtype=np.uint64)  # at address 0
        self.registers = {}
        self.waiting = np.full(count, "", dtype=object)
        self.random = np.random.default_rng(0)

    def get(self, name):
        if name == "fastact_table":
            return np.zeros(self.count, dtype=np.uint64)
        if name.startswith("%"):
            return self.registers.get(name, np.zeros(self.count, dtype=np.uint64))
        if name.startswith(("0f", "0d")):
            value = int(name[2:], 16)
        else:
            value = int(name, 0) & 0xFFFFFFFFFFFFFFFF
        return np.full(self.count, value, dtype=np.uint64)

    def put(self, name, value, width=64):
        value = np.asarray(value).astype(np.uint64) & np.uint64((1 << width) - 1)
        self.registers[name] = np.where(self.waiting == "", value, self.get(name))

    def run(self, text):
        """Executes each statement of a block in braces."""
        tokens = re.findall(r"[^;{}]*\{[^{};]*,[^{};]*\}[^;]*;|\s*[\w$]+:|[^;{}]+;", text)
        for token in tokens:
            statement = token.strip().rstrip(";").strip()
            if statement.endswith(":"):
                self.waiting[self.waiting == statement[:-1]] = ""
            elif statement and not statement.startswith(".reg"):
                self.step(statement)

    def step(self, statement):
        if guard := re.match(r"@(!?)(%\w+)\s+bra(?:\.uni)? (\w+)", statement):
            taken = (self.get(guard[2]) != 0) ^ bool(guard[1])
            self.waiting[(self.waiting == "") & taken] = guard[3]
            return
        op, _, rest = statement.partition(" ")
        if op.startswith("bra"):
            self.waiting[self.waiting == ""] = rest.strip()
            return
        if op == "mov.b64" and "{" in rest:
            self.vector(rest)
            return
        if op in ("ld.global.nc.v2.f32", "ld.global.nc.f32"):
            self.load(*re.match(r"\{?([^\[}]*)\}?, \[(%\w+)(?:\+(\d+))?\]", rest).groups())
            return
        to, *operands = [part.strip() for part in rest.split(",")]
        parts = op.split(".")
        self.put(to, self.value(parts, [self.get(x) for x in operands]), self.width(parts))

    @staticmethod
    def width(parts):
        """Returns the width of the result in bits."""
        if "wide" in parts:
            return 64
        kind = parts[-2] if parts[0] == "cvt" else parts[-1]
        if parts[0] == "setp" or kind == "pred":
            return 1
        return 32 if kind.endswith("x2") else int(kind[1:])

    def vector(self, rest):
        if rest.startswith("{"):
            low, high, source = re.match(r"\{(%\w+), (%\w+)\}, (\S+)", rest).groups()
            bits = self.get(source)
            self.put(low, bits & 0xFFFFFFFF)
            self.put(high, bits >> 32)
        else:
            to, low, high = re.match(r"(%\w+), \{(%\w+), (%\w+)\}", rest).groups()
            self.put(to, self.get(low) | self.get(high) << 32)

    def load(self, registers, address, offset):
        """Loads a pair from the table, or one number of a pair."""
        start = self.get(address) + np.uint64(offset or 0)
        pairs = self.table[start // np.uint64(8)] >> start % np.uint64(8) * np.uint64(8)
        for i, register in enumerate(registers.split(", ")):
            self.put(register, pairs >> np.uint64(32 * i) & np.uint64(0xFFFFFFFF))

    def value(self, parts, x):
        name, kind = parts[0], parts[-1]
        if name == "mov":
            return x[0]
        if name == "selp":
            return np.where(x[2] != 0, x[0], x[1])
        if name == "setp":
            return self.compare(parts[1], kind, *x)
        if name == "cvt":
            return self.convert(parts, *x)
        if "wide" in parts:
            return (x[0] & np.uint64(0xFFFFFFFF)) * x[1]
        if "approx" in parts:
            return self.approximate(name, *x)
        if kind in FLOATS:
            return self.arithmetic(name, "NaN" in parts, kind, x)
        return self.integer(name, kind, x)

    def approximate(self, name, bits):
        """Computes in float32 with .ftz. The result is off by the largest error, up or down."""
        a = flushed(to_floats(bits, "f32").astype(np.float64))
        with np.errstate(all="ignore"):
            exact = np.exp2(a) if name == "ex2" else 1 / a
            error = APPROXIMATE[name] * self.random.choice((-1.0, 1.0), self.count)
            return to_bits(flushed(exact * (1 + error)), "f32")

    @staticmethod
    def compare(how, kind, a, b):
        if kind in FLOATS:
            a, b = to_floats(a, kind), to_floats(b, kind)
            unordered = np.isnan(a) | np.isnan(b)
        else:
            width = int(kind[1:])
            if kind[0] == "s":
                a, b = signed(a, width), signed(b, width)
            unordered = np.zeros(len(a), dtype=bool)
        if how == "num":
            return ~unordered
        if how == "nan":
            return unordered
        compared = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
                    "gt": np.greater, "ge": np.greater_equal}[how[:2]](a, b)  # fmt: skip
        return compared | unordered if how in UNORDERED else compared & ~unordered

    @staticmethod
    def arithmetic(name, keeps_nan, kind, x):
        sign = np.uint64(1 << (31 if kind == "f32" else 63))
        if name == "abs":
            return x[0] & ~sign
        if name == "neg":
            return x[0] ^ sign
        a = [to_floats(bits, kind) for bits in x]
        with np.errstate(all="ignore"):
            if name == "fma":
                return to_bits(FMA[kind](*a), kind)
            if name in ("min", "max"):
                less = (a[0] < a[1]) | ((a[0] == a[1]) & np.signbit(a[0]))
                chosen = np.where(less == (name == "min"), x[0], x[1])
                first, second = np.isnan(a[0]), np.isnan(a[1])
                if keeps_nan:
                    return np.where(first | second, np.uint64(NAN[kind]), chosen)
                return np.where(first, x[1], np.where(second, x[0], chosen))
            if name == "rcp":
                return to_bits(a[0].dtype.type(1) / a[0], kind)
            if name == "sqrt":
                return to_bits(np.sqrt(a[0]), kind)
            function = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}
            return to_bits(function[name](*a), kind)

    @staticmethod
    def integer(name, kind, x):
        width = 1 if kind == "pred" else int(kind[1:])
        if name == "lop3":
            a, b, c, table = x
            result = np.zeros_like(a)
            for i in range(8):
                if int(table[0]) >> i & 1:
                    result |= (a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c)
            return result
        if name == "bfi":
            field, base, start, length = x
            mask = ((np.uint64(1) << length) - np.uint64(1)) << start
            return (base & ~mask) | (field << start & mask)
        if name in ("min", "max"):
            a, b = (signed(y, width) if kind[0] == "s" else y & ((1 << width) - 1) for y in x)
            return (np.minimum if name == "min" else np.maximum)(a, b)
        if name == "not":
            return ~x[0]
        a, b = x
        if name == "shl":
            return np.where(b < width, a << (b & np.uint64(63)), 0)
        if name == "shr":
            a = signed(a, width) if kind[0] == "s" else a & np.uint64((1 << width) - 1)
            return a >> np.minimum(b, width - 1).astype(a.dtype)
        return {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
                "add": np.add, "sub": np.subtract}[name](a, b)  # fmt: skip

    @staticmethod
    def convert(parts, *x):
        to, source = parts[-2:]
        if to in ("bf16x2", "f16x2"):
            high, low = (to_half(bits, to.removesuffix("x2")) for bits in x)
            return high << 16 | low
        if source == "f16":
            return to_bits((x[0] & 0xFFFF).astype(np.uint16).view(np.float16), "f32")
        if "sat" in parts:
            a = to_floats(x[0], "f32")
            return to_bits(np.where(np.isnan(a), 0, np.clip(a, 0, 1)), "f32")
        if source in FLOATS:
            with np.errstate(over="ignore"):
                return to_bits(to_floats(x[0], source), to)
        bits = x[0] & np.uint64((1 << int(source[1:])) - 1)
        return to_bits(bits.astype(np.float64), "f64") if to == "f64" else bits


def run(assembly, operands, table=()):
    """Returns the bits of a block's result for arrays of the operands' bits. `table` is the table
    of a form in segments, as 64-bit words."""
    machine = Machine(len(operands[0]), table)
    for i, bits in enumerate(operands, 1):
        machine.put(f"%operand{i}", bits)
    text = re.sub(r"\$(\d+)", lambda found: f"%operand{found[1]}", assembly)
    machine.run(text.strip()[1:-1])
    return machine.get("%operand0")
