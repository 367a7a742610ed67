#!/bin/sh
# deps.sh [build] -- installs missing packages for building, and without `build` for testing; prints them first.  With ALL=1
# also those of make check-all; with LIST=1 it prints all of them instead, installed or not.
#
# Of LLVM it takes the version that the distribution's clang has.
# shellcheck disable=SC2086
set -eu
cd "$(dirname "$0")/.."
if command -v apt-get >/dev/null; then
    update='apt-get update -qq' install='env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends'
    is_installed() { dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q 'ok installed'; }
    is_known() { apt-cache show "$1" >/dev/null 2>&1; }
    clang_version() { apt-cache depends clang 2>/dev/null | sed -n 's/^ *Depends: clang-\([0-9]*\)$/\1/p' | head -n 1; }
    build='gcc g++ make flex bison libdnnl-dev libcjson-dev libssl-dev libopenmpi-dev openmpi-bin'
    test='libcmocka-dev clang clang-N libclang-rt-N-dev libomp-N-dev llvm-N-tools python3 python3-venv python3-pytest
        python3-pytest-xdist python3-numpy python3-torch diffutils iproute2 man-db tcc valgrind vim neovim zsh fish'
    all='emacs-nox elpa-eglot libmpich-dev mpich musl-tools gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
        slurmctld slurmd slurm-client munge'
elif command -v dnf >/dev/null; then
    update=true install='dnf install -y -q --setopt=install_weak_deps=False'
    is_installed() { rpm -q --quiet "$1"; }
    is_known() { false; }
    clang_version() { echo any; } # no package has it in its name
    build='gcc gcc-c++ make flex bison onednn-devel cjson-devel openssl-devel openmpi-devel'
    test='libcmocka-devel clang compiler-rt libomp-devel llvm llvm-devel python3 python3-pytest python3-pytest-xdist python3-numpy
        python3-torch diffutils iproute iproute-tc man-db tcc valgrind vim-enhanced neovim zsh fish'
    all='mpich-devel gcc-aarch64-linux-gnu qemu-user slurm-slurmctld slurm-slurmd slurm munge'
else
    echo "error: neither apt-get nor dnf is there: please install what docs/install.md lists" >&2
    exit 1
fi
as_root()
{
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        echo "error: please run as root: $*" >&2
        exit 1
    fi
}

packages=$build
if [ "${1:-}" != build ]; then
    version=$(clang_version)
    if [ -z "$version" ]; then # the distribution's lists have never been fetched
        as_root $update
        version=$(clang_version)
    fi
    packages="$packages $(echo "$test" | sed "s/-N\>/-$version/g")"
    ! is_known clang-format-14 || packages="$packages clang-format-14"
    if [ "${ALL:-}" = 1 ]; then
        packages="$packages $all"
        newest=
        for compiler in gcc-12 gcc-13 gcc-14 gcc-15 gcc-16 clang-19 clang-20 clang-21 clang-22; do
            is_known $compiler || continue
            case $compiler in gcc-*) packages="$packages $compiler" ;; *) newest=$compiler ;; esac
        done
        packages="$packages $newest"
    fi
fi
if [ "${LIST:-}" = 1 ]; then
    echo $packages
    exit 0
fi
missing=
for package in $packages; do
    is_installed "$package" || missing="$missing $package"
done
if [ -n "$missing" ]; then
    echo "installing:$missing"
    as_root $update
    as_root $install $missing >/dev/null
fi
[ "${1:-}" = build ] || sh tests/clang_format.sh --version >/dev/null 2>&1 || make --no-print-directory clang-format
