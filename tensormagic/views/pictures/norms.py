"""Gradient norms of parameters over the passes: small charts, rows of bars in a terminal, tables in a page.

A chart is a line over the passes, or a bar where there is one pass. All charts of a picture share one logarithmic
scale, so that a parameter whose gradient is a thousand times smaller than another's looks like it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tensormagic.reports import UNTOUCHED, ParameterSeries, TraceReport
from tensormagic.views import to_html
from tensormagic.views.graph.words import shape_text, whole_shape
from tensormagic.views.markup import escape, fitted, text_width
from tensormagic.views.nodes import Column, Picture, Section, Table
from tensormagic.views.panels.trace_words import (
    NOT_MEASURABLE,
    last_move,
    last_used,
    loss_text,
    measured,
    move_text,
    norm_text,
    pass_context_text,
    touched,
)
from tensormagic.views.pictures.graph_svg import styled
from tensormagic.views.svg_paths import Canvas, eased, hatching, moved, number, point, polyline
from tensormagic.views.text_canvas import LEGEND, bar, bars, columns_of, printable, wrapped
from tensormagic.views.theme import inked
from tensormagic.words import plural, seconds_text, short_number

_MOST_ROWS, _MOST_PASSES = 16, 8  # of the tables


@dataclass(frozen=True, slots=True)
class Norms(Picture):
    """The norms of a run's parameters, and the curve of its loss (a traced run)."""

    report: TraceReport

    def html(self) -> str:
        """Return the parameters and the last passes as tables."""
        return to_html.html(_parameter_table(self.report)) + to_html.html(_pass_table(self.report))

    def text(self, width: int) -> Iterator[str]:
        """Yield a line for each parameter: shape, bars over the passes, first, last, smallest and largest norm."""
        if not self.report.parameters or not self.report.passes:
            return
        shown = chosen(self.report.parameters, _MOST)
        scale, columns = scale_of(_norms(shown)), _columns(shown, width, len(self.report.passes))
        yield _heading(self.report, columns)
        yield from (_row(series, columns, scale) for series in shown)
        for words in (*_legend(self.report, shown, columns, scale.text), *_left_out(self.report, shown, columns)):
            yield from wrapped(words, width)

    def svg(self, width: float) -> tuple[str, float]:
        """Return the loss and the charts below one another; nothing where no pass was kept."""
        content, height = _chart(self.report, width)
        return (styled(content, STYLE), height) if content else ("", 0.0)


# -- as tables --------------------------------------------------------------------------------------------------------


def _parameter_table(report: TraceReport) -> Section:
    shown = report.parameters[:_MOST_ROWS]
    names = ["parameter", "shape", "dtype", "passes", "first", "last", "smallest", "largest"]
    rows = [_parameter_row(parameter) for parameter in shown]
    used = [last_used(parameter)[1] for parameter in shown]
    further = (
        ("last update", [move_text(last_move(parameter)) for parameter in shown]),
        ("last step used", [norm_text(norm) if touched(norm) else "" for norm in used]),
    )
    for name, cells in further:
        if any(cells):
            names.append(name)
            rows = [(*row, cell) for row, cell in zip(rows, cells, strict=True)]
    number = plural(len(report.parameters), "parameter")
    number = number if len(rows) == len(report.parameters) else f"{len(rows)} of {number}"
    return Section(f"Gradient norms of {number}", [Table([*map(Column, names)], rows)])


def _parameter_row(parameter: ParameterSeries) -> tuple[str, ...]:
    norms = [norm for norm in parameter.norms if touched(norm)]
    plain = (parameter.name, whole_shape(parameter.shape), parameter.dtype, str(parameter.touched))
    if not parameter.requires_grad:
        return (*plain, "frozen", "", "", "")
    if not norms:
        return (*plain, "none" if parameter.used else "unused", "", "", "")
    if not any(map(measured, norms)):
        return (*plain, NOT_MEASURABLE, NOT_MEASURABLE, "", "")
    finite = [norm for norm in norms if math.isfinite(norm) and measured(norm)] or [math.nan]
    return (*plain, *map(norm_text, (norms[0], norms[-1], min(finite), max(finite))))


