#!/usr/bin/env bash
# Checks the types of web/ and runs its unit tests, on a copy in the build folder.
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
folder="$root/build/web-check"

mkdir -p "$folder"
cp "$root"/web/package.json "$root"/web/package-lock.json "$folder"
if ! cmp -s "$folder/package-lock.json" "$folder/installed-lock.json"; then
  (cd "$folder" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error)
  cp "$folder/package-lock.json" "$folder/installed-lock.json"
fi
rm -rf "$folder/src" "$folder/test"
cp -r "$root"/web/src "$root"/web/test "$root"/web/tsconfig.json "$root"/web/*.mjs "$folder"
cd "$folder"
npm run --silent check
npm run --silent test
