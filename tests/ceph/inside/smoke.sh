#!/usr/bin/env bash
# One OSD, inside the chroot: smoke.sh TYPE KILLS MEGABYTES PGS [PART...]
#
# rados data, omap, attributes and snapshots; an RBD image that fio writes in every manner and
# verifies; RBD snapshots, clones and differences; kill -9 under load, KILLS times; a pool that
# is split from 8 PGs to PGS and merged again under load; deep scrub after each.
set -euo pipefail
type=$1
kills=$2
megabytes=$3
pgs=$4
name=smoke-$type
. "$(dirname "$0")/common.sh"

boot() {
    cluster start "$type"
    done_with "mon, mgr, OSD: mkfs and boot"
    json osd metadata 0 > "$R/metadata.json"
    must "osd metadata names the store" grep -qE "\"osd_objectstore\": ?\"$type\"" "$R/metadata.json"
    make_pool data 8 test
    make_pool rbd 8 rbd
    client rbd create image --size $((megabytes * 2))
    cluster clean
    done_with "two pools, an image, active+clean"
}

rados_objects() {
    head -c 5000000 /dev/urandom > "$R/big"
    echo hello > "$R/small"
    client rados -p data put small "$R/small"
    client rados -p data put big "$R/big"
    client rados -p data get big - | cmp - "$R/big"
    client rados -p data get small - | cmp - "$R/small"
    client rados -p data setomapval small key value
    client rados -p data setomapval small gone value
    client rados -p data rmomapkey small gone
    client rados -p data setomapheader small header
    client rados -p data setxattr small attr avalue
    client rados -p data setxattr small gone avalue
    client rados -p data rmxattr small gone
    client rados -p data mksnap one > /dev/null
    client rados -p data put small "$R/big"
    # To a file: which snapshot it chose it says on stdout.
    client rados -p data -s one get small "$R/out" > /dev/null
    cmp "$R/out" "$R/small"
    client rados -p data rollback small one > /dev/null
    client rados -p data append small "$R/small"
    cat "$R/small" "$R/small" > "$R/twice"
    client rados -p data get small - | cmp - "$R/twice"
    client rados -p data truncate small 6
    client rados -p data rmsnap one > /dev/null
    client rados -p data put gone "$R/small"
    client rados -p data rm gone
    done_with "rados: data, omap, attributes, snapshot"
}

# Asked again later: what was written is still there.
rados_objects_are_there() {
    client rados -p data get big - | cmp - "$R/big"
    client rados -p data get small - | cmp - "$R/small"
    must "omap keys" test "$(client rados -p data listomapkeys small)" = key
    must "omap value" grep -qF '|value|' <(client rados -p data listomapvals small)
    must "omap header" grep -qF '|header|' <(client rados -p data getomapheader small)
    must "attributes" test "$(client rados -p data listxattr small)" = attr
    must "attribute" test "$(client rados -p data getxattr small attr)" = avalue
    must "the list" test "$(client rados -p data ls | sort | tr '\n' ' ')" = "big small "
}

rados_bench() {
    client rados -p data bench 4 write -b 4096 -t 16 --no-cleanup --run-name k > "$R/bench.write4k"
    client rados -p data bench 3 rand -t 16 --run-name k > "$R/bench.read4k"
    client rados -p data bench 3 write -b 4194304 -t 8 --no-cleanup --run-name m > "$R/bench.write4m"
    client rados -p data bench 3 seq -t 8 --run-name m > "$R/bench.read4m"
    client rados -p data cleanup --run-name k > /dev/null
    client rados -p data cleanup --run-name m > /dev/null
    done_with "rados bench: 4 KiB and 4 MiB, written, read, removed"
}

rbd_patterns() {
    local size=${megabytes}m
    fio_ image --rw=write --bs=1m --iodepth=8 --size="$size"
    fio_ image --rw=read --bs=1m --iodepth=8 --size="$size"
    done_with "rbd: $megabytes MB in 1 MiB, in order"
    fio_ image --rw=randwrite --bs=1m --iodepth=8 --size="$size"
    fio_ image --rw=randread --bs=1m --iodepth=8 --size="$size"
    done_with "rbd: $megabytes MB in 1 MiB, at random"
    fio_ image --rw=randwrite --bsrange=4k-1m --iodepth=32 --size="$size"
    done_with "rbd: $megabytes MB in 4 KiB to 1 MiB, depth 32"
    fio_ image --rw=randwrite --bs=4k --iodepth=32 --size="$((megabytes / 4))m"
    done_with "rbd: $((megabytes / 4)) MB in 4 KiB, depth 32"
    fio_ image --rw=randrw --rwmixread=60 --bs=4k --iodepth=8 --size="$((megabytes / 4))m"
    fio_ image --rw=randrw --rwmixread=60 --bsrange=4k-64k --iodepth=80 --size="$size"
    done_with "rbd: mixed, depths 8 and 80"
}

