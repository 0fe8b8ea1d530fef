"""Curves over the passes of a run: the gradient norms of its parameters, its loss, the losses of two runs.

Norms are small charts, rows of bars in a terminal, tables in a page. A chart is a line over the passes, or a bar where
there is one pass. All charts of a picture share one logarithmic scale, so that a parameter whose gradient is a thousand
times smaller than another's looks like it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tensormagic.reports import UNTOUCHED, ParameterSeries, TraceReport
from tensormagic.reports.comparison import ComparisonReport, LossPair
from tensormagic.views import to_html
from tensormagic.views.graph.words import shape_text, whole_shape
from tensormagic.views.markup import escape, fitted, svg_image, tag, text_width
from tensormagic.views.nodes import Column, Picture, Section, Table
from tensormagic.views.panels import trace_words
from tensormagic.views.panels.trace_words import NOT_MEASURABLE, last_move, last_used, measured, norm_text, touched
from tensormagic.views.pictures.graph_svg import styled
from tensormagic.views.svg_paths import Canvas, document, eased, hatching, moved, number, point, polyline
from tensormagic.views.text_canvas import LEGEND, bar, bars, columns_of, printable, wrapped
from tensormagic.views.theme import MIXED_COLOUR, RUN_COLOURS, inked
from tensormagic.views.to_svg import legend_svg, text_svg
from tensormagic.words import plural, seconds_text, short_number, shortened

_MOST_ROWS, _MOST_PASSES = 16, 8  # of the tables


@dataclass(frozen=True, slots=True)
class Norms(Picture):
    """The norms of a run's parameters, and the curve of its loss (a traced run)."""

    report: TraceReport

    def html(self) -> str:
        """Return the parameters and the last passes as tables."""
        report, rows = self.report, []
        for one in report.passes[-_MOST_PASSES:]:
            place = report.location(one.location)
            outcome = ", ".join(filter(None, (one.outcome, trace_words.pass_context_text(report, one))))
            loss = short_number(one.value) if one.value is not None else ""
            numbers = (one.number, one.step, one.graph, outcome, seconds_text(one.seconds), one.reached)
            rows.append((*map(str, numbers), loss, "yes" if one.finite else "no", place.label if place else ""))
        seen = report.passes_traced + report.inner_passes_seen
        title = f"{len(rows)} of {plural(seen, 'pass', 'passes')}, the last ones" if seen > len(rows) else "Passes"
        names = ("pass", "step", "graph", "outcome", "time", "nodes reached", "loss", "all finite", "line")
        return to_html.html(_parameter_table(report)) + to_html.html(
            Section(title, [Table([*map(Column, names)], rows)])
        )

    def text(self, width: int) -> Iterator[str]:
        """Yield a line for each parameter: shape, bars over the passes, first, last, smallest and largest norm."""
        report = self.report
        if not report.parameters or not report.passes:
            return
        shown, passes = chosen(report.parameters, _MOST), len(report.passes)
        scale, numbers = scale_of(_norms(shown)), _wanted(shown, width, passes)
        shape = max(5, *(len(shape_text(series.shape)) for series in shown))
        room = width - shape - len(numbers) * _NUMBER - 4
        longest = max(_NAMES[0], *(columns_of(series.name) for series in shown))
        names = max(min(longest, _NAMES[1], room - _BARS[0]), _NAMES[0])
        wide = max(min(room - names, max(passes, 17), _BARS[1]), 0)  # the bars get what is left
        first, last = report.passes[0].step, report.passes[-1].step
        left, right = f"step {first}", "" if passes == 1 else str(last)
        fits = len(left) + len(right) < wide
        steps = left + right.rjust(wide - len(left)) if fits else f"{first}–{last}"[:wide]
        head = f"{'parameter'.ljust(names)}  {'shape'.ljust(shape)}  {steps.ljust(wide)}"
        yield f"{head}{''.join(word.rjust(_NUMBER) for word in numbers)}".rstrip()
        for series in shown:
            name = printable(" ".join(series.name.split()))
            while columns_of(name) > names:  # the last part says most
                name = "\u2026" + name[2 if name[0] == "\u2026" else 1 :]
            drawn = bars(series.norms, wide, (scale.low, scale.high)).ljust(wide) if wide else ""
            lead = f"{name}{' ' * (names - columns_of(name))}  {shape_text(series.shape).ljust(shape)}"
            yield f"{lead}  {drawn}{_numbers(series, numbers)}".rstrip()
        legend = _legend(report, shown, numbers, wide)
        for words in (f"bars from {scale.text}, log scale{next(legend)}", *legend):
            yield from wrapped(words, width)

    def svg(self, width: float) -> tuple[str, float]:
        """Return the loss, the charts of the parameters below it, and how many are left out.

        There is no curve of the loss where there is one pass alone; nothing where no pass was kept.
        """
        report, passes, drawn, below = self.report, self.report.passes, "", 0.0
        if not report.parameters or not passes:
            return "", 0.0
        shown = chosen(report.parameters)
        scale = scale_of(_norms(shown))
        losses = [one.value for one in passes if one.value is not None and math.isfinite(one.value)]
        words, axis = trace_words.loss_text(report), loss_scale(losses)
        if len(passes) <= len(losses) > 1 and words and axis is not None:
            log = '<tspan class="q" font-weight="400">, log scale</tspan>' if axis.logarithmic else ""
            caption = f'<text class="v" x="0" y="11">{words[0].upper()}{escape(words[1:])}{log}</text>'
            step, canvas = (width - 6) / (len(losses) - 1), Canvas()
            points = [(round(3 + at * step), round(_LABEL_HEIGHT + 4 + (1 - axis.share(loss)) * (_LOSS_HEIGHT - 8), 1))
                      for at, loss in _thinned(losses, _FEW_POINTS)]  # fmt: skip
            canvas.path("bg", f"M{point(0, _LABEL_HEIGHT)}h{number(width)}v{number(_LOSS_HEIGHT)}h-{number(width)}z")
            canvas.path("lo", polyline(eased(points)))
            drawn, below = caption + canvas.svg(), _LABEL_HEIGHT + _LOSS_HEIGHT + 12
        span, kept = f", step {passes[0].step} to {passes[-1].step}", ""
        if 1 < len(passes) < report.passes_traced:
            kept = f", {len(passes)} of {report.passes_traced} passes kept"
        subtitle = f"per parameter{span if len(passes) > 1 else ''}, log scale {scale.text}{kept}"
        head = f'Gradient norm <tspan class="q" font-weight="400">{subtitle}</tspan>'
        body, height = (_bars if len(passes) == 1 else _lines)(shown, scale, width)
        if left_out := len(report.parameters) - len(shown):
            words = f"{plural(left_out, 'parameter')} more, not shown here"
            body, height = f'{body}<text class="q" x="0" y="{number(height + 12)}">{words}</text>', height + 20
        caption = f'<text class="v" x="0" y="{number(below + 11)}">{head}</text>'
        return styled(f"{drawn}{caption}{moved(0, below + 20, body)}", STYLE), height + below + 20


