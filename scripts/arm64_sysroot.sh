#!/usr/bin/env bash
# Fills a folder with Debian's arm64 libraries and headers, which the preset `arm64` builds against
# and qemu-aarch64 -L runs with. The machine's own packages, and the architectures that dpkg knows,
# stay as they are: apt works in the folder, and needs no root.
#
#   arm64_sysroot.sh FOLDER
#
# The packages are the -dev ones of install_dependencies.sh. A folder that has them is left alone.
set -euo pipefail
folder="$(mkdir -p "$1" && cd "$1" && pwd)"
cd "$(dirname "$0")/.."

mapfile -t packages < <(scripts/install_dependencies.sh --list test | grep '^lib.*-dev$')
packages+=(libc6-dev libstdc++-12-dev)
wanted="${packages[*]}"
if [[ "$(cat "$folder/.packages" 2>/dev/null)" == "$wanted" ]]; then exit 0; fi

work="$folder/.apt"
mkdir -p "$work/lists/partial" "$work/archives/partial"
: >"$work/status"
components="deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
mirror="${STRATA_DEBIAN_MIRROR:-http://deb.debian.org/debian}"
printf '%s\n' "$components $mirror bookworm main" "$components $mirror bookworm-updates main" \
  >"$work/sources.list"
apt() {
  apt-get -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$work" \
    -o Dir::State::status="$work/status" -o Dir::State::lists="$work/lists" \
    -o Dir::Cache="$work" -o Dir::Cache::archives="$work/archives" \
    -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=- \
    -o APT::Sandbox::User="$(id -un)" -o Debug::NoLocking=1 -o Acquire::Languages=none "$@"
}
apt --quiet update
apt --quiet --yes --no-install-recommends --download-only install "${packages[@]}"
for package in "$work"/archives/*.deb; do dpkg-deb --extract "$package" "$folder"; done
rm -rf "$work"
# Links that name a file from the root on would lead out of the folder.
find "$folder" -type l -lname '/*' -print0 | while IFS= read -r -d '' link; do
  ln -sfnr "$folder$(readlink "$link")" "$link"
done
printf '%s\n' "$wanted" >"$folder/.packages"