def _pass_table(report: TraceReport) -> Section:
    rows = []
    for one in report.passes[-_MOST_PASSES:]:
        place = report.location(one.location)
        outcome = ", ".join(filter(None, (one.outcome, pass_context_text(report, one))))
        loss = short_number(one.value) if one.value is not None else ""
        numbers = str(one.number), str(one.step), str(one.graph), outcome, seconds_text(one.seconds), str(one.reached)
        rows.append((*numbers, loss, "yes" if one.finite else "no", place.label if place else ""))
    seen = report.passes_traced + report.inner_passes_seen
    title = f"{len(rows)} of {plural(seen, 'pass', 'passes')}, the last ones" if seen > len(rows) else "Passes"
    names = ("pass", "step", "graph", "outcome", "time", "nodes reached", "loss", "all finite", "line")
    return Section(title, [Table([*map(Column, names)], rows)])


# -- as SVG -----------------------------------------------------------------------------------------------------------

MOST_CHARTS = 12
STYLE = inked(
    ".tms .p{fill:none;stroke:$n4;stroke-width:1.3;stroke-linejoin:round}.tms .d{fill:$n4}"
    ".tms .z{fill:$bg;stroke:$n4}.tms .bg{fill:$skip}.tms .g{stroke:$line}.tms .v{font-weight:600}"
    ".tms .lo{fill:none;stroke:$ink;stroke-width:1.5;stroke-linejoin:round}"
)

_HEIGHT, _LABEL_HEIGHT, _GAP, _NARROWEST = 26.0, 16.0, 12.0, 205.0
_MOST_POINTS = 60  # a chart is some 200 pixels wide
_FEW_POINTS, _MANY_CHARTS = 32, 8  # of many charts each has fewer: the picture is not compressed
_BAR_HEIGHT = 17.0
_LOSS_HEIGHT = 44.0


@dataclass(frozen=True, slots=True)
class Scale:
    """A logarithmic axis, in whole decades: the exponents at its ends."""

    low: int
    high: int

    def share(self, norm: float) -> float:
        """Return where on the axis a norm lies, 0 to 1; zero lies at the low end."""
        if norm <= 0:
            return 0.0
        return min(max((math.log10(norm) - self.low) / (self.high - self.low), 0.0), 1.0)

    @property
    def text(self) -> str:
        """The two ends, as they are labelled."""
        return f"{norm_text(10.0**self.low)} to {norm_text(10.0**self.high)}"


def scale_of(norms: Iterable[float]) -> Scale:
    """Return whole decades that hold every finite norm above zero; at most twelve of them, the upper ones."""
    finite = [norm for norm in norms if norm > 0 and math.isfinite(norm)]
    if not finite:
        return Scale(-5, 1)
    high = math.ceil(math.log10(max(finite)) + 1e-9)
    low = max(math.floor(math.log10(min(finite))), high - 12)
    return Scale(min(low, high - 1), high)


def _norms(parameters: Sequence[ParameterSeries]) -> list[float]:
    return [norm for series in parameters for norm in series.norms]


def is_bad(series: ParameterSeries) -> bool:
    """Say whether a gradient of it was not finite."""
    return not all(map(math.isfinite, series.norms))


def chosen(parameters: Sequence[ParameterSeries], most: int = MOST_CHARTS) -> list[ParameterSeries]:
    """Return at most ``most`` parameters, in the report's order as far as all fit.

    Else NaN and Inf come first, then those without gradient, then the others. Models that got no gradient at all, a
    teacher or a frozen encoder, stand last.
    """
    taught = {series.owner for series in parameters if series.touched} | {""}
    if len(parameters) <= most:
        return sorted(parameters, key=lambda series: series.owner not in taught)
    ranks = {id(series): (series.owner not in taught, not is_bad(series), series.touched > 0) for series in parameters}
    return sorted(parameters, key=lambda series: ranks[id(series)])[:most]


