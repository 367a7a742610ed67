#!/bin/sh
# deb.sh FOLDER -- makes a Debian package of mpc in FOLDER, from what `make` has built.
#
# Trainers are compiled by the user's C compiler and linked with the runtime, so the package depends on what that needs.
set -eu
cd "$(dirname "$0")/.."
build=${BUILD:-build} out=$1
version=$(sed -n 's/^#define MPC_VERSION "\(.*\)"/\1/p' driver/options.h)
arch=$(dpkg --print-architecture)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

make -s install BUILD="$build" DESTDIR="$stage/root" PREFIX=/usr
mpc=$stage/root/usr/bin/mpc docs=$stage/root/usr/share/doc/mpc
strip --strip-unneeded "$mpc"
strip --strip-debug "$stage"/root/usr/lib/mpc/*.a
install -D -m 644 LICENSE "$docs/copyright"
install -m 644 CHANGELOG.md "$docs/changelog"
gzip -9n "$docs/changelog" "$stage/root/usr/share/man/man1/mpc.1"

# The libraries of the compiler itself, and the versions that it needs.
mkdir "$stage/debian"
printf 'Source: mpc\n\nPackage: mpc\nArchitecture: any\n' >"$stage/debian/control"
libraries=$(cd "$stage" && dpkg-shlibdeps -O "$mpc" 2>/dev/null | sed -n 's/^shlibs:Depends=//p')

# Trainers over TCP need no MPI.
case $(cat "$build/mpi.flags") in
*-lmpich*) mpi='libmpich-dev, mpich' ;;
*-lmpi*) mpi='libopenmpi-dev, openmpi-bin' ;;
*) mpi= ;;
esac

mkdir "$stage/root/DEBIAN"
cat >"$stage/root/DEBIAN/control" <<END
Package: mpc
Version: $version
Architecture: $arch
Maintainer: mpc's developers <mpc@localhost>
Installed-Size: $(du -sk "$stage/root" | cut -f1)
Depends: $libraries, gcc, libc6-dev, libdnnl-dev, libcjson-dev, libssl-dev
${mpi:+Recommends: $mpi
}Section: science
Priority: optional
Description: compiler from model descriptions to distributed trainers
 mpc compiles a model, written with named dims in a small language, into a
 trainer: one readable C program, for one or many processes, with data, tensor,
 sequence, context, expert and pipeline parallelism.
END
mkdir -p "$out"
dpkg-deb --root-owner-group --build "$stage/root" "$out/mpc_${version}_$arch.deb" >/dev/null
echo "$out/mpc_${version}_$arch.deb"
