#!/usr/bin/env bash
# Runs every fuzzer of tests/fuzz for some seconds. They start from small valid files, which
# fuzz_seeds makes, and from what earlier runs found, in build/fuzz/corpus; tests/fuzz/NAME.dict has
# words for them.
#
#   fuzz.sh [SECONDS] [NAME ...]   (60 seconds each, all of them). A finding is left in
#                                  build/fuzz/findings.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds="${1:-60}"
shift || true
names=("$@")
if [[ ${#names[@]} -eq 0 ]]; then
  for source in tests/fuzz/*_fuzz.cpp; do names+=("$(basename "$source" _fuzz.cpp)"); done
fi
scripts/build.sh fuzz fuzz_seeds "${names[@]/#/fuzz_}"
build/fuzz/fuzz_seeds build/fuzz/corpus .

failed=()
for name in "${names[@]}"; do
  target="fuzz_$name"
  echo "-- $target"
  mkdir -p "build/fuzz/corpus/$target" build/fuzz/findings
  words=()
  [[ ! -f "tests/fuzz/$name.dict" ]] || words=("-dict=tests/fuzz/$name.dict")
  # What takes longer than 10 s or more than 2 GB for one input is a finding too.
  "build/fuzz/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -verbosity=0 -max_len=32768 "${words[@]}" -artifact_prefix="build/fuzz/findings/$target-" \
    "build/fuzz/corpus/$target" || failed+=("$target")
done
if [[ ${#failed[@]} -gt 0 ]]; then
  echo "fuzz: findings by ${failed[*]}; see build/fuzz/findings"
  exit 1
fi
echo "fuzz: ${#names[@]} fuzzers, $seconds s each, no findings"
