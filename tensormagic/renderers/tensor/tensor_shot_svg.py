"""Signals as line charts: an opaque light card, because an image in a page cannot see the page's theme."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tensormagic.renderers.basics.markup import escape
from tensormagic.renderers.basics.svg_paths import number
from tensormagic.renderers.basics.theme import inked
from tensormagic.reports import SignalLine, TensorPicture
from tensormagic.words import count, short_number

WIDTH, HEIGHT, LEFT, PAD, FOOT = 800.0, 84.0, 74.0, 8.0, 18.0

STYLE = inked(
    ".g{font:10.5px system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;fill:$ink-2}"
    ".g .e{text-anchor:end}.g .line{fill:none;stroke:$n4;stroke-width:1.3;stroke-linejoin:round}"
    ".g .band{fill:$n4;stroke:$n4;stroke-width:.8;stroke-linejoin:round}"
    ".g .axis{stroke:$line;fill:none}.g .zero{stroke:$line-2;stroke-dasharray:2 3;fill:none}"
    ".g .bad{stroke:$error;stroke-width:1.6;fill:none}.g .dot{fill:$n4}.g .name{fill:$ink;font-weight:600}"
)


def signals_svg(picture: TensorPicture) -> str:
    """Return all signals, one below the other, on the same scale."""
    lines = picture.lines
    height = len(lines) * (HEIGHT + PAD) + PAD + FOOT
    charts = "".join(_chart(picture, line, PAD + at * (HEIGHT + PAD)) for at, line in enumerate(lines))
    last = count(picture.size[0] - 1)
    foot = f'<text x="{number(LEFT)}" y="{number(height - 6)}">0</text>'
    foot += f'<text class="e" x="{number(WIDTH - PAD)}" y="{number(height - 6)}">{escape(last)}</text>'
    size = f'width="{number(WIDTH)}" height="{number(height)}" viewBox="0 0 {number(WIDTH)} {number(height)}"'
    ground = inked('<rect width="100%" height="100%" fill="$bg"/>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="g" {size}><style>{STYLE}</style>{ground}{charts}{foot}</svg>'
    )


def _chart(picture: TensorPicture, line: SignalLine, top: float) -> str:
    span = (picture.high - picture.low) or 1.0
    step = (WIDTH - LEFT - PAD) / max(len(line.low) - 1, 1)

    def place(at: int, value: float) -> tuple[float, float]:
        return LEFT + at * step, top + HEIGHT * (1 - (value - picture.low) / span)

    parts = [_axes(picture, line, top, place(0, 0.0)[1])]
    for stretch in _stretches(line):
        upper = [place(at, line.high[at]) for at in stretch]
        lower = [place(at, line.low[at]) for at in stretch]
        parts.append(_stretch(upper, lower))
    bad = "".join(f"M{number(place(at, 0.0)[0])},{number(top)}v{number(HEIGHT)}" for at, n in enumerate(line.bad) if n)
    return "".join(parts) + (f'<path class="bad" d="{bad}"/>' if bad else "")


def _axes(picture: TensorPicture, line: SignalLine, top: float, zero: float) -> str:
    right, bottom = number(WIDTH - PAD), top + HEIGHT
    frame = f'<path class="axis" d="M{number(LEFT)},{number(top)}V{number(bottom)}H{right}"/>'
    inside = picture.low < 0 < picture.high
    level = f'<path class="zero" d="M{number(LEFT)},{number(zero)}H{right}"/>' if inside else ""
    ends = ((top + 9, short_number(picture.high)), (bottom, short_number(picture.low)))
    texts = "".join(f'<text class="e" x="{number(LEFT - 5)}" y="{number(y)}">{escape(text)}</text>' for y, text in ends)
    name = f'<text class="name" x="{number(PAD)}" y="{number(top + HEIGHT / 2)}">{escape(line.label)}</text>'
    return frame + level + texts + (name if line.label else "")


def _stretches(line: SignalLine) -> Iterator[list[int]]:
    """Yield runs of columns that have a finite value: a line never bridges what is not a number."""
    run: list[int] = []
    for at, value in enumerate(line.low):
        if math.isnan(value):
            if run:
                yield run
            run = []
        else:
            run.append(at)
    if run:
        yield run


def _stretch(upper: list[tuple[float, float]], lower: list[tuple[float, float]]) -> str:
    if len(upper) == 1:
        (x, top), (_, bottom) = upper[0], lower[0]
        rod = f'<path class="line" d="M{number(x)},{number(top)}V{number(bottom)}"/>'
        return f'{rod}<circle class="dot" cx="{number(x)}" cy="{number(top)}" r="2"/>'
    if upper == lower:
        return f'<path class="line" d="M{_points(upper)}"/>'
    return f'<path class="band" d="M{_points([*upper, *reversed(lower)])}z"/>'


def _points(points: list[tuple[float, float]]) -> str:
    return "L".join(f"{number(x)},{number(y)}" for x, y in points)
