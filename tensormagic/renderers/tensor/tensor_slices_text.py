"""The slices of a tensor in characters: a bar a cell, ``!`` where something is not finite, ``0`` where all is zero."""

from __future__ import annotations

import math
import textwrap

from tensormagic.renderers.tensor.tensor_slices_words import letter, slices_lines, urgent
from tensormagic.renderers.terminal.text_canvas import BLOCKS, NOT_FINITE, ZERO
from tensormagic.reports import DimensionSlices, TensorReport
from tensormagic.words import count

MOST_ROWS = 6


def slices_text(report: TensorReport, width: int) -> list[str]:
    """Return the rows of bars and the sentences under them; nothing where nothing stands out."""
    if not (urgent(report) or any(0 < each.zero_count < each.size or each.large for each in report.slices)):
        return []
    rows = [f"{letter(report, each.dim):>10}  {_bars(each)}  {count(each.size)}" for each in report.slices[:MOST_ROWS]]
    wrapped = [part for line in slices_lines(report) for part in textwrap.wrap(line.replace("`", ""), width - 12)]
    key = f"            bar: mean magnitude; {NOT_FINITE} holds NaN or Inf, {ZERO} all zeros"
    return [" BY SLICE", *rows, key, *(f"            {line}" for line in wrapped)]


def _bars(each: DimensionSlices) -> str:
    top = max((level for level in each.levels if math.isfinite(level)), default=0.0)
    return "".join(_bar(level, bad, top) for level, bad in zip(each.levels, each.cell_bad, strict=True))


def _bar(level: float, bad: int, top: float) -> str:
    if bad or not math.isfinite(level):
        return NOT_FINITE
    return BLOCKS[round(level / top * (len(BLOCKS) - 1))] if level else ZERO
