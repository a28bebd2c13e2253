#!/usr/bin/env bash
# A mon, a mgr and OSDs on loopback, inside the chroot.
#
#   cluster.sh start NAME TYPE...        an OSD of each type: esker, bluestore, memstore
#   cluster.sh osd NAME N                starts OSD N again
#   cluster.sh kill NAME N               kill -9 of OSD N
#   cluster.sh down NAME N               stops OSD N as an operator would
#   cluster.sh replace NAME N TYPE       kill -9 of OSD N, and a new one of its number
#   cluster.sh stop NAME
#   cluster.sh clean NAME                waits until every PG is active+clean
#   cluster.sh scrub NAME                deep scrub of every PG; fails if one is not clean
#
# Everything is in /esker/run/NAME. No authentication. PORT is the mon's. BLOCK is the size of
# an OSD; those whose numbers are in LOOPS ("1 2") are on loop devices, the others on files.
set -euo pipefail
command=$1
name=$2
R=/esker/run/$name
C=(-c "$R/ceph.conf")
PORT=${PORT:-41300}
BLOCK=${BLOCK:-10737418240}

quietly() { timeout 60 "$@" >/dev/null 2>&1; }
ceph_() { timeout 60 ceph "${C[@]}" "$@" 2>/dev/null; }

until_true() { # seconds, what, command...
    local until=$((SECONDS + $1)) what=$2
    shift 2
    until "$@"; do
        [ "$SECONDS" -lt "$until" ] || { echo "gave up waiting: $what" >&2; return 1; }
        sleep 0.3
    done
}

preload_of() { # the hook, if this OSD's store is ours
    case $(cat "$1/type" 2>/dev/null) in
        esker) echo /esker/plugin/libesker_hook.so ;;
    esac
}

daemon() { # name, preload, command...
    local who=$1 preload=$2
    shift 2
    LD_PRELOAD=$preload "$@" "${C[@]}" -f > "$R/$who.out" 2>&1 < /dev/null &
    echo $! > "$R/$who.mypid"
}

osd_up() { ceph_ osd dump | grep -q "^osd.$1 up"; }
mon_answers() { ceph_ -s > /dev/null; }

start_osd() {
    daemon "osd.$1" "$(preload_of "$R/osd.$1")" ceph-osd -i "$1"
    until_true 90 "osd.$1 up" osd_up "$1"
}

make_osd() { # number, type
    local uuid folder=$R/osd.$1
    uuid=$(cat /proc/sys/kernel/random/uuid)
    mkdir -p "$folder"
    case " ${LOOPS:-} " in
        *" $1 "*)
            drop_loop "$1"
            truncate -s "$BLOCK" "$R/disk.$1"
            losetup -f --show "$R/disk.$1" > "$R/loop.$1"
            ln -s "$(cat "$R/loop.$1")" "$folder/block"
            ;;
    esac
    # The option is an enum without us; this file is looked at first.
    [ "$2" != esker ] || echo esker > "$folder/type"
    quietly ceph "${C[@]}" osd new "$uuid"
    LD_PRELOAD=$(preload_of "$folder") ceph-osd "${C[@]}" -i "$1" --mkfs --osd-uuid "$uuid" > "$R/mkfs.$1.out" 2>&1 ||
        { tail -20 "$R/mkfs.$1.out" >&2; return 1; }
}

drop_loop() { # number
    [ ! -e "$R/loop.$1" ] || losetup -d "$(cat "$R/loop.$1")" || true
    rm -f "$R/loop.$1" "$R/disk.$1"
}

