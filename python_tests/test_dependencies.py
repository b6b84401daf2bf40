"""The rules of docs/dev/architecture.md hold, and scripts/checks/dependencies.py finds breaches."""

import re
import shutil
import subprocess
import sys

import pytest

from support import REPOSITORY

pytestmark = pytest.mark.kernels

sys.path.append(str(REPOSITORY / "scripts" / "checks"))

import dependencies  # noqa: E402
import mutants  # noqa: E402


@pytest.fixture
def tree(tmp_path):
    """Returns a copy of the sources that a test can change."""
    for folder in ("ops", "registration"):
        shutil.copytree(REPOSITORY / folder, tmp_path / folder)
    return tmp_path


def plant(tree, file, line):
    """Appends a line to a file, and returns its place."""
    text = (tree / file).read_text() + line + "\n"
    (tree / file).write_text(text)
    return f"{file}:{text.count(chr(10))}: "


def test_the_tree_has_no_breach():
    assert list(dependencies.breaches(REPOSITORY)) == []


def test_the_names_are_those_of_the_catalogue():
    types = dependencies.activations(REPOSITORY)
    headers = (REPOSITORY / "ops" / "activations").glob("*.h")
    assert set(types) == {header.stem for header in headers} - {"activation"}
    assert types["leaky_relu"] == "LeakyRelu"


BREACHES = [
    # ops/ includes no header of torch, and none of registration/.
    ("ops/kernel.h", "#include <ATen/ATen.h>"),
    ("ops/cpu/loop.h", "#include <torch/library.h>"),
    ("ops/cuda/launch.cuh", "#  include <c10/cuda/CUDAStream.h>"),
    ("ops/cpu/instantiate.cpp.in", '#include "torch/types.h"'),
    ("ops/catalogue.cpp", '#include "registration/checks.h"'),
    ("ops/catalogue.cpp", '#include "fastact/fastact.h"'),
    # The engines and the dispatch keys name no activation.
    ("ops/cpu/loop.h", "struct Relu;"),
    ("ops/cuda/launch.cuh", "// Of GeluTanh alone."),
    ("ops/cuda/instantiate.cu.in", "using A = Selu;"),
    ("registration/keys/cpu.cpp", 'const bool is_relu = op.name == "relu";'),
    ("registration/kernels/pointwise.h", "template <> struct Of<LeakyRelu> {};"),
    # Code for one target is in ops/math/target/.
    ("ops/activations/selu.h", "#include <immintrin.h>"),
    ("ops/activations/selu.h", "inline float f(float x) { return __fmaf_rn(x, x, x); }"),
    ("ops/activations/shared/clamp.h", "#if defined(__CUDA_ARCH__)"),
    ("ops/activations/tables/gelu.h", "__constant__ float kTable[16];"),
    ("ops/forms/derivative.h", "#ifdef __AVX2__"),
    ("ops/forms/prelu.h", "#if FASTACT_HAS_AVX512"),
    ("ops/forms/form.h", "const int thread = threadIdx.x;"),
    ("ops/math/arithmetic.h", "inline __m256 g(__m256 x) { return _mm256_sqrt_ps(x); }"),
    ("ops/math/exponential.h", "#include <arm_neon.h>"),
    ("ops/math/exponential.h", "inline auto h(float32x4_t x) { return vmulq_f32(x, x); }"),
    ("ops/math/logistic.h", "#include <cuda_fp16.h>"),
    ("ops/math/logistic.h", 'asm("");'),
    ("ops/math/logistic.h", "__builtin_ia32_pause();"),
    # Includes between folders.
    ("ops/math/logistic.h", '#include "ops/activations/selu.h"'),
    ("ops/math/target/cpu.h", '#include "ops/forms/form.h"'),
    ("ops/math/segments.h", '#include "../activations/selu.h"'),
    ("ops/math/segments.h", '#include "ops/cpu/vector.h"'),
    ("ops/math/segments.h", '#include "ops/catalogue.h"'),
    ("ops/activations/activation.h", '#include "ops/forms/form.h"'),
    ("ops/activations/shared/clamp.h", '#include "ops/cpu/vector.h"'),
    ("ops/activations/selu.h", '#include "ops/cuda/tuning.h"'),
    ("ops/forms/form.h", '#include "ops/cpu/engine.h"'),
    ("ops/forms/derivative.h", '#include "ops/cuda/tuning.h"'),
    ("ops/forms/fused.h", '#include "ops/codegen/given.h"'),
    ("ops/cpu/loop.h", '#include "ops/codegen/given.h"'),
    ("ops/cuda/launch.cuh", '#include "ops/codegen/given.h"'),
    ("registration/operators/prelu.cpp", '#include "registration/kernels/pointwise.h"'),
    ("registration/operators/operator.h", '#include "../kernels/pointwise.h"'),
    ("registration/composites/prelu.cpp", '#include "registration/kernels/pointwise.h"'),
    ("registration/kernels/pointwise.h", '#include "registration/keys/cpu.h"'),
    # One file for each dispatch key.
    ("registration/composites/prelu.cpp", "TORCH_LIBRARY_IMPL(fastact, CPU, library) {}"),
    ("registration/operators/prelu.cpp", "TORCH_LIBRARY_FRAGMENT(fastact, library) {}"),
    ("registration/keys/meta.cpp", "TORCH_LIBRARY_IMPL(fastact, Autograd, library) {}"),
]


