"""Which birth of a NaN or infinite gradient a run's finding is about: the first, in the outermost pass that has it."""

from __future__ import annotations

from tensormagic.reports import TraceReport
from tensormagic.words import count


def first_birth(report: TraceReport) -> int | None:
    """Return the place of the graph whose first birth is the run's first; None where none was seen being born."""
    inner = {done.graph for done in report.inner_passes}  # what was born in these was born in a node of the others too
    births = [
        (graph.births[0].pass_number, graph.number not in inner, at)
        for at, graph in enumerate(report.graphs)
        if graph.births
    ]
    first_shown = first_bad(report)
    if births and (first_shown is None or min(births)[0] <= first_shown[0]):
        return min(births)[2]
    return None


def first_bad(report: TraceReport) -> tuple[int, int] | None:
    """Return (pass, place of the graph) of the first kept pass with a gradient that is not finite, if any."""
    shown = [(frame.pass_number, at) for at, graph in enumerate(report.graphs) for frame in graph.frames if frame.bad]
    return min(shown, default=None)


def value_of(report: TraceReport, pass_number: int) -> float | None:
    """Return what a kept pass began with, where that is one number: the loss."""
    return next((done.value for done in report.passes if done.number == pass_number), None)


def when(report: TraceReport, pass_number: int) -> str:
    """Return ", in backward pass 3 of 10"; empty where there was only one."""
    return f", in backward pass {pass_number} of {count(report.passes_seen)}" if report.passes_seen > 1 else ""
