"""What the values of a tensor are like: their range in a line, their histogram, and slice by slice."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import TypeVar

from tensormagic.reports import DimensionSlices, Statistics, TensorReport
from tensormagic.views import svg_paths
from tensormagic.views.markup import escape, tag
from tensormagic.views.nodes import Cell, Picture, Words
from tensormagic.views.pictures.cells import PALETTE, fraction, image, lettered, patches, text
from tensormagic.views.pictures.tensor_elements import TABLE_CELLS
from tensormagic.views.svg_paths import rect
from tensormagic.views.text_canvas import BLOCKS, NOT_FINITE as BAD, ZERO, fewer, sparkline, wrapped
from tensormagic.views.theme import role
from tensormagic.views.to_html import with_code
from tensormagic.views.to_svg import text_svg
from tensormagic.words import DOT, MINUS, TIMES, count, listed, plural, series, short_count, short_number

_HEIGHT = 40  # pixels of the highest bar
_SPARK_BARS, _FEW_BARS, _MOST_BARS = 12, 8, 32  # in the range's line; with a count each; at all
_MEAN_LABEL_ROOM = 12  # characters that both ends of the axis may take beside it
_MEAN_LABEL = (37, 63)  # per cent of the axis between which there is room to write "mean" under its mark
_BAR, _SPECIAL = 10.0, 34.0  # pixels of the SVG


@dataclass(frozen=True, slots=True)
class ValueRange(Picture):
    """The values in short: smallest, a small histogram, largest, mean, NaN and Inf."""

    statistics: Statistics

    @property
    def sentence(self) -> str:
        """The numbers, and of what they are."""
        found = [f"{label} {value}{'!' if bad else ''}" for label, value, bad in _range(self.statistics)]
        bars = fewer(self.statistics.histogram_counts, _SPARK_BARS)
        if found and len(bars) > 1:
            found[:2] = [f"{found[0]} {sparkline(bars)} {found[1]}"]
        return f" {DOT} ".join(filter(None, [*found, _range_scope(self.statistics) if found else ""]))

    def html(self) -> str:
        """Return the numbers, those that are bad in red."""
        numbers = self.statistics
        parts = [tag("span", escape(label), " ", tag("b", escape(value), class_="tm-failed" if bad else None))
                 for label, value, bad in _range(numbers)]  # fmt: skip
        bars, edges = fewer(numbers.histogram_counts, _SPARK_BARS), numbers.histogram_edges
        if len(bars) > 1 and (highest := max(bars)):
            shares = (max(round(100 * found / highest), 8) if found else 0 for found in bars)
            drawn = "".join(f'<i style="height:{share}%"></i>' for share in shares)
            label = f"histogram from {short_number(edges[0])} to {short_number(edges[-1])}"
            spark = tag("span", drawn, class_="tm-spark", role="img", aria_label=label)
            parts.insert(1 if numbers.minimum is not None else 0, spark)
        scope = _range_scope(numbers)
        return " ".join([*parts, *([tag("span", escape(scope), class_="quiet")] if scope else [])])

    def text(self, width: int) -> Iterator[str]:
        """Return the numbers in a line."""
        yield from wrapped(self.sentence, width, "   ", "   ") if self.sentence else ()

    def svg(self, width: float) -> tuple[str, float]:
        """Return the numbers in a line."""
        del width
        return text_svg(0, 12, self.sentence, size=13), 14.0


@dataclass(frozen=True, slots=True)
class Histogram(Picture):
    """The values as bars, beside them a bar for each kind of values that are not finite, and an axis with the mean."""

    statistics: Statistics

    @property
    def _bars(self) -> tuple[tuple[int, ...], tuple[float, ...], float | None]:
        """Bins and their edges, neighbours joined until few enough are left to be drawn; the mean."""
        counts, edges = self.statistics.histogram_counts, self.statistics.histogram_edges
        together = -(-len(counts) // _MOST_BARS) or 1
        return fewer(counts, _MOST_BARS), (*edges[:-1:together], *edges[-1:]), self.statistics.mean

    def html(self) -> str:
        """Return bars that each say their count where styles are stripped; nothing without numbers."""
        bars, edges, mean = self._bars
        tables, most = [], max(bars, default=0)
        if bars:
            labelled = sum(found > 0 for found in bars) <= _FEW_BARS and most < 1000
            drawn = (_bar(found, round(_HEIGHT * found / (most or 1)),
                          f"{short_number(start)} to {short_number(end)}: {short_count(found)}", labelled=labelled)
                     for found, (start, end) in zip(bars, pairwise(edges), strict=True))  # fmt: skip
            low, high, mark = short_number(edges[0]), short_number(edges[-1]), ""
            if mean is not None and edges[-1] > edges[0]:
                at = 100 * fraction(mean, edges[0], edges[-1])
                has_room = len(low + high) <= _MEAN_LABEL_ROOM and _MEAN_LABEL[0] <= at <= _MEAN_LABEL[1]
                title = f"mean {short_number(mean)}"
                mark = tag("i", "mean" if has_room else "", style=f"left:{at:.0f}%", title=title)
            ends = tag("span", escape(low)), " ", mark, " ", tag("span", escape(high))
            axis = tag("tr", tag("td", tag("div", *ends, class_="tm-axis"), colspan=len(bars)))
            tables.append(tag("table", tag("tr", *drawn), axis, class_="tm-bars"))
        for label, found in specials(self.statistics):
            height = min(_HEIGHT, max(2, round(_HEIGHT * found / most))) if most else _HEIGHT
            bar = _bar(found, height, f"{label}: {found}", labelled=True, class_="tm-skip")
            named = tag("tr", tag("td", escape(label), class_="tm-label"))
            tables.append(tag("table", tag("tr", bar), named, class_="tm-bars tm-special"))
        return tag("div", *tables, class_="tm-histogram") if tables else ""

    def text(self, width: int) -> Iterator[str]:
        """Return the histogram in one line; in a narrow one each bar stands for several of its bins."""
        bins, edges = self.statistics.histogram_counts, self.statistics.histogram_edges
        for most in range(len(bins), 0, -1) if len(bins) > 1 else ():
            bars = fewer(bins, most)
            drawn = f"{short_number(edges[0])} {sparkline(bars)} {short_number(edges[-1])}"
            line = f"  {drawn}   highest bar {short_count(max(bars))}"
            if len(line) <= width:
                yield line
                return

    def svg(self, width: float) -> tuple[str, float]:
        """Return the bars."""
        del width
        (bars, edges, mean), special, parts = self._bars, specials(self.statistics), list[str]()
        highest, x = max(bars, default=0), 0.0

        def put(at: float, wide: float, found: int, colour: str) -> None:
            high = max(min(_HEIGHT * found / highest, _HEIGHT), 1.0) if highest else _HEIGHT
            parts.append(rect(at, _HEIGHT - high, wide, high, fill=colour) if found else "")

        for at, found in enumerate(bars):
            put(_BAR * at, _BAR - 1, found, role("bar"))
        if bars:
            middle = "" if mean is None else f", mean {short_number(mean)}"
            ends = f"{short_number(edges[0])} to {short_number(edges[-1])}{middle}"
            parts.append(text_svg(0, _HEIGHT + 14, ends, quiet=True))
            x = max(_BAR * len(bars), 220.0) + 16
        for label, found in special:
            put(x, _SPECIAL - 8, found, role("error"))
            parts.append(text_svg(x, _HEIGHT + 14, f"{label} {short_count(found)}"))
            x += _SPECIAL + 30
        return "".join(parts), _HEIGHT + 18.0 if parts else 0.0


def _bar(found: int, height: int, title: str, *, labelled: bool, class_: str | None = None) -> str:
    height = max(height, 1) if found else 0
    look = f"min-width:3px;height:{height}px;background:{role('bar')}"  # a cell without styles is as wide as this
    if labelled and found:
        label = tag("div", short_count(found), class_="tm-count")
        return tag("td", label, tag("div", class_=class_, style=look), title=title, style="vertical-align:bottom")
    # Where there is no style sheet bars stand on one line because all are as high with the room above them.
    above = f"margin-top:{_HEIGHT - height}px;" if height < _HEIGHT else ""
    return tag("td", tag("div", class_=class_, style=above + look), title=title)


def _range(statistics: Statistics) -> list[tuple[str, str, bool]]:
    """Return smallest, largest, mean, NaN and Inf; each with whether it is bad."""
    if not statistics.count:
        return []
    named = (("min", statistics.minimum), ("max", statistics.maximum), ("mean", statistics.mean))
    found = [
        (label, count(value) if isinstance(value, int) else short_number(value), False)
        for label, value in named if value is not None
    ]  # fmt: skip
    infinite = statistics.positive_infinity + statistics.negative_infinity
    bad = (("NaN", statistics.nan), ("Inf", infinite))
    return [*found, *((label, short_count(number), number > 0) for label, number in bad)]


def _range_scope(statistics: Statistics) -> str:
    """Return of what those numbers are, where that is not every value."""
    part = statistics.sampled is None and statistics.count < statistics.of
    sample = f"of a sample of {count(statistics.count)}" if part else ""
    return ", ".join(filter(None, (sample, "" if statistics.of_what == "values" else f"of {statistics.of_what}")))


def statistics_rows(statistics: Statistics) -> list[list[Cell]]:
    """Return what the range leaves out, in two columns: how far values lie apart, and how many are of which kind."""
    left = [("std", short_number(statistics.std)), ("norm", short_number(statistics.norm))]
    right = [("finite", statistics.finite), ("zero" if statistics.sampled is None else "zero seen", statistics.zero)]
    infinities = [pair for pair in reversed(specials(statistics)) if pair[0] != "NaN"]
    cells: list[tuple[str, Cell]] = [(label, short_count(found)) for label, found in right]
    cells += [(label, Words(short_count(found), "strong")) for label, found in infinities]
    return [[*both, *cell] for both, cell in zip_longest(left, cells, fillvalue=("", ""))]


def specials(statistics: Statistics) -> list[tuple[str, int]]:
    """Return the kinds of elements a histogram cannot place, with their counts, where there are any."""
    infinities = (MINUS + "Inf", statistics.negative_infinity), ("+Inf", statistics.positive_infinity)
    return [pair for pair in (("NaN", statistics.nan), *infinities) if pair[1]]


def statistics_scope(statistics: Statistics) -> str:
    """Return what the statistics are over, where that is not simply every value, and where the first bad ones are."""
    parts = [f"of {statistics.of_what}"] if statistics.of_what != "values" else []
    how = f" ({statistics.sampling})" if statistics.sampling else ""
    if statistics.sampled is not None:
        parts.append(f"histogram and zeros over {count(statistics.sampled)} of {count(statistics.of)} elements{how}")
        parts.append(f"the rest over {'all' if statistics.count == statistics.of else count(statistics.count)}")
    elif statistics.count < statistics.of:
        parts.append(f"over {count(statistics.count)} of {count(statistics.of)} elements{how}")
    places = (
        ("NaN", statistics.first_nan),
        ("+Inf", statistics.first_positive_infinity),
        (MINUS + "Inf", statistics.first_negative_infinity),
    )  # a scalar has none
    parts += [f"first {kind} at [{', '.join(map(str, index))}]" for kind, index in places if index]
    return ", ".join(parts)


# A tensor slice by slice, a row of colour a dimension: where what is not finite lies, what is zero, what is large.

_ROW_WIDTH, _CELL_LIMITS = 384, (6, 14)  # pixels of a row of many cells, and along the side of a cell
_HIGH = 2  # squares: a cell is twice as high as wide
_COLOURS = svg_paths.NOT_A_NUMBER, svg_paths.EMPTY, range(len(PALETTE))
Step = TypeVar("Step", int, str)
_MOST_ROWS, _MOST_NAMED = 6, 3  # in a terminal; places that are named


@dataclass(frozen=True, slots=True)
class SliceRows(Picture):
    """The slices along each dimension as a row of colour, and their story in sentences."""

    report: TensorReport

    def _rows(self) -> Iterator[tuple[DimensionSlices, str, int, str]]:
        """Yield each dimension, its letter, the pixels along the side of a cell, and what to say beside its row."""
        smallest, largest = _CELL_LIMITS
        for each in self.report.slices:
            per_cell = f", {each.cell_slices} a cell" if each.cell_slices > 1 else ""
            note = f"{count(each.size)} slices{per_cell}, largest {short_number(_top(each))}"
            side = min(max(_ROW_WIDTH // len(each.levels), smallest), largest)
            yield each, letter(self.report, each.dim), side, note

    @property
    def _legend(self) -> str:
        parts = ["dark to light: mean magnitude of a slice, from 0 to the largest along its dimension"]
        parts += ["empty: all zeros"] if any(each.zero_count for each in self.report.slices) else []
        parts += ["crossed out: holds NaN or Inf"] if any(each.bad_count for each in self.report.slices) else []
        return "; ".join(parts)

    def html(self) -> str:
        """Return the sentences, the rows, and what their colours mean."""
        rows = []
        for each, named, size, note in self._rows():
            picture = image([_drawn(each, *_COLOURS)] * _HIGH, size, row_sentence(self.report, each))
            ends = tag("span", "0") + " " + tag("span", str(each.size - 1))
            below = tag("div", ends, class_="tm-ends", style=f"width:{size * len(each.levels)}px")
            head = tag("th", tag("code", escape(named)))
            rows.append(tag("tr", head, tag("td", picture, below), tag("td", escape(note), class_="quiet")))
        lines = "".join(tag("p", with_code(line)) for line in slices_lines(self.report))
        table = tag("table", *rows, class_="tm-list tm-slices")
        return lines + table + tag("p", escape(self._legend), class_="quiet")

    def text(self, width: int) -> Iterator[str]:
        """Return bars and sentences; nothing where nothing stands out."""
        report = self.report
        if not (urgent(report) or any(0 < each.zero_count < each.size or each.large for each in report.slices)):
            return
        for each in report.slices[:_MOST_ROWS]:
            yield f"{letter(report, each.dim):>10}  {''.join(_drawn(each, BAD, ZERO, BLOCKS))}  {count(each.size)}"
        yield f"  bar: mean magnitude; {BAD} holds NaN or Inf, {ZERO} all zeros"
        for line in slices_lines(report):
            yield from wrapped(line.replace("`", ""), width, "  ", "  ")

    def svg(self, width: float) -> tuple[str, float]:
        """Return the sentences and the rows."""
        lines = slices_lines(self.report)
        parts, y = (
            [text(0, 12 + 17 * at, line.replace("`", "")) for at, line in enumerate(lines)],
            12.0 + 17 * len(lines),
        )
        for each, named, size, note in self._rows():
            cells, beside = _drawn(each, *_COLOURS), min(24 + size * len(each.levels) + 12, width - 200)
            parts += [text(0, y + 8, named), patches([cells], (24, y - 4, size, size * _HIGH)),
                      text(beside, y + 8, note, "q")]  # fmt: skip
            y += size * _HIGH + 8
        return lettered("".join(parts) + text(0, y + 8, self._legend, "q")), y + 14


def _drawn(each: DimensionSlices, bad: Step, zero: Step, scale: Sequence[Step]) -> list[Step]:
    """Return the step of each cell, by how large it is of the largest; or what stands for no number, and for zeros."""
    top, last = _top(each) or 1.0, len(scale) - 1
    cells = zip(each.levels, each.cell_bad, strict=True)
    return [bad if broken or not math.isfinite(level) else scale[round(level / top * last)] if level else zero
            for level, broken in cells]  # fmt: skip


def _top(each: DimensionSlices) -> float:
    return max((level for level in each.levels if math.isfinite(level)), default=0.0)


def row_sentence(report: TensorReport, each: DimensionSlices) -> str:
    """Return which slice along a dimension is largest and which smallest, which are zero, which hold NaN or Inf."""
    described = f"Mean magnitude, {plural(each.size, 'slice')} along {letter(report, each.dim)}"
    finite = [(level, -place) for place, level in enumerate(each.levels) if math.isfinite(level)]
    if finite:
        (high, largest), (low, smallest) = max(finite), min((level, -place) for level, place in finite)
        described += f": largest {short_number(high)} at {_slice(each, -largest)}, "
        described += f"smallest {short_number(low)} at {_slice(each, smallest)}"
    bad = [one.index for one in each.bad]
    for what, found, places in (("all zeros", each.zero_count, each.zero), ("holding NaN or Inf", each.bad_count, bad)):
        described += f"; {what}: {listed(map(str, places), most=_MOST_NAMED, found=found)}" if found else ""
    return f"{described}."


def _slice(each: DimensionSlices, cell: int) -> str:
    """Return the slice of a cell of the row; of a cell for several, from which to which."""
    first = cell * each.cell_slices
    last = min(first + each.cell_slices, each.size) - 1
    return str(first) if last <= first else f"{first} to {last}"


def letter(report: TensorReport, dim: int) -> str:
    """Return the letter of a dimension, as the panel's first line gives it."""
    return report.layout.dim_names[dim] if report.layout is not None else f"dim {dim}"


