#!/usr/bin/env bash
# Comparisons with other programs that do the same (tests/peers), on live inputs.
#
#   peers.sh --list 0    names of those that ./test runs
#   peers.sh --list 1    names of those that ./test --all runs
#   peers.sh NAME        runs one; scripts/python_env.sh and `npm ci` must have run
set -euo pipefail
cd "$(dirname "$0")/.."
export STRATA_BUILD="${STRATA_BUILD:-build/release}"
python=.venv/bin/python

case "${1:-}" in
  --list)
    echo jinja2
    echo npm-jinja
    ;;
  jinja2) exec "$python" tests/peers/jinja_equality.py ;;
  npm-jinja) exec node tests/peers/jinja_equality.mjs ;;
  *)
    echo "peers: unknown test '${1:-}'; see: scripts/peers.sh --list 1" >&2
    exit 2
    ;;
esac
