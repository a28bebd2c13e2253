#!/usr/bin/env bash
# Ceph's own client programs (ceph_test_rados_api_* and others) on Esker; with ESKER_TYPE on
# another store, to compare: suites.sh [SUITE...]. tests/ceph/inside/suites.sh
. "$(dirname "$0")/../lib.sh"

in_place
type=${ESKER_TYPE:-esker}
out=$SHARED/results/suites-$type.tsv
inside /esker/inside/suites.sh "/esker/results/suites-$type.tsv" "$type" "$@" || die "see $SHARED/run/suites-$type"
# On BlueStore beside it, if that was run.
awk -F'\t' 'FNR == 1 { n++; sub(/.*suites-/, "", FILENAME); head[n] = FILENAME }
    { if (!($1 in seen)) { seen[$1] = 1; name[++count] = $1 }
      cell[$1, n] = sprintf("%s passed, %s failed, %s skipped, %.1f s", $2, $3, $4, $6 / 1000)
      if ($5 != 0 && $3 == 0) cell[$1, n] = cell[$1, n] ", exit " $5 }
    END { for (i = 1; i <= count; i++) { printf "   %-22s", name[i]
          for (j = 1; j <= n; j++) printf " %-48s", cell[name[i], j]; print "" } }' \
    "$SHARED"/results/suites-{esker,bluestore}.tsv 2> /dev/null || true
! awk -F'\t' '$5 != 0' "$out" | grep -q . || die "not all passed; outputs in $out.d"
