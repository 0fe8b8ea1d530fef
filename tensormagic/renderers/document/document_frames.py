"""The passes of a graph in the viewer's document: norms of each, all statistics of as many as there is room for."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tensormagic.renderers.document.document_columns import Code, code_changes, norm_codes, rounded, thinned
from tensormagic.renderers.graph.graph_values import gradient_text, value_text, wire_text
from tensormagic.reports import MEASURES

if TYPE_CHECKING:
    from tensormagic.reports import Frame, Graph

_CODED = frozenset({"abs_max", "std"})  # like norms: never negative


def frame_rows(frames: Sequence[Frame], most_values: int) -> list[dict[str, Any]]:
    """Return a row for each pass; with ``measures`` where it was measured in full and is one of those that fit.

    ``norms`` and ``parts`` are codes, each as its difference from the last number of that node in the rows before.
    ``measures`` holds a column for each of `reports.MEASURES` that says anything, by node index: a norm's code for the
    largest magnitude and the deviation, a plain number for the rest, None where there is none.
    """
    full = [frame for frame in frames if len(frame.measures) or frame.forward is not None]
    most = max(most_values // max(*(map(len, _described(full[0]))), 1), 1) if full else 0
    described = (
        {frame.pass_number for frame in thinned(full, max(most, 2), keep=lambda _: False)} if most_values else set()
    )
    norms = code_changes(norm_codes(frame.norms) for frame in frames)
    parts = code_changes(norm_codes(frame.parts) for frame in frames)
    return [
        {
            **_norms(frame, of_nodes, of_parts),
            **(_all(frame) if frame.pass_number in described else {}),
        }
        for frame, of_nodes, of_parts in zip(frames, norms, parts, strict=True)
    ]


def _norms(frame: Frame, norms: list[Code], parts: list[Code]) -> dict[str, Any]:
    bad = [[int(node), nan, inf] for node, (nan, inf) in frame.bad.items()]
    row = {"pass": frame.pass_number, "norms": norms, "bad": bad}
    return {**row, "parts": parts} if parts else row


def value_words(graph: Graph, wires: Sequence[Sequence[int]], frame: Frame) -> dict[str, Any]:
    """Return the words of a small graph in one pass: in each node, over it, and on each wire."""
    if (values := frame.values) is None:
        return {}
    said = [wire_text(graph, values, edges) for edges in wires]
    return {"values": [[*map(value_text, values.made)], [*map(gradient_text, values.gradients)], said]}


def _forward(frame: Frame) -> dict[str, Any]:
    """Return what the forward of a pass made, as its gradients are told; nothing where that was not asked for."""
    values = frame.forward
    if values is None:
        return {}
    bad = [[int(node), nan, inf] for node, (nan, inf) in values.bad.items()]
    return {"forward": {"norms": norm_codes(values.norms), "bad": bad, **dict(_columns(values.measures))}}


def _described(frame: Frame) -> tuple[array[float], array[float]]:
    return frame.measures, frame.forward.measures if frame.forward is not None else array("f")


def _all(frame: Frame) -> dict[str, Any]:
    return {**({"measures": dict(_columns(frame.measures))} if len(frame.measures) else {}), **_forward(frame)}


def _columns(measures: array[float]) -> Iterator[tuple[str, list[Any]]]:
    width = len(MEASURES)
    there = [value >= 0 or math.isnan(value) for value in measures[::width]]  # the first is a magnitude
    for place, name in enumerate(MEASURES):
        column = [value if here else None for value, here in zip(measures[place::width], there, strict=True)]
        if name in _CODED:
            yield name, norm_codes(-1.0 if value is None else value for value in column)
        elif any(column):
            yield name, [value if value is None else rounded(value, 3) for value in column]
