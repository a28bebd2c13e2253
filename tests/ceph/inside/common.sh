# What the scenarios inside the chroot share. Sourced, with $name set.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
R=/esker/run/$name
export CEPH_CONF=$R/ceph.conf

cluster() { "$here/cluster.sh" "$1" "$name" "${@:2}"; }
client() { timeout 120 "$@"; }
json() { client ceph "$@" -f json 2> /dev/null; }

at=$(date +%s%N)
done_with() {
    local now
    now=$(date +%s%N)
    printf '   %-56s %7.1f s\n' "$1" "$(((now - at) / 100000000))e-1"
    at=$now
}

# A test that names itself when it fails: must "what is claimed" command...
must() {
    local claim=$1
    shift
    "$@" || { echo "not so: $claim" >&2; exit 1; }
}

make_pool() { # name, PGs, application
    client ceph osd pool create "$1" "$2" "$2" > /dev/null 2>&1
    client ceph osd pool application enable "$1" "$3" > /dev/null 2>&1
}

# fio on an RBD image; every write is verified by fio itself.
fio_() { # image, options...
    local image=$1 log
    shift
    log=$(mktemp "$R/fio.XXXXXX")
    CEPH_ARGS='' timeout 1200 fio --ioengine=rbd --clientname=admin --pool=rbd --rbdname="$image" --name=job \
        --verify=crc32c --verify_fatal=1 --randrepeat=1 --group_reporting --output="$log" "$@" > "$log.err" 2>&1 &
    echo $! > "$log.pid"
    wait $! || { tail -n 20 "$log" "$log.err" >&2; return 1; }
    rm -f "$log" "$log.err" "$log.pid"
}

sum_of() { # what `rbd export` takes
    client rbd export --no-progress "$1" - | md5sum | cut -d' ' -f1
}

scrubbed() {
    cluster scrub
    done_with "deep scrub of all PGs clean"
}

# On the way out: stop, and say where a failure left its traces.
at_exit() {
    local code=$? pid
    for pid in "$R"/fio.*.pid; do
        [ ! -e "$pid" ] || kill "$(cat "$pid")" 2> /dev/null || true
    done
    "$here/cluster.sh" stop "$name" || true
    exit "$code"
}
trap at_exit EXIT
