"""The formulas in C++, for the loops that Inductor generates for CPUs.

Generated code calls evaluate() of ops/codegen/inlined.h, which the package contains with the
headers of the formulas. Inductor compiles such code with the additional options of the operators'
own kernels, so that the bits are the same and the loops are vectorized.
"""

import copy
import functools
import hashlib
import re
import shlex
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch._inductor import codecache, config, cpp_builder, cpu_vec_isa
from torch._inductor.codegen import cpp
from torch._inductor.virtualized import ops

from fastact._changes import Change
from fastact._inductor.operators import Call

_HEADERS = Path(__file__).parents[1] / "include" / "fastact" / "formulas"
_ISAS = {"VecAVX2", "VecAVX512"}
_ELEMENTS = {
    torch.float32: "float",
    torch.float64: "double",
    torch.bfloat16: "fastact::BFloat16",
    torch.float16: "fastact::Float16",
}
# As in ops/CMakeLists.txt and cmake/FastActOptions.cmake. -fno-unsafe-math-optimizations resets the
# other options, so it precedes them. Inductor turns off GCC's loop vectorizer.
_OPTIONS = ("std=c++20", "fno-unsafe-math-optimizations", "fno-trapping-math", "fno-math-errno",
            "fsigned-zeros", "ffp-contract=off")  # fmt: skip
_GCC_OPTIONS = ("ftree-loop-vectorize", "fno-thread-jumps", "fno-tree-pre", "falign-loops=64")
_AVX512_OPTIONS = ("mprefer-vector-width=512",)
# The oldest compiler versions that accept the headers.
_OLDEST_GCC, _OLDEST_CLANG = 11, 14


def is_built() -> bool:
    """Returns whether the package has code for this kind of processor."""
    return _HEADERS.is_dir()


@functools.cache
def file_digest() -> str:
    """Returns a digest of everything that determines what a call in generated code computes."""
    files = [Path(__file__), *sorted(_HEADERS.rglob("*.h"))]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def _namespace() -> str:
    """Returns the name of fastact::cpu in generated code. Inductor's cache keys contain the
    name."""
    return f"fastact_{file_digest()[:16]}"


# ---- Calls


@functools.cache
def _accepts_headers(compiler: str) -> bool:
    command = [*shlex.split(compiler), "-dM", "-E", "-x", "c++", "-"]
    macros = subprocess.run(command, input="", capture_output=True, text=True).stdout
    versions = dict(re.findall(r"#define __(GNUC__|clang_major__) (\d+)", macros))
    if "clang_major__" in versions:
        return int(versions["clang_major__"]) >= _OLDEST_CLANG
    return int(versions.get("GNUC__", 0)) >= _OLDEST_GCC


def _is_inlined() -> bool:
    """Returns whether Inductor compiles for an instruction set that the headers support."""
    if config.cpu_backend != "cpp" or config.aot_inductor.package_cpp_only or not is_built():
        return False
    kinds = {kind.__name__ for kind in type(cpu_vec_isa.pick_vec_isa()).__mro__}
    return bool(kinds & _ISAS) and _accepts_headers(cpp_builder.get_cpp_compiler())


def element(call: Call, dtype: torch.dtype, device: torch.device) -> Callable | None:
    """Returns a function of Inductor's values that computes one element of the call's result from
    one element of each operand, in their type or, for 16-bit types, in float32, as in Inductor's
    loops. Returns None if the call is not inlined."""
    if not _is_inlined():
        return None
    compute_dtype = dtype if dtype == torch.float64 else torch.float32
    parameters = (f"0x{struct.pack('>d', parameter).hex()}u" for parameter in call.parameters)
    arguments = (f"fastact::families::{call.family}", _ELEMENTS[dtype], str(call.form),
                 str(call.is_rounded).lower(), *parameters)  # fmt: skip
    function = f"{_namespace()}::evaluate<{', '.join(arguments)}>"

    def evaluate(*operands):
        return ops.inline_asm_elementwise(*operands, asm=function, dtype=compute_dtype)

    return evaluate


# ---- The compiler's options


def _calls_formulas(sources: str | list[str]) -> bool:
    paths = map(Path, [sources] if isinstance(sources, str) else sources)
    return any(
        path.suffix == ".cpp" and path.is_file() and f"{_namespace()}::" in path.read_text()
        for path in paths
    )


def _with_formulas(theirs: cpp_builder.BuildOptionsBase) -> cpp_builder.BuildOptionsBase:
    """Returns Inductor's options with FastAct's options and headers. The headers are precompiled if
    Inductor's are."""
    options = copy.copy(theirs)
    added = [*_OPTIONS, *(_GCC_OPTIONS if cpp_builder.is_gcc() else ())]
    if "CPU_CAPABILITY_AVX512" in theirs.get_definitions():
        added += _AVX512_OPTIONS
    options._cflags = [*theirs.get_cflags(), *added]
    options._include_dirs = [*theirs.get_include_dirs(), str(_HEADERS)]
    # torch 2.11's Python bindings use a macro that they define only in C++17.
    text = (
        "#include <torch/csrc/inductor/cpp_prefix.h>\n"
        '#include "ops/codegen/inlined.h"\n'
        f"namespace {_namespace()} = fastact::cpu;\n"
        "#define unlikely(x) __builtin_expect(!!(x), 0)\n"
    )
    # The name of Inductor's header is a digest of its text, the compiler and the options.
    _, options.precompiled_header = codecache.write(
        text, "h", extra=str(theirs.precompiled_header), specified_dir=codecache._HEADER_DIR
    )
    if theirs.precompiled_header:
        precompiling = copy.copy(options)
        precompiling._compile_only, precompiling._precompiling = False, True
        header, precompiling.precompiled_header = options.precompiled_header, None
        builder = cpp_builder.CppBuilder(header, header, precompiling)
        codecache._worker_compile_cpp(f"{header}.lock", (builder,))
    return options


# ---- Changes of Inductor


def changes() -> Iterator[Change]:
    """Yields the changes with which Inductor's C++ backend generates and compiles such calls."""
    for overrides in (cpp.CppOverrides, cpp.CppVecOverrides):
        others = overrides.inline_asm_elementwise

        def inline_asm_elementwise(*inputs, asm, dtype=torch.float32, others=others, **settings):
            if not asm.startswith(f"{_namespace()}::"):
                return others(*inputs, asm=asm, dtype=dtype, **settings)
            return f"{asm}({', '.join(map(str, inputs))})"

        yield overrides, "inline_asm_elementwise", staticmethod(inline_asm_elementwise)

    initialize = cpp_builder.CppBuilder.__init__

    @functools.wraps(initialize)
    def with_formulas(self, name, sources, BuildOption, *args, **kwargs):  # noqa: N803
        if _calls_formulas(sources):
            BuildOption = _with_formulas(BuildOption)  # noqa: N806
        initialize(self, name, sources, BuildOption, *args, **kwargs)

    yield cpp_builder.CppBuilder, "__init__", with_formulas
