#!/usr/bin/env bash
# A cluster of one OSD on Esker: tests/ceph/inside/smoke.sh says what it does, and which parts
# it has: cluster.sh [PART...]
. "$(dirname "$0")/../lib.sh"

in_place
kills=20 megabytes=256 pgs=64
[ -z "${ESKER_QUICK:-}" ] || kills=3 megabytes=64 pgs=12
inside /esker/inside/smoke.sh "${ESKER_TYPE:-esker}" "$kills" "$megabytes" "$pgs" "$@" ||
    die "see $SHARED/run/smoke-${ESKER_TYPE:-esker}"
