#!/usr/bin/env bash
# Formats C++, CUDA and Python sources in place.
set -euo pipefail
cd "$(dirname "$0")/../.."
source scripts/checks/sources.sh

cpp_sources | xargs -0 clang-format -i
ruff format
ruff check --fix
