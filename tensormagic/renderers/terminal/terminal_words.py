"""What a running trace says in a terminal: six lines, each always about the same, so that no eye need search."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tensormagic.renderers.basics.theme import norm_scale
from tensormagic.renderers.terminal.glyphs import bars, curve
from tensormagic.renderers.trace.trace_phrases import measured, norm_text, overhead_text, touched
from tensormagic.reports import UNTOUCHED, Graph, LiveFrame, TraceReport
from tensormagic.words import DOT, plural, seconds_text, short_number, shortened

ROWS = 6
_GAP = f" {DOT} "
_LABEL = 10  # columns of the word before each line
_WIDEST = 48  # columns of a row of bars


def block(report: TraceReport, frame: LiveFrame, width: int) -> list[str]:
    """Return the lines: where it is, how the loss goes, the gradient flow, who gets most and least, findings.

    Args:
        report: The last whole report: names, losses, findings.
        frame: The newest numbers.
        width: Columns.
    """
    title = f" {shortened(report.title or 'tracegrad', width // 2)} "
    lines = [
        f"──{title}".ljust(width, "─"),
        _labelled("step", _GAP.join(_place(report, frame))),
        _labelled("loss", _losses(report, width - _LABEL)),
        _labelled("flow", _flow(report, frame, width - _LABEL)),
        _labelled("gradients", _ends(report, frame)),
        _findings(report),
    ]
    return ["".join(letter if letter.isprintable() else "\ufffd" for letter in _cut(line, width)) for line in lines]


def _labelled(label: str, text: str) -> str:
    return f"{label:<{_LABEL}}{text}"


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else line[: width - 1] + "…"


def _place(report: TraceReport, frame: LiveFrame) -> Iterator[str]:
    yield f"{frame.step}"
    yield plural(frame.finished_pass, "backward pass", "backward passes")
    yield seconds_text(frame.seconds)
    if overhead := overhead_text(report):
        yield overhead


def _losses(report: TraceReport, width: int) -> str:
    """Return the loss of the first pass and of the newest, and between them a bar for every stretch of passes."""
    losses = [one.value for one in report.passes if one.value is not None]
    if not losses:
        return "none yet"
    first, last = short_number(losses[0]), short_number(losses[-1])
    room = min(width - len(first) - len(last) - 2, _WIDEST)
    return f"{first} {curve(losses, room)} {last}" if len(losses) > 1 and room > 0 else last


def _flow(report: TraceReport, frame: LiveFrame, width: int) -> str:
    """Return a bar for every stretch of nodes, from the loss on, in the order in which backward reached them."""
    graph = _graph(report, frame)
    if graph is None:
        return "no backward yet"
    inner = [at for at in graph.order if at < len(frame.norms) and graph.nodes[at].kind != "accumulate"]
    norms = [frame.norms[at] for at in inner]
    if not any(map(touched, norms)):
        return "backward begins"
    ends = norm_scale(norms)
    scale = "  loss → input, norms {} to {}".format(*(norm_text(10.0**exponent) for exponent in ends))
    drawn = bars(norms, max(min(width - len(scale), _WIDEST), 8), ends)
    return f"{drawn}{scale}"


def _graph(report: TraceReport, frame: LiveFrame) -> Graph | None:
    return next((graph for graph in report.graphs if graph.number == frame.graph), None)


def _ends(report: TraceReport, frame: LiveFrame) -> str:
    """Return the parameter with a NaN where there is one, else those with the largest and the smallest gradient."""
    names = [parameter.name for parameter in report.parameters]
    pairs = [(norm, name) for norm, name in zip(frame.parameter_norms, names, strict=False) if norm != UNTOUCHED]
    bad = [name for norm, name in pairs if not math.isfinite(norm)]
    if bad:
        more = f" and {plural(len(bad) - 1, 'other')}" if len(bad) > 1 else ""
        return f"NaN or Inf in {bad[0]}{more}"
    known = sorted(pair for pair in pairs if measured(pair[0]))
    if not known:
        return "none yet"
    return _GAP.join(_described(known))


def _described(known: Sequence[tuple[float, str]]) -> Iterator[str]:
    yield f"largest {known[-1][1]} {norm_text(known[-1][0])}"
    if len(known) > 1:
        yield f"smallest {known[0][1]} {norm_text(known[0][0])}"


def _findings(report: TraceReport) -> str:
    if not report.findings:
        return _labelled("findings", "none so far")
    first = report.findings[0]
    more = f"  (+{len(report.findings) - 1})" if len(report.findings) > 1 else ""
    return _labelled("findings", f"{first.code} {first.severity}{more}: {first.message.replace('`', '')}")
