#!/usr/bin/env bash
# Makes the Python environment of the tests, .venv, from requirements.txt; does nothing if it is up
# to date. .venv/bin/python is then the interpreter to use.
set -euo pipefail
cd "$(dirname "$0")/.."
if cmp --silent requirements.txt .venv/requirements.txt; then exit 0; fi
rm -rf .venv
python3 -m venv .venv
.venv/bin/pip install --quiet --disable-pip-version-check --no-deps -r requirements.txt
cp requirements.txt .venv/requirements.txt
