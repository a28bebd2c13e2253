#!/usr/bin/env bash
# Stores under the same OSD, one after the other: table, JSON, picture. bench.sh [STORE...]
# tests/ceph/inside/bench.sh says what is measured.
. "$(dirname "$0")/../lib.sh"

in_place
stores=("$@")
[ ${#stores[@]} -gt 0 ] || stores=(esker bluestore memstore)
seconds=${ESKER_SECONDS:-30} megabytes=${ESKER_MEGABYTES:-4096}
for store in "${stores[@]}"; do
    rm -f "$SHARED/results/bench-$store.json"*
    inside /esker/inside/bench.sh "/esker/results/bench-$store.json" "$store" "$seconds" "$megabytes" ||
        die "see $SHARED/run/bench-$store"
done
inside python3 /esker/inside/plot.py /esker/results "${stores[@]}" > "$SHARED/results/bench.txt"
cat "$SHARED/results/bench.txt"
say "also $SHARED/results/bench.json and latency.svg"
