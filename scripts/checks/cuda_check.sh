#!/usr/bin/env bash
# Compiles GPU code on a machine without a GPU: the formulas that Inductor's kernels contain as PTX, the kernels of
# gelu, which have tables of segments, those of softmax and LayerNorm, and the tests that need a GPU. An interpreter
# runs the PTX, and its results are compared with those of the library that FASTACT_LIBRARY names.
#
#   scripts/checks/cuda_check.sh BUILD     (from the environment: what scripts/build/build.sh reads, and WERROR)
set -euo pipefail
cd "$(dirname "$0")/../.."
source scripts/build/step.sh

build=$1
ptx=()
for target in cuda cuda_fast; do
  ptx+=("ops/CMakeFiles/fastact_one_element_$target.dir/codegen/one_element.ptx")
done
objects=("${ptx[@]}")
for source in gelu_cuda.cu softmax_rows_cuda.cu layer_norm_rows_cuda.cu; do
  objects+=("ops/CMakeFiles/fastact_ops.dir/generated/$source.o")
done
for source in cpp_tests/ops/*.cu cpp_tests/ops/*cuda_test.cpp; do
  objects+=("cpp_tests/CMakeFiles/fastact_ops_tests.dir/ops/$(basename "$source").o")
done
scripts/build/build.sh "$build" "${objects[@]/#/-t}" -DFASTACT_BUILD_TESTS=ON "-DFASTACT_WERROR=${WERROR:-OFF}"
step "inline assembly" python scripts/codegen/inline_assembly.py "${ptx[@]/#/$build/}" \
  --output "$build/ops/assembly.json"
step "PTX of each form, interpreted" env FASTACT_ASSEMBLY="$PWD/$build/ops/assembly.json" \
  python -m pytest python_tests/test_inline_assembly.py -q -n "$JOBS"
