#!/usr/bin/env bash
# Prints one line at the end of make: what was built, for which targets, where, and how long it
# took.
#
#   scripts/build/summary.sh BUILD
set -euo pipefail

library=$1/lib/libfastact.so
printf '\n== %s (%s): %s; %d s in all\n' "$library" "$(du -h --apparent-size "$library" | cut -f 1)" \
  "$(cat "$1/summary")" "$(($(date +%s) - ${FASTACT_STARTED:-$(date +%s)}))"
