#!/usr/bin/env bash
# Checks that clang-format would change nothing. Generated sources keep their own form.
set -euo pipefail
cd "$(dirname "$0")/.."
find src tests -type f \( -name '*.h' -o -name '*.cpp' \) ! -name '*_generated.*' -print0 |
  sort -z | xargs -0 --no-run-if-empty clang-format-19 --dry-run -Werror
echo "format: clang-format would change nothing"
