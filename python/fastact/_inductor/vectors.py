"""The formulas as instructions of x86, for the loops that Inductor writes in C++ for CPUs.

vectors.json is what the build extracts from the compiler's output for the formulas' own headers
(scripts/inline_vectors.py says what it holds), for AVX2 and for AVX-512. They are the instructions
of a vector of elements, so no option of Inductor's compiler changes what they compute.
"""

import functools
import hashlib
import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch._inductor import config, cpu_vec_isa
from torch._inductor.codegen import cpp
from torch._inductor.virtualized import V, ops

from fastact._changes import Change
from fastact._inductor.operators import UNROUNDED, Call, chosen

_FILE = Path(__file__).parent / "vectors.json"
_ISAS = {"VecAVX2": "avx2", "VecAVX512": "avx512"}
# Of a vector, in bytes.
_SIZES = {"avx2": 32, "avx512": 64}
# What an asm= of ours begins with, beside those of others.
_MARK = "fastact "


@functools.cache
def _vectors() -> dict:
    """Empty in a package for another processor."""
    return json.loads(_FILE.read_text()) if _FILE.is_file() else {}


def is_built() -> bool:
    """Whether the package has code for this kind of processor."""
    return bool(_vectors())


@functools.cache
def file_digest() -> str:
    return hashlib.sha256(_FILE.read_bytes()).hexdigest() if _FILE.is_file() else "none"


def _isa() -> str | None:
    """What Inductor compiles for."""
    if config.cpu_backend != "cpp":
        return None
    kinds = {kind.__name__ for kind in type(cpu_vec_isa.pick_vec_isa()).__mro__}
    return next((name for kind, name in _ISAS.items() if kind in kinds), None)


def _key(isa: str | None, call: Call, dtype: torch.dtype) -> str | None:
    """The name of the function that serves a call; None where the call is not to be inlined."""
    found = _vectors().get(isa)
    return chosen(call, dtype, found["functions"], found["ordinary"]) if found else None


def is_short(call: Call, dtype: torch.dtype) -> bool:
    """Whether there is straight code for a result that is not rounded, which is shorter than what
    Inductor's own operations come to."""
    isa = _isa()
    key = _key(isa, call, dtype)
    return bool(key) and UNROUNDED in key and "instructions" in _vectors()[isa]["functions"][key]


def element(call: Call, dtype: torch.dtype, device: torch.device) -> Callable | None:
    """A function of Inductor's values: one element of the call's result from one of each operand,
    in their type or, of 16 bits, in float32, as Inductor's loops have them. None where the call is
    not to be inlined."""
    isa = _isa()
    key = _key(isa, call, dtype)
    if key is None:
        return None
    compute_dtype = dtype if dtype == torch.float64 else torch.float32
    asm = _MARK + " ".join([isa, key, *(value.hex() for value in call.parameters)])

    def evaluate(*operands):
        return ops.inline_asm_elementwise(*operands, asm=asm, dtype=compute_dtype)

    return evaluate


# ---- C++


def _bits(parameter: str) -> str:
    """A float64, written in hexadecimal digits, as C++ writes the integer of its bits."""
    return f"{struct.unpack('<Q', struct.pack('<d', float.fromhex(parameter)))[0]:#x}"


def _constant(text: str, size: int, parameters: list[str]) -> str:
    """A vector, of the bytes or the parameter that vectors.json has."""
    if text.startswith("@"):
        kind, value = "unsigned long long", f"c{{}} + {_bits(parameters[int(text[1:])])}ull"
    else:
        kind = "unsigned"
        words = [f"{word:#x}u" for (word,) in struct.iter_unpack("<I", bytes.fromhex(text))]
        value = f"c{{}} + {words[0]}" if len(words) == 1 else f"c{{{', '.join(words)}}}"
    vector = f"typedef {kind} c __attribute__((vector_size({size})));"
    return f"[]{{ {vector} return fastact_v({value}); }}()"


def _statement(isa: str, text: str, result: str, before: str, *inputs: str) -> str:
    """One instruction: registers and what is kept in them are the compiler's choice."""
    register = "v" if isa == "avx512" and "%x" not in text else "x"
    constraints = ["Yk" if name.startswith("k") else register for name in inputs]
    # The first of several operands of an instruction may be in memory, where constants are.
    if len(inputs) > 1 and inputs[0].startswith("c") and "blendv" not in text:
        constraints[0] += "m"
    kind, output = ("unsigned short", "Yk") if result.startswith("k") else ("fastact_v", register)
    start, output = (f" = {before}", f"+{output}") if before else ("", f"={output}")
    read = ", ".join(
        f'[o{i}] "{how}"({name})' for i, (how, name) in enumerate(zip(constraints, inputs), 1)
    )
    return f'{kind} {result}{start}; __asm__("{text}" : [o0] "{output}"({result}) : {read});'


