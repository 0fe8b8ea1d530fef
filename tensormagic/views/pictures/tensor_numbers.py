"""What the values of a tensor are like: their range in a line, their histogram, and what is not finite or not seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tensormagic.renderers.basics.markup import escape, tag
from tensormagic.renderers.basics.svg_paths import number
from tensormagic.renderers.basics.theme import role
from tensormagic.renderers.terminal.text_canvas import fewer, sparkline, wrapped
from tensormagic.reports import Statistics
from tensormagic.views.nodes import Cell, Picture, Words
from tensormagic.views.pictures.cells import fraction
from tensormagic.views.to_svg import text_svg
from tensormagic.words import DOT, MINUS, count, short_count, short_number

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
        parts = [tag("span", escape(label), " ", tag("b", escape(value), class_="tm-failed" if bad else None))
                 for label, value, bad in _range(self.statistics)]  # fmt: skip
        parts.insert(1 if self.statistics.minimum is not None else 0, self._bars())
        scope = _range_scope(self.statistics)
        return " ".join(filter(None, [*parts, tag("span", escape(scope), class_="quiet") if scope else ""]))

    def _bars(self) -> str:
        bars, edges = fewer(self.statistics.histogram_counts, _SPARK_BARS), self.statistics.histogram_edges
        highest = max(bars, default=0)
        if len(bars) < 2 or not highest:
            return ""
        shares = (max(round(100 * found / highest), 8) if found else 0 for found in bars)
        drawn = "".join(f'<i style="height:{share}%"></i>' for share in shares)
        label = f"histogram from {short_number(edges[0])} to {short_number(edges[-1])}"
        return tag("span", drawn, class_="tm-spark", role="img", aria_label=label)

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
    def sentence(self) -> str:
        """From where to where, and the height of the highest bar."""
        edges, counts = self.statistics.histogram_edges, self.statistics.histogram_counts
        if len(counts) < 2:
            return ""
        return f"{short_number(edges[0])} {sparkline(counts)} {short_number(edges[-1])}   {_highest(counts)}"

    def html(self) -> str:
        """Return bars that each say their count where styles are stripped; nothing without numbers."""
        bars, edges = _fewer(self.statistics)
        tables = (
            [tag("table", tag("tr", _bars(bars, edges)), self._axis(edges, len(bars)), class_="tm-bars")]
            if bars
            else []
        )
        tables += [_special(label, found, max(bars, default=0)) for label, found in specials(self.statistics)]
        return tag("div", *tables, class_="tm-histogram") if tables else ""

    def _axis(self, edges: Sequence[float], columns: int) -> str:
        low, high, mean = short_number(edges[0]), short_number(edges[-1]), ""
        if self.statistics.mean is not None and edges[-1] > edges[0]:
            at = 100 * fraction(self.statistics.mean, edges[0], edges[-1])
            has_room = len(low + high) <= _MEAN_LABEL_ROOM and _MEAN_LABEL[0] <= at <= _MEAN_LABEL[1]
            title = escape(f"mean {short_number(self.statistics.mean)}")
            mean = f'<i style="left:{at:.0f}%" title="{title}">{"mean" if has_room else ""}</i>'
        ends = tag("span", escape(low)), " ", mean, " ", tag("span", escape(high))
        return tag("tr", tag("td", tag("div", *ends, class_="tm-axis"), colspan=columns))

    def text(self, width: int) -> Iterator[str]:
        """Return the histogram in one line; in a narrow one each bar stands for several of its bins."""
        bins, edges = self.statistics.histogram_counts, self.statistics.histogram_edges
        for together in range(1, len(bins) + 1 if len(bins) > 1 else 1):
            bars = tuple(sum(bins[at : at + together]) for at in range(0, len(bins), together))
            line = f"  {short_number(edges[0])} {sparkline(bars)} {short_number(edges[-1])}   {_highest(bars)}"
            if len(line) <= width:
                yield line
                return

    def svg(self, width: float) -> tuple[str, float]:
        """Return the bars."""
        del width
        (bars, edges), special = _fewer(self.statistics), specials(self.statistics)
        if not bars and not special:
            return "", 0.0
        highest, x, parts = max(bars, default=0), 0.0, list[str]()
        for found in bars:
            parts.append(_bar_svg(x, _BAR - 1, found, highest, role("bar")))
            x += _BAR
        if bars:
            middle = "" if self.statistics.mean is None else f"mean {short_number(self.statistics.mean)}"
            ends = f"{short_number(edges[0])} to {short_number(edges[-1])}"
            parts.append(text_svg(0, _HEIGHT + 14, f"{ends}, {middle}" if middle else ends, quiet=True))
            x = max(x, 220.0) + 16
        for label, found in special:
            parts.append(_bar_svg(x, _SPECIAL - 8, found, highest, role("error")))
            parts.append(text_svg(x, _HEIGHT + 14, f"{label} {short_count(found)}"))
            x += _SPECIAL + 30
        return "".join(parts), _HEIGHT + 18.0


def _highest(bars: Sequence[int]) -> str:
    return f"highest bar {short_count(max(bars))}"


def _fewer(statistics: Statistics) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return bins and their edges, neighbours joined until few enough are left to be drawn."""
    counts, edges = statistics.histogram_counts, statistics.histogram_edges
    while len(counts) > _MOST_BARS:
        odd = (0,) if len(counts) % 2 else ()
        padded, ends = counts + odd, edges + (edges[-1:] if odd else ())
        counts = tuple(a + b for a, b in zip(padded[::2], padded[1::2], strict=True))
        edges = ends[::2]
    return counts, edges


