#!/bin/sh
# sysroot.sh FOLDER ARCHITECTURE PACKAGE... -- unpacks packages of another architecture of this Debian, and all that they
# need, in FOLDER.  apt keeps its state there: the system does not learn of the architecture.
set -eu
folder=$1 arch=$2
shift 2
mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial"
folder=$(cd "$folder" && pwd)
apt()
{
    apt-get -qq -o APT::Architecture="$arch" -o APT::Architectures="$arch" -o Dir::State::status=/dev/null -o Dir::State::lists="$folder/apt/lists" \
        -o Dir::Cache="$folder/apt/cache" -o Debug::NoLocking=1 -o APT::Sandbox::User=root "$@"
}
apt update
apt install -y --no-install-recommends --download-only "$@"
for package in "$folder"/apt/cache/archives/*.deb; do
    dpkg-deb -x "$package" "$folder"
done
rm -rf "$folder/apt"
