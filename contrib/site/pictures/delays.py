#!/usr/bin/env python3
"""delays.py: the table and the picture of main jobs' delays in docs/evidence.md.

Usage: contrib/site/pictures/delays.py collect SITES.json PREEMPTION.json [CASES.json]   writes delays.json beside this file
       contrib/site/pictures/delays.py table                                 prints the tables as Markdown
       contrib/site/pictures/delays.py draw                                  writes docs/images/delays.svg

The three files come from `tests/run.sh --sites`, `--preemption` and `--delays`, which write them into target/.
"""

import json
import math
import sys
from pathlib import Path

IMAGES = Path(__file__).resolve().parents[3] / "docs" / "images"
DATA = Path(__file__).resolve().parent / "delays.json"
PICTURE = IMAGES / "delays.svg"

WITHOUT = {
    "alone": "no malleable jobs",
    "over_plain_jobs": "plain preemptible jobs",
}
COLOURS = ["#6b7280", "#b45309", "#1d4ed8"]
DASHES = ["2 4", "8 4", ""]

#: Fewer delays have no percentiles, only a worst one.
FEWEST = 10

WIDTH, HEIGHT = 760, 340
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 54, 48
MOST_SECS = 2.0


def percentile(values, share):
    """The value that this share of the others does not exceed, by nearest rank."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def read(path):
    return json.loads(Path(path).read_text())


def collect(sites_path, preemption_path, cases_path=None):
    sites, without = read(sites_path), read(preemption_path)
    series = {name: without[key] for key, name in WITHOUT.items()}
    cases = {}
    for site in sites["sites"]:
        for name, secs in site["cases"].items():
            cases.setdefault(name, []).extend(secs)
    names = ", ".join(site["site"] for site in sites["sites"])
    series["infill, with faults"] = [secs for site in sites["sites"] for secs in site["delays"]]
    kept = {
        "about": f"sites {names}; seed {sites['seed']}; {sum(site['secs'] for site in sites['sites']):.0f} s of main queue",
        "faults": sum(sum(site["faults"].values()) for site in sites["sites"]),
        "series": rounded(series),
        "cases": rounded(dict(sorted(cases.items()))),
        "measured": [
            {"name": case["name"], "secs": [round(secs, 2) for secs in case["secs"]], "bound_secs": case["bound_secs"]}
            for case in (read(cases_path)["cases"] if cases_path else [])
        ],
    }
    DATA.write_text(json.dumps(kept, indent=1) + "\n")


def rounded(series):
    return {name: [round(secs, 2) for secs in values] for name, values in series.items()}


def rows(series):
    for name, values in series.items():
        figures = [f"{percentile(values, share):.2f}" if len(values) >= FEWEST else "–" for share in (0.5, 0.9)]
        yield f"| {name} | {len(values)} | " + " | ".join([*figures, f"{max(values):.2f}"]) + " |"


def table():
    data = read(DATA)
    heads = "| main jobs | number | median | 90 % | worst |\n|---|---|---|---|---|"
    print(heads, *rows(data["series"]), "", sep="\n")
    print(heads.replace("main jobs", "what was broken"), *rows(data["cases"]), "", sep="\n")
    print("| case | times | waits, s | bound, s |\n|---|---|---|---|")
    for case in data["measured"]:
        least, most = min(case["secs"]), max(case["secs"])
        waits = f"{least:.1f}" if len(case["secs"]) == 1 else f"{least:.1f} to {most:.1f}"
        print(f"| {case['name']} | {len(case['secs'])} | {waits} | {case['bound_secs']:.0f} |")


def place(secs, share):
    """Where a share of the jobs at a delay is in the picture."""
    x = LEFT + (WIDTH - LEFT - RIGHT) * min(secs, MOST_SECS) / MOST_SECS
    y = HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share
    return f"{x:.1f},{y:.1f}"


def steps(values):
    """The points of a line that rises by one job at each delay."""
    points, ordered = [place(0, 0)], sorted(values)
    for index, secs in enumerate(ordered):
        points.append(place(secs, index / len(ordered)))
        points.append(place(secs, (index + 1) / len(ordered)))
    return " ".join([*points, place(MOST_SECS, 1)])


def draw():
    data = read(DATA)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'aria-label="Share of main jobs that started within a delay" font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
    ]
    for share in (0, 0.25, 0.5, 0.75, 1):
        x, y = place(0, share).split(",")
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" stroke="#e5e7eb"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{float(y) + 4}" text-anchor="end" fill="#374151">{share:.0%}</text>')
    for secs in range(int(MOST_SECS) + 1):
        x = place(secs, 0).split(",")[0]
        parts.append(f'<text x="{x}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle" fill="#374151">{secs}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(
        f'<text x="{middle}" y="{HEIGHT - 10}" text-anchor="middle" fill="#374151">'
        "seconds later than without malleable jobs</text>"
    )
    at = LEFT
    for (name, values), colour, dash in zip(data["series"].items(), COLOURS, DASHES, strict=True):
        line = f'stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}" fill="none"'
        parts.append(f'<polyline points="{steps(values)}" {line}/>')
        parts.append(f'<line x1="{at}" x2="{at + 26}" y1="24" y2="24" {line}/>')
        parts.append(f'<text x="{at + 32}" y="28" fill="#111827">{name} ({len(values)})</text>')
        at += 60 + 7.1 * len(f"{name} ({len(values)})")
    parts.append("</svg>")
    PICTURE.write_text("\n".join(parts) + "\n")


def main():
    match sys.argv[1:]:
        case ["collect", sites, preemption, *cases] if len(cases) <= 1:
            collect(sites, preemption, *cases)
        case ["table"]:
            table()
        case ["draw"]:
            draw()
        case ["-h" | "--help"]:
            print(__doc__)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