def _chart(report: TraceReport, width: float) -> tuple[str, float]:
    """Return the charts of a report's parameters, and their height; how many are left out is written below them."""
    if not report.parameters or not report.passes:
        return "", 0.0
    shown = chosen(report.parameters)
    scale = scale_of(_norms(shown))
    subtitle = f'<tspan class="q" font-weight="400">{_subtitle(report, scale)}</tspan>'
    loss, below = _loss(report, width)
    head = f'<text class="v" x="0" y="{number(below + 11)}">Gradient norm {subtitle}</text>'
    body, height = _bars(shown, scale, width) if len(report.passes) == 1 else _lines(shown, scale, width)
    foot = ""
    if left_out := len(report.parameters) - len(shown):
        words = f"{plural(left_out, 'parameter')} more, not shown here"
        foot, height = f'<text class="q" x="0" y="{number(height + 12)}">{words}</text>', height + 20
    return f"{loss}{head}{moved(0, below + 20, body, foot)}", height + below + 20


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


def loss_scale(losses: Iterable[float | None]) -> LossScale | None:
    """Return a scale that holds every finite loss; None where there is none."""
    values = [value for value in losses if value is not None and math.isfinite(value)]
    if not values:
        return None
    low, high = min(values), max(values)
    return LossScale(low, high, low > 0 and high > _LOG_FROM * low)


def _loss(report: TraceReport, width: float) -> tuple[str, float]:
    """Return the curve of the loss, and its height; nothing where there is none, or one pass alone."""
    losses = [one.value for one in report.passes if one.value is not None and math.isfinite(one.value)]
    words, loss_axis = loss_text(report), loss_scale(losses)
    if len(losses) < 2 or len(losses) < len(report.passes) or not words or loss_axis is None:
        return "", 0.0
    step = (width - 6) / (len(losses) - 1)
    points = [
        (round(3 + at * step), round(_LABEL_HEIGHT + 4 + (1 - loss_axis.share(loss)) * (_LOSS_HEIGHT - 8), 1))
        for at, loss in _thinned(losses, _FEW_POINTS)
    ]
    canvas = Canvas()
    canvas.path("bg", f"M{point(0, _LABEL_HEIGHT)}h{number(width)}v{number(_LOSS_HEIGHT)}h-{number(width)}z")
    canvas.path("lo", polyline(eased(points)))
    scale = '<tspan class="q" font-weight="400">, log scale</tspan>' if loss_axis.logarithmic else ""
    head = f'<text class="v" x="0" y="11">{words[0].upper()}{escape(words[1:])}{scale}</text>'
    return head + canvas.svg(), _LABEL_HEIGHT + _LOSS_HEIGHT + 12


def _subtitle(report: TraceReport, scale: Scale) -> str:
    if len(report.passes) == 1:
        return f"per parameter, log scale {scale.text}"
    first, last = report.passes[0].step, report.passes[-1].step
    thinned = len(report.passes) < report.passes_traced
    kept = f", {len(report.passes)} of {report.passes_traced} passes kept" if thinned else ""
    return f"per parameter, step {first} to {last}, log scale {scale.text}{kept}"


