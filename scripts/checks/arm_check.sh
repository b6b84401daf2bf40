#!/usr/bin/env bash
# Builds the code below ops/ for 64-bit Arm with Debian's cross compiler, checks that its loops are
# vectorized, and runs its tests and the digests of a part of all results in an emulator.
#
#   scripts/checks/arm_check.sh BUILD     (from the environment: VENV, JOBS, WERROR)
#
# Installs the compiler and the emulator by apt-get if they are missing and the user is root. With
# ARM=optional, a failure to install them is not an error.
set -euo pipefail
cd "$(dirname "$0")/../.."
source scripts/build/step.sh

build=$1
venv=$(cd "$VENV" && pwd)
export PATH="$venv/bin:$PATH"

packages() {
  local missing=()
  command -v aarch64-linux-gnu-g++ >/dev/null || missing+=(g++-aarch64-linux-gnu)
  command -v qemu-aarch64 >/dev/null || missing+=(qemu-user)
  ((${#missing[@]})) || return 0
  if ! command -v apt-get >/dev/null; then
    echo "arm-check: expected aarch64-linux-gnu-g++ and qemu-aarch64, or apt-get to install them, but found none." >&2
    return 1
  fi
  if [[ $EUID != 0 ]]; then
    echo "arm-check: expected ${missing[*]}, which only root can install: apt-get install ${missing[*]}" >&2
    return 1
  fi
  export DEBIAN_FRONTEND=noninteractive
  timeout 120 apt-get update -qq && timeout 300 apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

gtest=$venv/src/gtest_vendor
[[ -d $gtest ]] || gtest=$PWD/.deps/googletest

# Digests of parts of larger spaces. Every build also tests all spaces of 2^16 inputs.
large='*DigestsTest*_value_float32:*DigestsTest*_gradients_1_float32'
large+=':*DigestsTest*_value_float64:*DigestsTest*_derivative_1_float64'

if ! step "Arm: compiler and emulator" packages; then
  [[ ${ARM:-} == optional ]] || exit 1
  echo "== Arm: not run, because this machine has no compiler and emulator for it"
  exit 0
fi
step "Arm: configure" cmake -S . -B "$build" -G Ninja --log-level=WARNING \
  --toolchain cmake/toolchains/aarch64-linux-gnu.cmake -DFASTACT_WITH_TORCH=OFF -DFASTACT_BUILD_TESTS=ON \
  "-DFASTACT_GTEST_SOURCE=$gtest" "-DFASTACT_WERROR=${WERROR:-OFF}" "-DFASTACT_LARGE_DIGESTS=$large"
step "Arm: build" cmake --build "$build" -j "$JOBS"
step "Arm: vectorized loops" python scripts/checks/vectorised.py "$build/lib/libfastact_ops.a" \
  --objdump aarch64-linux-gnu-objdump
# Two calls for each kernel.
export FASTACT_FUZZ_CASES=${FASTACT_FUZZ_CASES:-1440}
step "Arm: tests, emulated" ctest --test-dir "$build" -j "$JOBS" --output-on-failure --no-tests=error
