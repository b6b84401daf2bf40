#!/usr/bin/env bash
# Runs steps: prints the name of each step and how long it took. Sourced, or called with one step:
#
#   scripts/build/step.sh NAME COMMAND...
#
# If FASTACT_STARTED is set (the start time in seconds), prints the total time as well.

# step NAME COMMAND...: prints the command's output and returns its exit code.
step() {
  local name=$1 start=$SECONDS status=0
  shift
  printf '\n== %s\n' "$name"
  "$@" || status=$?
  local took="$((SECONDS - start)) s"
  if [[ -n ${FASTACT_STARTED:-} ]]; then
    took+=", $(($(date +%s) - FASTACT_STARTED)) s since the start"
  fi
  if [[ $status == 0 ]]; then
    printf '== %s: done in %s\n' "$name" "$took"
  else
    printf '== %s: FAILED after %s\n' "$name" "$took" >&2
  fi
  return "$status"
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
  step "$@"
fi