def urgent(report: TensorReport) -> bool:
    """Return whether slices say where NaN and infinities are better than the first one's index does."""
    return any(sum(each.cell_bad) > 1 for each in _telling(report)) and report.numel > TABLE_CELLS


def slices_summary(report: TensorReport) -> str:
    """Return what stands out, for a closed disclosure."""
    parts = []
    for each in _telling(report)[:1]:
        at, of = letter(report, each.dim), count(each.size)
        where = f"in {count(each.bad_count)} of {of} along {at}"
        if each.bad_count == 1:
            where = f"only at {at}={each.bad[0].index} of {of}"
        parts.append(f"{_kind(each)} {where}")
    for each in report.slices:
        at = letter(report, each.dim)
        if 0 < each.zero_count < each.size:
            parts.append(f"{count(each.zero_count)} of {count(each.size)} along {at} all zeros")
        parts += [f"{at}={large.index} {TIMES}{_rounded(large.ratio)}" for large in each.large[:1]]
    return ", ".join(parts[:3]) or "no outliers"


def slices_lines(report: TensorReport) -> tuple[str, ...]:
    """Return every dimension's story in sentences: where NaN and infinities lie first."""
    lines = _bad_lines(report)
    for each in report.slices:
        at, of = letter(report, each.dim), count(each.size)
        if 0 < each.zero_count < each.size:
            which = series(each.zero) + (" \u2026" if each.zero_count > len(each.zero) else "")
            what = "slices is" if each.zero_count == 1 else "slices are"
            seen = "" if each.looked == each.elements else f" in the {count(each.looked)} elements looked at of each"
            lines.append(f"{count(each.zero_count)} of {of} {what} all zeros along {at}{seen}: `{at}={which}`.")
        lines += [
            f"`{at}={large.index}` is far larger than the others along {at}: its mean magnitude is "
            f"{_rounded(large.ratio)} {TIMES} that of the median slice."
            for large in each.large[:2]
        ]
    if sampled := [each for each in report.slices if each.looked < each.elements]:
        each = sampled[0]
        looked = f"{count(each.looked)} of {plural(each.elements, 'element')} of each slice"
        exact = " NaN and infinities were searched for everywhere." if all(other.bad_exact for other in sampled) else ""
        lines.append(f"Colours come from a sample: {looked} along {letter(report, each.dim)}.{exact}")
    return tuple(lines)


