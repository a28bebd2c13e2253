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
printf 'store\tphase\tshards\tops/s\tmean us\tp50\tp99\tp99.9\tCPU us/op\tB/op\n' > "$results"
for shape in 4x8 4x1 1x1; do
    for type in "${types[@]}"; do
        preload=/esker/storebench/libmain.so
        [ "$type" != esker ] || preload+=" /esker/plugin/libesker_hook.so"
        rm -rf "$SHARED/run/storebench"
        inside env LD_PRELOAD="$preload" ESKER_MAIN=/esker/storebench/libstorebench.so \
            timeout 300 ceph_test_objectstore "$type" /esker/run/storebench "$seconds" "${shape%x*}" "${shape#*x}" \
            --log-file=/esker/results/storebench.log --bluestore-block-size=21474836480 \
            --bluestore-block-create=true --bluestore-debug-enforce-settings=ssd \
            --osd-memory-target=2147483648 2> "$SHARED/results/storebench.err" < /dev/null |
            grep -P "^$type\t" >> "$results" || { tail -5 "$SHARED/results/storebench.err"; die "$type $shape"; }
    done
done
rm -rf "$SHARED/run/storebench"
column -t -s $'\t' "$results" | sed 's/^/   /'
