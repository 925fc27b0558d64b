#!/bin/sh
# Installs the C library: the header, libterracedb.so with versioned symbols, libterracedb.a and terracedb.pc.
#
# usage: ./install.sh PREFIX [LIBRARIES]
# LIBRARIES is the folder of `cargo build`'s libterracedb_c.a (default: target/release). CC names the compiler.
set -eu
[ $# -ge 1 ] || { sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
prefix=$1
archive=${2:-$here/target/release}/libterracedb_c.a
[ -f "$archive" ] || { echo "$archive is missing: cargo build --release" >&2; exit 1; }
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$here/Cargo.toml")
# Until 1.0 each minor version may change the interface.
interface=${version%.*}

mkdir -p "$prefix/include" "$prefix/lib/pkgconfig"
prefix=$(cd "$prefix" && pwd)
cp "$here/include/terracedb.h" "$prefix/include/"
cp "$archive" "$prefix/lib/libterracedb.a"
# From the archive: a shared library that rustc links has no versions of symbols.
"${CC:-cc}" -shared -o "$prefix/lib/libterracedb.so.$version" \
    -Wl,--whole-archive "$archive" -Wl,--no-whole-archive \
    -Wl,--version-script="$here/terracedb.map" -Wl,-soname,"libterracedb.so.$interface" \
    -Wl,--gc-sections -Wl,-z,defs -Wl,-z,relro,-z,now -lgcc_s -lpthread -ldl -lm -lc
ln -sf "libterracedb.so.$version" "$prefix/lib/libterracedb.so.$interface"
ln -sf "libterracedb.so.$interface" "$prefix/lib/libterracedb.so"
sed "s|@PREFIX@|$prefix|; s|@VERSION@|$version|" "$here/terracedb.pc.in" >"$prefix/lib/pkgconfig/terracedb.pc"
echo "installed TerraceDB $version for C in $prefix"