def _ends(norms: Iterable[float]) -> tuple[float, float, float, float]:
    """Return the first and the last norm that was measured, the smallest and the largest that are finite."""
    came = list(filter(measured, norms))
    finite = list(filter(math.isfinite, came)) or [UNTOUCHED]
    return came[0], came[-1], min(finite), max(finite)


def _parameter_table(report: TraceReport) -> Section:
    shown, rows = report.parameters[:_MOST_ROWS], list[tuple[str, ...]]()
    for parameter in shown:
        norms = list(filter(touched, parameter.norms))
        ends: tuple[str, ...] = ("none" if parameter.used else "unused", "", "", "")
        if not parameter.requires_grad:
            ends = ("frozen", "", "", "")
        elif norms:
            ends = tuple(map(norm_text, _ends(norms))) if any(map(measured, norms)) else (*[NOT_MEASURABLE] * 2, "", "")
        rows.append((parameter.name, whole_shape(parameter.shape), parameter.dtype, str(parameter.touched), *ends))
    names = ["parameter", "shape", "dtype", "passes", "first", "last", "smallest", "largest"]
    used = [last_used(parameter)[1] for parameter in shown]
    updates = [trace_words.move_text(last_move(parameter)) for parameter in shown]
    steps = [norm_text(norm) if touched(norm) else "" for norm in used]
    for name, cells in (("last update", updates), ("last step used", steps)):
        if any(cells):
            names.append(name)
            rows = [(*row, cell) for row, cell in zip(rows, cells, strict=True)]
    number = plural(len(report.parameters), "parameter")
    number = number if len(rows) == len(report.parameters) else f"{len(rows)} of {number}"
    return Section(f"Gradient norms of {number}", [Table([*map(Column, names)], rows)])


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


