#!/usr/bin/env bash
# Creates a virtual environment with torch, the build tools and, on request, the nvcc of torch's own
# CUDA version.
#
#   scripts/build/setup.sh VENV TORCH [nvcc]      (PYTHON=python3 by default)
#
# VENV may be an existing environment with a torch. Its packages are not changed; only missing
# packages are installed. Running the script again is harmless. It needs no root.
set -euo pipefail

venv=$1
torch=$2
with_nvcc=${3:-}
python=${PYTHON:-python3}
root=$(cd "$(dirname "$0")/../.." && pwd)

# Returns true if the file is newer than everything that determines what is installed.
is_current() {
  [[ -f $1 && ! $root/requirements.txt -nt $1 && ! $root/scripts/build/setup.sh -nt $1 ]]
}
if is_current "$venv/.fastact-setup" && { [[ -z $with_nvcc ]] || is_current "$venv/.fastact-nvcc"; }; then
  exit 0
fi

say() { printf '== setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# --- requirements -------------------------------------------------------------------------------
runs() { "$venv/bin/python" -c '' 2>/dev/null; }
# The oldest Python that may be used. An existing environment may contain any supported torch.
oldest=3.10
if runs; then
  python=$venv/bin/python
elif [[ $torch == 2.15.* ]]; then
  oldest=3.11
fi
another="to use another, run: make PYTHON=/path/to/python3"
command -v "$python" >/dev/null ||
  fail "python3 ($oldest or newer) is needed, but '$python' was not found; $another"
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])') ||
  fail "python3 ($oldest or newer) is needed, but $python does not run; $another"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
  fail "Python $oldest or newer is needed, but $python is $version; $another"

compiler=${CXX:-}
if [[ -z $compiler ]]; then
  compiler=$(command -v c++ || command -v g++ || true)
fi
[[ -n $compiler ]] || fail "GCC 11 or newer is needed, but no C++ compiler was found."
# Unquoted on purpose: CXX may contain arguments, such as "ccache g++". CMake rejects compilers
# other than GCC.
$compiler -std=c++20 -fsyntax-only -x c++ - 2>/dev/null <<'SOURCE' ||
#include <concepts>
#include <bit>
template <std::integral T> T f(T x) { return std::rotl(x, 1u); }
SOURCE
  fail "GCC 11 or newer is needed, but $compiler does not compile C++20: $($compiler --version 2>&1 | head -1)"

# --- the environment ----------------------------------------------------------------------------
# Environments made by this script are marked. No other folder is ever cleared.
made="$venv/.fastact-made"
if ! runs; then
  if [[ -e $venv && ! -f $made ]]; then
    fail "$venv exists and has no Python that runs; give VENV an environment that works or a new folder."
  fi
  "$python" -c 'import venv, ensurepip' 2>/dev/null ||
    fail "$python has no venv module; on Debian and Ubuntu: apt install python3-venv."
  if [[ $torch == 2.15.* && $version == 3.10 ]]; then
    fail "torch $torch needs Python 3.11 or newer, but $python is 3.10; run make TORCH=2.14.1, or make PYTHON=/path/to/python3"
  fi
  mkdir -p "$venv"
  # Checked before gigabytes are downloaded.
  free=$(df -Pk "$venv" | awk 'NR == 2 { print $4 }')
  if ((free < 5700000)); then
    rmdir "$venv" 2>/dev/null || true
    fail "the disk has $((free / 1000)) MB free at $venv, but the environment takes 5.7 GB; free some space, or put the environment elsewhere: make VENV=/path"
  fi
  say "making $venv with Python $version"
  touch "$made"
  "$python" -m venv --clear "$venv"
  touch "$made"
fi

# Installs packages with uv, which takes a third of pip's time for these gigabytes (15 to 25 s; pip
# took 60). Uses pip if it is configured with an index other than PyPI, or if uv fails.
install() {
  if ! "$venv/bin/python" -m pip config list 2>/dev/null | grep -q 'index'; then
    "$venv/bin/python" -m pip install --disable-pip-version-check --quiet uv==0.13.9 2>/dev/null &&
      "$venv/bin/uv" pip install --python "$venv/bin/python" --cache-dir "$venv/.uv" "$@" && rm -rf "$venv/.uv" &&
      return
    rm -rf "$venv/.uv"
    say "uv could not install it; trying pip"
  fi
  pip_install "$@"
}

# Adds one sentence that explains a failed installation to pip's output. Does not compile Python
# files: that would take half a minute for torch, and happens when a module is first imported
# anyway.
pip_install() {
  # Kept in memory, because on a full disk there is no room for it.
  local log
  { log=$("$venv/bin/python" -m pip install --disable-pip-version-check --no-compile "$@" 2>&1 | tee >(cat >&3)); } 3>&1 &&
    return
  if [[ $log == *"No space left on device"* ]]; then
    fail "the disk is full; the environment takes 5.7 GB, and 0.5 GB more with nvcc; free some space, and run the command again."
  fi
  if [[ $log =~ NewConnectionError|ConnectTimeout|NameResolution|"Temporary failure"|"Network is unreachable"|ProxyError|"Could not fetch URL" ]]; then
    fail "the Python package index cannot be reached; is the network up?"
  fi
  log=${log##*ERROR: }
  fail "pip could not install: ${log%%$'\n'*}"
}

if [[ -f $made ]]; then
  say "installing torch $torch and the build tools (about 2.6 GB on the first run)"
  install "torch==$torch" -r "$root/requirements.txt"
else
  "$venv/bin/python" -c 'import torch' 2>/dev/null ||
    fail "$venv was not made by FastAct and has no torch that can be imported; install one there, or leave VENV out."
  mapfile -t missing < <("$venv/bin/python" "$root/scripts/build/missing_requirements.py" "$root/requirements.txt")
  if [[ ${#missing[@]} == 0 ]]; then
    say "using $venv as it is"
  else
    say "installing what $venv lacks: ${missing[*]}"
    "$venv/bin/python" -m pip list --format=freeze 2>/dev/null >"$venv/.fastact-constraints"
    install -c "$venv/.fastact-constraints" "${missing[@]}"
  fi
fi

# torch's wheels require the CUDA toolkit they were built with. nvcc is taken from the same release.
# Its package does not pin the release of its parts (nvvm, crt, cccl), so they are listed too.
if [[ -n $with_nvcc ]]; then
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
    say "installing nvcc of CUDA $toolkit, for which this torch is built (about 0.5 GB)"
    install "cuda-toolkit[nvcc,nvvm,crt,cudart,cccl]==$toolkit"
  else
    say "this torch is CPU-only: no CUDA compiler"
  fi
  touch "$venv/.fastact-nvcc"
fi

# --- GoogleTest ---------------------------------------------------------------------------------
# A package that contains GoogleTest's sources, which it installs to VENV/src/gtest_vendor. It has
# one wheel for each Python version. If there is none, Debian's package is unpacked, which needs no
# root.
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
