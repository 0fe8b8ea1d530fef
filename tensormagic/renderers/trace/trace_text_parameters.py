"""The parameters as a table of text: shape, bars over the passes, first, last, smallest and largest norm."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tensormagic.renderers.graph.words import shape_text
from tensormagic.renderers.terminal.text_canvas import LEGEND, bar, bars
from tensormagic.renderers.trace.parallel_phrases import last_used
from tensormagic.renderers.trace.trace_phrases import NOT_MEASURABLE, last_move, measured, norm_text, touched
from tensormagic.renderers.trace.trace_svg_chart import Scale, chosen, scale_of
from tensormagic.renderers.trace.trace_text_lines import filled
from tensormagic.reports import UNTOUCHED, ParameterSeries, TraceReport
from tensormagic.words import plural

_MOST = 40
_NUMBER = 8
_NUMBERS = ("first", "last", "min", "max")
_NONE = "  no gradient"
_NARROW = 64
_MOVE = "Δw/w"
_USED = "used"
_NAMES = (9, 32)
_BARS = (8, 40)


@dataclass(frozen=True, slots=True)
class _Columns:
    """How wide names, shapes and bars are, and which numbers follow."""

    names: int
    shape: int
    bars: int
    numbers: tuple[str, ...]


def parameters(report: TraceReport, width: int) -> list[str]:
    """Return the lines of the table; none where no parameter or no pass was seen."""
    if not report.parameters or not report.passes:
        return []
    shown = chosen(report.parameters, _MOST)
    scale = scale_of(shown)
    columns = _columns(shown, width, len(report.passes))
    rows = [_row(series, columns, scale) for series in shown]
    below = [*_legend(shown, columns, scale.text), *_left_out(report, shown, columns)]
    return [_heading(report, columns), *rows, *(line for words in below for line in filled("", words, width))]


def _columns(shown: Sequence[ParameterSeries], width: int, passes: int) -> _Columns:
    """Return the columns; the bars get what is left, and in a narrow terminal only the last norm is told."""
    numbers = ("norm",) if passes == 1 else _NUMBERS if width >= _NARROW else ("last",)
    if width >= _NARROW and any(touched(last_move(series)) for series in shown):
        numbers = (*numbers, _MOVE)
    if width >= _NARROW and any(touched(last_used(series)[1]) for series in shown):
        numbers = (*numbers, _USED)
    shape = max(5, *(len(shape_text(series.shape)) for series in shown))
    wanted = max(_NAMES[0], *(len(series.name) for series in shown))
    room = width - shape - len(numbers) * _NUMBER - 4
    names = max(min(wanted, _NAMES[1], room - _BARS[0]), _NAMES[0])
    return _Columns(names, shape, max(min(room - names, max(passes, 17), _BARS[1]), 0), numbers)


def _heading(report: TraceReport, columns: _Columns) -> str:
    first, last = report.passes[0].step, report.passes[-1].step
    left, right = f"step {first}", "" if len(report.passes) == 1 else str(last)
    fits = len(left) + len(right) < columns.bars
    steps = left + right.rjust(columns.bars - len(left)) if fits else f"{first}–{last}"[: columns.bars]
    numbers = "".join(word.rjust(_NUMBER) for word in columns.numbers)
    lead = f"{'parameter'.ljust(columns.names)}  {'shape'.ljust(columns.shape)}"
    return f"{lead}  {steps.ljust(columns.bars)}{numbers}".rstrip()


def _row(series: ParameterSeries, columns: _Columns, scale: Scale) -> str:
    described = _numbers(series)
    numbers = "".join(_number(word, described.get(word, UNTOUCHED)).rjust(_NUMBER) for word in columns.numbers)
    line = bars(series.norms, columns.bars, (scale.low, scale.high)).ljust(columns.bars) if columns.bars else ""
    lead = f"{_cut(series.name, columns.names).ljust(columns.names)}  {shape_text(series.shape).ljust(columns.shape)}"
    return (
        f"{lead}  {line}{numbers if described else _without(series, numbers, one=len(columns.numbers) == 1)}".rstrip()
    )


def _number(word: str, number: float) -> str:
    return "from 0" if word == _MOVE and number == math.inf else norm_text(number)


def _without(series: ParameterSeries, numbers: str, *, one: bool) -> str:
    """Return what stands in the place of the numbers where there is no norm."""
    if any(map(touched, series.norms)):
        return "?".rjust(_NUMBER) if one else f"  {NOT_MEASURABLE}"
    return numbers if one else _NONE


def _numbers(series: ParameterSeries) -> dict[str, float]:
    """Return the numbers by the words above their columns; none where no gradient came."""
    came = [norm for norm in series.norms if measured(norm)]
    finite = [norm for norm in came if math.isfinite(norm)] or [UNTOUCHED]
    described = {"norm": came[-1:], "first": came[:1], "last": came[-1:], "min": [min(finite)], "max": [max(finite)]}
    used = last_used(series)[1]
    return (
        {**{word: norms[0] for word, norms in described.items()}, _MOVE: last_move(series), _USED: used} if came else {}
    )


def _cut(name: str, width: int) -> str:
    """Return the end of a long name: the last part says most."""
    line = " ".join(name.split())
    return line if len(line) <= width else "…" + line[len(line) - width + 1 :]


def _legend(shown: Sequence[ParameterSeries], columns: _Columns, scale: str) -> Iterator[str]:
    norms = [norm for series in shown for norm in series.norms]
    marks = [f"{letter} {words}" for letter, words in LEGEND.items() if letter in {bar(norm) for norm in norms}]
    if columns.bars and any(len(series.norms) > columns.bars for series in shown):
        marks.append("each bar is the largest norm in its passes")
    yield "; ".join([f"bars from {scale}, log scale", *marks])
    if _MOVE in columns.numbers:
        yield f"{_MOVE}: how far the last measured step of the optimizer changed it, relative to its norm"
    if _USED in columns.numbers:
        yield f"{_USED}: the norm of the gradient used by the last measured optimizer step, reduced over the ranks"
    if "min" in columns.numbers and not all(map(math.isfinite, norms)):
        yield "min and max are over finite norms"


def _left_out(report: TraceReport, shown: Sequence[ParameterSeries], columns: _Columns) -> Iterator[str]:
    if len(shown) < len(report.parameters):
        yield f"not shown: {plural(len(report.parameters) - len(shown), 'parameter')} more"
    if columns.numbers == ("last",):
        yield "not shown at this width: first, smallest and largest norm"
    if len(report.passes) < report.passes_traced:
        passes = plural(report.passes_traced, "pass", "passes")
        yield f"{len(report.passes)} of {passes} were kept and are shown"