@pytest.mark.parametrize("file, line", BREACHES)
def test_a_breach_is_noticed(tree, file, line):
    place = plant(tree, file, line)
    found = list(dependencies.breaches(tree))
    assert found
    assert all(breach.startswith(place) for breach in found), found


@pytest.mark.parametrize(
    "file, line",
    [
        ("ops/cuda/tuning.h", "struct Sigmoid;"),
        ("ops/math/target/cuda.h", "#if defined(__CUDA_ARCH__)"),
        ("ops/cpu/vector_avx2.h", "inline __m256 g(__m256 x) { return _mm256_sqrt_ps(x); }"),
        ("ops/forms/form.h", "constexpr double kInfinity = __builtin_huge_val();"),
        ("ops/cpu/loop.h", "struct Relus;"),
        ("registration/keys/cpu.cpp", "// relu"),
        ("registration/keys/cpu.cpp", '#include "registration/operators/operator.h"'),
        ("registration/operators/activation.cpp", 'constexpr const char* kName = "relu";'),
    ],
)
def test_what_is_allowed_is_no_breach(tree, file, line):
    plant(tree, file, line)
    assert list(dependencies.breaches(tree)) == []


def test_the_command_prints_breaches_and_ends_with_1(tree):
    command = [
        sys.executable,
        str(REPOSITORY / "scripts" / "checks" / "dependencies.py"),
        str(tree),
    ]
    clean = subprocess.run(command, capture_output=True, text=True)
    assert (clean.returncode, clean.stdout) == (0, "")
    place = plant(tree, "ops/cpu/loop.h", "struct Relu;")
    broken = subprocess.run(command, capture_output=True, text=True)
    assert broken.returncode == 1
    assert broken.stdout == f"{place}this file names no activation, but this is Relu\n"


def test_the_page_names_functions_that_are_there():
    """docs/dev/architecture.md: each `f()` is defined in a file that is linked next to it."""
    docs = REPOSITORY / "docs" / "dev"
    text = (docs / "architecture.md").read_text()
    way = text.split("\n## A call, step by step\n")[1].split("\n## ")[0]
    files, called = [""], []
    for match in re.finditer(r"\]\(([^)#]+)\)|`([^`]*)\(\)`", way):
        if match[1]:
            files.append((docs / match[1]).read_text())
        else:
            name = re.sub(r"<.*>", "", match[2]).split("::")[-1]
            called.append((name, len(files)))
    assert len(called) > 20
    for name, next_file in called:
        beside = "".join(files[next_file - 1 : next_file + 1])
        assert re.search(rf"\b{name}\b", beside), name


# Code that depends on torch's version: registration, autograd, compilers, modules and loading.
DEPENDS_ON_TORCH = re.compile(
    r"torch\.(_C|_dynamo|_inductor|autograd|compile|distributed|export|func|fx|jit|library|nn)\b"
    r"|requires_grad|FakeTensor|override_aten|\"meta\"|memory_format"
)
# Tests of the installed package: the installed torch decides which library it loads.
LOAD_THE_PACKAGE = {"test_package.py"}


def test_tests_of_what_does_not_depend_on_torch_run_with_one_torch():
    """Such files have the mark `kernels` or `newest`, so the run with the second torch omits
    them."""
    for path in sorted((REPOSITORY / "python_tests").glob("test_*.py")):
        text = path.read_text()
        marks = re.search(r"^pytestmark = .*mark\.(kernels|newest)", text, re.MULTILINE)
        runs_twice = DEPENDS_ON_TORCH.search(text) or path.name in LOAD_THE_PACKAGE
        assert runs_twice or marks, f"{path.name}: mark it 'kernels' or 'newest'"


def test_the_deliberate_breaks_fit_the_tree():
    """Each break replaces a text that its file contains once, as `make mutants` requires."""
    assert len(mutants.BREAKS) >= 40
    assert set(mutants.broken_texts()) > {
        edit.file for case in mutants.BREAKS for edit in case.edits
    }
