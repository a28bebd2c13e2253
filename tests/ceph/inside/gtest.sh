#!/usr/bin/env bash
# Inside the chroot: each test of ceph_test_objectstore in a process and folder of its own.
#
#   gtest.sh OUT FILTER SECONDS [TYPE]    TYPE: the type that Esker takes the place of
#
# OUT gets a line a test: name, pass, fail, skip, crash or timeout, milliseconds.
set -euo pipefail
out=$1
filter=$2
limit=$3
taken=${4:-}
work=$(mktemp -d /esker/run/gtest.XXXXXX)
trap 'rm -rf "$work"' EXIT
cd "$work"
: > "$out"
rm -rf "$out.d"
ceph_test_objectstore --gtest_list_tests --gtest_filter="$filter" 2> /dev/null |
    awk '/^[^ ]/ { suite = $1 } /^ / { print suite $1 }' > tests
preload=
if [ -n "$taken" ]; then
    export ESKER_TYPES=$taken
    preload=/esker/plugin/libesker_hook.so
fi
while read -r test; do
    mkdir d
    cd d
    start=$(date +%s%N)
    code=0
    LD_PRELOAD=$preload timeout -s KILL "$limit" ceph_test_objectstore --gtest_filter="$test" \
        --log-file=ceph.log --debug-ms=0 > out.txt 2>&1 < /dev/null || code=$?
    ms=$((($(date +%s%N) - start) / 1000000))
    if grep -q '^\[  SKIPPED \]' out.txt; then result=skip
    elif [ $code = 0 ] && grep -q '^\[  PASSED  \] 1 test' out.txt; then result=pass
    elif [ $code = 0 ] && grep -q 'YOU HAVE .* DISABLED TEST' out.txt; then result=skip
    elif [ $code = 137 ]; then result=timeout
    elif grep -q '^\[  FAILED  \]' out.txt; then result=fail
    else result=crash
    fi
    printf '%s\t%s\t%s\n' "$test" "$result" "$ms" >> "$out"
    case $result in
        fail | crash | timeout)
            mkdir -p "$out.d"
            { tail -c 40000 out.txt; echo "--- log"; tail -c 40000 ceph.log 2> /dev/null; } > "$out.d/${test//\//_}.txt"
            ;;
    esac
    cd ..
    rm -rf d
done < tests
