"""docs/performance.svg, from what `make bench-gateway` measured last: `python -m bench.picture`."""

import json
from pathlib import Path
from xml.sax.saxutils import escape

from bench import fleet

PICTURE = Path(__file__).parent.parent / "docs" / "performance.svg"
PANELS = (
    ("processor time for a chunk of 500 streams, us", "s500-50", "cpu_us_per_chunk"),
    ("processor time for a short JSON answer, us", "json-50", "cpu_us_per_req"),
    ("memory of an open stream, KiB", "active", "kib"),
    ("memory of a request that waits for a model, KiB", "hold", "rss_per_conn_kb"),
)
NAMES = {"nginx": "nginx, no features", "go": "a tuned Go proxy, no features", "hearth": "Hearth"}
_WIDTH, _LEFT, _BAR, _GAP = 720, 210, 20, 6
_INK, _PAPER, _OURS, _THEIRS = "#24292f", "#ffffff", "#d9480f", "#adb5bd"


def draw(medians: dict[str, dict[str, dict[str, float]]]) -> str:
    """Bars: shorter is better in each panel."""
    parts: list[str] = []
    y = 16
    for title, workload, figure in PANELS:
        rows = [
            (name, medians[workload][name][figure])
            for name in NAMES
            if figure in medians.get(workload, {}).get(name, {})
        ]
        if not rows:
            continue
        parts.append(_text(16, y + 12, title, weight="bold"))
        y += 24
        longest = max(value for _, value in rows)
        for name, value in rows:
            length = (_WIDTH - _LEFT - 80) * value / longest
            fill = _OURS if name == "hearth" else _THEIRS
            parts.append(_text(_LEFT - 10, y + 15, NAMES[name], anchor="end"))
            parts.append(
                f'<rect x="{_LEFT}" y="{y}" width="{length:.0f}" height="{_BAR}" fill="{fill}"/>'
            )
            parts.append(_text(_LEFT + length + 8, y + 15, f"{value:.1f}"))
            y += _BAR + _GAP
        y += 14
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y}" width="{_WIDTH}"'
        f' height="{y}" font-family="sans-serif" font-size="13" fill="{_INK}">'
        f'<rect width="{_WIDTH}" height="{y}" fill="{_PAPER}" rx="8"/>'
    )
    return "\n".join((head, *parts, "</svg>\n"))


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal") -> str:
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" font-weight="{weight}">'
        f"{escape(text)}</text>"
    )


if __name__ == "__main__":
    found = json.loads((fleet.OUT / "gateway.json").read_text())
    PICTURE.write_text(draw(found["medians"]))
