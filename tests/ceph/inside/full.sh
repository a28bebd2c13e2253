#!/usr/bin/env bash
# An OSD of 4 GiB is filled until the cluster calls it full: full.sh TYPE
#
# Writers must be stopped by the ratios, not by the store; what was written must be there; what
# is removed must make room; and all of it again, after a kill. An OSD looks at its space once
# a second, so it must not be too small for the pace of the writer.
set -euo pipefail
type=$1
name=full-$type
. "$(dirname "$0")/common.sh"
export BLOCK=4294967296

is_full() { json health detail | grep -q OSD_FULL; }
used() { json osd df | sed -n 's/.*"kb_avail":[0-9]*,"utilization":\([0-9.]*\),"var".*/\1/p'; }
is_empty() {
    local now
    now=$(used)
    [ "${now%%.*}" -lt 5 ] && ! json health detail | grep -q 'OSD_FULL\|OSD_NEARFULL\|OSD_BACKFILLFULL'
}
waited_for() { # seconds, what, command...
    local until=$((SECONDS + $1)) what=$2
    shift 2
    until "$@"; do
        must "$what" test "$SECONDS" -lt "$until"
        sleep 1
    done
}

fill() { # prefix
    timeout 300 rados -p data bench 300 write -b 1048576 -t 4 --max-objects 2900 --no-cleanup --run-name "$1" > "$R/bench.$1"
    # Slowly, as for an OSD of any real size: 5% are more than what comes in a second. A full
    # cluster holds writers up; this one is stopped when it has been for a while.
    timeout 600 rados -p data bench 600 write -b 131072 -t 1 --no-cleanup --run-name "slow-$1" > "$R/bench.slow-$1" 2>&1 &
    local writer=$!
    waited_for 300 "the cluster calls the OSD full" is_full
    # The last writes come in, and the mgr's figures; then nothing moves any more.
    sleep 8
    local now finished
    finished=$(tail -n 1 "$R/bench.slow-$1" | awk '{ print $4 }')
    now=$(used)
    sleep 4
    must "a writer is held up" test "$(tail -n 1 "$R/bench.slow-$1" | awk '{ print $4 }')" = "$finished"
    must "full at 95%, not at $now" test "${now%%.*}" -ge 94
    kill "$writer"
    wait "$writer" || true
    done_with "full at $now%"
}

# Objects are gone, and with them what they took.
empty() {
    client rados -p data ls | grep -v '^kept' > "$R/all" || true
    must "there are objects" test "$(wc -l < "$R/all")" -gt 100
    xargs -n 200 timeout 120 rados -p data --force-full rm < "$R/all"
    waited_for 120 "what removed objects took comes back" is_empty
    done_with "removed, and less than 5% used"
}

cluster start "$type"
make_pool data 8 test
cluster clean
head -c 3000000 /dev/urandom > "$R/kept"
client rados -p data put kept "$R/kept"
done_with "one OSD of 4 GiB, active+clean"
fill one
client rados -p data get kept - | cmp - "$R/kept"
cluster kill 0
cluster osd 0
client rados -p data get kept - | cmp - "$R/kept"
done_with "killed and started while full"
cluster scrub
done_with "deep scrub clean, full"
empty
fill two
empty
client rados -p data put again "$R/kept"
client rados -p data get again - | cmp - "$R/kept"
cluster scrub
done_with "deep scrub clean"
