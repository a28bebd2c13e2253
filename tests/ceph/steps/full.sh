#!/usr/bin/env bash
# A small OSD that is filled, twice: tests/ceph/inside/full.sh
. "$(dirname "$0")/../lib.sh"

in_place
inside /esker/inside/full.sh "${ESKER_TYPE:-esker}" || die "see $SHARED/run/full-${ESKER_TYPE:-esker}"
