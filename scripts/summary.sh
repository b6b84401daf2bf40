#!/usr/bin/env bash
# One line at the end of make: what was built, for what, where it lies, and how long all took.
#
#   scripts/summary.sh BUILD
set -euo pipefail

library=$1/lib/libfastact.so
printf '\n== %s (%s): %s; %d s in all\n' "$library" "$(du -h --apparent-size "$library" | cut -f 1)" \
  "$(cat "$1/summary")" "$(($(date +%s) - ${FASTACT_STARTED:-$(date +%s)}))"
