# What the steps of tests/ceph/run share: places, messages, the chroot. Sourced, not run.
#
# ESKER_CEPH  cache of everything that is fetched or built, outside the tree

set -euo pipefail

# Mounts of our own, that go with the last process in them. Seen from outside nothing is mounted
# in the cache: who deletes it deletes nothing of the machine's /dev.
if [ "${ESKER_CEPH_MOUNTS:-}" != own ]; then
    [ "$(id -u)" -eq 0 ] || { echo "FAILED: a chroot needs root" >&2; exit 1; }
    ESKER_CEPH_MOUNTS=own exec unshare --mount --propagation private "$0" "$@"
fi

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
TREE=$(cd "$HERE/../.." && pwd)
CACHE=${ESKER_CEPH:-/var/tmp/esker-ceph}
ROOT=$CACHE/root
# Seen by both sides: $SHARED outside is /esker inside the chroot.
SHARED=$CACHE/shared
CEPH_VERSION=18.2.7
# The exit code of a step that a missing package server made impossible, as in automake.
SKIP=77

say() {
    printf '   %s\n' "$*"
}

die() {
    printf 'FAILED: %s\n' "$*" >&2
    exit 1
}

skip() {
    printf 'SKIPPED: %s\n' "$*" >&2
    exit "$SKIP"
}

# The mirror of this machine's own apt, so that nothing here names a host.
mirror() {
    local found
    found=$(apt-get indextargets --format '$(SITE) $(RELEASE) $(COMPONENT) $(CREATED_BY)' 2>/dev/null |
        awk '$3 == "main" && $4 == "Packages" && $1 ~ /\/debian\/?$/ && $2 !~ /security/ { print $1; exit }')
    [ -n "$found" ] || skip "apt of this machine has no Debian mirror"
    printf '%s\n' "${found%/}"
}

# Whether the mirror has a file; tells "no server" from "something is broken".
reachable() {
    /usr/lib/apt/apt-helper -oAcquire::Retries=2 -oAcquire::http::Timeout=20 \
        download-file "$1" "$CACHE/.probe" >/dev/null 2>&1
}

# Packages of this machine that a step needs.
need() {
    local missing=() package
    for package in "$@"; do
        dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    say "installing ${missing[*]}"
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null 2>&1 ||
        { apt-get update -qq >/dev/null 2>&1 &&
            DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null 2>&1; } ||
        skip "cannot install ${missing[*]}: is the package server reachable?"
}

mounted() {
    mountpoint -q "$1"
}

# The chroot with /proc, /sys, /dev and the shared folder in place.
enter_ready() {
    [ -e "$ROOT/.complete" ] || die "no chroot at $ROOT: run '$HERE/run chroot' first"
    local folder
    mkdir -p "$SHARED" "$ROOT/esker"
    for folder in proc sys dev; do
        mounted "$ROOT/$folder" || {
            mount --rbind "/$folder" "$ROOT/$folder"
            mount --make-rslave "$ROOT/$folder"
        }
    done
    mounted "$ROOT/esker" || mount --bind "$SHARED" "$ROOT/esker"
}

# The chroot, with the plugin and the scenarios in it.
in_place() {
    enter_ready
    [ -e "$SHARED/plugin/libesker_hook.so" ] || die "no plugin: run '$HERE/run plugin' first"
    mkdir -p "$SHARED/inside" "$SHARED/run" "$SHARED/results"
    # Over what is there: a scenario may be running.
    cp --remove-destination "$HERE"/inside/* "$SHARED/inside/"
}

# Runs a command in the chroot.
inside() {
    chroot "$ROOT" /usr/bin/env LC_ALL=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"
}
