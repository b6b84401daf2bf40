#!/usr/bin/env bash
# Unpacks Debian's Google Benchmark into .deps/google-benchmark for FASTACT_BUILD_BENCHMARKS. Needs
# no root. PyPI's package of that name contains Python bindings, but neither headers nor library.
set -euo pipefail
cd "$(dirname "$0")/../.."

target=.deps/google-benchmark
if [[ -d $target ]]; then
  exit 0
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
if ! (cd "$folder" && apt-get download libbenchmark-dev libbenchmark1debian &&
      for package in *.deb; do dpkg -x "$package" unpacked; done) >/dev/null 2>&1; then
  echo "google_benchmark: Debian's package is not available here; install Google Benchmark instead." >&2
  exit 1
fi
mkdir -p .deps
mv "$folder/unpacked" "$target"
