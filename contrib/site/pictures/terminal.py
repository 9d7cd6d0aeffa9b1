#!/usr/bin/env python3
"""Draws what a command prints: terminal.py NAME 'COMMAND LINE' <OUTPUT

Writes docs/images/NAME.svg: a terminal with this command line and the output. Long lines go on below.
"""

from __future__ import annotations

import pathlib
import re
import sys
import textwrap
from xml.sax.saxutils import escape

IMAGES = pathlib.Path(__file__).resolve().parents[3] / "docs/images"

#: Characters of a line, and lines of a picture.
WIDTH, MOST_LINES = 116, 44
#: Pixels of a character and of a line.
STEP, LINE = 7.83, 18
LEFT, TOP = 16, 58

COLOUR = re.compile(r"\x1b\[[0-9;]*m")

STYLE = f"""
text {{ font-family: ui-monospace, 'DejaVu Sans Mono', 'Liberation Mono', Menlo, monospace; font-size: 13px; fill: #d7dee6; white-space: pre; }}
.prompt {{ fill: #6fd3a8; }} .typed {{ fill: #ffffff; font-weight: 600; }} .paper {{ fill: #1b2229; }} .bar {{ fill: #2b353f; }}
"""


def folded(lines: list[str]) -> list[str]:
    """The lines, cut to the width. What goes on below is further in."""
    found = []
    for line in lines:
        inset = " " * min(10, len(line) - len(line.lstrip()) + 6)
        found += textwrap.wrap(line, WIDTH, subsequent_indent=inset, drop_whitespace=False, break_on_hyphens=False) or [
            ""
        ]
    return found


def drawing(command: str, output: str) -> str:
    """The picture of a terminal."""
    lines = folded([COLOUR.sub("", line).rstrip() for line in output.rstrip().splitlines()])
    if len(lines) > MOST_LINES:
        lines = [*lines[: MOST_LINES - 1], "…"]
    width = round(2 * LEFT + STEP * max([len(command) + 2, 60, *map(len, lines)]))
    height = TOP + LINE * (len(lines) + 1) + 4
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
        f"<style>{STYLE}</style><title>{escape(command)}</title>",
        f'<rect class="paper" width="{width}" height="{height}" rx="8"/>',
        f'<path class="bar" d="M0 30V8a8 8 0 0 1 8-8h{width - 16}a8 8 0 0 1 8 8v22z"/>',
        *(
            f'<circle cx="{18 + 18 * i}" cy="15" r="5.5" fill="{fill}"/>'
            for i, fill in enumerate(("#e2746a", "#e0ab48", "#6fd3a8"))
        ),
        f'<text x="{LEFT}" y="{TOP - 6}" xml:space="preserve"><tspan class="prompt">$ </tspan><tspan class="typed">{escape(command)}</tspan></text>',
    ]
    for i, line in enumerate(lines):
        parts.append(f'<text x="{LEFT}" y="{TOP + LINE * (i + 1)}" xml:space="preserve">{escape(line)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    """Draws one command."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    output = sys.stdin.read()
    if not output.strip():
        sys.exit(f"{sys.argv[2]} printed nothing")
    (IMAGES / f"{sys.argv[1]}.svg").write_text(drawing(sys.argv[2], output), encoding="utf-8")


if __name__ == "__main__":
    main()
