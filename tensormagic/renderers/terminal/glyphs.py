"""Bars made of characters: a norm on a logarithmic scale, a loss on a linear one, in one column of a terminal each."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensormagic.renderers.basics.theme import NORM_EXPONENTS
from tensormagic.renderers.trace.trace_phrases import NOT_MEASURABLE, measured, touched
from tensormagic.reports import UNTOUCHED

BLOCKS = "▁▂▃▄▅▆▇█"
NOT_FINITE, NONE, ZERO, BLIND = "!", "·", "0", "?"
LEGEND = {NOT_FINITE: "NaN or Inf", NONE: "no gradient", ZERO: "exactly zero", BLIND: NOT_MEASURABLE}


def bar(norm: float, exponents: tuple[float, float] = NORM_EXPONENTS) -> str:
    """Return one character for a norm; ``exponents`` are the decimal logarithms at the scale's ends."""
    if not measured(norm):
        return BLIND if touched(norm) else NONE
    if not math.isfinite(norm):
        return NOT_FINITE
    if norm == 0:
        return ZERO
    low, high = exponents
    share = (math.log10(norm) - low) / (high - low)
    return BLOCKS[min(max(int(share * len(BLOCKS)), 0), len(BLOCKS) - 1)]


def bars(norms: Sequence[float], width: int, exponents: tuple[float, float]) -> str:
    """Return a series in at most ``width`` characters; one character is the largest of its stretch, NaN above all."""
    columns = min(width, len(norms))
    stretches = (norms[len(norms) * at // columns : len(norms) * (at + 1) // columns] for at in range(columns))
    return "".join(bar(largest(stretch), exponents) for stretch in stretches)


def curve(values: Sequence[float], width: int) -> str:
    """Return a series in at most ``width`` characters, from its least value to its greatest on a linear scale.

    One character is the last value of its stretch, so that the end is what is true now; one that is not finite, the
    stretch's own or an earlier one in it, stands out.
    """
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    columns = min(width, len(values))
    stretches = (values[len(values) * at // columns : len(values) * (at + 1) // columns] for at in range(columns))
    return "".join(_height(stretch, low, high) for stretch in stretches)


def _height(stretch: Sequence[float], low: float, high: float) -> str:
    if not all(map(math.isfinite, stretch)):
        return NOT_FINITE
    span = high / 2 - low / 2  # halves: the whole of it may be too large for a float
    share = (stretch[-1] / 2 - low / 2) / span if span > 0 else 0.0
    return BLOCKS[min(int(share * len(BLOCKS)), len(BLOCKS) - 1)]


def largest(norms: Sequence[float]) -> float:
    """Return the largest of ``norms``; one that is not finite counts as larger than all others."""
    bad = next((norm for norm in norms if not math.isfinite(norm)), None)
    # What could not be measured lies below "no gradient" as a number, but above it as news.
    return max(norms, key=lambda norm: (measured(norm), touched(norm), norm), default=UNTOUCHED) if bad is None else bad