def _lines(shown: Sequence[ParameterSeries], scale: Scale, width: float) -> tuple[str, float]:
    """Return a chart for each parameter: name, last norm, and the line over the passes."""
    columns = max(1, min(int((width + _GAP) // (_NARROWEST + _GAP)), len(shown)))
    wide, tall = min((width + _GAP) / columns - _GAP, 300.0), _LABEL_HEIGHT + _HEIGHT + 10
    ground, canvas = Canvas(), Canvas()
    most = _MOST_POINTS if len(shown) <= _MANY_CHARTS else _FEW_POINTS
    for place, series in enumerate(shown):
        x, y = round(place % columns * (wide + _GAP)), place // columns * tall
        top, step = y + _LABEL_HEIGHT, (wide - 6) / max(len(series.norms) - 1, 1)
        ground.path("bg", f"M{point(x, top)}h{number(wide)}v{number(_HEIGHT)}h-{number(wide)}z")
        last = next((norm for norm in reversed(series.norms) if touched(norm)), UNTOUCHED)
        value = "no gradient" if last == UNTOUCHED else norm_text(last)
        canvas.text("", x, y + 10, fitted(series.name, wide - text_width(value, 10.5, bold=True) - 10, 10.5))
        canvas.text("e v r" if is_bad(series) else "e v", x + wide, y + 10, value)
        runs: list[list[tuple[float, float]]] = [[]]
        pieces: list[list[float]] = []  # passes that were not finite; neighbours share one hatched piece
        for at, norm in _thinned(series.norms, most):
            across = x + 3 + at * step
            if not math.isfinite(norm):
                runs.append([])
                if pieces and across - pieces[-1][1] <= max(step, 5.0) * 1.5:
                    pieces[-1][1] = across
                else:
                    pieces.append([across, across])
            elif measured(norm):
                runs[-1].append((round(across), round(top + 3 + (1 - scale.share(norm)) * (_HEIGHT - 6), 1)))
        for run in filter(None, runs):
            (across, high), *more = run  # one point alone is a diamond: a pass between others that were not finite
            diamond = f"M{point(across - 1.5, high)}l1.5-1.5 1.5 1.5-1.5 1.5z"
            canvas.path("p", polyline(eased(run)) if more else diamond)
        for start, end in pieces:
            left, long = max(start - 4, x), end - start + 7
            canvas.path("b sbad", f"M{point(left, top + 0.5)}h{number(long)}v{number(_HEIGHT - 1)}h-{number(long)}z")
            canvas.path("h", hatching(left, top + 1, long, _HEIGHT - 2, 5))
    return ground.svg() + canvas.svg(), math.ceil(len(shown) / columns) * tall


def _thinned(norms: Sequence[float], most: int) -> list[tuple[int, float]]:
    """Return (place, norm) pairs; of a long series the smallest and largest of every stretch, and all non-finite."""
    if len(norms) <= most:
        return list(enumerate(norms))
    kept, stretches = {0, len(norms) - 1, *(at for at, norm in enumerate(norms) if not math.isfinite(norm))}, most // 2
    for number_ in range(stretches):
        places = range(len(norms) * number_ // stretches, len(norms) * (number_ + 1) // stretches)
        finite = [at for at in places if math.isfinite(norms[at]) and measured(norms[at])]
        kept.update(pick(finite, key=norms.__getitem__) for pick in (min, max) if finite)
    return [(at, norms[at]) for at in sorted(kept)]


def _bars(shown: Sequence[ParameterSeries], scale: Scale, width: float) -> tuple[str, float]:
    """Return a bar for each parameter: of one pass."""
    names = min(max(text_width(series.name, 10.5) for series in shown) + 10, width * 0.4)
    columns = 2 if len(shown) > 6 and width > 700 else 1
    rows, wide = math.ceil(len(shown) / columns), (width + _GAP) / columns - _GAP
    parts, room = [], wide - names - 66
    for at, series in enumerate(shown):
        norm, ink = series.norms[0], "v" if math.isfinite(series.norms[0]) else "v r"
        words, bar_ = norm_text(norm), ""
        if not measured(norm):
            ink, words = "q", words if touched(norm) else "no gradient"
        elif math.isfinite(norm):
            long = number(max(room * scale.share(norm), 1.5))
            bar_ = f'<rect class="d" x="{number(names)}" y="2" width="{long}" height="11"/>'
        else:
            bar_ = f'<path class="h" d="{hatching(names, 2, room, 11, 7)}"/>'
        text = f'<text x="0" y="11">{escape(fitted(series.name, names - 8, 10.5))}</text>'
        ground = f'<rect class="bg" x="{number(names)}" y="2" width="{number(room)}" height="11"/>'
        value = f'<text class="{ink}" x="{number(names + room + 8)}" y="11">{words}</text>'
        parts.append(moved(at // rows * (wide + _GAP), at % rows * _BAR_HEIGHT, text, ground, bar_, value))
    return "".join(parts), rows * _BAR_HEIGHT + 6


_MOST = 40
_NUMBER = 8
_NUMBERS = ("first", "last", "min", "max")
_NONE = "  no gradient"
_NARROW = 64
_MOVE = "Δw/w"
_USED = "used"
_NAMES = (9, 32)
_BARS = (8, 40)


def _wanted(shown: Sequence[ParameterSeries], width: int, passes: int) -> tuple[str, ...]:
    """Return which numbers follow the bars; in a narrow terminal only the last norm is shown."""
    numbers = ("norm",) if passes == 1 else _NUMBERS if width >= _NARROW else ("last",)
    if width >= _NARROW and any(touched(last_move(series)) for series in shown):
        numbers = (*numbers, _MOVE)
    if width >= _NARROW and any(touched(last_used(series)[1]) for series in shown):
        numbers = (*numbers, _USED)
    return numbers


def _numbers(series: ParameterSeries, wanted: Sequence[str]) -> str:
    """Return the numbers of a row; where there is no norm, why."""
    if not any(map(measured, series.norms)):
        blind = any(map(touched, series.norms))
        if len(wanted) == 1:
            return ("?" if blind else norm_text(UNTOUCHED)).rjust(_NUMBER)
        return f"  {NOT_MEASURABLE}" if blind else _NONE
    first, last, least, most = _ends(series.norms)
    known = {"norm": last, "first": first, "last": last, "min": least, "max": most,
             _MOVE: last_move(series), _USED: last_used(series)[1]}  # fmt: skip
    return "".join(("from 0" if word == _MOVE and known[word] == math.inf else norm_text(known[word])).rjust(_NUMBER)
                   for word in wanted)  # fmt: skip


def _legend(report: TraceReport, shown: Sequence[ParameterSeries], numbers: Sequence[str], wide: int) -> Iterator[str]:
    """Yield what marks among the bars mean, then what numbers are, and what is not shown."""
    norms, passes = _norms(shown), report.passes
    marks = [f"{letter} {words}" for letter, words in LEGEND.items() if letter in {bar(norm) for norm in norms}]
    if wide and any(len(series.norms) > wide for series in shown):
        marks.append("each bar is the largest norm in its passes")
    yield "".join(f"; {mark}" for mark in marks)
    if _MOVE in numbers:
        measured_at = [[at for at, ratio in enumerate(series.updates) if touched(ratio)] for series in shown]
        last = sorted({passes[places[-1]].number for places in measured_at if places})
        step = f"the optimizer's step after pass {' to '.join(map(str, dict.fromkeys((last[0], last[-1]))))}"
        yield f"{_MOVE}: how far {step} changed it, relative to its norm"
    if _USED in numbers:
        yield f"{_USED}: the norm of the gradient used by the last measured optimizer step, reduced over the ranks"
    if "min" in numbers and not all(map(math.isfinite, norms)):
        yield "min and max are over finite norms"
    if len(shown) < len(report.parameters):
        yield f"not shown: {plural(len(report.parameters) - len(shown), 'parameter')} more"
    if tuple(numbers) == ("last",):
        yield "not shown at this width: first, smallest and largest norm"
    if len(passes) < report.passes_traced:
        yield f"{len(passes)} of {plural(report.passes_traced, 'pass', 'passes')} were kept and are shown"


# The losses of two runs as one small picture: two lines over the steps, on a scale that both share.
#
# It is an image, so that hosts without scripts show it too; an image cannot see the theme of its page, so it holds
# nothing but lines whose colours read on white and on near-black. What they mean stands beside it as text.

NAME = 48
WIDTH, HEIGHT = 360, 96
_EDGE = 5


@dataclass(frozen=True, slots=True)
class LossesPicture(Picture):
    """The losses of two compared runs."""

    report: ComparisonReport  # Whose losses they are.
    scale: LossScale  # That both share; see `loss_scale`.

    @property
    def sentence(self) -> str:
        """Both losses, first and last, the first that is not finite, and the step at which they differ most."""
        pairs, runs = self.report.losses, []
        for name, side in ((self.report.left.name, "left"), (self.report.right.name, "right")):
            known = [(pair.step, value) for pair in pairs if (value := getattr(pair, side)) is not None]
            bad = next((step for step, value in known if not math.isfinite(value)), None)
            broken = "" if bad is None else f", not finite from step {bad}"
            ends = f"from {short_number(known[0][1])} to {short_number(known[-1][1])}{broken}" if known else "has none"
            runs.append(f"{shortened(name, NAME)} {ends}")
        both = [(one.left, one.right, one.step) for one in pairs if one.left is not None and one.right is not None]
        finite = [one for one in both if math.isfinite(one[0] - one[1])]
        left, right, step = max(finite, key=lambda one: abs(one[0] - one[1]), default=(0.0, 0.0, 0))
        apart = "; equal at every step where both are finite" if finite else ""
        if left != right:
            apart = f"; furthest apart at step {step}: {short_number(left)} and {short_number(right)}"
        return f"Loss over {plural(len(pairs), 'step')}: {'; '.join(runs)}{apart}."

    @property
    def _title(self) -> str:
        return "loss, log scale" if self.scale.logarithmic else "loss"

    def html(self) -> str:
        """Return the lines as an image, with the ends of both axes beside it."""
        losses, scale = self.report.losses, self.scale
        picture = svg_image(document(loss_svg(losses, scale), WIDTH, HEIGHT), self.sentence, width=WIDTH, height=HEIGHT)
        ends = tag("span", escape(short_number(scale.high))) + tag("span", escape(short_number(scale.low)))
        steps = tag("span", f"step {losses[0].step}") + tag("span", f"step {losses[-1].step}")
        chart = tag("div", tag("div", ends, class_="tm-ends"), tag("div", picture, class_="tm-plot"), class_="tm-chart")
        return tag("figure", tag("figcaption", self._title), chart, tag("div", steps, class_="tm-steps"))

    def text(self, width: int) -> Iterable[str]:
        """Return in words what both lines do."""
        return wrapped(self.sentence, width, "  ", "  ")

    def svg(self, width: float) -> tuple[str, float]:
        """Return the lines, with the ends of both axes and the names of the runs."""
        losses, left = self.report.losses, 76.0  # room for -1.234e-17
        lines = moved(left, 20, loss_svg(losses, self.scale))
        low, high, base = short_number(self.scale.low), short_number(self.scale.high), 20.0 + HEIGHT
        texts = [
            text_svg(left, 12, self._title, quiet=True),
            text_svg(left - 6, 30, high, anchor="end", quiet=True),
            text_svg(left - 6, base, low, anchor="end", quiet=True),
            text_svg(left, base + 14, f"step {losses[0].step}", quiet=True),
            text_svg(left + WIDTH, base + 14, f"step {losses[-1].step}", anchor="end", quiet=True),
        ]
        names = [shortened(side.name, NAME) for side in (self.report.left, self.report.right)]
        legend, high_ = legend_svg(list(zip(RUN_COLOURS, names, strict=True)), width)
        return lines + "".join(texts) + moved(0, base + 24, legend), base + 24 + high_


def loss_svg(losses: Sequence[LossPair], scale: LossScale) -> str:
    """Return both lines, the right run's the thinner; a cross where a loss is not finite."""
    grid = "".join(f"M0,{number(y)}H{WIDTH}" for y in (_EDGE, HEIGHT - _EDGE))
    drawn = f'<path d="{grid}" stroke="{MIXED_COLOUR}" stroke-opacity=".35" fill="none"/>'
    first = losses[0].step
    across = (WIDTH - 2 * _EDGE) / max(losses[-1].step - first, 1)
    for side, colour, wide in zip(("left", "right"), RUN_COLOURS, ("4.5", "2"), strict=True):
        path, marks, pen = "", "", "M"
        for pair in losses:
            x, value = _EDGE + (pair.step - first) * across, getattr(pair, side)
            if value is not None and math.isfinite(value):
                path += f"{pen}{point(x, _EDGE + (1 - scale.share(value)) * (HEIGHT - 2 * _EDGE))}"
                pen = "L"
            else:
                marks += f"M{point(x - 3, 2)}l6,6m0,-6l-6,6" if value is not None else ""
                pen = "M"
        look = f'stroke="{colour}" stroke-width="{wide}" stroke-linejoin="round" stroke-linecap="round"'
        drawn += f'<path fill="none" {look} d="{path}{marks}"/>'
    return drawn
