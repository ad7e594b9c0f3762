#!/usr/bin/env bash
# Installs the Debian 12 packages that Strata needs and that are not there yet.
#
#   install_dependencies.sh build   compile and run the program (./run)
#   install_dependencies.sh test    also what ./test uses
#   install_dependencies.sh all     also what ./test --all uses
#   install_dependencies.sh --list SET    print the packages of a set and stop
#
# This is the one list of dependencies. "command:package" is satisfied by any version of the
# command, wherever it came from. STRATA_NO_INSTALL=1 makes the script do nothing.
set -euo pipefail

tool_folder="$(cd "$(dirname "$0")/.." && pwd)/build/tools"

build_set=(
  g++:g++ cmake:cmake ninja:ninja-build pkg-config:pkg-config
  ccache:ccache mold:mold # faster builds
  node:nodejs npm:npm     # the web app is built with them
  libboost1.81-dev libboost-json1.81-dev libcli11-dev libexpected-dev libfmt-dev libspdlog-dev
  libedit-dev libsqlite3-dev libssl-dev libutf8proc-dev liburing-dev libxxhash-dev
)
test_set=(
  libgtest-dev libgmock-dev clang-format-19:clang-format-19
  git:git python3:python3 unicode-data # checks of the tree
  python3-venv                         # .venv: what tests compare with
  chromium:chromium fonts-dejavu-core  # end-to-end tests of the web app
  mandoc:mandoc                        # what the manual pages must please
  fio:fio                              # what 'strata ple bench' is held against
)
all_set=(
  clang-tidy-19:clang-tidy-19 clang++-19:clang-19 libclang-rt-19-dev # static analysis, fuzzing
  aarch64-linux-gnu-g++:g++-aarch64-linux-gnu qemu-aarch64:qemu-user      # other CPUs
  zsh:zsh fish:fish                                                  # shells with completions
)

# Programs of packages that are not installed, for that would start a service: taken out of the
# package into build/tools, "command:package".
test_tools=(promtool:prometheus) # reads /metrics as Prometheus does

say() { printf 'install_dependencies: %s\n' "$*" >&2; }

entries_of() {
  case "$1" in
    build) entries=("${build_set[@]}") ;;
    test) entries=("${build_set[@]}" "${test_set[@]}") ;;
    all) entries=("${build_set[@]}" "${test_set[@]}" "${all_set[@]}") ;;
    *)
      say "unknown set '$1'; give build, test or all"
      exit 2
      ;;
  esac
}

installed() {
  [[ "$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null)" == installed ]]
}

find_missing() {
  missing=()
  local entry
  for entry in "${entries[@]}"; do
    if [[ "$entry" == *:* ]]; then
      command -v "${entry%%:*}" >/dev/null || missing+=("${entry#*:}")
    else
      installed "$entry" || missing+=("$entry")
    fi
  done
}

tools_of() {
  tools=()
  [[ "$1" == build ]] || tools=("${test_tools[@]}")
}

# Takes what is missing of `tools` out of their packages. Needs no root.
unpack_tools() {
  local tool command package
  for tool in "${tools[@]}"; do
    command="${tool%%:*}" package="${tool#*:}"
    if command -v "$command" >/dev/null || [[ -x "$tool_folder/$command" ]]; then continue; fi
    say "taking $command out of the package $package"
    mkdir -p "$tool_folder/package"
    (
      cd "$tool_folder/package"
      apt-get download "$package" >/dev/null 2>&1 || { apt update && apt-get download "$package"; }
      dpkg-deb --fsys-tarfile "${package}"_*.deb | tar -x -O "./usr/bin/$command" >"$command"
      chmod +x "$command"
      mv "$command" "$tool_folder/"
    )
    rm -rf "$tool_folder/package"
  done
}

apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 "$@"
}
install_missing() { apt install --yes --no-install-recommends "${missing[@]}"; }

main() {
  if [[ "${1:-}" == --list ]]; then
    entries_of "${2:-build}"
    tools_of "${2:-build}"
    printf '%s\n' "${entries[@]#*:}" "${tools[@]#*:}"
    return
  fi
  entries_of "${1:-build}"
  [[ "${STRATA_NO_INSTALL:-}" != 1 ]] || return 0
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "this machine has no apt; Strata's packages are named for Debian 12. Install what" \
      "corresponds to: ${entries[*]#*:}; then set STRATA_NO_INSTALL=1 and try again."
    exit 1
  fi
  tools_of "${1:-build}"
  as_root=()
  if [[ $EUID -ne 0 ]] && command -v sudo >/dev/null; then as_root=(sudo); fi
  find_missing
  [[ ${#missing[@]} -eq 0 ]] || install_packages
  unpack_tools
}

install_packages() {
  if [[ $EUID -ne 0 ]]; then
    if ! command -v sudo >/dev/null; then
      say "${#missing[@]} packages are missing, and installing needs root (there is no sudo" \
        "here). As root: apt-get install --no-install-recommends ${missing[*]}"
      exit 1
    fi
  fi
  say "installing ${missing[*]}"
  # The package lists are fetched only when apt cannot do without: they are absent or out of date.
  if ! apt-get install --simulate --no-install-recommends "${missing[@]}" >/dev/null 2>&1 ||
    ! install_missing; then
    apt update
    install_missing || {
      say "apt could not install: ${missing[*]}. The names are those of Debian 12 (bookworm)" \
        "with its 'main' archive; see apt's message above."
      exit 1
    }
  fi
  find_missing
  if [[ ${#missing[@]} -gt 0 ]]; then
    say "still missing after the installation: ${missing[*]}"
    exit 1
  fi
}

main "$@"