def _lines(shown: Sequence[ParameterSeries], scale: Scale, width: float) -> tuple[str, float]:
    columns = max(1, min(int((width + _GAP) // (_NARROWEST + _GAP)), len(shown)))
    wide, tall = min((width + _GAP) / columns - _GAP, 300.0), _LABEL_HEIGHT + _HEIGHT + 10
    ground, canvas = Canvas(), Canvas()
    most = _MOST_POINTS if len(shown) <= _MANY_CHARTS else _FEW_POINTS
    for at, series in enumerate(shown):
        x, y = round(at % columns * (wide + _GAP)), at // columns * tall
        ground.path("bg", f"M{point(x, y + _LABEL_HEIGHT)}h{number(wide)}v{number(_HEIGHT)}h-{number(wide)}z")
        _spark(canvas, series, scale, (x, y, wide, most))
    return ground.svg() + canvas.svg(), math.ceil(len(shown) / columns) * tall


def _spark(canvas: Canvas, series: ParameterSeries, scale: Scale, place: tuple[float, float, float, int]) -> None:
    """Draw one parameter's chart at x, y, so wide, of so many points: name, last norm, and the line over the passes."""
    x, y, width, most = place
    last = next((norm for norm in reversed(series.norms) if touched(norm)), UNTOUCHED)
    bad = is_bad(series)
    value = "no gradient" if last == UNTOUCHED else norm_text(last)
    name = fitted(series.name, width - text_width(value, 10.5, bold=True) - 10, 10.5)
    canvas.text("", x, y + 10, name)
    canvas.text("e v r" if bad else "e v", x + width, y + 10, value)
    top, step = y + _LABEL_HEIGHT, (width - 6) / max(len(series.norms) - 1, 1)
    runs: list[list[tuple[float, float]]] = [[]]
    marks = []
    for at, norm in _thinned(series.norms, most):
        across = x + 3 + at * step
        if not math.isfinite(norm):
            marks.append(across)
            runs.append([])
        elif measured(norm):
            runs[-1].append((round(across), round(top + 3 + (1 - scale.share(norm)) * (_HEIGHT - 6), 1)))
    for run in filter(None, runs):
        (across, high), *more = run  # one point alone is a diamond: a pass between others that were not finite
        diamond = f"M{point(across - 1.5, high)}l1.5-1.5 1.5 1.5-1.5 1.5z"
        canvas.path("p", polyline(eased(run)) if more else diamond)
    _bad_stretch(canvas, marks, (x, top), max(step, 5.0))


def _bad_stretch(canvas: Canvas, places: Sequence[float], corner: tuple[float, float], step: float) -> None:
    """Hatch the passes that were not finite; neighbours share one hatched piece."""
    pieces: list[list[float]] = []
    for x in places:
        if pieces and x - pieces[-1][1] <= step * 1.5:
            pieces[-1][1] = x
        else:
            pieces.append([x, x])
    for first, last in pieces:
        left, wide, top = max(first - 4, corner[0]), last - first + 7, corner[1]
        canvas.path("b sbad", f"M{point(left, top + 0.5)}h{number(wide)}v{number(_HEIGHT - 1)}h-{number(wide)}z")
        for y in (1.0, 6.0, 11.0, 16.0, 20.0):
            canvas.path("h", hatching(left, top + y, wide, 5, 5))


def _thinned(norms: Sequence[float], most: int) -> list[tuple[int, float]]:
    """Return (place, norm) pairs; of a long series the smallest and largest of every stretch, and all non-finite."""
    if len(norms) <= most:
        return list(enumerate(norms))
    kept: set[int] = {0, len(norms) - 1}
    stretches = most // 2
    for number_ in range(stretches):
        places = range(len(norms) * number_ // stretches, len(norms) * (number_ + 1) // stretches)
        finite = [at for at in places if math.isfinite(norms[at]) and measured(norms[at])]
        kept.update(at for at in places if not math.isfinite(norms[at]))
        kept.update({min(finite, key=norms.__getitem__), max(finite, key=norms.__getitem__)} if finite else ())
    return [(at, norms[at]) for at in sorted(kept)]


def _bars(shown: Sequence[ParameterSeries], scale: Scale, width: float) -> tuple[str, float]:
    names = min(max(text_width(series.name, 10.5) for series in shown) + 10, width * 0.4)
    columns = 2 if len(shown) > 6 and width > 700 else 1
    rows, wide = math.ceil(len(shown) / columns), (width + _GAP) / columns - _GAP
    parts = (
        moved(at // rows * (wide + _GAP), at % rows * _BAR_HEIGHT, _bar(series, scale, names, wide))
        for at, series in enumerate(shown)
    )
    return "".join(parts), rows * _BAR_HEIGHT + 6


def _bar(series: ParameterSeries, scale: Scale, names: float, width: float) -> str:
    norm = series.norms[0]
    room = width - names - 66
    text = f'<text x="0" y="11">{escape(fitted(series.name, names - 8, 10.5))}</text>'
    ground = f'<rect class="bg" x="{number(names)}" y="2" width="{number(room)}" height="11"/>'
    if not measured(norm):
        words = norm_text(norm) if touched(norm) else "no gradient"
        return f'{text}{ground}<text class="q" x="{number(names + room + 8)}" y="11">{words}</text>'
    if math.isfinite(norm):
        long = number(max(room * scale.share(norm), 1.5))
        bar = f'<rect class="d" x="{number(names)}" y="2" width="{long}" height="11"/>'
    else:
        bar = f'<path class="h" d="{hatching(names, 2, room, 11, 7)}"/>'
    ink = "v" if math.isfinite(norm) else "v r"
    return f'{text}{ground}{bar}<text class="{ink}" x="{number(names + room + 8)}" y="11">{norm_text(norm)}</text>'


# -- as text ----------------------------------------------------------------------------------------------------------

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


def _columns(shown: Sequence[ParameterSeries], width: int, passes: int) -> _Columns:
    """Return the columns; the bars get what is left, and in a narrow terminal only the last norm is shown."""
    numbers = ("norm",) if passes == 1 else _NUMBERS if width >= _NARROW else ("last",)
    if width >= _NARROW and any(touched(last_move(series)) for series in shown):
        numbers = (*numbers, _MOVE)
    if width >= _NARROW and any(touched(last_used(series)[1]) for series in shown):
        numbers = (*numbers, _USED)
    shape = max(5, *(len(shape_text(series.shape)) for series in shown))
    wanted = max(_NAMES[0], *(columns_of(series.name) for series in shown))
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
    written = ("from 0" if word == _MOVE and number == math.inf else norm_text(number)
               for word in columns.numbers for number in [described.get(word, UNTOUCHED)])  # fmt: skip
    numbers = "".join(each.rjust(_NUMBER) for each in written)
    if not described:  # there is no norm
        one = len(columns.numbers) == 1
        if any(map(touched, series.norms)):
            numbers = "?".rjust(_NUMBER) if one else f"  {NOT_MEASURABLE}"
        else:
            numbers = numbers if one else _NONE
    line = bars(series.norms, columns.bars, (scale.low, scale.high)).ljust(columns.bars) if columns.bars else ""
    lead = f"{_cut(series.name, columns.names)}  {shape_text(series.shape).ljust(columns.shape)}"
    return f"{lead}  {line}{numbers}".rstrip()


def _numbers(series: ParameterSeries) -> dict[str, float]:
    """Return the numbers by the words above their columns; none where no gradient came."""
    came = [norm for norm in series.norms if measured(norm)]
    if not came:
        return {}
    finite = [norm for norm in came if math.isfinite(norm)] or [UNTOUCHED]
    ends = {"norm": came[-1], "first": came[0], "last": came[-1], "min": min(finite), "max": max(finite)}
    return {**ends, _MOVE: last_move(series), _USED: last_used(series)[1]}


def _cut(name: str, width: int) -> str:
    """Return a name in so many columns, the end of a long one: the last part says most."""
    line = printable(" ".join(name.split()))
    while columns_of(line) > width:
        line = "\u2026" + line[2 if line[0] == "\u2026" else 1 :]
    return line + " " * (width - columns_of(line))


def _legend(report: TraceReport, shown: Sequence[ParameterSeries], columns: _Columns, scale: str) -> Iterator[str]:
    norms = _norms(shown)
    marks = [f"{letter} {words}" for letter, words in LEGEND.items() if letter in {bar(norm) for norm in norms}]
    if columns.bars and any(len(series.norms) > columns.bars for series in shown):
        marks.append("each bar is the largest norm in its passes")
    yield "; ".join([f"bars from {scale}, log scale", *marks])
    if _MOVE in columns.numbers:
        measured_at = [[at for at, ratio in enumerate(series.updates) if touched(ratio)] for series in shown]
        passes = sorted({report.passes[places[-1]].number for places in measured_at if places})
        step = f"the optimizer's step after pass {' to '.join(map(str, dict.fromkeys((passes[0], passes[-1]))))}"
        yield f"{_MOVE}: how far {step} changed it, relative to its norm"
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
