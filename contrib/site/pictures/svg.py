"""A small drawing board: boxes, arrows and bars as SVG that reads well on light and dark pages."""

from __future__ import annotations

import pathlib
from xml.sax.saxutils import escape

STYLE = """
svg { font-family: system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif; font-size: 14px; }
.paper { fill: #ffffff; } .ink { fill: #1c2733; } .soft { fill: #566573; } .line { stroke: #566573; fill: none; stroke-width: 1.6; }
.tip { fill: #566573; } .frame { fill: none; stroke: #c5ced6; stroke-width: 1.2; stroke-dasharray: 5 4; }
.plain { fill: #eef2f5; stroke: #a9b6c2; } .ours { fill: #d9f2ee; stroke: #1f9c8a; } .main { fill: #dde8fb; stroke: #4a78c8; }
.warm { fill: #fdeccf; stroke: #d99a2b; } .bad { fill: #fbdcd9; stroke: #c94f43; } .idle { fill: #f6f8f9; stroke: #c5ced6; }
.second { fill: #ecdff7; stroke: #8b5cc0; } .mark { stroke: #c94f43; stroke-width: 1.6; stroke-dasharray: 4 3; }
.bold { font-weight: 600; } .small { font-size: 12px; } .mono { font-family: ui-monospace, 'DejaVu Sans Mono', monospace; font-size: 12px; }
@media (prefers-color-scheme: dark) {
.paper { fill: #1b2229; } .ink { fill: #e6edf3; } .soft { fill: #a3b1bf; } .line { stroke: #a3b1bf; } .tip { fill: #a3b1bf; }
.frame { stroke: #465563; } .plain { fill: #28323b; stroke: #5a6a78; } .ours { fill: #12423b; stroke: #2fbfa9; }
.main { fill: #1f355c; stroke: #6d9bea; } .warm { fill: #4c3912; stroke: #e0ab48; } .bad { fill: #54211d; stroke: #e2746a; }
.idle { fill: #222b33; stroke: #465563; } .second { fill: #3a2a52; stroke: #b28be0; } .mark { stroke: #e2746a; }
}
"""


class Picture:
    """One drawing. Coordinates are pixels, from the top left."""

    def __init__(self, name: str, width: int, height: int, words: str) -> None:
        self.name, self.width, self.height = name, width, height
        self.parts = [
            f"<title>{escape(words)}</title>",
            f'<rect class="paper" width="{width}" height="{height}" rx="8"/>',
        ]

    def text(self, x: float, y: float, words: str, kind: str = "ink", anchor: str = "start") -> None:
        """A line of text. `kind` has classes of the style."""
        self.parts.append(f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>')

    def lines(
        self, x: float, y: float, lines: list[str], kind: str = "ink", anchor: str = "start", step: int = 18
    ) -> None:
        """Lines of text below each other."""
        for i, words in enumerate(lines):
            self.text(x, y + i * step, words, kind, anchor)

    def box(
        self, x: float, y: float, w: float, h: float, title: str, lines: tuple[str, ...] = (), kind: str = "plain"
    ) -> None:
        """A box with a title and some lines in its middle."""
        self.parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{w}" height="{h}" rx="6" stroke-width="1.4"/>')
        top = y + h / 2 - 9 * len(lines) + 5
        self.text(x + w / 2, top, title, "ink bold", "middle")
        self.lines(x + w / 2, top + 18, list(lines), "soft small", "middle", 17)

    def bar(self, x: float, y: float, w: float, h: float, kind: str, words: str = "") -> None:
        """A bar of a timeline."""
        self.parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{w}" height="{h}" rx="3" stroke-width="1.2"/>')
        if words:
            self.text(x + w / 2, y + h / 2 + 4.5, words, "ink small", "middle")

    def frame(self, x: float, y: float, w: float, h: float, words: str) -> None:
        """A dashed frame around what belongs together."""
        self.parts.append(f'<rect class="frame" x="{x}" y="{y}" width="{w}" height="{h}" rx="8"/>')
        self.text(x + 12, y + 20, words, "soft small bold")

    def arrow(
        self, *points: tuple[float, float], words: str = "", at: tuple[float, float] | None = None, both: bool = False
    ) -> None:
        """An arrow along these points, with a label at `at`."""
        path = " ".join(f"{x},{y}" for x, y in points)
        self.parts.append(f'<polyline class="line" points="{path}"/>')
        self._tip(points[-2], points[-1])
        if both:
            self._tip(points[1], points[0])
        if words:
            x, y = at or ((points[0][0] + points[-1][0]) / 2, (points[0][1] + points[-1][1]) / 2 - 6)
            self.text(x, y, words, "soft small", "middle")

    def _tip(self, before: tuple[float, float], end: tuple[float, float]) -> None:
        dx, dy = end[0] - before[0], end[1] - before[1]
        long = (dx * dx + dy * dy) ** 0.5 or 1.0
        ux, uy = dx / long, dy / long
        corners = [(0.0, 0.0), (-9.0, 4.5), (-9.0, -4.5)]
        points = " ".join(f"{end[0] + a * ux - b * uy:.1f},{end[1] + a * uy + b * ux:.1f}" for a, b in corners)
        self.parts.append(f'<polygon class="tip" points="{points}"/>')

    def mark(self, x: float, y1: float, y2: float, words: str = "") -> None:
        """A moment: a dashed line from above to below, with words at its top."""
        self.parts.append(f'<line class="mark" x1="{x}" x2="{x}" y1="{y1}" y2="{y2}"/>')
        self.text(x, y1 - 6, words, "ink small", "middle")

    def write(self, folder: pathlib.Path) -> None:
        """Writes the file."""
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" height="{self.height}" role="img">'
        text = "\n".join([head, f"<style>{STYLE}</style>", *self.parts, "</svg>", ""])
        (folder / f"{self.name}.svg").write_text(text, encoding="utf-8")
