"""The panel of a traced run: findings, the graph of its gradients, cuts, forward values, norms, operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from tensormagic.views.graph.drawing import Box, draw
from tensormagic.views.graph.marks import value_of, with_crash
from tensormagic.views.graph.words import cut_heading, cut_sentences, ended_sentence
from tensormagic.views.nodes import Bar, Cell, Column, Findings, Node, Panel, Paragraph, Section, Table, Words, table_of
from tensormagic.views.panels import refused_call
from tensormagic.views.panels.trace_words import UNTITLED, all_clear, bad_text, run_lines, run_text, state_text, touched
from tensormagic.views.pictures.gradient_graph import GradientGraph
from tensormagic.views.pictures.norms import Norms
from tensormagic.words import DOT, count, number_of_bytes, percent, plural, seconds_text, short_number, shortened

if TYPE_CHECKING:
    from tensormagic.reports import (
        ForwardNonfinite,
        ForwardValues,
        Frame,
        Graph,
        OpsReport,
        OpUse,
        Total,
        TraceReport,
    )

_MOST_BOXES = 40  # whose forward values are shown
_MOST_CUTS = (60, 8)  # in a page, in a terminal
_LABEL = 36  # characters of a line


def view(report: TraceReport) -> Panel:
    """Return the panel of a traced run, below that of the call that ended it."""
    ended, report = refused_call.top_of(report)
    run = panel(report)
    return run if ended is None else replace(ended, after=(*ended.after, run))


def panel(report: TraceReport, picture: GradientGraph | None = None) -> Panel:
    """Return the panel of a traced run alone, its operations last; ``picture`` is its graph, drawn in its own way."""
    clear = all_clear(report)
    ended = [Paragraph(clear, "quiet")] if report.failure is not None and not report.findings else []
    body: list[Node] = [
        Findings(report.findings, report.gaps, "" if ended else clear), *ended,
        picture or GradientGraph(*with_crash(report)),
        *_cuts(report), _forward(report), Norms(report), _operations(report),
    ]  # fmt: skip
    state = Words(state_text(report), "error") if report.state in {"failed", "interrupted"} else state_text(report)
    return Panel("trace", "graph", report.title or UNTITLED, [state, Words(run_text(report), "quiet")], body,
                 second=list(run_lines(report)))  # fmt: skip


# -- cuts ------------------------------------------------------------------------------------------------------------


def _cuts(report: TraceReport) -> Iterator[Section]:
    """Yield where the way of the gradient ends: before a backward, and in the graph that is shown."""
    columns = (Column(), Column(look="code", in_terminal=False))
    if report.cuts:
        rows = [(ended_sentence(report, cut), "") for cut in report.cuts]
        yield Section("Cuts", [Table(columns, rows)], "backward was called on a value without a graph; it was cut here",
                      folded=True)  # fmt: skip
    graph = report.graphs[0] if report.graphs else None
    if graph is not None and graph.cuts:
        rows = [(sentence, _source(report, at)) for sentence, at in cut_sentences(report, graph)]
        yield Section("Cuts", [Table(columns, rows, most=_MOST_CUTS)], cut_heading(graph), folded=True)


def _source(report: TraceReport, location: int | None) -> str:
    place = report.location(location)
    return place.text if place is not None else ""


# -- forward values --------------------------------------------------------------------------------------------------


def _forward(report: TraceReport) -> Section:
    """Return what the forward made, a line a box, with the gradient beside it; nothing where that was not asked for."""
    graph = report.graphs[0] if report.graphs else None
    frame = forward_frame(graph) if graph is not None else None
    if graph is None or frame is None or frame.forward is None:
        return Section("", [])
    boxes = draw(graph, max_boxes=_MOST_BOXES, inside=False).boxes
    rows = [row for box in boxes if (row := _forward_row(box, frame)) is not None]
    unseen = len(boxes) - len(rows)
    body: list[Node] = [Table(_FORWARD, rows, most=(_MOST_BOXES, _MOST_BOXES))]
    body += [f"{plural(unseen, 'box', 'boxes')} without a recorded value"] if unseen else []
    body += [birth_text(report, graph, graph.forward_birth)] if graph.forward_birth is not None else []
    note = f"pass {frame.pass_number}, input to loss, and the gradient received"
    return Section("Forward values", body, note, folded=True)


_FORWARD = (
    Column("box", look="name"), Column("norm", look="number"), Column("|max|", look="number"),
    Column("mean", look="number"), Column("std", look="number"), Column("zeros", look="number"),
    Column("gradient", look="number"),
)  # fmt: skip


def _forward_row(box: Box, frame: Frame) -> tuple[str, ...] | None:
    """Return the line of a box, which has the value that it hands on: that of the first of its nodes seen."""
    assert frame.forward is not None
    found = (forward_numbers(frame.forward, node) for node in box.nodes)
    numbers = next((each for each in found if each is not None), None)
    gradient = value_of(box.nodes, frame).text.removeprefix("gradient norm ").removeprefix("gradient ")
    return None if numbers is None else (box.label, *numbers, gradient)


def forward_frame(graph: Graph) -> Frame | None:
    """Return the newest kept pass whose forward was measured; None where forward values were not asked for."""
    return next((frame for frame in reversed(graph.frames) if frame.forward is not None), None)


def forward_numbers(values: ForwardValues, index: int) -> tuple[str, ...] | None:
    """Return norm, largest magnitude, mean, deviation and share of zeros of a node; None where it was not seen."""
    norm = values.norms[index]
    if not touched(norm):
        return None
    largest, mean, std, zero = values.measures[index * 6 : index * 6 + 4]
    bad = values.bad.get(str(index))
    share = percent(zero) if zero > 0 else ""
    return (bad_text(*bad) if bad else _value(norm), _value(abs(largest)), _value(mean), _value(std), share)


def _value(value: float) -> str:
    return "–" if math.isnan(value) else short_number(value)


def birth_text(report: TraceReport, graph: Graph, birth: ForwardNonfinite) -> str:
    """Return where the forward first made a NaN or Inf, and whether one went in."""
    node = graph.nodes[birth.node]
    place = report.location(node.location)
    where = f", {place.label}: {place.text}" if place is not None else ""
    given = {True: " its inputs already held some", False: " its inputs were finite", None: ""}[birth.given]
    made = f"{bad_text(birth.nan, birth.inf)} of {birth.count}"
    return f"the forward of pass {birth.pass_number} first produced {made} in {node.op}{where}{given and ';'}{given}"


# -- operations ------------------------------------------------------------------------------------------------------


def _operations(report: TraceReport) -> Section:
    """Return where the time went: by line of the person's, and by operation, the longest first."""
    ops = report.ops
    if ops is None or not ops.uses:
        return Section("", [])
    whole = ops.total.seconds
    written: dict[str, str] = {}
    for use in ops.uses:
        if use.mutations:
            written.setdefault(short_name(use.op), use.mutated[0])
    lines = [(_line(report, at), total, "") for at, total in ops.by(lambda use: use.location)]
    names = [(name, total, written.get(name, "")) for name, total in ops.by(lambda use: short_name(use.op))]
    body: list[Node] = [
        Paragraph("; ".join([split(ops), *remarks(ops)]), "quiet"),
        table_of(_columns("line", whole, "name code"), lines, most=(10, 6), label="Operations by line"),
        table_of(_columns("operation", whole, "name"), names, most=(20, 10), label="Operations"),
    ]
    return Section("Operations", body, summary(ops), folded=True)


