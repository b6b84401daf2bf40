#!/usr/bin/env bash
# Checks formatting and runs the static analysers. Changes nothing; any finding is a failure.
#
#   scripts/checks/lint.sh BUILD [JOBS]      BUILD is a configured build folder (compile_commands.json)
set -euo pipefail
cd "$(dirname "$0")/../.."
source scripts/checks/sources.sh

build=$1
jobs=${2:-2}
status=0

echo "== lint: ruff"
ruff check || status=1
ruff format --check || status=1

echo "== lint: dependencies"
python scripts/checks/dependencies.py || status=1

echo "== lint: clang-format"
cpp_sources | xargs -0 clang-format --dry-run -Werror || status=1

# Host C++ of the library: our files, and the generated files of three families, which show the
# engine's headers to the analyser: gelu has segments, leaky_relu a default form, and prelu several
# inputs. ops/catalogue.cpp shows the formulas of all activations. GCC optimizations that
# clang-tidy does not know are removed from the commands.
echo "== lint: clang-tidy ($jobs at a time)"
mkdir -p "$build/tidy"
python - "$build" <<'PY' | xargs -0 -n 1 -P "$jobs" scripts/checks/tidy.sh "$build/tidy" || status=1
import json
import pathlib
import re
import sys

build = pathlib.Path(sys.argv[1]).resolve()
commands = (build / "compile_commands.json").read_text()
SHOWN = ("gelu_baseline.cpp", "leaky_relu_baseline.cpp", "prelu_baseline.cpp")
known = re.sub(r" (-fno-(thread-jumps|tree-pre)|--param=[a-z-]+=\d+)\b", "", commands)
(build / "tidy" / "compile_commands.json").write_text(known)
root = pathlib.Path.cwd()
own = [root / folder for folder in ("ops", "registration")]
files = set()
for entry in json.loads(commands):
    path = pathlib.Path(entry["directory"], entry["file"]).resolve()
    generated = path.is_relative_to(build) and path.name in SHOWN
    included = path.parent.name == "Unity" and path.is_relative_to(build / "registration")
    if included or path.suffix == ".cpp" and (generated or any(path.is_relative_to(o) for o in own)):
        files.add(path)
# The files that include several others first: they take longest.
for path in sorted(files, key=lambda p: (p.parent.name != "Unity", -p.stat().st_size, p)):
    print(path, end="\0")
PY

if [[ $status == 0 ]]; then
  echo "== lint: clean"
fi
exit $status
