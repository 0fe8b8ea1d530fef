"""TM407: gradients that half precision cannot hold: too small for float16 or float8, or at the end of their range.

What overflows becomes infinite and is seen where it is born: `not_finite.half_overflow`. What underflows becomes zero,
or loses its digits, and nothing else tells. Zeros alone prove nothing (a ReLU makes half of a gradient zero), so it is
judged by what a cast takes away from the norm, and where nothing is cast, by how far all that is not zero lies below
the smallest normal number. bfloat16 has the range of float32 and is never meant.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tensormagic.diagnoses.not_finite import half_overflow
from tensormagic.diagnoses.phrases import scientific
from tensormagic.reports import MEASURES, Finding, Frame, Graph, Node, TraceReport
from tensormagic.words import plural

FEWEST_PASSES = 2
# A cast that keeps the digits changes a norm by a thousandth; one that changes it by a tenth has lost them.
LOST_NORM = 0.1
# 16 steps of the smallest number of float16: nine tenths of the gradient below the smallest normal number, and on
# average less than four bits left of it.
FAINT = 16 * 2.0**-24
SUBNORMAL_SHARE = 0.9
SATURATED_SHARE = 0.01

_ABS_MAX, _ZERO, _SUBNORMAL, _SATURATED = (
    MEASURES.index(name) for name in ("abs_max", "zero_share", "subnormal_share", "saturated_share")
)
_REMEDY = (
    "Scale the loss so that its gradients fit: `scaler = torch.amp.GradScaler()`, `scaler.scale(loss).backward()`, "
    "`scaler.step(optimizer)`, `scaler.update()`; or use torch.bfloat16, whose range is that of float32."
)


@dataclass(frozen=True, slots=True)
class _Loss:
    """What half precision does to a gradient, at one node, in all kept passes."""

    node: Node
    text: str
    evidence: dict[str, float]


def narrow_gradients(report: TraceReport) -> Iterator[Finding]:
    """TM407: a float16 gradient that overflows, or underflows in pass after pass; a float8 gradient that saturates."""
    overflow = half_overflow(report)
    if overflow is not None:
        yield overflow
        return
    for at, graph in enumerate(report.graphs):
        narrow = [node for node in graph.nodes if is_narrow(node.dtype) and node.kind != "accumulate"]
        frames = [frame for frame in graph.frames if not frame.bad]
        if not narrow or len(frames) < FEWEST_PASSES:
            continue
        found = _cast_away(graph, narrow, frames) or _faint(narrow, frames) or _at_the_end(narrow, frames)
        if found is not None:
            yield _finding(report, (at, found.node.index), found)
            return


def is_narrow(dtype: str) -> bool:
    """Return whether a dtype has a smaller range than float32's."""
    return dtype == "float16" or dtype.startswith("float8")


def _cast_away(graph: Graph, narrow: list[Node], frames: list[Frame]) -> _Loss | None:
    """Return the first cast on the way back that takes a good part of the norm, in every pass."""
    feeders: dict[int, list[int]] = {}
    for edge in graph.edges:
        feeders.setdefault(edge.target, []).append(edge.source)
    for node in reversed(narrow):
        above = feeders.get(node.index, [])
        source = graph.nodes[above[0]] if len(above) == 1 else None
        if source is None or source.op != "to_copy" or is_narrow(source.dtype):
            continue
        rows = [(frame.norms[source.index], frame.norms[node.index]) for frame in frames]
        if all(before > 0 and 0 <= after < math.inf and _differ(before, after) for before, after in rows):
            before, after = rows[-1]
            text = (
                f"the gradient that comes back to {node.op} has a norm of {scientific(before)} in {source.dtype} and "
                f"of {scientific(after)} in {node.dtype}"
            )
            return _Loss(node, text, {"norm before the cast": before, "norm after it": after})
    return None


def _differ(before: float, after: float) -> bool:
    return abs(after / before - 1) > LOST_NORM


def _faint(narrow: list[Node], frames: list[Frame]) -> _Loss | None:
    """Return the first node on the way back whose gradient is below the normal numbers, in every pass."""
    for node in reversed(narrow):
        norms = [frame.norms[node.index] for frame in frames if frame.norms[node.index] > 0]
        row = next((row for frame in reversed(frames) if (row := frame.measured(node.index)) is not None), None)
        if row is not None and len(norms) >= FEWEST_PASSES and _is_faint(node, max(norms), row):
            below = round(100 * row[_SUBNORMAL] / (1 - row[_ZERO]))
            text = (
                f"of the gradient that comes back to {node.op}, {below} % of what is not zero is below 6.1e\u22125, "
                f"where float16 loses its digits, and the largest element is {scientific(row[_ABS_MAX])}"
            )
            return _Loss(node, text, {"subnormal share": row[_SUBNORMAL], "zero share": row[_ZERO], "norm": max(norms)})
    return None


def _is_faint(node: Node, norm: float, row: tuple[float, ...]) -> bool:
    count = math.prod(node.shapes[0]) * (1 - row[_ZERO]) if node.shapes and node.dtype == "float16" else 0
    return count >= 1 and norm / math.sqrt(count) < FAINT and row[_SUBNORMAL] >= SUBNORMAL_SHARE * (1 - row[_ZERO])


def _at_the_end(narrow: list[Node], frames: list[Frame]) -> _Loss | None:
    """Return the first node whose gradient sticks at the largest number of its type, in every measured pass."""
    for node in reversed(narrow):
        rows = [row for frame in frames if (row := frame.measured(node.index)) is not None]
        if len(rows) >= FEWEST_PASSES and all(row[_SATURATED] >= SATURATED_SHARE for row in rows):
            share = round(100 * rows[-1][_SATURATED])
            text = f"{share} % of the gradient that comes back to {node.op} is at the largest number of {node.dtype}"
            return _Loss(node, text, {"saturated share": rows[-1][_SATURATED]})
    return None


def _finding(report: TraceReport, where: tuple[int, int], found: _Loss) -> Finding:
    node, location = found.node, report.location(found.node.location)
    saturates = "saturated share" in found.evidence
    passes = sum(not frame.bad for frame in report.graphs[where[0]].frames)
    does = "saturates" if saturates else "underflows"
    place = f" at {location.label}" if location else ""
    return Finding(
        code="TM407",
        severity="warning",
        message=f"The gradient {does} {node.dtype}{place} in all "
        f"{plural(passes, 'backward pass', 'backward passes')}: {found.text}.",
        location=location,
        evidence=dict(found.evidence),
        remedy="Scale the loss less." if saturates else _REMEDY,
        subject=node.op,
        node=where,
    )
