"""A tensor slice by slice, a row of colour a dimension: where what is not finite lies, what is zero, what is large."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tensormagic.renderers.basics import svg_paths
from tensormagic.renderers.basics.markup import escape, tag
from tensormagic.renderers.terminal.text_canvas import BLOCKS, ZERO, wrapped
from tensormagic.renderers.terminal.text_canvas import NOT_FINITE as BAD
from tensormagic.reports import DimensionSlices, TensorReport
from tensormagic.views.nodes import Picture
from tensormagic.views.pictures.cells import HATCHED, PALETTE, SKIP, image, lettered, patches, text
from tensormagic.views.pictures.tensor_elements import TABLE_CELLS
from tensormagic.views.to_html import with_code
from tensormagic.words import TIMES, count, listed, plural, series, short_number

_ROW_WIDTH, _CELL_LIMITS = 384, (6, 14)  # pixels of a row of many cells, and along the side of a cell
_HIGH = 2  # squares: a cell is twice as high as wide
_MOST_ROWS, _MOST_NAMED = 6, 3  # in a terminal; places that are named


@dataclass(frozen=True, slots=True)
class SliceRows(Picture):
    """The slices along each dimension as a row of colour, and their story in sentences."""

    report: TensorReport

    @property
    def sentence(self) -> str:
        """What each row shows."""
        return " ".join(row_sentence(self.report, each) for each in self.report.slices)

    def html(self) -> str:
        """Return the sentences, the rows, and what their colours mean."""
        lines = "".join(tag("p", with_code(line)) for line in slices_lines(self.report))
        rows = tag("table", *(_row(self.report, each) for each in self.report.slices), class_="tm-list tm-slices")
        return lines + rows + tag("p", escape(_legend(self.report)), class_="quiet")

    def text(self, width: int) -> Iterator[str]:
        """Return bars and sentences; nothing where nothing stands out."""
        report = self.report
        if not (urgent(report) or any(0 < each.zero_count < each.size or each.large for each in report.slices)):
            return
        for each in report.slices[:_MOST_ROWS]:
            levels = zip(each.levels, each.cell_bad, strict=True)
            bars = "".join(_bar(level, bad, _top(each)) for level, bad in levels)
            yield f"{letter(report, each.dim):>10}  {bars}  {count(each.size)}"
        yield f"  bar: mean magnitude; {BAD} holds NaN or Inf, {ZERO} all zeros"
        for line in slices_lines(report):
            yield from wrapped(line.replace("`", ""), width, "  ", "  ")

    def svg(self, width: float) -> tuple[str, float]:
        """Return the sentences and the rows."""
        parts, y = [], 12.0
        for line in slices_lines(self.report):
            parts.append(text(0, y, line.replace("`", "")))
            y += 17
        for each in self.report.slices:
            size, palette = _side(each), {svg_paths.NOT_A_NUMBER: HATCHED, svg_paths.EMPTY: SKIP}
            fills = [palette.get(step) or PALETTE[step] for step in _steps(each)]
            parts += [text(0, y + 8, letter(self.report, each.dim)), patches([fills], (24, y - 4, size, size * _HIGH))]
            parts.append(text(min(24 + size * len(fills) + 12, width - 200), y + 8, _note(each), "q"))
            y += size * _HIGH + 8
        return lettered("".join(parts) + text(0, y + 8, _legend(self.report), "q")), y + 14


def _legend(report: TensorReport) -> str:
    parts = ["dark to light: mean magnitude of a slice, from 0 to the largest along its dimension"]
    parts += ["empty: all zeros"] if any(each.zero_count for each in report.slices) else []
    parts += ["crossed out: holds NaN or Inf"] if any(each.bad_count for each in report.slices) else []
    return "; ".join(parts)


def _row(report: TensorReport, each: DimensionSlices) -> str:
    size = _side(each)
    picture = image([_steps(each)] * _HIGH, size, row_sentence(report, each))
    ends = tag("span", "0") + " " + tag("span", str(each.size - 1))
    below = tag("div", ends, class_="tm-ends", style=f"width:{size * len(each.levels)}px")
    name = tag("th", tag("code", escape(letter(report, each.dim))))
    return tag("tr", name, tag("td", picture, below), tag("td", escape(_note(each)), class_="quiet"))


def _note(each: DimensionSlices) -> str:
    per_cell = f", {each.cell_slices} a cell" if each.cell_slices > 1 else ""
    return f"{count(each.size)} slices{per_cell}, largest {short_number(_top(each))}"


def _side(each: DimensionSlices) -> int:
    smallest, largest = _CELL_LIMITS
    return min(max(_ROW_WIDTH // len(each.levels), smallest), largest)


def _steps(each: DimensionSlices) -> list[int]:
    top = _top(each) or 1.0
    return [_step(level, bad, top) for level, bad in zip(each.levels, each.cell_bad, strict=True)]


def _step(level: float, bad: int, top: float) -> int:
    if bad or not math.isfinite(level):
        return svg_paths.NOT_A_NUMBER
    return round(level / top * (len(PALETTE) - 1)) if level else svg_paths.EMPTY


def _bar(level: float, bad: int, top: float) -> str:
    if bad or not math.isfinite(level):
        return BAD
    return BLOCKS[round(level / top * (len(BLOCKS) - 1))] if level else ZERO


def _top(each: DimensionSlices) -> float:
    return max((level for level in each.levels if math.isfinite(level)), default=0.0)


# -- what is said of them --------------------------------------------------------------------------------------------


def row_sentence(report: TensorReport, each: DimensionSlices) -> str:
    """Return which slice along a dimension is largest and which smallest, which are zero, which hold NaN or Inf."""
    described = f"Mean magnitude, {plural(each.size, 'slice')} along {letter(report, each.dim)}"
    finite = [(level, -place) for place, level in enumerate(each.levels) if math.isfinite(level)]
    if finite:
        (high, largest), (low, smallest) = max(finite), min((level, -place) for level, place in finite)
        described += f": largest {short_number(high)} at {_slice(each, -largest)}, "
        described += f"smallest {short_number(low)} at {_slice(each, smallest)}"
    described += _named("all zeros", each.zero_count, each.zero)
    return f"{described}{_named('holding NaN or Inf', each.bad_count, [one.index for one in each.bad])}."


def _slice(each: DimensionSlices, cell: int) -> str:
    """Return the slice of a cell of the row; of a cell for several, from which to which."""
    first = cell * each.cell_slices
    last = min(first + each.cell_slices, each.size) - 1
    return str(first) if last <= first else f"{first} to {last}"


def _named(what: str, found: int, places: Sequence[int]) -> str:
    return f"; {what}: {listed(map(str, places), most=_MOST_NAMED, found=found)}" if found else ""


def letter(report: TensorReport, dim: int) -> str:
    """Return the letter of a dimension, as the panel's first line gives it."""
    return report.layout.dim_names[dim] if report.layout is not None else f"dim {dim}"


