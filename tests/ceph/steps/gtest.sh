#!/usr/bin/env bash
# ceph_test_objectstore on Esker, taken for memstore and for bluestore; with arguments, on
# these instead: esker-as-memstore, esker-as-bluestore, memstore, bluestore.
#
# tests/ceph/not-run.txt names the tests that are left out when it is taken for bluestore.
. "$(dirname "$0")/../lib.sh"

in_place
# A SyntheticMatrix of Ceph's is up to 160,000 operations, one after the other: minutes.
limit=${ESKER_LIMIT:-1800}
runs=("$@")
[ ${#runs[@]} -gt 0 ] || runs=(esker-as-memstore esker-as-bluestore)

left_out=$(sed -n 's/^\([^#\t][^\t]*\)\t.*/\1/p' "$HERE/not-run.txt" | paste -sd:)
# The matrices differ in options that Esker does not look at: one of them says it all in CI.
[ -z "${ESKER_QUICK:-}" ] || left_out+=':*SyntheticMatrixC*:*SyntheticMatrixN*:*SyntheticMatrixP*'
failed=0
for run in "${runs[@]}"; do
    taken=
    case $run in
        esker-as-memstore) filter='*/0' taken=memstore ;;
        esker-as-bluestore) filter="*/1:BlueStore/*-$left_out" taken=bluestore ;;
        memstore) filter='*/0' ;;
        bluestore) filter='*/1' ;;
        *) die "no run $run" ;;
    esac
    filter=${ESKER_FILTER:-$filter}
    inside /esker/inside/gtest.sh "/esker/results/$run.tsv" "$filter" "$limit" $taken
    say "$run: $(cut -f2 "$SHARED/results/$run.tsv" | sort | uniq -c | awk '{ printf "%s %s, ", $1, $2 }')$(
        awk -F'\t' '{ ms += $3 } END { printf "%.0f s", ms / 1000 }' "$SHARED/results/$run.tsv")"
    case $run in
        esker-*)
            bad=$(awk -F'\t' '$2 !~ /^(pass|skip)$/' "$SHARED/results/$run.tsv")
            [ -z "$bad" ] || { failed=1; printf '%s\n' "$bad"; }
            ;;
    esac
done
"$HERE/table" "$SHARED"/results/{esker-as-memstore,memstore,esker-as-bluestore,bluestore}.tsv > "$SHARED/results/table.txt"
say "table: $SHARED/results/table.txt; outputs of what failed beside it"
[ "$failed" = 0 ] || die "not all tests passed"
