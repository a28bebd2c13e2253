#!/usr/bin/env bash
# Two OSDs on Esker, one of them on a loop device, and a third on BlueStore that holds nothing:
# two.sh MEGABYTES
#
# Everything is kept twice, so a deep scrub compares two stores. One OSD is killed while a
# client writes, and recovers; one is replaced, and is filled again; then PGs go from one OSD
# to others with ceph-objectstore-tool.
set -euo pipefail
megabytes=$1
name=two
. "$(dirname "$0")/common.sh"
export LOOPS=1

write_everything() {
    client rbd create image --size "$megabytes"
    fio_ image --rw=randwrite --bsrange=4k-256k --iodepth=16 --size="${megabytes}m"
    client rbd snap create --no-progress image@one
    before=$(sum_of image@one)
    fio_ image --rw=randwrite --bs=16k --iodepth=16 --size="$((megabytes / 4))m"
    head -c 9000000 /dev/urandom > "$R/big"
    client rados -p data put big "$R/big"
    client rados -p data bench 4 write -b 16384 -t 16 --no-cleanup > /dev/null
    local key
    for key in $(seq 40); do
        client rados -p data setomapval keys "key$key" "value $key"
    done
    client rados -p data setxattr keys attr avalue
    done_with "data, omap, attributes, a snapshot, kept twice"
}

everything_is_there() {
    must "the image's snapshot" test "$(sum_of image@one)" = "$before"
    client rados -p data get big - | cmp - "$R/big"
    must "40 omap keys" test "$(client rados -p data listomapkeys keys | wc -l)" = 40
    must "an omap value" grep -qF '|value 17|' <(client rados -p data listomapvals keys)
    must "an attribute" test "$(client rados -p data getxattr keys attr)" = avalue
}

write_meanwhile() {
    fio_ image --rw=randwrite --bs=16k --iodepth=8 --size="${megabytes}m" --rate_iops=400 &
    writer=$!
}

killed() {
    write_meanwhile
    sleep 3
    cluster kill 1
    sleep 8
    cluster osd 1
    cluster clean 300
    wait "$writer"
    done_with "osd.1 killed, away for a while, recovered under load"
}

replaced() {
    write_meanwhile
    cluster replace 1 esker
    cluster clean 300
    wait "$writer"
    done_with "osd.1 replaced, filled again under load"
}

tool() { # OSD, options...
    local folder=$R/osd.$1 preload=
    shift
    [ "$(cat "$folder/type")" != esker ] || preload=/esker/plugin/libesker_hook.so
    LD_PRELOAD=$preload timeout 300 ceph-objectstore-tool --data-path "$folder" --no-mon-config "$@" 2>> "$R/tool.err"
}

# A PG of osd.1 goes through BlueStore and back; another is taken away and put back.
moved() {
    local pg other
    client ceph osd set noout > /dev/null 2>&1
    cluster down 1
    cluster down 2
    must "fsck" tool 1 --op fsck
    tool 1 --op list-pgs > "$R/pgs"
    pg=$(grep '^2\.' "$R/pgs" | head -1)
    other=$(grep '^1\.' "$R/pgs" | head -1)
    must "two PGs" test -n "$pg" -a -n "$other"
    tool 1 --op list --pgid "$pg" | sort > "$R/list.before"
    must "the PG has objects" test -s "$R/list.before"
    tool 1 --op export --pgid "$pg" --file "$R/export.esker" > /dev/null
    tool 2 --op import --file "$R/export.esker" > /dev/null
    tool 2 --op list --pgid "$pg" | sort > "$R/list.bluestore"
    must "BlueStore has the same objects" cmp "$R/list.before" "$R/list.bluestore"
    tool 2 --op export --pgid "$pg" --file "$R/export.bluestore" > /dev/null
    tool 2 --op remove --force --pgid "$pg" > /dev/null
    tool 1 --op remove --force --pgid "$pg" > /dev/null
    tool 1 --op import --file "$R/export.bluestore" > /dev/null
    tool 1 --op list --pgid "$pg" | sort > "$R/list.after"
    must "and so has Esker again" cmp "$R/list.before" "$R/list.after"
    tool 1 --op export-remove --pgid "$other" --file "$R/export.other" > /dev/null
    must "it is gone" test -z "$(tool 1 --op list-pgs | grep -xF "$other")"
    tool 1 --op import --file "$R/export.other" > /dev/null
    must "fsck" tool 1 --op fsck
    cluster osd 1
    cluster osd 2
    client ceph osd unset noout > /dev/null 2>&1
    cluster clean
    done_with "ceph-objectstore-tool: PGs to BlueStore, back, away, back"
}

cluster start esker esker bluestore
client ceph osd crush reweight osd.2 0 > /dev/null 2>&1
make_pool data 8 test
make_pool rbd 8 rbd
cluster clean
done_with "mon, mgr, three OSDs, active+clean"
write_everything
scrubbed
killed
everything_is_there
scrubbed
replaced
everything_is_there
scrubbed
moved
everything_is_there
scrubbed