def urgent(report: TensorReport) -> bool:
    """Return whether slices say where NaN and infinities are better than the first one's index does."""
    return any(sum(each.cell_bad) > 1 for each in _telling(report)) and report.numel > TABLE_CELLS


def slices_summary(report: TensorReport) -> str:
    """Return what stands out, for a closed disclosure."""
    parts = [_bad_clause(report, each) for each in _telling(report)[:1]]
    for each in report.slices:
        at = letter(report, each.dim)
        if 0 < each.zero_count < each.size:
            parts.append(f"{count(each.zero_count)} of {count(each.size)} along {at} all zeros")
        parts += [f"{at}={large.index} {TIMES}{short_number(_rounded(large.ratio))}" for large in each.large[:1]]
    return ", ".join(parts[:3]) or "no outliers"


def slices_lines(report: TensorReport) -> tuple[str, ...]:
    """Return every dimension's story in sentences: where NaN and infinities lie first."""
    telling = _telling(report)
    single = [each for each in telling if each.bad_count == 1]
    lines = [_only_there(report, single[:3])] if single else [f"{_several(report, each)}." for each in telling[:2]]
    for each in report.slices:
        lines += _zeros(report, each) + _large(report, each)
    return tuple(lines + _scope(report))


def _telling(report: TensorReport) -> list[DimensionSlices]:
    """Return the dimensions that say where the bad elements are: few of their slices hold any, the fewest first."""
    holding = [each for each in report.slices if 0 < each.bad_count < each.size]
    return sorted(holding, key=lambda each: (each.bad_count / each.size, each.bad_count))