def _bad_lines(report: TensorReport) -> list[str]:
    """Return where the bad elements lie: at one index of each of some dimensions, or in several slices along one."""
    telling = _telling(report)
    seen = {each.dim: "" if each.bad_exact else f", of the {count(each.looked)} elements looked at in each slice"
            for each in telling}  # fmt: skip
    if single := [each for each in telling if each.bad_count == 1][:3]:
        first, total = single[0], sum(single[0].cell_bad)
        places = [f"`{letter(report, each.dim)}={each.bad[0].index}` (one of {count(each.size)})" for each in single]
        held = _held(first.bad[0].nan, first.bad[0].inf)
        every = f"All {held} lie in" if total > 1 else f"The one {_kind(first)} lies in"
        return [f"{every} {listed(places)}{seen[first.dim]}."]
    lines = []
    for each in telling[:2]:
        at = letter(report, each.dim)
        held_ = (f"`{at}={bad.index}` ({_held(bad.nan, bad.inf)})" for bad in each.bad)
        which = listed(held_, most=len(each.bad), found=each.bad_count)
        of = f"{count(each.bad_count)} of {count(each.size)}"
        lines.append(f"{of} slices along {at} hold {_kind(each)}: {which}{seen[each.dim]}.")
    return lines


def _telling(report: TensorReport) -> list[DimensionSlices]:
    """Return the dimensions that say where the bad elements are: few of their slices hold any, the fewest first."""
    holding = [each for each in report.slices if 0 < each.bad_count < each.size]
    return sorted(holding, key=lambda each: (each.bad_count / each.size, each.bad_count))


def _kind(each: DimensionSlices) -> str:
    nan, inf = any(bad.nan for bad in each.bad), any(bad.inf for bad in each.bad)
    return "NaN and Inf" if nan and inf else "NaN" if nan else "Inf"


def _held(nan: int, inf: int) -> str:
    return " + ".join(f"{count(n)} {kind}" for n, kind in ((nan, "NaN"), (inf, "Inf")) if n)


def _rounded(ratio: float) -> str:
    return short_number(float(f"{ratio:.2g}"))
