#!/usr/bin/env bash
# Makes a virtual environment with torch, the nvcc of torch's own CUDA version, and the build tools.
#
#   scripts/setup.sh VENV TORCH      (PYTHON=python3 by default)
#
# Running it again is harmless. It needs no root.
set -euo pipefail

venv=$1
torch=$2
python=${PYTHON:-python3}
root=$(cd "$(dirname "$0")/.." && pwd)

say() { printf '== setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# --- what must be there -------------------------------------------------------------------------
command -v "$python" >/dev/null ||
  fail "python3 (3.10 or newer) is needed, but '$python' was not found; make PYTHON=... names another."
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
  fail "Python 3.10 or newer is needed, but $python is $version; make PYTHON=... names another."
"$python" -c 'import venv, ensurepip' 2>/dev/null ||
  fail "$python has no venv module; on Debian and Ubuntu: apt install python3-venv."
if [[ $torch == 2.15.* && $version == 3.10 ]]; then
  fail "torch $torch needs Python 3.11 or newer, but $python is 3.10; use make TORCH=2.14.1 or make PYTHON=..."
fi

compiler=${CXX:-}
if [[ -z $compiler ]]; then
  compiler=$(command -v c++ || command -v g++ || command -v clang++ || true)
fi
[[ -n $compiler ]] || fail "a C++20 compiler (g++ 11, clang 14 or newer) is needed, but none was found."
# Unquoted on purpose: CXX may carry arguments, such as "ccache g++".
printf '#include <concepts>\n#include <bit>\ntemplate <std::integral T> T f(T x) { return std::rotl(x, 1u); }\n' |
  $compiler -std=c++20 -fsyntax-only -x c++ - 2>/dev/null ||
  fail "a C++20 compiler (g++ 11, clang 14 or newer) is needed, but $compiler is not one: $($compiler --version 2>&1 | head -1)"

# --- the environment ----------------------------------------------------------------------------
if ! "$venv/bin/python" -c '' 2>/dev/null; then
  say "making $venv with Python $version"
  "$python" -m venv --clear "$venv"
fi

# Explains a failed installation in one sentence after pip's own words.
pip_install() {
  local log="$venv/pip.log"
  if "$venv/bin/python" -m pip install --disable-pip-version-check "$@" 2>&1 | tee "$log"; then
    return 0
  fi
  if grep -qE 'NewConnectionError|ConnectTimeout|NameResolution|Temporary failure|Network is unreachable|ProxyError|Could not fetch URL' "$log"; then
    fail "the Python package index cannot be reached; is the network up?"
  fi
  fail "pip could not install: $(grep '^ERROR:' "$log" | tail -1 | sed 's/^ERROR: //')"
}

# torch's wheels name the CUDA toolkit they were built with (Requires-Dist: cuda-toolkit); nvcc is
# taken from the same release. For other versions the installed torch is asked. nvcc's own package
# does not say which release of its parts (nvvm, crt, cccl) it works with, so they are named too.
nvcc_of() { echo "cuda-toolkit[nvcc,nvvm,crt,cudart,cccl]==$1"; }
case $torch in
  2.15.0) toolkit=13.2.2 ;;
  2.11.0) toolkit=13.0.2 ;;
  *) toolkit= ;;
esac

packages=("torch==$torch" -r "$root/requirements.txt")
if [[ -n $toolkit ]]; then
  packages+=("$(nvcc_of "$toolkit")")
fi
say "installing torch $torch, its CUDA compiler and the build tools (about 3 GB on the first run)"
pip_install "${packages[@]}"

if [[ -z $toolkit ]]; then
  toolkit=$("$venv/bin/python" - <<'PY'
import importlib.metadata
import re

import torch

pins = [
    match.group(1)
    for requirement in importlib.metadata.requires("torch") or []
    if (match := re.match(r"cuda-toolkit(?:\[[^]]*\])?==([0-9.]+)", requirement))
]
print(pins[0] if pins else f"{torch.version.cuda}.*" if torch.version.cuda else "")
PY
)
  if [[ -n $toolkit ]]; then
    say "torch $torch is built for CUDA $toolkit"
    pip_install "$(nvcc_of "$toolkit")"
  else
    say "torch $torch is CPU-only"
  fi
fi

# --- GoogleTest ---------------------------------------------------------------------------------
# A package that ships GoogleTest's sources; they land in VENV/src/gtest_vendor. It has one wheel for
# each Python version, so where there is none Debian's package is unpacked, which takes no root.
if [[ ! -d $venv/src/gtest_vendor ]]; then
  if ! "$venv/bin/python" -m pip install --disable-pip-version-check --quiet --no-deps \
      --only-binary=:all: ros-gtest-vendor==1.15.1; then
    say "no GoogleTest wheel for Python $version, trying Debian's package"
    if [[ ! -d $root/.deps/googletest ]]; then
      folder=$(mktemp -d)
      if (cd "$folder" && apt-get download googletest && dpkg -x googletest_*.deb .) >/dev/null 2>&1; then
        mkdir -p "$root/.deps"
        cp -r "$folder/usr/src/googletest" "$root/.deps/googletest"
      else
        say "GoogleTest was not found: install it, or give -DFASTACT_GTEST_SOURCE=<its source folder> to CMake."
      fi
      rm -rf "$folder"
    fi
  fi
fi

touch "$venv/.fastact-setup"
say "$venv is ready"