def _bad_clause(report: TensorReport, each: DimensionSlices) -> str:
    at = letter(report, each.dim)
    if each.bad_count == 1:
        return f"{_kind(each)} only at {at}={each.bad[0].index} of {count(each.size)}"
    return f"{_kind(each)} in {count(each.bad_count)} of {count(each.size)} along {at}"


def _kind(each: DimensionSlices) -> str:
    nan, inf = any(bad.nan for bad in each.bad), any(bad.inf for bad in each.bad)
    return "NaN and Inf" if nan and inf else "NaN" if nan else "Inf"


def _only_there(report: TensorReport, single: list[DimensionSlices]) -> str:
    """Return where all bad elements lie, when they lie at one index of each of these dimensions."""
    bad, total = single[0].bad[0], sum(single[0].cell_bad)
    places = [f"`{letter(report, each.dim)}={each.bad[0].index}` (one of {count(each.size)})" for each in single]
    every = f"All {_held(bad.nan, bad.inf)} lie in" if total > 1 else f"The one {_kind(single[0])} lies in"
    return f"{every} {listed(places)}{_seen(single[0])}."


def _several(report: TensorReport, each: DimensionSlices) -> str:
    at = letter(report, each.dim)
    places = (f"`{at}={bad.index}` ({_held(bad.nan, bad.inf)})" for bad in each.bad)
    first = listed(places, most=len(each.bad), found=each.bad_count)
    of = f"{count(each.bad_count)} of {count(each.size)}"
    return f"{of} slices along {at} hold {_kind(each)}: {first}{_seen(each)}"


def _seen(each: DimensionSlices) -> str:
    return "" if each.bad_exact else f", of the {count(each.looked)} elements looked at in each slice"


def _held(nan: int, inf: int) -> str:
    return " + ".join(f"{count(n)} {kind}" for n, kind in ((nan, "NaN"), (inf, "Inf")) if n)


def _zeros(report: TensorReport, each: DimensionSlices) -> list[str]:
    if not 0 < each.zero_count < each.size:
        return []
    at = letter(report, each.dim)
    which = series(each.zero) + (" \u2026" if each.zero_count > len(each.zero) else "")
    what = "slices is" if each.zero_count == 1 else "slices are"
    seen = "" if each.looked == each.elements else f" in the {count(each.looked)} elements looked at of each"
    return [f"{count(each.zero_count)} of {count(each.size)} {what} all zeros along {at}{seen}: `{at}={which}`."]


def _large(report: TensorReport, each: DimensionSlices) -> list[str]:
    at = letter(report, each.dim)
    return [
        f"`{at}={large.index}` is far larger than the others along {at}: its mean magnitude is "
        f"{short_number(_rounded(large.ratio))} {TIMES} that of the median slice."
        for large in each.large[:2]
    ]


def _rounded(ratio: float) -> float:
    return float(f"{ratio:.2g}")


def _scope(report: TensorReport) -> list[str]:
    sampled = [each for each in report.slices if each.looked < each.elements]
    if not sampled:
        return []
    each = sampled[0]
    exact = " NaN and infinities were searched for everywhere." if all(other.bad_exact for other in sampled) else ""
    looked = (
        f"{count(each.looked)} of {plural(each.elements, 'element')} of each slice along {letter(report, each.dim)}"
    )
    return [f"Colours come from a sample: {looked}.{exact}"]
