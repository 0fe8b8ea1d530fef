"""Gradient norms of parameters as small charts: a line over the passes each, or bars where there is one pass.

All charts of a picture share one logarithmic scale, so that a parameter whose gradient is a thousand times smaller
than another's looks like it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tensormagic.renderers.basics.markup import escape
from tensormagic.renderers.basics.plain_text import fitted, text_width
from tensormagic.renderers.basics.svg_paths import Canvas, eased, hatching, number, point, polyline
from tensormagic.renderers.basics.theme import inked
from tensormagic.renderers.trace.trace_phrases import loss_text, measured, norm_text, touched
from tensormagic.reports import UNTOUCHED, ParameterSeries, TraceReport
from tensormagic.words import plural

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
_LOSS_HEIGHT, _LOG_FROM = 44.0, 30.0  # beyond this factor the scale of the loss is logarithmic


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


def scale_of(parameters: Sequence[ParameterSeries]) -> Scale:
    """Return whole decades that hold every finite norm above zero; at most twelve of them, the upper ones."""
    finite = [norm for series in parameters for norm in series.norms if norm > 0 and math.isfinite(norm)]
    if not finite:
        return Scale(-5, 1)
    high = math.ceil(math.log10(max(finite)) + 1e-9)
    low = max(math.floor(math.log10(min(finite))), high - 12)
    return Scale(min(low, high - 1), high)


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


def chart(report: TraceReport, width: float, *, most: int = MOST_CHARTS) -> tuple[str, float]:
    """Return the charts of the report's parameters as SVG content, ``width`` wide, and their height.

    Args:
        report: Whose parameters; an empty string comes back where there are none, or no pass.
        width: Pixels from the origin to the right.
        most: How many parameters to show; how many are left out is written below.
    """
    if not report.parameters or not report.passes:
        return "", 0.0
    shown = chosen(report.parameters, most)
    scale = scale_of(shown)
    subtitle = f'<tspan class="q" font-weight="400">{_subtitle(report, scale)}</tspan>'
    loss, below = _loss(report, width)
    head = f'<text class="v" x="0" y="{number(below + 11)}">Gradient norm {subtitle}</text>'
    body, height = _bars(shown, scale, width) if len(report.passes) == 1 else _lines(shown, scale, width)
    left_out = len(report.parameters) - len(shown)
    foot = ""
    if left_out:
        words = f"{plural(left_out, 'parameter')} more, not shown here"
        foot, height = f'<text class="q" x="0" y="{number(height + 12)}">{words}</text>', height + 20
    moved = f'<g transform="translate(0,{number(below + 20)})">{body}{foot}</g>'
    return f"{loss}{head}{moved}", height + below + 20


def _loss(report: TraceReport, width: float) -> tuple[str, float]:
    """Return the curve of the loss, and its height; nothing where there is none, or one pass alone."""
    losses = [one.value for one in report.passes if one.value is not None and math.isfinite(one.value)]
    words = loss_text(report)
    if len(losses) < 2 or len(losses) < len(report.passes) or not words:
        return "", 0.0
    least, most = min(losses), max(losses)
    is_log = least > 0 and most > _LOG_FROM * least
    turn: Callable[[float], float] = math.log10 if is_log else float
    low, span = turn(least), turn(most) - turn(least)
    step = (width - 6) / (len(losses) - 1)
    places = [(3 + at * step, turn(loss)) for at, loss in _thinned(losses, _FEW_POINTS)]
    points = [
        (round(x), round(_LABEL_HEIGHT + 4 + (1 - ((y - low) / span if span else 0.5)) * (_LOSS_HEIGHT - 8), 1))
        for x, y in places
    ]
    canvas = Canvas()
    canvas.path("bg", f"M{point(0, _LABEL_HEIGHT)}h{number(width)}v{number(_LOSS_HEIGHT)}h-{number(width)}z")
    canvas.path("lo", polyline(eased(points)))
    scale = '<tspan class="q" font-weight="400">, log scale</tspan>' if is_log else ""
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
    last, bad = _last(series), is_bad(series)
    value = "no gradient" if last == UNTOUCHED else norm_text(last)
    name = fitted(series.name, width - text_width(value, 10.5, bold=True) - 10, 10.5)
    canvas.text("", x, y + 10, name)
    canvas.text("e v r" if bad else "e v", x + width, y + 10, value)
    _curve(canvas, series, scale, (x, y + _LABEL_HEIGHT, width, most))


def _last(series: ParameterSeries) -> float:
    return next((norm for norm in reversed(series.norms) if touched(norm)), UNTOUCHED)


def _curve(canvas: Canvas, series: ParameterSeries, scale: Scale, place: tuple[float, float, float, int]) -> None:
    left, top, width, most = place
    step = (width - 6) / max(len(series.norms) - 1, 1)
    runs: list[list[tuple[float, float]]] = [[]]
    marks = []
    for at, norm in _thinned(series.norms, most):
        x = left + 3 + at * step
        if not math.isfinite(norm):
            marks.append(x)
            runs.append([])
        elif measured(norm):
            runs[-1].append((round(x), round(top + 3 + (1 - scale.share(norm)) * (_HEIGHT - 6), 1)))
    for run in runs:
        if run:
            canvas.path("p", polyline(eased(run)) if len(run) > 1 else _dot(run[0]))
    _bad_stretch(canvas, marks, (left, top), max(step, 5.0))


def _dot(at: tuple[float, float]) -> str:
    """Return a diamond: one pass between others that were not finite."""
    return f"M{point(at[0] - 1.5, at[1])}l1.5-1.5 1.5 1.5-1.5 1.5z"


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
    parts = [
        f'<g transform="translate({point(at // rows * (wide + _GAP), at % rows * _BAR_HEIGHT)})">'
        f"{_bar(series, scale, names, wide)}</g>"
        for at, series in enumerate(shown)
    ]
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
