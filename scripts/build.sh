#!/usr/bin/env bash
# Configures a preset of CMakePresets.json and builds targets of it into build/PRESET.
#
#   build.sh PRESET [-DNAME=VALUE ...] [TARGET ...]
set -euo pipefail
cd "$(dirname "$0")/.."
preset="$1"
shift
definitions=() targets=()
for argument in "$@"; do
  if [[ "$argument" == -D* ]]; then definitions+=("$argument"); else targets+=("$argument"); fi
done

# A job of the heaviest sources takes up to 2 GB.
jobs="$(nproc)"
memory_kb="$(awk '/^MemTotal:/ { print $2 }' /proc/meminfo)"
fit=$((memory_kb / 2000000))
((fit >= jobs)) || jobs=$((fit > 0 ? fit : 1))

cmake --preset "$preset" "${definitions[@]}"
ninja -C "build/$preset" -j "$jobs" "${targets[@]}"