rbd_snapshots() {
    local before
    client rbd snap create --no-progress image@one
    before=$(sum_of image@one)
    fio_ image --rw=randwrite --bsrange=4k-64k --iodepth=16 --size="$((megabytes / 2))m"
    must "the snapshot stayed" test "$(sum_of image@one)" = "$before"
    client rbd snap protect image@one
    client rbd clone image@one child
    must "the clone is its parent" test "$(sum_of child)" = "$before"
    fio_ child --rw=randwrite --bsrange=4k-64k --iodepth=16 --size="$((megabytes / 4))m" --offset="$((megabytes / 2))m"
    local child
    child=$(sum_of child)
    client rbd flatten --no-progress child
    must "flatten changes nothing" test "$(sum_of child)" = "$child"
    done_with "rbd: snapshot, clone, flatten"
    client rbd snap create --no-progress image@two
    client rbd export --no-progress image@one - | client rbd import --no-progress - copy
    client rbd snap create --no-progress copy@one
    client rbd export-diff --no-progress --from-snap one image@two - |
        client rbd import-diff --no-progress - copy
    must "export-diff and import-diff make a copy" test "$(sum_of copy)" = "$(sum_of image@two)"
    client rbd snap rollback --no-progress image@one
    must "rollback" test "$(sum_of image)" = "$before"
    client rbd snap unprotect image@one
    client rbd snap purge --no-progress image 2> /dev/null
    client rbd snap purge --no-progress copy 2> /dev/null
    client rbd rm --no-progress copy
    client rbd rm --no-progress child
    done_with "rbd: export-diff, import-diff, rollback, removal"
}

# fio writes at a steady pace, and verifies in the end.
write_steadily() {
    fio_ image --rw=randwrite --bsrange=4k-16k --iodepth=32 --size="${megabytes}m" --offset="${megabytes}m" \
        --rate_iops=1000 --loops="${1:-1}" &
    writer=$!
}

kills_under_load() {
    local kill
    write_steadily
    for kill in $(seq "$kills"); do
        # The writer ends before the last kill if the machine is quick.
        kill -0 "$writer" 2> /dev/null || { wait "$writer"; write_steadily; }
        sleep 2
        cluster kill 0
        cluster osd 0
        client rados -p data get big - | cmp - "$R/big"
        cluster clean
        done_with "kill -9 number $kill, restart, read, active+clean"
    done
    wait "$writer"
    done_with "rbd: writer under the kills verified"
}

pg_num_is() {
    client ceph osd pool ls detail 2> /dev/null | grep -q "'rbd' .* pg_num $1 pgp_num $1 autoscale"
}

reach() { # PGs
    local i
    client ceph osd pool set rbd pg_num "$1" > /dev/null 2>&1
    client ceph osd pool set rbd pgp_num "$1" > /dev/null 2>&1
    for i in $(seq 600); do
        ! pg_num_is "$1" || break
        kill -0 "$writer" 2> /dev/null || { wait "$writer"; write_steadily; }
        sleep 1
    done
    must "rbd has $1 PGs" pg_num_is "$1"
    cluster clean
    done_with "pool of $1 PGs, under load"
}

split_and_merge() {
    write_steadily
    reach "$pgs"
    scrubbed
    kill -0 "$writer" 2> /dev/null || { wait "$writer"; write_steadily; }
    reach 8
    wait "$writer"
    done_with "rbd: writer under split and merge verified"
}

reports_are_right() {
    json osd df > "$R/osd.df.json"
    json df > "$R/df.json"
    client ceph daemon "$R/osd.0.asok" perf dump > "$R/perf.json"
    python3 "$here/reports.py" "$R" "$type" 2> "$R/reports.err"
}

# What operators see is right, once removed snapshots are trimmed.
reports() {
    local try
    for try in $(seq 30); do
        ! reports_are_right || { done_with "osd df, df, perf dump"; return; }
        sleep 2
    done
    tail -n 4 "$R/reports.err" >&2
    must "osd df, df and perf dump are right" false
}

boot
parts=("${@:5}")
[ ${#parts[@]} -gt 0 ] || parts=(
    rados_objects rados_objects_are_there rados_bench scrubbed
    rbd_patterns scrubbed
    rbd_snapshots scrubbed
    kills_under_load scrubbed
    split_and_merge scrubbed
    rados_objects_are_there reports
)
for part in "${parts[@]}"; do
    "$part"
done
