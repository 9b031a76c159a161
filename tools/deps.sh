#!/bin/sh
# deps.sh - find what is missing and install it with apt.
#
#   tools/deps.sh build    what `make` needs
#   tools/deps.sh test     and what `make check` needs
#   tools/deps.sh fuzz     and what `make fuzz` needs
#
# Says what it installs. As root it calls apt-get, else sudo apt-get; where it may do neither it names the
# packages and stops. A library counts as there when pkg-config (or, for oneDNN, the compiler) finds it.
set -u
want=${1:-build}
missing=

need() { # package, then a command that succeeds when it is there
    package=$1
    shift
    "$@" >/dev/null 2>&1 || missing="$missing $package"
}
have() { command -v "$1"; }
header() { printf '#include <%s>\n' "$1" | cc -E - ; }

need gcc have cc
need g++ have c++
need libc6-dev header stdlib.h
need binutils have ar
need pkg-config have pkg-config
need liblua5.4-dev pkg-config --exists lua5.4
need libyaml-dev pkg-config --exists yaml-0.1
need libjansson-dev pkg-config --exists jansson
need libdnnl-dev header dnnl.h
case $want in
build) ;;
test | fuzz)
    need perl have prove
    need clang-format-14 have clang-format-14
    ;;
*)
    echo "usage: tools/deps.sh build|test|fuzz" >&2
    exit 2
    ;;
esac
if [ "$want" = fuzz ]; then
    need clang-14 have clang-14
    need libclang-rt-14-dev test -e /usr/lib/llvm-14/lib/clang
    find /usr/lib/llvm-14/lib/clang -name 'libclang_rt.fuzzer-*.a' 2>/dev/null | grep -q . ||
        missing="$missing libclang-rt-14-dev"
fi

[ -z "$missing" ] && exit 0
missing=$(printf '%s\n' $missing | sort -u | tr '\n' ' ')
echo "cupola: to be installed: $missing" >&2
if ! command -v apt-get >/dev/null 2>&1; then
    echo "cupola: there is no apt-get here; install these (or their like) by hand" >&2
    exit 1
fi
root=
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        echo "cupola: not root and no sudo; ask an administrator for: apt-get install $missing" >&2
        exit 1
    fi
    root=sudo
fi
export DEBIAN_FRONTEND=noninteractive
# Without -E sudo drops the variable, so it is named on the command line too.
$root apt-get update -qq >/dev/null || echo "cupola: apt-get update failed; trying with the lists there are" >&2
if ! $root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >&2; then
    echo "cupola: apt-get could not install: $missing" >&2
    exit 1
fi
