#!/usr/bin/env bash
# clang-tidy on one file: its name and seconds, and, only when it found something, what it found.
#
#   scripts/tidy.sh BUILD FILE
set -uo pipefail

build=$1
file=$2
start=$SECONDS
# The build folder's commands are for the build's own compiler, whose warnings clang may not know.
output=$(clang-tidy -p "$build" --quiet --extra-arg=-Wno-unknown-warning-option \
  --extra-arg=-Wno-ignored-optimization-argument "$file" 2>&1)
status=$?
printf '%4d s  %s\n' "$((SECONDS - start))" "${file#"$PWD"/}"
if [[ $status != 0 ]]; then
  printf '%s\n' "$output"
fi
exit $status
