#!/usr/bin/env bash
# The end-to-end tests: real clients against the built server and the demo model.
#
#   e2e.sh --list 0    names of those that ./test runs
#   e2e.sh --list 1    names of those that ./test --all runs
#   e2e.sh NAME        runs one; `npm ci` must have installed the clients
set -euo pipefail
cd "$(dirname "$0")/.."
export STRATA_PROGRAM="${STRATA_PROGRAM:-build/release/strata}"

case "${1:-}" in
  --list)
    echo openai-client
    if [[ "${2:-0}" == 1 ]]; then echo evaluation; else echo evaluation-sample; fi
    ;;
  openai-client) exec node tests/e2e/openai_client.mjs ;;
  evaluation-sample) exec node tests/e2e/eval.mjs --limit 8 ;;
  evaluation) exec node tests/e2e/eval.mjs ;;
  *)
    echo "e2e: unknown test '${1:-}'; see: scripts/e2e.sh --list 1" >&2
    exit 2
    ;;
esac
