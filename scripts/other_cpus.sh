#!/usr/bin/env bash
# The program and its tests for CPUs that are not this machine's, under qemu. It proves bits, not
# speed.
#
#   other_cpus.sh build    for 64-bit ARM, into build/arm64
#   other_cpus.sh tests    the unit tests of that build, as the CPU that has everything
#   other_cpus.sh arm      logits and text on three kinds of ARM: those of x86, to the last bit
#   other_cpus.sh x86      the same on x86 without AVX, which the program says first
#
# The last two compare with build/release (or STRATA_BUILD).
set -euo pipefail
cd "$(dirname "$0")/.."
sysroot=build/arm64-sysroot
program="${STRATA_BUILD:-build/release}/strata"
work=build/other-cpus
failures=0

check() { # TEXT COMMAND...: says whether the command succeeded, and counts
  local text="$1"
  shift
  if "$@"; then echo "same: $text"; else
    echo "DIFFERENT: $text" >&2
    failures=$((failures + 1))
  fi
}

# A model in each kind of format, the demo model, and a text of 24 ids for each.
prepare() {
  mkdir -p "$work"
  local type
  for type in F32 BF16 F16 Q8_0 Q4_0; do
    "$program" convert tests/golden/tiny-a "$work/tiny-$type.gguf" --type "$type" \
      >"$work/said.txt" 2>&1 || { cat "$work/said.txt" >&2 && return 1; }
  done
  ln -sf "$PWD/models/demo/strata-demo-46m.gguf" "$work/demo.gguf"
  printf '[%s1]\n' "$(for i in {1..23}; do printf '%d,' $((i * i * 7 % 251)); done)" >"$work/ids.json"
}

# logits NAME FILE [arguments] -- [emulator]: what the program makes of a model.
logits() {
  local name="$1" file="$2" arguments=()
  shift 2
  while [[ "$1" != -- ]]; do
    arguments+=("$1")
    shift
  done
  shift
  "$@" -m "$work/$name.gguf" --ids "$work/ids.json" -o "$work/$file" "${arguments[@]}"
}

say_hello() { # COMMAND...: an answer, and on standard error what the program has to say
  "$@" run -m "$work/demo.gguf" -p "What is the capital of France?" --effort none \
    -n 24 -t 0
}

compare() { # WHAT ISA EMULATED...: all models with these kernels ("" for the CPU's own choice)
  local what="$1" isa="$2" name arguments=() other
  shift 2
  [[ -z "$isa" ]] || arguments=(--isa "$isa")
  for name in tiny-F32 tiny-BF16 tiny-F16 tiny-Q8_0 tiny-Q4_0 demo; do
    [[ -s "$work/$name.f32" ]] || logits "$name" "$name.f32" --isa portable -- "$program" logits
    other="$name-other.f32"
    logits "$name" "$other" "${arguments[@]}" -- "$@" logits
    check "logits of $name, $what" cmp -s "$work/$name.f32" "$work/$other"
    # A token a window: the kernels for a few tokens.
    logits "$name" "$other" --chunk 1 "${arguments[@]}" -- "$@" logits
    check "logits of $name, $what, a token at a time" cmp -s "$work/$name.f32" "$work/$other"
  done
}

case "${1:-}" in
  build)
    scripts/arm64_sysroot.sh "$sysroot"
    scripts/build.sh arm64
    ;;
  tests)
    # cli starts the program from a test, and so do two tests of base, which needs the system to know
    # qemu; soak, server and engine measure times.
    GTEST_FILTER='-LostPages.WithoutAWatch*:LostPages.OtherBusErrors*' ctest --test-dir build/arm64 --output-on-failure --no-tests=error --timeout 3000 \
      -E '^(cli|soak|server|engine)$'
    ;;
  arm)
    prepare
    arm() { qemu-aarch64 -cpu "$1" -L "$sysroot" build/arm64/strata "${@:2}"; }
    for isa in neon_i8mm neon_dotprod neon portable; do
      compare "ARM with $isa" "$isa" arm max
    done
    compare "ARM without i8mm" "" arm cortex-a76
    compare "ARM without dot products" "" arm cortex-a72
    say_hello "$program" >"$work/hello.txt" 2>/dev/null
    say_hello arm max >"$work/hello-other.txt"
    check "an answer on ARM" cmp "$work/hello.txt" "$work/hello-other.txt"
    ;;
  x86)
    prepare
    compare "x86 as Nehalem" "" qemu-x86_64 -cpu Nehalem "$program"
    say_hello "$program" >"$work/hello.txt" 2>/dev/null
    say_hello qemu-x86_64 -cpu Nehalem "$program" >"$work/hello-other.txt" 2>"$work/said.txt"
    check "an answer on x86 without AVX" cmp "$work/hello.txt" "$work/hello-other.txt"
    check "the first line says what is lacking" bash -c \
      'grep -v "^qemu" "$1" | head -n 1 | grep "this CPU lacks AVX2"' - "$work/said.txt"
    ;;
  *)
    echo "other_cpus: '${1:-}' is none of build, tests, arm and x86" >&2
    exit 2
    ;;
esac
[[ $failures == 0 ]]
