"""Table and picture of bench.sh's results: plot.py FOLDER STORE... > table

Writes latency.svg into the folder: the mean latency of every second of the random writes.
"""

import json, os, sys

folder, stores = sys.argv[1], sys.argv[2:]
lines = [json.loads(line) for store in stores for line in open(f"{folder}/bench-{store}.json")]
json.dump(lines, open(f"{folder}/bench.json", "w"), indent=1)

columns = [("iops", "IOPS", 0), ("mb_s", "MB/s", 1), ("mean_us", "mean us", 0), ("p99_us", "p99", 0),
           ("p999_us", "p99.9", 0), ("cpu_us", "OSD CPU us/op", 0), ("written", "written/client", 2)]
rows = [["phase", "store"] + [title for _, title, _ in columns]]
for phase in dict.fromkeys(line["phase"] for line in lines):
    for line in lines:
        if line["phase"] == phase:
            cells = [line.get(key) for key, _, _ in columns]
            rows.append([phase, line["store"]] + [
                "-" if cell is None else f"{cell:.{digits}f}" for cell, (_, _, digits) in zip(cells, columns)])
widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
for row in rows:
    print("   " + "  ".join(cell.ljust(width) if i < 2 else cell.rjust(width)
                            for i, (cell, width) in enumerate(zip(row, widths))))

series = {}
for store in stores:
    path = f"{folder}/bench-{store}.json.randwrite-4k-32_lat.1.log"
    if os.path.exists(path):
        points = [line.split(",") for line in open(path)]
        series[store] = [(int(p[0]) / 1e3, int(p[1]) / 1e6) for p in points]
if any(series.values()):
    width, height, left, bottom = 800, 360, 60, 40
    longest = max(x for points in series.values() for x, _ in points) or 1
    most = max(y for points in series.values() for _, y in points) or 1
    colors = ["#1b6", "#c33", "#36c", "#888"]
    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
           '<rect width="100%" height="100%" fill="white"/>',
           f'<text x="{left}" y="18">rbd 4 KiB random writes, depth 32: mean latency of each second, ms</text>']
    for part in range(5):
        y = height - bottom - part / 4 * (height - bottom - 40)
        svg.append(f'<path d="M{left} {y:.1f}H{width - 20}" stroke="#ddd"/><text x="8" y="{y + 4:.1f}">{most * part / 4:.1f}</text>')
    for number, (store, points) in enumerate(series.items()):
        color = colors[number % len(colors)]
        path = " ".join(f"{left + x / longest * (width - left - 20):.1f},"
                        f"{height - bottom - y / most * (height - bottom - 40):.1f}" for x, y in points)
        svg.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.5"/>')
        svg.append(f'<text x="{left + 110 * number}" y="{height - 12}" fill="{color}">{store}</text>')
    svg.append("</svg>")
    open(f"{folder}/latency.svg", "w").write("\n".join(svg))
