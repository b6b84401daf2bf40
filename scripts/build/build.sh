#!/usr/bin/env bash
# Sets up the environment, configures and builds. Each step runs only if something has changed.
#
#   scripts/build/build.sh BUILD [-t TARGET | -tTARGET]... [-D SETTING]...
#
# Reads from the environment, as the Makefile exports it:
#   VENV      the virtual environment          TORCH   the torch that setup.sh installs there
#   CUDA      the GPU code to build: auto (for this machine's GPU, none without a GPU), off, native (for this
#             machine's GPU), all (every architecture in a package), package (all if this torch has CUDA), or a
#             list in CMake's form, such as 90-real. If GPU code is requested by name and cannot be built, that
#             is an error.
#   JOBS      number of compilers at a time
#
# A setting persists until another call changes it, so one target does not undo the settings of
# another.
set -euo pipefail
cd "$(dirname "$0")/../.."
source scripts/build/step.sh

build=$1
shift
targets=()
bin=$(cd "$(dirname "$VENV")" && pwd)/$(basename "$VENV")/bin
settings=("-DPython3_EXECUTABLE=$bin/python")
while (($#)); do
  case $1 in
    -t) targets+=(--target "$2") ; shift 2 ;;
    -t*) targets+=(--target "${1#-t}") ; shift ;;
    *) settings+=("$1") ; shift ;;
  esac
done

has_gpu() { [[ -e /dev/nvidia0 ]] || nvidia-smi -L 2>/dev/null | grep -q '^GPU '; }
# The reason for building no GPU code, if it is known before CMake runs.
without_cuda=
case $CUDA in
  auto)
    if has_gpu; then
      settings+=(-DFASTACT_WITH_CUDA=AUTO -DCMAKE_CUDA_ARCHITECTURES=native)
    else
      without_cuda="this machine has no NVIDIA GPU; to build it anyway, set CUDA=all"
    fi ;;
  native)
    has_gpu || { echo "build: expected an NVIDIA GPU for CUDA=native, but this machine has none." >&2; exit 1; }
    settings+=(-DFASTACT_WITH_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=native) ;;
  off) without_cuda="CUDA=off" ;;
  package) settings+=(-DFASTACT_WITH_CUDA=AUTO -DCMAKE_CUDA_ARCHITECTURES=) ;;
  all) settings+=(-DFASTACT_WITH_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=) ;;
  *) settings+=(-DFASTACT_WITH_CUDA=ON "-DCMAKE_CUDA_ARCHITECTURES=$CUDA") ;;
esac
nvcc=nvcc
if [[ -n $without_cuda ]]; then
  echo "== no GPU code: $without_cuda"
  settings+=(-DFASTACT_WITH_CUDA=OFF)
  nvcc=
fi

step "set-up" scripts/build/setup.sh "$VENV" "$TORCH" $nvcc
export PATH="$bin:$PATH"

# --- configure, if a setting is new ---------------------------------------------------------------
remembered=$build/settings
changed=
if [[ ! -f $build/build.ninja ]]; then
  changed=yes
  rm -f "$remembered"
fi
declare -A known
if [[ -f $remembered ]]; then
  while IFS= read -r line; do known[${line%%=*}]=$line; done <"$remembered"
fi
for setting in "${settings[@]}"; do
  if [[ ${known[${setting%%=*}]:-} != "$setting" ]]; then
    changed=yes
    known[${setting%%=*}]=$setting
  fi
done
if [[ -n $changed ]]; then
  step "configure" cmake -S . -B "$build" -G Ninja "${settings[@]}"
  printf '%s\n' "${known[@]}" >"$remembered"
fi

step "build" cmake --build "$build" -j "$JOBS" "${targets[@]}"
echo "$(cat "$build/summary.txt")${without_cuda:+ (no GPU code: $without_cuda)}" >"$build/summary"
if [[ -f $build/lib/libfastact.so ]]; then  # absent if only the Python package is built
  scripts/build/summary.sh "$build"
fi
