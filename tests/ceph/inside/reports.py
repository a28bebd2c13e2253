"""What a cluster of one OSD reports after smoke.sh: reports.py FOLDER TYPE."""

import json, sys
r, store = sys.argv[1:]
load = lambda name: json.load(open(f"{r}/{name}"))
osd = load("osd.df.json")["nodes"][0]
total = osd["kb"] * 1024
assert 8 << 30 < total <= 10 << 30, osd
assert osd["kb_used"] + osd["kb_avail"] == osd["kb"], osd
assert osd["kb_used_data"] <= osd["kb_used"], osd
pools = {p["name"]: p["stats"] for p in load("df.json")["pools"]}
data = pools["data"]
# Logs of PGs are omap: Esker counts them for their pool, BlueStore for none.
omap = osd["kb_used_omap"] * 1024
assert data["objects"] == 2 and 5000006 <= data["stored"] <= 5000006 + omap + 65536, (data, omap)
used = sum(p["bytes_used"] for p in pools.values())
assert used <= osd["kb_used"] * 1024, (used, osd)
if store == "esker":
    counters = load("perf.json")["esker"]
    assert counters["txc"] > 1000 and counters["ops"] > counters["txc"], counters
    assert counters["commit_lat"]["avgcount"] > 1000, counters
    assert counters["available_bytes"] < counters["total_bytes"], counters
    assert load("metadata.json")["esker_version"], "metadata"
