#!/bin/sh
# deps.sh -- installs missing packages for building and testing; prints them first.
set -eu
packages='gcc g++ make flex bison libdnnl-dev libcjson-dev libopenmpi-dev openmpi-bin'
[ "${1:-}" = build ] || packages="$packages libcmocka-dev llvm-14-tools clang-14 libclang-rt-14-dev libomp-14-dev
    clang-format-14 python3 python3-pytest python3-pytest-xdist python3-numpy python3-torch diffutils man-db tcc"
missing=
for package in $packages; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo
echo "installing:$missing"
if ! command -v apt-get >/dev/null || { [ -n "$sudo" ] && ! command -v sudo >/dev/null; }; then
    echo "error: please install these packages as root:$missing" >&2
    exit 1
fi
$sudo apt-get update -qq
# shellcheck disable=SC2086
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null
