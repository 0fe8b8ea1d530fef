"""What a live panel is told of a run, many times a second: small copies, made on the panel's thread."""

from __future__ import annotations

from array import array

from tensormagic.collectors.gradients.following import Following
from tensormagic.collectors.gradients.pass_log import PassRow
from tensormagic.collectors.gradients.pass_values import PassValues
from tensormagic.collectors.gradients.traced_graph import TracedGraph
from tensormagic.reports import LiveFrame, Pass

There = tuple[Pass, TracedGraph, PassValues]


def pass_of(current: Following | None) -> There | None:
    """Return the pass that a backward is in; None where it is in none, or none runs."""
    if current is None or current.begun is None or current.graph is None or current.recorder is None:
        return None
    return current.begun, current.graph, current.recorder.values


def frame_before_any_pass(structure: int, step: int, seconds: float) -> LiveFrame:
    """Return the frame of a run in which nothing ran backward yet."""
    return LiveFrame(
        structure, graph=0, pass_number=0, step=step, running=False, cursor=-1, reached=0, norms=array("f"),
        finished_pass=0, parameter_norms=array("f"), seconds=seconds,
    )  # fmt: skip


def frame_of(there: There, finished: PassRow | None, structure: int, seconds: float, *, running: bool) -> LiveFrame:
    """Return the frame of a run that has come to a pass, and has brought another to its end."""
    begun, graph, values = there
    order = values.order
    last, row = (finished.done.number, finished.norms) if finished else (0, array("f"))
    return LiveFrame(
        structure, graph.skeleton.number, begun.number, begun.step, running,
        order[-1] if order else -1, len(order), values.norms[:], last, row, seconds,
    )  # fmt: skip
