"""The losses of two runs as one small picture: two lines over the steps, on a scale that both share.

It is an image, so that hosts without scripts show it too; an image cannot see the theme of its page, so it holds
nothing but lines whose colours read on white and on near-black. What they mean stands beside it as text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tensormagic.renderers.basics.svg_paths import number, point
from tensormagic.renderers.basics.theme import MIXED_COLOUR, RUN_COLOURS
from tensormagic.reports.comparison import LossPair

WIDTH, HEIGHT = 360, 96
_EDGE = 5
_LOG_FROM = 30.0  # a scale over more than this factor is logarithmic


@dataclass(frozen=True, slots=True)
class LossScale:
    """The values at the two ends of the scale, and whether it is logarithmic."""

    low: float
    high: float
    logarithmic: bool

    def share(self, value: float) -> float:
        """Return where a value lies, 0 at the low end."""
        convert: Callable[[float], float] = math.log10 if self.logarithmic else float
        low, high = convert(self.low), convert(self.high)
        return (convert(value) - low) / (high - low) if high > low else 0.5


def loss_scale(losses: Sequence[LossPair]) -> LossScale | None:
    """Return a scale that holds every finite loss; None where there are fewer than two steps with one."""
    values = [value for pair in losses for value in (pair.left, pair.right) if value is not None and _finite(value)]
    if len(losses) < 2 or not values:
        return None
    low, high = min(values), max(values)
    return LossScale(low, high, low > 0 and high / low > _LOG_FROM)


def loss_svg(losses: Sequence[LossPair], scale: LossScale) -> str:
    """Return the picture: both lines, the right run's the thinner; a cross where a loss is not finite."""
    grid = "".join(f"M0,{number(y)}H{WIDTH}" for y in (_EDGE, HEIGHT - _EDGE))
    left, right = RUN_COLOURS
    lines = (
        _series(losses, [pair.left for pair in losses], scale, f'stroke="{left}" stroke-width="4.5"'),
        _series(losses, [pair.right for pair in losses], scale, f'stroke="{right}" stroke-width="2"'),
    )
    frame = f'<path d="{grid}" stroke="{MIXED_COLOUR}" stroke-opacity=".35" fill="none"/>'
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{frame}{"".join(lines)}</svg>'


def _series(losses: Sequence[LossPair], values: Sequence[float | None], scale: LossScale, stroke: str) -> str:
    first, last = losses[0].step, losses[-1].step
    across = (WIDTH - 2 * _EDGE) / max(last - first, 1)
    path, marks, pen = [], [], "M"
    for pair, value in zip(losses, values, strict=True):
        x = _EDGE + (pair.step - first) * across
        if value is None or not _finite(value):
            marks += [f"M{point(x - 3, 2)}l6,6m0,-6l-6,6"] if value is not None else []
            pen = "M"
            continue
        y = _EDGE + (1 - scale.share(value)) * (HEIGHT - 2 * _EDGE)
        path.append(f"{pen}{point(x, y)}")
        pen = "L"
    style = f'fill="none" {stroke} stroke-linejoin="round" stroke-linecap="round"'
    return f'<path {style} d="{"".join([*path, *marks])}"/>'


def _finite(value: float) -> bool:
    return math.isfinite(value)
