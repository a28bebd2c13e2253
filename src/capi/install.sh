#!/usr/bin/env bash
# Builds the C library and puts it under a prefix: src/capi/install.sh [PREFIX]
#
#   PREFIX/include/esker.h
#   PREFIX/lib/libesker.so -> libesker.so.ABI, libesker.a
#   PREFIX/lib/pkgconfig/esker.pc
#
# PREFIX is /usr/local if it is not given. DESTDIR is honoured. Exported symbols begin with
# esker_ in both libraries.
set -euo pipefail
prefix=${1:-/usr/local}
case $prefix in
    /*) ;;
    *) prefix=$PWD/$prefix ;;
esac
tree=$(cd "$(dirname "$0")/../.." && pwd)
cd "$tree"
abi=$(sed -n 's/^#define ESKER_ABI //p' src/capi/esker.h)
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
built=${CARGO_TARGET_DIR:-$tree/target}/release

# Ordinary builds make the Rust library only, and stay quick.
cargo rustc --release --lib --crate-type cdylib,staticlib -- \
    -C "link-arg=-Wl,-soname,libesker.so.$abi"

# One object with local symbols: an archive of Rust's would clash with another one's. The
# bitcode that the standard library carries cannot be joined, and the linker's plug-in for it
# gives up.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
ld -r -u esker_abi --whole-archive "$built/libesker.a" -o "$scratch/all.o" --no-whole-archive
objcopy --wildcard --keep-global-symbol='esker_*' --remove-section=.llvmbc \
    --remove-section=.llvmcmd "$scratch/all.o" "$scratch/esker.o"
rm -f "$scratch/libesker.a"
ar rcs "$scratch/libesker.a" "$scratch/esker.o"

to=${DESTDIR:-}$prefix
install -d "$to/include" "$to/lib/pkgconfig"
install -m 644 src/capi/esker.h "$to/include/esker.h"
install -m 755 "$built/libesker.so" "$to/lib/libesker.so.$abi"
ln -sf "libesker.so.$abi" "$to/lib/libesker.so"
install -m 644 "$scratch/libesker.a" "$to/lib/libesker.a"
cat > "$to/lib/pkgconfig/esker.pc" <<PC
prefix=$prefix
includedir=\${prefix}/include
libdir=\${prefix}/lib

Name: esker
Description: Log-structured storage engine: key-value entries and objects
Version: $version
Cflags: -I\${includedir}
Libs: -L\${libdir} -lesker
Libs.private: -lgcc_s -lutil -lrt -lpthread -lm -ldl -lc
PC
printf 'installed in %s\n' "$to"
