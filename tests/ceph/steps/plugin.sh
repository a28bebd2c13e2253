#!/usr/bin/env bash
# The Rust library, built here, and the plugin and the hook, built in the chroot.
. "$(dirname "$0")/../lib.sh"

enter_ready
[ -d "$SHARED/ceph-headers/src" ] || die "no headers: run '$HERE/run headers' first"
mkdir -p "$SHARED/plugin"
"$TREE/src/capi/install.sh" "$SHARED/prefix" > "$CACHE/install.log" 2>&1 ||
    { tail -40 "$CACHE/install.log"; die "src/capi/install.sh"; }
rm -rf "$SHARED/plugin-source"
cp -rp "$TREE/src/ceph" "$SHARED/plugin-source"
inside make -s -j"$(nproc)" -C /esker/plugin-source CEPH_HEADERS=/esker/ceph-headers \
    ESKER=/esker/prefix OUT=/esker/plugin || die "make in src/ceph"
say "$(cd "$SHARED/plugin" && ls -sh libesker_*.so | tr '\n' ' ')"
