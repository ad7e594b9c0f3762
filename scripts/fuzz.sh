#!/usr/bin/env bash
# Runs every fuzzer of tests/fuzz for some seconds, from the corpus in build/fuzz/corpus.
#
#   fuzz.sh [SECONDS]       (default 60). A finding is left in build/fuzz/findings.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds="${1:-60}"
targets=()
for source in tests/fuzz/*_fuzz.cpp; do
  name="$(basename "$source" _fuzz.cpp)"
  targets+=("fuzz_$name")
done
scripts/build.sh fuzz "${targets[@]}"

failed=()
for target in "${targets[@]}"; do
  echo "-- $target"
  mkdir -p "build/fuzz/corpus/$target" build/fuzz/findings
  # What takes longer than 10 s or more than 2 GB for one input is a finding too.
  "build/fuzz/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -verbosity=0 -artifact_prefix="build/fuzz/findings/$target-" "build/fuzz/corpus/$target" ||
    failed+=("$target")
done
if [[ ${#failed[@]} -gt 0 ]]; then
  echo "fuzz: findings by ${failed[*]}; see build/fuzz/findings"
  exit 1
fi
echo "fuzz: ${#targets[@]} fuzzers, $seconds s each, no findings"
