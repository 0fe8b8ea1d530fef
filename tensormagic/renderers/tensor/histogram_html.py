"""A histogram as an HTML table of bars: readable where styles are stripped, because every bar says its count."""

from __future__ import annotations

from itertools import pairwise

from tensormagic.renderers.basics.markup import escape, tag
from tensormagic.renderers.basics.theme import role
from tensormagic.renderers.tensor.statistics_words import specials
from tensormagic.renderers.tensor.tensor_picture import fraction
from tensormagic.reports import Statistics
from tensormagic.views.pictures.text_bars import fewer
from tensormagic.words import short_count, short_number

BAR_HEIGHT = 40  # pixels of the highest bar
SPARK_BARS = 12  # of the histogram in the header
FEW_BARS = 8  # up to here every bar carries its count
MOST_BARS = 32
MEAN_LABEL_ROOM = 12  # characters that both ends of the axis may take beside it
MEAN_LABEL = (37, 63)  # per cent of the axis between which there is room to write "mean" under its mark


def histogram_html(statistics: Statistics) -> str:
    """Return the bars, what cannot be placed beside them, and an axis with the mean; nothing without numbers."""
    bars, edges = _fewer(statistics.histogram_counts, statistics.histogram_edges)
    special = specials(statistics)
    if not bars and not special:
        return ""
    plain = _bars(bars, edges) if bars else ""
    tables = [tag("table", tag("tr", plain), _axis(statistics, edges, len(bars)), class_="tm-bars")] if bars else []
    tables += [_special(label, number, max(bars, default=0)) for label, number in special]
    return tag("div", *tables, class_="tm-histogram")


def spark_html(statistics: Statistics) -> str:
    """Return the histogram as a few bars in a line of text; nothing where all values are the same."""
    bars = fewer(statistics.histogram_counts, SPARK_BARS)
    highest = max(bars, default=0)
    if len(bars) < 2 or not highest:
        return ""
    shares = (max(round(100 * number / highest), 8) if number else 0 for number in bars)
    drawn = "".join(f'<i style="height:{share}%"></i>' for share in shares)
    low, high = short_number(statistics.histogram_edges[0]), short_number(statistics.histogram_edges[-1])
    return tag("span", drawn, class_="tm-spark", role="img", aria_label=f"histogram from {low} to {high}")


def _fewer(counts: tuple[int, ...], edges: tuple[float, ...]) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Join neighbouring bins until few enough are left to be drawn."""
    while len(counts) > MOST_BARS:
        odd = (0,) if len(counts) % 2 else ()
        padded, ends = counts + odd, edges + (edges[-1:] if odd else ())
        counts = tuple(a + b for a, b in zip(padded[::2], padded[1::2], strict=True))
        edges = ends[::2]
    return counts, edges


def _bars(counts: tuple[int, ...], edges: tuple[float, ...]) -> str:
    highest = max(counts) or 1
    labelled = sum(number > 0 for number in counts) <= FEW_BARS and highest < 1000
    ranges = (f"{short_number(low)} to {short_number(high)}" for low, high in pairwise(edges))
    return "".join(
        _bar(number, round(BAR_HEIGHT * number / highest), f"{where}: {short_count(number)}", labelled=labelled)
        for number, where in zip(counts, ranges, strict=True)
    )


def _bar(number: int, height: int, title: str, *, labelled: bool, class_: str | None = None) -> str:
    height = max(height, 1) if number else 0
    look = f"height:{height}px;background:{role('bar')}"
    if labelled and number:
        text = tag("div", short_count(number), class_="tm-count")
        return tag("td", text, tag("div", class_=class_, style=look), title=title, style="vertical-align:bottom")
    # Where there is no style sheet bars stand on one line because all are as high with the room above them.
    above = f"margin-top:{BAR_HEIGHT - height}px;" if height < BAR_HEIGHT else ""
    return tag("td", tag("div", class_=class_, style=above + look), title=title)


def _axis(statistics: Statistics, edges: tuple[float, ...], columns: int) -> str:
    ends = tag("span", escape(short_number(edges[0]))), tag("span", escape(short_number(edges[-1])))
    mean = ""
    if statistics.mean is not None and edges[-1] > edges[0]:
        at = 100 * fraction(statistics.mean, edges[0], edges[-1])
        short = len(short_number(edges[0]) + short_number(edges[-1])) <= MEAN_LABEL_ROOM
        word = "mean" if short and MEAN_LABEL[0] <= at <= MEAN_LABEL[1] else ""
        mean = f'<i style="left:{at:.0f}%" title="{escape("mean " + short_number(statistics.mean))}">{word}</i>'
    return tag("tr", tag("td", tag("div", ends[0], " ", mean, " ", ends[1], class_="tm-axis"), colspan=columns))


def _special(label: str, number: int, highest: int) -> str:
    height = BAR_HEIGHT if not highest else min(BAR_HEIGHT, max(2, round(BAR_HEIGHT * number / highest)))
    bar = _bar(number, height, f"{label}: {number}", labelled=True, class_="tm-skip")
    name = tag("tr", tag("td", escape(label), class_="tm-label"))
    return tag("table", tag("tr", bar), name, class_="tm-bars tm-special")
