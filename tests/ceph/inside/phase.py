"""A phase of bench.sh as a line of JSON.

phase.py STORE PHASE fio|BLOCK_BYTES RESULT USED_BEFORE USED_AFTER

Latencies are microseconds; cpu_us is CPU of the OSD an operation, written is bytes that it
gave to the device for a byte of the client's.
"""

import json, os, re, sys

store, phase, kind, result, before, after = sys.argv[1:]
text = open(result).read()
line = {"store": store, "phase": phase}
if kind == "fio":
    job = json.loads(text[text.index("{"):])["jobs"][0]
    side = max(job["read"], job["write"], key=lambda side: side["total_ios"])
    operations, client_bytes, seconds = side["total_ios"], side["io_bytes"], side["runtime"] / 1e3
    is_write = side is job["write"]
    at = side["clat_ns"]["percentile"]
    line["mean_us"] = side["lat_ns"]["mean"] / 1e3
    line["p99_us"] = at["99.000000"] / 1e3
    line["p999_us"] = at["99.900000"] / 1e3
else:
    found = dict(re.findall(r'"(\w+)":\s*"?([0-9.]+)', text))
    operations = float(found.get("total_writes_made") or found["total_reads_made"])
    is_write = "total_writes_made" in found
    client_bytes, seconds = operations * int(kind), float(found["total_time_run"])
    line["mean_us"] = float(found["average_latency"]) * 1e6
ticks, written = [int(b) - int(a) for a, b in zip(open(before), open(after))]
line["iops"] = operations / seconds
line["mb_s"] = client_bytes / seconds / 1e6
line["cpu_us"] = ticks * 1e6 / os.sysconf("SC_CLK_TCK") / operations
line["written"] = written / client_bytes if is_write else None
print(json.dumps(line))