configure() { # types...
    local n=0 type size=2
    [ $# -gt 1 ] || size=1
    cat > "$R/ceph.conf" <<X
[global]
fsid = $(cat /proc/sys/kernel/random/uuid)
mon host = v2:127.0.0.1:$PORT
public addr = 127.0.0.1
cluster addr = 127.0.0.1
auth cluster required = none
auth service required = none
auth client required = none
run dir = $R
admin socket = $R/\$name.asok
log file = $R/\$name.log
pid file = $R/\$name.pid
ms bind ipv6 = false
osd pool default size = $size
osd pool default min size = 1
osd pool default pg num = 16
osd pool default pgp num = 16
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon allow pool size one = true
mon allow pool delete = true
mon max pg per osd = 1000
mgr stats period = 1
[mon]
mon data = $R/mon
mon data avail warn = 1
mon data avail crit = 1
mon cluster log to file = false
[mgr]
mgr data = $R/mgr
mgr initial modules =
mgr tick period = 1
# Splits and merges follow one another at once, as far as the mons let them.
mgr debug aggressive pg num changes = true
[osd]
osd data = $R/\$name
osd memory target = ${MEMORY:-2147483648}
bluestore block size = $BLOCK
# A virtual disk may call itself rotational, which turns deferred writes on.
bluestore debug enforce settings = ssd
memstore device bytes = 8589934592
osd mclock skip benchmark = true
osd scrub auto repair = false
osd max scrubs = 4
osd scrub load threshold = 1000
# Every second one PG of those that are due, not every third second.
osd scrub backoff ratio = 0
osd deep scrub stride = 4194304
osd class load list = *
osd class default list = *
osd op num shards = ${SHARDS:-4}
osd op num threads per shard = 1
${EXTRA:-}
[client]
log file = /dev/null
admin socket =
rbd cache = false
X
    for type in "$@"; do
        # The option does not know us; the file `type` of the OSD's folder is looked at first.
        [ "$type" != esker ] || type=seastore
        printf '[osd.%d]\nosd objectstore = %s\n' "$n" "$type" >> "$R/ceph.conf"
        n=$((n + 1))
    done
}

stop_all() {
    local who pid
    for who in osd.0 osd.1 osd.2 mgr mon; do
        pid=$(cat "$R/$who.mypid" 2>/dev/null) || continue
        kill "$pid" 2>/dev/null || true
        until_true 20 "$who gone" bash -c "! kill -0 $pid 2>/dev/null" || kill -9 "$pid" 2>/dev/null || true
        rm -f "$R/$who.mypid"
    done
    for n in 0 1 2; do
        drop_loop "$n"
    done
}

# An operator's way: the daemon has a while to write what it wants to.
stop_osd() {
    local pid
    pid=$(cat "$R/osd.$1.mypid")
    kill "$pid"
    until_true 60 "osd.$1 gone" bash -c "! kill -0 $pid 2>/dev/null"
    rm -f "$R/osd.$1.mypid"
    quietly ceph "${C[@]}" osd down "$1" || true
}

kill_osd() {
    kill -9 "$(cat "$R/osd.$1.mypid")"
    rm -f "$R/osd.$1.mypid"
    # The mon would wait for a grace period before it believes it.
    quietly ceph "${C[@]}" osd down "$1" || true
}

all_clean() {
    ceph_ pg stat | grep -qE '^[0-9]+ pgs: [0-9]+ active\+clean(;|\+scrubbing)'
}

# Stamps of the last deep scrub, one a PG; as text they order.
stamps() {
    ceph_ pg dump pgs -f json | python3 -c '
import json, sys
found = json.load(sys.stdin)
for pg in found["pg_stats"] if isinstance(found, dict) else found:
    print(pg["pgid"], pg["last_deep_scrub_stamp"], pg["state"])' | sort
}

scrubbed_since() { # file of old stamps
    stamps > "$R/stamps.now"
    [ -s "$R/stamps.now" ] && ! grep -q scrubbing "$R/stamps.now" &&
        ! join "$1" "$R/stamps.now" | awk '$2 == $4 { found = 1 } END { exit !found }'
}

case $command in
start)
    types=("${@:3}")
    if (exec 3<> "/dev/tcp/127.0.0.1/$PORT") 2> /dev/null; then
        echo "port $PORT is taken: another cluster?" >&2
        exit 1
    fi
    rm -rf "$R"
    mkdir -p "$R/mon" "$R/mgr"
    configure "${types[@]}"
    fsid=$(awk '/^fsid/ { print $3 }' "$R/ceph.conf")
    quietly ceph-authtool -C "$R/mon.keyring" --gen-key -n mon. --cap mon 'allow *'
    quietly monmaptool --create --fsid "$fsid" --addv a "[v2:127.0.0.1:$PORT]" "$R/monmap"
    quietly ceph-mon "${C[@]}" -i a --mkfs --monmap "$R/monmap" --keyring "$R/mon.keyring"
    daemon mon "" ceph-mon -i a
    until_true 60 "mon answers" mon_answers
    daemon mgr "" ceph-mgr -i x
    for n in "${!types[@]}"; do
        make_osd "$n" "${types[n]}"
        start_osd "$n"
    done
    ;;
osd) start_osd "$3" ;;
kill) kill_osd "$3" ;;
down) stop_osd "$3" ;;
replace)
    kill_osd "$3"
    quietly ceph "${C[@]}" osd purge "$3" --yes-i-really-mean-it
    rm -rf "$R/osd.$3"
    make_osd "$3" "$4"
    start_osd "$3"
    ;;
stop) stop_all ;;
clean) until_true "${4:-120}" "all PGs active+clean" all_clean ;;
scrub)
    stamps > "$R/stamps.before"
    [ -s "$R/stamps.before" ]
    cut -d' ' -f1 "$R/stamps.before" | while read -r pg; do
        quietly ceph "${C[@]}" pg deep-scrub "$pg" || true
    done
    until_true 300 "deep scrub of all PGs" scrubbed_since "$R/stamps.before"
    if grep -E 'inconsistent|snaptrim_error|repair' "$R/stamps.now" >&2; then
        exit 1
    fi
    ;;
*) echo "no command $command" >&2; exit 2 ;;
esac
