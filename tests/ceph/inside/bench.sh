#!/usr/bin/env bash
# One OSD under load, inside the chroot: bench.sh OUT TYPE SECONDS MEGABYTES
#
# An RBD image of MEGABYTES on an OSD of not quite twice that, on a loop device, is written
# once in 4 MiB and then at random until it was written three times; then come the phases.
# OUT gets a JSON object a phase, a line each, and beside it what fio logs of each second.
set -euo pipefail
out=$1
type=$2
seconds=$3
megabytes=$4
name=bench-$type
. "$(dirname "$0")/common.sh"
export LOOPS=0 BLOCK=$((megabytes * 19 / 10 * 1048576))

# Of the OSD: CPU in ticks, bytes given to the device.
used() {
    local pid
    pid=$(cat "$R/osd.0.mypid")
    sed 's/.*) //' "/proc/$pid/stat" | awk '{ print $12 + $13 }'
    awk '/^write_bytes/ { print $2 }' "/proc/$pid/io"
}

phase() { # name, how to read the result, command...
    local what=$1 kind=$2
    shift 2
    used > "$R/used.before"
    "$@" > "$R/$what.out" 2> "$R/$what.err" || { tail -n 5 "$R/$what.err" >&2; return 1; }
    used > "$R/used.after"
    python3 "$here/phase.py" "$type" "$what" "$kind" "$R/$what.out" "$R/used.before" "$R/used.after" >> "$out"
    done_with "$type: $what"
}

fio_phase() { # name, fio's options...
    local what=$1
    shift
    phase "$what" fio timeout 1200 fio --name=job --ioengine=rbd --clientname=admin --pool=rbd --rbdname=image \
        --randrepeat=0 --output-format=json --percentile_list=50:99:99.9 --log_avg_msec=1000 \
        --write_lat_log="$out.$what" "$@"
}

cluster start "$type"
make_pool rbd 16 rbd
make_pool bench 16 test
client rbd create image --size "$megabytes"
cluster clean
done_with "$type: one OSD of $((BLOCK >> 20)) MiB"
fio_phase fill --rw=write --bs=4m --iodepth=8 --size="${megabytes}m"
fio_phase overwrite --rw=randwrite --bs=64k --iodepth=32 --size="${megabytes}m" --loops=2
fio_phase randwrite-4k-1 --rw=randwrite --bs=4k --iodepth=1 --time_based --runtime="$seconds"
fio_phase randwrite-4k-32 --rw=randwrite --bs=4k --iodepth=32 --time_based --runtime="$seconds"
fio_phase randread-4k-32 --rw=randread --bs=4k --iodepth=32 --time_based --runtime="$seconds"
phase rados-write-4k 4096 timeout 300 rados -p bench bench "$seconds" write -b 4096 -t 16 --no-cleanup --run-name k --format json
# A tenth of the device at most.
phase rados-write-4m 4194304 timeout 300 rados -p bench bench "$seconds" write -b 4194304 -t 8 \
    --max-objects $((megabytes / 20)) --no-cleanup --run-name m --format json
phase rados-read-4m 4194304 timeout 300 rados -p bench bench "$seconds" seq -t 8 --run-name m --format json
