#!/bin/sh
# clang_format.sh ARGUMENT... -- clang-format of version 14, since versions differ in what they write: the distribution's, or
# PyPI's (make clang-format).
root=$(cd "$(dirname "$0")/.." && pwd)
for program in clang-format-14 "${BUILD:-$root/build}/clang-format/bin/clang-format" clang-format; do
    case $("$program" --version 2>/dev/null) in *"version 14."*) exec "$program" "$@" ;; esac
done
echo "error: no clang-format of version 14: install it by make clang-format" >&2
exit 1
