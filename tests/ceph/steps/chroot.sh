#!/usr/bin/env bash
# A chroot with Debian trixie's own Ceph and a compiler. Nothing to do when it is complete.
. "$(dirname "$0")/../lib.sh"

running=(ceph-osd ceph-mon ceph-mgr ceph-common ceph-test fio librbd1 procps psmisc util-linux)
building=(g++ make libboost-dev libboost-system1.83-dev libfmt-dev python3 python3-yaml patch xz-utils)

if [ ! -e "$ROOT/.complete" ]; then
    need mmdebstrap debian-archive-keyring
    from=$(mirror)
    mkdir -p "$CACHE/debs"
    reachable "$from/dists/trixie/InRelease" || skip "the package server does not answer for trixie"
    rm -rf --one-file-system "$ROOT"
    # The packages outlive the chroot: a second one needs no download.
    keep='mkdir -p "$1"/var/cache/apt/archives; cp -l '"$CACHE"'/debs/*.deb "$1"/var/cache/apt/archives/ 2>/dev/null || true'
    mmdebstrap --quiet --mode=root --variant=minbase \
        --keyring=/usr/share/keyrings/debian-archive-keyring.gpg \
        --dpkgopt=force-unsafe-io \
        --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' \
        --aptopt='Acquire::Languages "none"' \
        --aptopt='Acquire::Retries "3"' \
        --aptopt='Acquire::Check-Valid-Until "false"' \
        --aptopt='APT::Install-Recommends "0"' \
        --skip=download/empty --skip=essential/unlink --skip=cleanup/apt \
        --setup-hook="$keep" \
        --customize-hook='cp -ln "$1"/var/cache/apt/archives/*.deb '"$CACHE"'/debs/ || true' \
        --include="$(IFS=,; echo "${running[*]},${building[*]}")" \
        trixie "$ROOT" "deb $from trixie main" || die "mmdebstrap"
    rm -f "$ROOT"/var/cache/apt/archives/*.deb
    touch "$ROOT/.complete"
    say "packages $(du -sm "$CACHE/debs" | cut -f1) MB, chroot $(du -sm "$ROOT" | cut -f1) MB"
fi
enter_ready
found=$(inside ceph-osd --version)
case $found in
    *" $CEPH_VERSION "*) say "$found" ;;
    *) die "the plugin is for Ceph $CEPH_VERSION, the chroot has: $found" ;;
esac
