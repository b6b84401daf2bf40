#!/usr/bin/env bash
# Builds one wheel for several versions of torch: the kernels once, with the first torch, and a thin
# library for each torch, in the environment of that torch.
#
#   scripts/build/wheel.sh BUILD DIST TORCH...
#
# Reads the variables of scripts/build/build.sh from the environment, except VENV and TORCH. The
# environment of a torch is .venv-TORCH, or .venv for DEFAULT_TORCH.
set -euo pipefail
cd "$(dirname "$0")/../.."
source scripts/build/step.sh

build=$1
dist=$2
torches=("${@:3}")
package=$build/python/fastact

venv_of() { if [[ $1 == "$DEFAULT_TORCH" ]]; then echo .venv; else echo ".venv-$1"; fi; }

# Removes libraries of an earlier call for a torch that is not in this one.
rm -rf "$package"/lib/torch-*
first=${torches[0]}
for torch in "${torches[@]}"; do
  printf '\n== torch %s\n' "$torch"
  export TORCH=$torch VENV=$(venv_of "$torch")
  if [[ $torch == "$first" ]]; then
    scripts/build/build.sh "$build" -DFASTACT_KERNELS= -t fastact_package
  else
    # With the same kind of GPU code as the kernels. There is none to compile.
    scripts/build/build.sh "$build/torch-$torch" "-DFASTACT_KERNELS=$PWD/$build" "-DFASTACT_PACKAGE_DIR=$PWD/$package" \
      -t fastact_aten_thin
  fi
done

VENV=$(venv_of "$first")
PATH=$(cd "$VENV" && pwd)/bin:$PATH
export PATH FASTACT_TORCHES="${torches[*]}" FASTACT_WHEEL_LABEL=
[[ $CUDA == off ]] && FASTACT_WHEEL_LABEL=cpu
rm -rf "$build/wheel"
step "pack" python -m pip wheel . --disable-pip-version-check --quiet --no-deps --no-build-isolation \
  --wheel-dir "$build/wheel" -C cmake.source-dir=cmake/pack -C "cmake.define.FASTACT_PACKAGE_DIR=$PWD/$package"
# The tag states the oldest supported glibc. Dependence on a library other than torch's and the
# system's is an error.
mkdir -p "$dist"
step "tag" auditwheel repair "$build"/wheel/fastact-*.whl --wheel-dir "$dist" \
  --exclude 'libtorch*.so' --exclude 'libc10*.so' --only-plat
printf '\n== %s\n' "$(du -h --apparent-size "$dist"/fastact-*.whl)"