def _columns(title: str, whole: float, look: str) -> tuple[Column, ...]:
    """Return the columns of a table of operations, whose rows are a label, a total and what was written."""

    def label(row: tuple[str, Total, str]) -> Cell:
        short = shortened(row[0], _LABEL)
        return Words(short, "code", "" if short == row[0] else row[0]) if "code" in look else short

    def number(name: str, cell: Callable[[Total], Cell]) -> Column:
        return Column(name, lambda row: cell(row[1]), "number")

    def writes(row: tuple[str, Total, str]) -> str:
        _, total, to = row
        return f"{count(total.mutations)}{to and f' to {to}'}" if total.mutations else ""

    return (
        Column(title, label, look),
        number("calls", lambda total: count(total.calls)), number("time", lambda total: seconds_text(total.seconds)),
        Column("share", lambda row: Bar(row[1].seconds / (whole or 1)), "silent", in_terminal=False),
        number("share", lambda total: percent(total.seconds, whole)),
        number("forward", lambda total: (total.forward_seconds and seconds_text(total.forward_seconds)) or ""),
        number("backward", lambda total: (total.backward_seconds and seconds_text(total.backward_seconds)) or ""),
        number("memory", lambda total: number_of_bytes(total.nbytes) if total.nbytes else ""),
        Column("writes", writes, "number"),
    )  # fmt: skip


def short_name(op: str) -> str:
    """Return an operation as people write it: ``aten.add_.Tensor`` is ``add_``; other namespaces keep their name."""
    namespace, _, rest = op.partition(".")
    name = rest.partition(".")[0]
    return op if not rest else name if namespace == "aten" else f"{namespace}.{name}"


def summary(ops: OpsReport) -> str:
    """Return the totals in one line: ``801 calls in 2.2 ms · 13.4 KiB allocated · 72 writes``."""
    total = ops.total
    parts = [f"{plural(total.calls, 'call')} in {seconds_text(total.seconds)}",
             f"{number_of_bytes(total.nbytes)} allocated"]  # fmt: skip
    return f" {DOT} ".join([*parts, *([plural(total.mutations, "write")] if total.mutations else [])])


def split(ops: OpsReport) -> str:
    """Return how the time is divided: ``forward 41 %, backward 37 %, optimizer 20 %, other 2 %``."""
    whole = ops.total.seconds
    return ", ".join(f"{phase} {percent(total.seconds, whole)}" for phase, total in ops.by(_phase))


def _phase(use: OpUse) -> str:
    return use.phase


def remarks(ops: OpsReport) -> list[str]:
    """Return what has to be known to read the numbers rightly."""
    sentences = []
    if ops.is_launch_time:
        sentences.append("time on the host; for an accelerator, the time to launch an operation, not to run it")
    missing, total = ops.unattributed, ops.total
    if missing.calls:
        share = percent(missing.seconds, total.seconds)
        sentences.append(f"the line is unknown for {plural(missing.calls, 'call')}, {share} of the time")
    else:
        sentences.append("every call has its line")
    return sentences


def _line(report: TraceReport, location: int | None) -> str:
    place = report.location(location)
    return "line unknown" if place is None else f"{place.label}: {place.text}" if place.text else place.label
