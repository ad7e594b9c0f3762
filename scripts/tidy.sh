#!/usr/bin/env bash
# clang-tidy over src/ with the rules of .clang-tidy; the build folder gives the compile commands.
#
#   tidy.sh [BUILD_FOLDER]      (default: build/release, configured with the preset `release`)
set -euo pipefail
cd "$(dirname "$0")/.."
build="${1:-build/release}"
if [[ ! -f $build/compile_commands.json ]]; then
  echo "tidy: $build/compile_commands.json is not there; run: cmake --preset release" >&2
  exit 1
fi
# g++'s warnings are errors in the build; clang's own differ, and only .clang-tidy's count here.
find src -name '*.cpp' ! -name '*_generated.*' -print0 | sort -z |
  xargs -0 --no-run-if-empty -n 1 -P "$(nproc)" \
    clang-tidy-19 -p "$build" --quiet --extra-arg=-Wno-error --extra-arg=-Wno-unknown-warning-option
echo "tidy: nothing to say"
