"""The parameters as a table of text: shape, bars over the passes, first, last, smallest and largest norm."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tensormagic.renderers.glyphs import LEGEND, bars
from tensormagic.renderers.graph_words import shape_text
from tensormagic.renderers.phrases import plural
from tensormagic.renderers.trace_phrases import norm_text, touched
from tensormagic.renderers.trace_svg_chart import chosen, scale_of
from tensormagic.renderers.trace_text_lines import filled
from tensormagic.reports.trace import UNTOUCHED, ParameterSeries, TraceReport

_MOST = 40
_NUMBER = 8
_NAMES = (9, 32)
_BARS = (8, 40)


def parameters(report: TraceReport, width: int) -> list[str]:
    """Return the lines of the table; none where no parameter or no pass was seen."""
    if not report.parameters or not report.passes:
        return []
    shown = chosen(report.parameters, _MOST)
    scale = scale_of(shown)
    columns = _columns(shown, width, len(report.passes))
    rows = [_row(series, columns, (scale.low, scale.high)) for series in shown]
    below = [*_legend(rows, shown, columns, scale.text), *_left_out(report, shown)]
    return [_heading(report, columns), *rows, *(line for words in below for line in filled("", words, width))]


def _columns(shown: Sequence[ParameterSeries], width: int, passes: int) -> tuple[int, int, int]:
    """Return the widths of names, shapes and bars; the bars get what is left."""
    shape = max(5, *(len(shape_text(series.shape)) for series in shown))
    names = min(max(_NAMES[0], *(len(series.name) for series in shown)), _NAMES[1])
    room = width - shape - 4 * _NUMBER - 4
    wanted = min(max(passes, 17), _BARS[1])
    names = max(min(names, room - min(wanted, _BARS[0])), _NAMES[0])
    return names, shape, max(min(room - names, wanted), 0)


def _heading(report: TraceReport, columns: tuple[int, int, int]) -> str:
    names, shape, wide = columns
    first, last = report.passes[0].step, report.passes[-1].step
    left, right = f"step {first}", "" if len(report.passes) == 1 else str(last)
    steps = left + right.rjust(wide - len(left)) if len(left) + len(right) < wide else f"{first}–{last}"
    words = ("norm",) if len(report.passes) == 1 else ("first", "last", "min", "max")
    numbers = "".join(word.rjust(_NUMBER) for word in words)
    return f"{'parameter'.ljust(names)}  {'shape'.ljust(shape)}  {steps[:wide].ljust(wide)}{numbers}".rstrip()


def _row(series: ParameterSeries, columns: tuple[int, int, int], exponents: tuple[float, float]) -> str:
    names, shape, wide = columns
    came = [norm for norm in series.norms if touched(norm)]
    finite = [norm for norm in came if math.isfinite(norm)]
    inner = (min(finite), max(finite)) if finite else (UNTOUCHED, UNTOUCHED)
    told = (came[0], came[-1], *inner) if len(series.norms) > 1 and came else came
    numbers = "".join(norm_text(norm).rjust(_NUMBER) for norm in told) or "  no gradient"
    line = bars(series.norms, wide, exponents).ljust(wide) if wide else ""
    return f"{_cut(series.name, names).ljust(names)}  {shape_text(series.shape).ljust(shape)}  {line}{numbers}"


def _cut(name: str, width: int) -> str:
    """Return the end of a long name: the last part says most."""
    line = " ".join(name.split())
    return line if len(line) <= width else "…" + line[len(line) - width + 1 :]


def _legend(
    rows: Sequence[str], shown: Sequence[ParameterSeries], columns: tuple[int, int, int], scale: str
) -> Iterator[str]:
    names, shape, wide = columns
    start = names + shape + 4
    drawn = {letter for row in rows for letter in row[start : start + wide]}
    marks = [f"{letter} {words}" for letter, words in LEGEND.items() if letter in drawn]
    if wide and any(len(series.norms) > wide for series in shown):
        marks.append("a bar is the largest norm of its stretch of passes")
    yield "; ".join([f"bars from {scale}, log scale", *marks])
    if any("!" in row[start : start + wide] for row in rows):
        yield "min and max are those of the finite norms"


def _left_out(report: TraceReport, shown: Sequence[ParameterSeries]) -> Iterator[str]:
    if len(shown) < len(report.parameters):
        yield f"not shown: {plural(len(report.parameters) - len(shown), 'parameter')} more"
    if len(report.passes) < report.passes_seen:
        passes = plural(report.passes_seen, "pass", "passes")
        yield f"{len(report.passes)} of {passes} were kept; the others are not shown"
