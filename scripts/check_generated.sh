#!/usr/bin/env bash
# Checks that generated sources are what their generators write today.
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
failed=0

python3 "$root/scripts/generate_codebooks.py" --check || failed=1

# The Unicode tables depend on the version of Debian's unicode-data: another one is no error of ours.
header=src/tokenizer/unicode_generated.h
unicode=/usr/share/unicode
if [[ ! -f $unicode/DerivedAge.txt ]]; then
  echo "generated: skipped the Unicode tables, $unicode is not there (package unicode-data)"
else
  version="$(sed -n '1s/^# DerivedAge-\(.*\)\.txt.*/\1/p' "$unicode/DerivedAge.txt")"
  if ! grep -qF "$version" "$root/$header"; then
    echo "generated: skipped the Unicode tables, $unicode has version $version and $header another"
  else
    # The generator writes beside itself: run a copy of it, then compare.
    scratch="$(mktemp -d)"
    trap 'rm -rf "$scratch"' EXIT
    mkdir -p "$scratch/scripts" "$scratch/src/tokenizer"
    cp "$root/scripts/generate_unicode_tables.py" "$scratch/scripts/"
    python3 "$scratch/scripts/generate_unicode_tables.py"
    for file in unicode_generated.h unicode_generated.cpp; do
      if ! cmp -s "$scratch/src/tokenizer/$file" "$root/src/tokenizer/$file"; then
        echo "src/tokenizer/$file is not what scripts/generate_unicode_tables.py writes"
        failed=1
      fi
    done
  fi
fi

[[ $failed == 0 ]] && echo "generated: every generated source is up to date"
exit $failed
