#!/usr/bin/env bash
# Ceph's own client programs against a cluster of two OSDs: suites.sh OUT TYPE [SUITE...]
#
# OUT gets a line a suite: name, tests passed, failed, skipped, exit code, milliseconds. What
# needs more OSDs (erasure codes) or other daemons is left out.
set -euo pipefail
out=$1
type=$2
suites=("${@:3}")
name=suites-$type
. "$(dirname "$0")/common.sh"

# EC: needs three OSDs. PoolQuota and Service wait for minutes for statistics. ShutdownRace
# starts 128 clients.
left_out='--gtest_filter=-*EC*:*PoolQuota*:*Service*:*ShutdownRace*:*EnumerateObjects*:*CrcZeroWrite*'

command_of() { # suite
    case $1 in
        api_*) echo "ceph_test_rados_$1 $left_out" ;;
        cls_*) echo "ceph_test_$1" ;;
        model)
            echo "ceph_test_rados --max-ops 2000 --objects 50 --max-in-flight 16 --size 400000" \
                "--min-stride-size 40000 --max-stride-size 80000 --max-seconds 60 --pool bench" \
                "--op read 100 --op write 50 --op delete 50 --op snap_create 50 --op snap_remove 50" \
                "--op rollback 50 --op copy_from 50 --op setattr 25 --op rmattr 25 --op append 50"
            ;;
        fsx) echo "ceph_test_librbd_fsx -N 1000 rbd fsx" ;;
        librbd)
            echo "ceph_test_librbd --gtest_filter=TestLibRBD.TestIO:TestLibRBD.TestClone*:TestLibRBD.*Snap*:TestLibRBD.TestCopy*:TestLibRBD.*Discard*:TestLibRBD.*Flatten*:TestLibRBD.*Resize*"
            ;;
    esac
}

[ ${#suites[@]} -gt 0 ] || suites=(
    api_{io,aio,list,lock,misc,stat,snapshots,c_read_operations,c_write_operations,watch_notify}
    api_{io,aio,lock,misc,stat,snapshots,watch_notify}_pp
    cls_{rbd,lock,log,refcount,numops,cmpomap,queue,journal,cas,hello,sdk}
    model fsx librbd
)
cluster start "$type" "$type"
make_pool rbd 8 rbd
make_pool bench 8 test
cluster clean
done_with "two OSDs on $type"
: > "$out"
rm -rf "$out.d"
mkdir -p "$out.d"
cd "$R"
for suite in "${suites[@]}"; do
    read -ra program <<< "$(command_of "$suite")"
    log=$out.d/$suite.txt
    start=$(date +%s%N)
    code=0
    timeout -s KILL "${LIMIT:-300}" "${program[@]}" > "$log" 2>&1 < /dev/null || code=$?
    ms=$((($(date +%s%N) - start) / 1000000))
    passed=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$log" | tail -n 1)
    failed=$(sed -n 's/^\[  FAILED  \] \([0-9]*\) test.*/\1/p' "$log" | tail -n 1)
    skipped=$(grep -c '^\[  SKIPPED \] .*ms)' "$log" || true)
    printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$suite" "${passed:--}" "${failed:-0}" "$skipped" "$code" "$ms" >> "$out"
    [ "$code" != 0 ] || rm -f "$log"
    tail -c 200000 "$log" > "$log.end" 2> /dev/null && mv "$log.end" "$log" || rm -f "$log.end"
done
done_with "${#suites[@]} suites"
scrubbed
