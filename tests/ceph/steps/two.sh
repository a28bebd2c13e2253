#!/usr/bin/env bash
# Two OSDs on Esker: recovery, replacement, ceph-objectstore-tool. tests/ceph/inside/two.sh
. "$(dirname "$0")/../lib.sh"

in_place
megabytes=256
[ -z "${ESKER_QUICK:-}" ] || megabytes=64
inside /esker/inside/two.sh "$megabytes" || die "see $SHARED/run/two"
