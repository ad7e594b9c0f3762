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
    echo anthropic-client
    echo structure
    echo ai-sdk
    echo python-clients
    echo blackbox
    echo lifecycle
    echo idle
    echo telemetry
    echo web-app
    echo terminal
    echo soak
    echo evaluation
    if [[ "${2:-0}" == 1 ]]; then
      echo telemetry-cost
      echo a-hundred-faults
      echo load
      echo soak-long
    else
      echo faults
    fi
    ;;
  openai-client) exec node tests/e2e/openai_client.mjs ;;
  anthropic-client) exec node tests/e2e/anthropic_client.mjs ;;
  structure) exec node tests/e2e/structure.mjs ;;
  ai-sdk) exec node tests/e2e/ai_sdk.mjs ;;
  python-clients) exec .venv/bin/python tests/e2e/python_clients.py ;;
  blackbox) exec node tests/e2e/blackbox.mjs ;;
  lifecycle) exec node tests/e2e/lifecycle.mjs ;;
  faults) exec node tests/e2e/faults.mjs 10 ;;
  a-hundred-faults) exec node tests/e2e/faults.mjs 100 ;;
  load) exec node tests/e2e/load.mjs ;;
  terminal) exec .venv/bin/python tests/e2e/terminal.py ;;
  web-app) exec node tests/e2e/web_app.mjs ;;
  # Prometheus' own reader: of the system, or as scripts/install_dependencies.sh has unpacked it.
  telemetry) PATH="$PATH:$PWD/build/tools" exec node tests/e2e/telemetry.mjs ;;
  telemetry-cost) exec node tests/e2e/telemetry_cost.mjs ;;
  idle) exec node tests/e2e/idle.mjs ;;
  soak) exec node tests/e2e/soak.mjs 30 ;;
  soak-long) exec node tests/e2e/soak.mjs 180 ;;
  # at least 175 of the 200 prompts, and 42 of the 44 tool calls
  evaluation) exec node tests/e2e/eval.mjs --min 87.5 --min-tools 95.4 ;;
  *)
    echo "e2e: unknown test '${1:-}'; see: scripts/e2e.sh --list 1" >&2
    exit 2
    ;;
esac
