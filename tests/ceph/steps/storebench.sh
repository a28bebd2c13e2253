#!/usr/bin/env bash
# Esker and BlueStore, one after the other, with the transactions of an OSD: a table.
# storebench.sh [TYPE...]
. "$(dirname "$0")/../lib.sh"

enter_ready
[ -e "$SHARED/plugin/libesker_hook.so" ] || die "no plugin: run '$HERE/run plugin' first"
rm -rf "$SHARED/storebench"
cp -r "$HERE/storebench" "$SHARED/storebench"
# Ceph's flags are those of the plugin.
cat > "$SHARED/storebench/Makefile" <<'X'
include /esker/plugin-source/Makefile
bench: $(OUT)/storebench.o
	$(CXX) -shared -o $(OUT)/libstorebench.so $(OUT)/storebench.o
	$(CC) -O2 -Wall -Wextra -fPIC -shared main.c -o $(OUT)/libmain.so -ldl
X
inside make -s -C /esker/storebench bench CEPH_HEADERS=/esker/ceph-headers ESKER=/esker/prefix \
    OUT=/esker/storebench || die "make"

types=("$@")
[ ${#types[@]} -gt 0 ] || types=(esker bluestore)
seconds=${ESKER_SECONDS:-15}
results=$SHARED/results/storebench.tsv
mkdir -p "$SHARED/results" "$SHARED/run"

# A loop device on a file that was written once: neither store pays for the file system's
# first allocation, and what each wrote is what it gave to a block device.
disk=$SHARED/run/storebench.disk
loop=
finish() {
    [ -z "$loop" ] || losetup -d "$loop" || true
    rm -rf "$disk" "$SHARED/run/storebench"
}
trap finish EXIT
gigabytes=16
dd if=/dev/zero of="$disk" bs=4M count=$((gigabytes * 256)) oflag=direct status=none || die "no $gigabytes GiB for a disk"
loop=$(losetup -f --show --direct-io=on "$disk")

printf 'store\tphase\tshards\tops/s\tmean us\tp50\tp99\tp99.9\tCPU us/op\tB/op\n' > "$results"
for shape in 4x8 4x1 1x1; do
    for type in "${types[@]}"; do
        preload=/esker/storebench/libmain.so
        [ "$type" != esker ] || preload+=" /esker/plugin/libesker_hook.so"
        rm -rf "$SHARED/run/storebench"
        # Where the stores look for themselves, at both ends.
        dd if=/dev/zero of="$disk" bs=1M count=64 conv=notrunc oflag=direct status=none
        dd if=/dev/zero of="$disk" bs=1M count=1 seek=$((gigabytes * 1024 - 1)) conv=notrunc oflag=direct status=none
        inside env LD_PRELOAD="$preload" ESKER_MAIN=/esker/storebench/libstorebench.so \
            timeout 300 ceph_test_objectstore "$type" /esker/run/storebench "$seconds" "${shape%x*}" "${shape#*x}" \
            --log-file=/esker/results/storebench.log --bluestore-block-path="$loop" \
            --bluestore-block-create=false --bluestore-debug-enforce-settings=ssd \
            --osd-memory-target=2147483648 2> "$SHARED/results/storebench.err" < /dev/null |
            grep -P "^$type\t" >> "$results" || { tail -n 5 "$SHARED/results/storebench.err"; die "$type $shape"; }
    done
done
column -t -s $'\t' "$results" | sed 's/^/   /'
