#!/usr/bin/env bash
# Stops what a cluster step that was killed left running; the cache stays.
. "$(dirname "$0")/../lib.sh"

for pid in "$SHARED"/run/*/*.mypid; do
    [ -e "$pid" ] || continue
    # Only a process that still is a daemon of ours.
    ! tr '\0' ' ' < "/proc/$(cat "$pid")/cmdline" 2>/dev/null | grep -q "/esker/run/" || kill -9 "$(cat "$pid")"
    rm -f "$pid"
done
for loop in "$SHARED"/run/*/loop.*; do
    [ ! -e "$loop" ] || losetup -d "$(cat "$loop")" || true
    rm -f "$loop"
done
