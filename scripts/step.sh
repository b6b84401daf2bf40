#!/usr/bin/env bash
# Steps that say where a command is and how long each took. Sourced, or called with a step:
#
#   scripts/step.sh NAME COMMAND...
#
# FASTACT_STARTED, the time in seconds at which the whole began, gives the sum beside it.

# step NAME COMMAND...: the command's exit code; its own output in between.
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
