#!/usr/bin/env bash
# Comparisons with other programs that do the same (tests/peers), on live inputs.
#
#   peers.sh --list 0    names of those that ./test runs
#   peers.sh --list 1    names of those that ./test --all runs
#   peers.sh NAME        runs one; scripts/python_env.sh and `npm ci` must have run
#   peers.sh llama-speed FILE.gguf ...    speed beside llama.cpp on these files; takes minutes a file
set -euo pipefail
cd "$(dirname "$0")/.."
export STRATA_BUILD="${STRATA_BUILD:-build/release}"
python=.venv/bin/python

case "${1:-}" in
  --list)
    echo jinja2
    echo npm-jinja
    echo tokenizers
    echo npm-tokenizers
    echo llama-files
    echo llama-tokens
    echo llama-logits
    echo npm-gguf
    echo npm-regex
    echo npm-formats
    echo masks
    echo npm-schemas
    echo schemas
    if [[ "${2:-0}" == 1 ]]; then
      echo masks-xgrammar
      echo schema-documents
      echo schema-suite
      echo schema-time
      echo tokenizers-all
      echo tokenizers-speed
      echo llama-full-width
      echo llama-speed
    fi
    ;;
  jinja2) exec "$python" tests/peers/jinja_equality.py ;;
  npm-jinja) exec node tests/peers/jinja_equality.mjs ;;
  tokenizers) exec "$python" tests/peers/tokenizer_equality.py demo qwen3 target ;;
  tokenizers-all) exec "$python" tests/peers/tokenizer_equality.py --strings 40000 ;;
  tokenizers-speed) exec "$python" tests/peers/tokenizer_speed.py ;;
  npm-tokenizers) exec node tests/peers/tokenizer_equality.mjs ;;
  llama-files) exec "$python" tests/peers/llama_files.py ;;
  llama-tokens) exec "$python" tests/peers/llama_tokens.py ;;
  llama-logits) exec "$python" tests/peers/llama_logits.py ;;
  llama-full-width) exec "$python" tests/peers/llama_logits.py --full-width ;;
  llama-speed) exec "$python" tests/peers/llama_speed.py "${@:2}" ;;
  npm-gguf) exec node tests/peers/gguf_equality.mjs ;;
  npm-regex) exec node tests/peers/regex_equality.mjs ;;
  npm-schemas) exec node tests/peers/schema_equality.mjs ;;
  schemas) exec "$python" tests/peers/schema_equality.py ;;
  schema-suite) exec "$python" tests/peers/schema_equality.py --suite ;;
  schema-time) exec node tests/peers/schema_compile_time.mjs ;;
  npm-formats) exec node tests/peers/format_equality.mjs ;;
  masks) exec "$python" tests/peers/masks.py llguidance ;;
  masks-xgrammar) exec "$python" tests/peers/masks.py xgrammar ;;
  schema-documents) exec "$python" tests/peers/schema_documents.py ;;
  *)
    echo "peers: unknown test '${1:-}'; see: scripts/peers.sh --list 1" >&2
    exit 2
    ;;
esac