def _bars(counts: tuple[int, ...], edges: tuple[float, ...]) -> str:
    highest = max(counts) or 1
    labelled = sum(found > 0 for found in counts) <= _FEW_BARS and highest < 1000
    ranges = (f"{short_number(low)} to {short_number(high)}" for low, high in pairwise(edges))
    return "".join(
        _bar(found, round(_HEIGHT * found / highest), f"{where}: {short_count(found)}", labelled=labelled)
        for found, where in zip(counts, ranges, strict=True)
    )


def _bar(found: int, height: int, title: str, *, labelled: bool, class_: str | None = None) -> str:
    height = max(height, 1) if found else 0
    look = f"height:{height}px;background:{role('bar')}"
    if labelled and found:
        label = tag("div", short_count(found), class_="tm-count")
        return tag("td", label, tag("div", class_=class_, style=look), title=title, style="vertical-align:bottom")
    # Where there is no style sheet bars stand on one line because all are as high with the room above them.
    above = f"margin-top:{_HEIGHT - height}px;" if height < _HEIGHT else ""
    return tag("td", tag("div", class_=class_, style=above + look), title=title)


def _special(label: str, found: int, highest: int) -> str:
    height = _HEIGHT if not highest else min(_HEIGHT, max(2, round(_HEIGHT * found / highest)))
    bar = _bar(found, height, f"{label}: {found}", labelled=True, class_="tm-skip")
    name = tag("tr", tag("td", escape(label), class_="tm-label"))
    return tag("table", tag("tr", bar), name, class_="tm-bars tm-special")


def _bar_svg(x: float, wide: float, found: int, highest: int, colour: str) -> str:
    high = min(_HEIGHT * found / highest, _HEIGHT) if highest else _HEIGHT
    high = max(high, 1.0) if found else 0.0
    place = f'x="{number(x)}" y="{number(_HEIGHT - high)}" width="{number(wide)}" height="{number(high)}"'
    return f'<rect {place} fill="{colour}"/>' if found else ""


# -- what is said of them --------------------------------------------------------------------------------------------


def _range(statistics: Statistics) -> tuple[tuple[str, str, bool], ...]:
    """Return smallest, largest, mean, NaN and Inf; each with whether it is bad."""
    if not statistics.count:
        return ()
    named = (("min", statistics.minimum), ("max", statistics.maximum), ("mean", statistics.mean))
    found = [(label, short_number(value), False) for label, value in named if value is not None]
    infinite = statistics.positive_infinity + statistics.negative_infinity
    return (
        *found,
        *((label, short_count(bad), bad > 0) for label, bad in (("NaN", statistics.nan), ("Inf", infinite))),
    )


def _range_scope(statistics: Statistics) -> str:
    """Return of what those numbers are, where that is not every value."""
    part = statistics.sampled is None and statistics.count < statistics.of
    sample = f"of a sample of {count(statistics.count)}" if part else ""
    return ", ".join(filter(None, (sample, "" if statistics.of_what == "values" else f"of {statistics.of_what}")))


def statistics_rows(statistics: Statistics) -> list[list[Cell]]:
    """Return what the range leaves out, in two columns: how far values lie apart, and how many are of which kind."""
    left = [("std", statistics.std), ("norm", statistics.norm)]
    right = [("finite", statistics.finite), ("zero" if statistics.sampled is None else "zero seen", statistics.zero)]
    infinities = (("+Inf", statistics.positive_infinity), (MINUS + "Inf", statistics.negative_infinity))
    right += [pair for pair in infinities if pair[1]]
    rows: list[list[Cell]] = []
    for at, (other, found) in enumerate(right):
        label, value = (left[at][0], short_number(left[at][1])) if at < len(left) else ("", "")
        number_ = short_count(found)
        rows.append([label, value, other, Words(number_, "strong") if other.endswith("Inf") else number_])
    return rows


def specials(statistics: Statistics) -> tuple[tuple[str, int], ...]:
    """Return the kinds of elements a histogram cannot place, with their counts, where there are any."""
    pairs = (
        ("NaN", statistics.nan),
        (MINUS + "Inf", statistics.negative_infinity),
        ("+Inf", statistics.positive_infinity),
    )
    return tuple((label, found) for label, found in pairs if found)


def statistics_scope(statistics: Statistics) -> str:
    """Return what the statistics are over, where that is not simply every value, and where the first bad ones are."""
    parts = []
    if statistics.of_what != "values":
        parts.append(f"of {statistics.of_what}")
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
