#!/usr/bin/env bash
# Builds, tests and times FastAct on a GPU machine. Uses the machine's python3 with torch, nvcc,
# cmake and ninja, and downloads nothing.
#
#   scripts/checks/gpu_check.sh [STEP...]
#
# Steps; by default all of them in this order:
#   build      configures and builds in build/gpu for this machine's GPU
#   ctest      the C++ tests and the consumers of the installed package
#   sanitizer  compute-sanitizer on the C++ tests of the CUDA engine: memcheck, racecheck, initcheck,
#              synccheck
#   pytest     the Python tests, including those that need a GPU
#   prove      compares every result on the GPU with the exact one. Compares digests: all of them in
#              the arithmetic that the GPU chose (see build_info()), and a part in IEEE arithmetic
#   bench      benchmarks --quick on the GPU, then the bars of CPU and GPU; BENCH_ARGS="--results
#              FOLDER" sets the folder for the results
#
# Uses an installed GoogleTest, otherwise its sources in $FASTACT_GTEST_SOURCE or .deps/googletest. To
# get the sources, run make setup on a machine with network access, and copy .venv/src/gtest_vendor.
#
# Settings, from the environment, with their defaults:
#   PYTHON            python3
#   GPU_BUILD         build/gpu
#   JOBS              all cores
#   ARCHITECTURES     native        for example "80-real;90-real" for the default build's list
#   SANITIZER_TOOLS   memcheck racecheck initcheck synccheck
#   SANITIZER_FILTER  *Cuda*-*CudaExhaustive*, without two tests of errors; fewer with racecheck
#   FASTACT_SETTINGS  256           random parameter sets for each activation with parameters
#   CTEST_ARGS, PYTEST_ARGS, PROVE_ARGS, BENCH_ARGS   more arguments
set -uo pipefail
cd "$(dirname "$0")/../.."

python=${PYTHON:-python3}
build=${GPU_BUILD:-build/gpu}
jobs=${JOBS:-$(nproc)}
architectures=${ARCHITECTURES:-native}
export FASTACT_LIBRARY=$PWD/$build/lib/libfastact.so
export FASTACT_PREFIX=$PWD/$build/prefix
export PYTHONUNBUFFERED=1
export FASTACT_SETTINGS=${FASTACT_SETTINGS:-256}

all_steps=(build ctest sanitizer pytest prove bench)
steps=("$@")
if [[ ${#steps[@]} == 0 ]]; then
  steps=("${all_steps[@]}")
fi
for step in "${steps[@]}"; do
  if [[ " ${all_steps[*]} " != *" $step "* ]]; then
    echo "gpu-check: expected a step among: ${all_steps[*]}, but got $step" >&2
    exit 2
  fi
done

# Exit codes: 0 passed, 77 skipped (the reason is in $reason), all others failed.
reason=

step_build() {
  local gtest=()
  if [[ -n ${FASTACT_GTEST_SOURCE:-} ]]; then
    gtest=("-DFASTACT_GTEST_SOURCE=$FASTACT_GTEST_SOURCE")
  fi
  cmake -S . -B "$build" -G Ninja -DPython3_EXECUTABLE="$(command -v "$python")" \
    -DFASTACT_WITH_CUDA=ON -DFASTACT_BUILD_TESTS=ON -DFASTACT_BUILD_BENCHMARKS=ON \
    -DFASTACT_WERROR=ON \
    "-DCMAKE_CUDA_ARCHITECTURES=$architectures" "${gtest[@]}" &&
    cmake --build "$build" -j "$jobs" &&
    cmake --install "$build" --prefix "$FASTACT_PREFIX"
}

step_ctest() {
  ctest --test-dir "$build" --output-on-failure --no-tests=error ${CTEST_ARGS:-}
}

step_sanitizer() {
  local sanitizer tool
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -1)
  if [[ -z $sanitizer ]]; then
    reason="no compute-sanitizer"
    return 77
  fi
  # The tests of the CUDA engine, which launch every kernel. The exhaustive tests are excluded,
  # because they only add values. The slow racecheck also excludes the tests of every length and
  # alignment.
  for tool in ${SANITIZER_TOOLS:-memcheck racecheck initcheck synccheck}; do
    # Two tests make calls that the driver refuses, which count as errors.
    local refused=CudaSelfCheckTest.OnceForADevice:CudaSelfCheckTest.TheDefaultStreamBesideACapture
    local filter="*Cuda*-*CudaExhaustive*:$refused"
    if [[ $tool == racecheck ]]; then
      filter='*CudaTest.SameBits*:*CudaStridedTest*:CudaLaunchTest*'
    fi
    echo "-- $tool"
    "$sanitizer" --tool "$tool" --error-exitcode 9 --print-limit 20 "$build/bin/fastact_ops_tests" \
      --gtest_brief=1 "--gtest_filter=${SANITIZER_FILTER:-$filter}" || return
  done
}

step_pytest() {
  # Tests that measure the memory of the whole GPU run separately, in case PYTEST_ARGS is -n 8.
  "$python" -m pytest python_tests -rs --ignore python_tests/test_resources.py ${PYTEST_ARGS:-} &&
    "$python" -m pytest python_tests/test_resources.py -rs &&
    FASTACT_CUDA_CLUSTERS=off "$python" -m pytest python_tests/test_rows.py -rs -k gpu_bits
}

step_prove() {
  if ! "$python" -c 'import gmpy2, tqdm' 2>/dev/null; then
    reason="no gmpy2 and tqdm, see requirements.txt"
    return 77
  fi
  "$python" prove --digest --device cuda &&
    FASTACT_CUDA_MATH=ieee "$python" prove --digest --part --device cuda &&
    "$python" prove --device cuda ${PROVE_ARGS:-}
}

step_bench() {
  "$python" benchmarks --quick --device cuda ${BENCH_ARGS:-} &&
    "$python" benchmarks --bars ${BENCH_ARGS:-}
}

"$python" - <<'PY' || exit 1
import sys

try:
    import torch
except ImportError:
    sys.exit("gpu-check: this Python has no torch; to use another, set PYTHON=/path/to/python3")
if not torch.cuda.is_available():
    sys.exit(f"gpu-check: torch {torch.__version__} finds no GPU on this machine.")
name = torch.cuda.get_device_name()
print(f"gpu-check: {name}, {torch.cuda.device_count()} GPU(s), torch {torch.__version__}, "
      f"Python {sys.version.split()[0]}")
PY

summary=()
failed=0
for step in "${steps[@]}"; do
  printf '\n==== %s\n' "$step"
  start=$SECONDS
  "step_$step"
  status=$?
  case $status in
    0) word=passed ;;
    77) word="skipped ($reason)" ;;
    *) word="FAILED (exit code $status)"; failed=1 ;;
  esac
  summary+=("$(printf '%-9s %5d s  %s' "$step" "$((SECONDS - start))" "$word")")
  if [[ $step == build && $status != 0 ]]; then
    break
  fi
done

printf '\n==== gpu-check\n'
printf '%s\n' "${summary[@]}"
exit $failed
