#!/usr/bin/env bash
# The thin slice, inside the chroot: smoke.sh TYPE KILLS MEGABYTES
#
# A cluster of one OSD; rados data, omap, attributes and snapshots; an RBD image that fio
# writes at random and verifies, while the OSD is killed again and again.
set -euo pipefail
type=$1
kills=$2
megabytes=$3
here=$(dirname "$0")
name=smoke-$type
R=/esker/run/$name
export CEPH_CONF=$R/ceph.conf
cluster() { "$here/cluster.sh" "$1" "$name" "${@:2}"; }
at=$(date +%s%N)
done_with() {
    local now
    now=$(date +%s%N)
    printf '   %-44s %7.1f s\n' "$1" "$(((now - at) / 100000000))e-1"
    at=$now
}
client() { timeout 120 "$@"; }
trap 'code=$?; "$here/cluster.sh" stop "$name" || true; exit $code' EXIT

cluster start "$type"
done_with "mon, mgr, OSD: mkfs and boot"
client ceph osd metadata 0 | grep -q "\"osd_objectstore\": \"$type\""
client ceph osd pool create data 16 > /dev/null 2>&1
client ceph osd pool create rbd 16 > /dev/null 2>&1
client ceph osd pool application enable rbd rbd > /dev/null 2>&1
client ceph osd pool application enable data test > /dev/null 2>&1
head -c 5000000 /dev/urandom > "$R/big"
echo hello > "$R/small"
client rados -p data put small "$R/small"
done_with "pools and first object"
cluster clean
done_with "active+clean"

client rados -p data put big "$R/big"
client rados -p data get big - | cmp - "$R/big"
client rados -p data get small - | cmp - "$R/small"
client rados -p data setomapval small key value
client rados -p data setomapheader small header
client rados -p data setxattr small attr avalue
client rados -p data mksnap one > /dev/null
client rados -p data put small "$R/big"
# To a file: which snapshot it chose it says on stdout.
client rados -p data -s one get small "$R/out" > /dev/null
cmp "$R/out" "$R/small"
client rados -p data rollback small one > /dev/null
client rados -p data get small - | cmp - "$R/small"
[ "$(client rados -p data listomapkeys small)" = key ]
[ "$(client rados -p data getxattr small attr)" = avalue ]
[ "$(client rados -p data ls | sort | tr '\n' ' ')" = "big small " ]
done_with "rados: data, omap, attributes, snapshot"

client rbd create image --size $((megabytes * 2))
fio_() {
    timeout 600 fio --ioengine=rbd --clientname=admin --pool=rbd --rbdname=image --name=job \
        --verify=crc32c --verify_fatal=1 --randrepeat=1 --output-format=terse "$@" > "$R/fio.out" 2> "$R/fio.err" ||
        { cat "$R/fio.err" >&2; return 1; }
}
fio_ --rw=write --bs=1m --iodepth=8 --size="${megabytes}m"
done_with "rbd: $megabytes MB written in 1 MiB, verified"
fio_ --rw=randwrite --bs=4k --iodepth=32 --size="$((megabytes / 4))m"
done_with "rbd: $((megabytes / 4)) MB written in 4 KiB, verified"

fio_ --rw=randwrite --bs=4k --iodepth=32 --size="${megabytes}m" --offset="${megabytes}m" --rate_iops=1000 &
writer=$!
for kill in $(seq "$kills"); do
    sleep 3
    cluster kill 0
    cluster osd 0
    client rados -p data get big - | cmp - "$R/big"
    done_with "kill -9 number $kill, restart, data read"
done
wait "$writer"
done_with "rbd: writer under the kills verified"
cluster clean
done_with "active+clean"
cluster scrub
done_with "deep scrub of all PGs clean"
client rados -p data get small - | cmp - "$R/small"
client rados -p data listomapvals small | grep -qF '|value|'
client ceph osd df > "$R/osd.df" && client ceph df > "$R/df"
client ceph daemon "$R/osd.0.asok" perf dump > "$R/perf.json"
[ "$type" != esker ] || grep -q '"esker"' "$R/perf.json"
