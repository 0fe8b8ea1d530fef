"""The slices of a tensor as one row of colour a dimension: which channel or batch item it is, at a glance."""

from __future__ import annotations

import math

from tensormagic.renderers.alternatives.tensor_alternative import slices_alternative
from tensormagic.renderers.basics import svg_paths
from tensormagic.renderers.basics.markup import escape, tag
from tensormagic.renderers.basics.panel import fold, with_code
from tensormagic.renderers.tensor.tensor_maps import PALETTE
from tensormagic.renderers.tensor.tensor_slices_words import letter, slices_lines, slices_summary, urgent
from tensormagic.reports import DimensionSlices, TensorReport
from tensormagic.words import count, short_number

ROW_WIDTH = 384  # pixels of a row of many cells
CELL_LIMITS = (6, 14)  # pixels along the side of a cell
ROWS = 2  # of squares: a cell is twice as high as wide


def slices_html(report: TensorReport) -> str:
    """Return the disclosure, open where something is not finite; nothing for a tensor without slices."""
    if not report.slices:
        return ""
    lines = "".join(tag("p", with_code(line)) for line in slices_lines(report))
    rows = tag("table", *(_row(report, each) for each in report.slices), class_="tm-list tm-slices")
    legend = tag("p", escape(_legend(report)), class_="quiet")
    return fold("By slice", lines, rows, legend, state=slices_summary(report), is_open=urgent(report))


def _legend(report: TensorReport) -> str:
    parts = ["dark to light: mean magnitude of a slice, from 0 to the largest along its dimension"]
    parts += ["empty: all zeros"] if any(each.zero_count for each in report.slices) else []
    parts += ["crossed out: holds NaN or Inf"] if any(each.bad_count for each in report.slices) else []
    return "; ".join(parts)


def _row(report: TensorReport, each: DimensionSlices) -> str:
    smallest, largest = CELL_LIMITS
    size = min(max(ROW_WIDTH // len(each.levels), smallest), largest)
    at = letter(report, each.dim)
    source = svg_paths.heatmap([_cells(each)] * ROWS, PALETTE, size=size)
    words = slices_alternative(report, each)
    width = size * len(each.levels)
    image = f'<img src="{source}" width="{width}" height="{size * ROWS}" alt="{escape(words)}">'
    last = tag("span", str(each.size - 1))
    ends = tag("div", tag("span", "0"), " ", last, class_="tm-ends", style=f"width:{width}px")
    per_cell = f", {each.cell_slices} a cell" if each.cell_slices > 1 else ""
    note = f"{count(each.size)} slices{per_cell}, largest {short_number(_top(each))}"
    cells = (tag("th", tag("code", escape(at))), tag("td", image, ends), tag("td", escape(note), class_="quiet"))
    return tag("tr", *cells)


def _cells(each: DimensionSlices) -> list[int]:
    top = _top(each) or 1.0
    return [_cell(level, bad, top) for level, bad in zip(each.levels, each.cell_bad, strict=True)]


def _cell(level: float, bad: int, top: float) -> int:
    if bad or not math.isfinite(level):
        return svg_paths.NOT_A_NUMBER
    return round(level / top * (len(PALETTE) - 1)) if level else svg_paths.EMPTY


def _top(each: DimensionSlices) -> float:
    return max((level for level in each.levels if math.isfinite(level)), default=0.0)
