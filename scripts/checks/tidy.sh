#!/usr/bin/env bash
# Runs clang-tidy on one file. Prints its name and the seconds, and the output if there are
# findings.
#
#   scripts/checks/tidy.sh BUILD FILE
set -uo pipefail

build=$1
file=$2
start=$SECONDS
# The commands in the build folder are for the build's compiler, some of whose warnings clang does
# not know.
output=$(clang-tidy -p "$build" --quiet --extra-arg=-Wno-unknown-warning-option \
  --extra-arg=-Wno-ignored-optimization-argument "$file" 2>&1)
status=$?
printf '%4d s  %s\n' "$((SECONDS - start))" "${file#"$PWD"/}"
if [[ $status != 0 ]]; then
  printf '%s\n' "$output"
fi
exit $status