def _straight(isa: str, function: dict, parameters: list[str]) -> str:
    """The body of a function of v0, v1 and so on."""
    size = _SIZES[isa]
    lines = [
        f"const fastact_v {name} = {_constant(text, size, parameters)};"
        for name, text in function["constants"].items()
    ]
    lines += [_statement(isa, *instruction) for instruction in function["instructions"]]
    return f"{' '.join(lines)} return {function['result']};"


def _block(isa: str, function: dict, parameters: list[str]) -> str:
    """The same, all of it in one statement, which chooses its registers itself."""
    data = _vectors()[isa]["data"]
    lines = []
    for label in function["data"]:
        lines += [f".ifndef {label}", data[label].replace("@:", f"{label}:"), ".endif"]
    if function["parameters"]:
        lines += [".pushsection .rodata", ".balign 8", ".Lfastact_parameters_%=:",
                  *(f".quad {_bits(x)}" for x in parameters), ".popsection"]  # fmt: skip
    text = "\n".join([*lines, function["code"]]).replace("\n", "\\n").replace('"', '\\"')
    operands = range(function["operands"])
    registers = " ".join(f'register fastact_v r{i} __asm__("xmm{i}") = v{i};' for i in operands)
    used = {f"xmm{i}" for i in operands}
    changed = ", ".join(f'"{name}"' for name in (*function["changes"], "cc") if name not in used)
    outputs = ", ".join(f'"+x"(r{i})' for i in operands)
    return f'{registers} __asm__("{text}" : {outputs} : : {changed}); return r0;'


def _lambda(isa: str, key: str, parameters: list[str]) -> str:
    """A function object in C++, of vectors called fastact_v."""
    function = _vectors()[isa]["functions"][key]
    write = _straight if "instructions" in function else _block
    arguments = ", ".join(f"fastact_v v{i}" for i in range(function["operands"]))
    body = write(isa, function, parameters)
    return f"[]({arguments}) __attribute__((always_inline)) {{ {body} }}"


def _function(inputs: tuple, asm: str, dtype: torch.dtype, body: str) -> str:
    """A call of a function object of the inputs y0, y1 and so on, in which `body` calls f."""
    isa, key, *parameters = asm.removeprefix(_MARK).split()
    size = _SIZES[isa]
    names = ", ".join(f"auto y{i}" for i in range(len(inputs)))
    return (
        f"[&]({names}) __attribute__((always_inline)) "
        f"{{ typedef {cpp.DTYPE_TO_CPP[dtype]} fastact_v __attribute__((vector_size({size}))); "
        f"const auto f = {_lambda(isa, key, parameters)}; {body} }}({', '.join(map(str, inputs))})"
    )


def _call_of_vectors(inputs: tuple, asm: str, dtype: torch.dtype) -> str:
    count = V.kernel._get_num_vectors(dtype)
    indices = range(len(inputs))
    if count == 1:
        body = f"return decltype(y0)(f({', '.join(f'fastact_v(y{i})' for i in indices)}));"
    else:
        body = (
            f"decltype(y0) y; for (int i = 0; i < {count}; ++i) "
            f"y[i] = f({', '.join(f'fastact_v(y{i}[i])' for i in indices)}); return y;"
        )
    return _function(inputs, asm, dtype, body)


def _call_of_numbers(inputs: tuple, asm: str, dtype: torch.dtype) -> str:
    arguments = ", ".join(f"fastact_v{{y{i}}}" for i in range(len(inputs)))
    return _function(inputs, asm, dtype, f"return f({arguments})[0];")


def changes() -> Iterator[Change]:
    """The changes that give Inductor's C++ backend the operation inline_asm_elementwise."""
    for overrides, write in (
        (cpp.CppOverrides, _call_of_numbers),
        (cpp.CppVecOverrides, _call_of_vectors),
    ):
        others = overrides.inline_asm_elementwise

        def inline_asm_elementwise(
            *inputs, asm, dtype=torch.float32, write=write, others=others, **settings
        ):
            if not asm.startswith(_MARK):
                return others(*inputs, asm=asm, dtype=dtype, **settings)
            return write(inputs, asm, dtype)

        yield overrides, "inline_asm_elementwise", staticmethod(inline_asm_elementwise)
