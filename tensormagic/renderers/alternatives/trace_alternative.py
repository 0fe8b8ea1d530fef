"""What the picture of a backward graph says, for who hears it: where it broke, and how large the gradients are.

Not how many boxes there are, but what one sees in them: which is red and since when, the largest and the smallest
gradient with their lines, what got none, and what was found. The static picture, the saved SVG and the live graph
share it; it is plain text, escaped by who puts it into markup.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tensormagic.renderers.trace.trace_phrases import measured, norm_text, run_text, touched
from tensormagic.renderers.trace.trace_values import forward_mark, last_frame
from tensormagic.reports import FirstNonfinite, Frame, Graph, Node, TraceReport
from tensormagic.words import count, listed, plural, shortened

NAME, MESSAGE, MOST_NAMES = 48, 160, 2  # characters of a name and of a finding, names of a list


def trace_alternative(report: TraceReport, *, graph: int = 0) -> str:
    """Return what the picture shows, in sentences; ``graph`` says of which of the report's graphs, by place."""
    return " ".join(f"{sentence}." for sentence in _sentences(report, graph))


def crash_alternative(graph: Graph, node: int, words: str) -> str:
    """Return what the picture of a graph with a crash in it shows: its size, what happened, and at which node."""
    last = graph.nodes[node]
    return f"Graph of {_size(graph)}; {words}: {shortened(last.variable, NAME) or last.op}."


def _sentences(report: TraceReport, place: int) -> Iterator[str]:
    name = shortened(report.title, NAME) or "this run"
    if not report.graphs:
        yield f"{name}: no backward graph, {run_text(report)}"
    else:
        shown = report.graphs[place]
        frame = last_frame(shown)
        yield f"Backward graph of {name}: {_size(shown)}{_which(shown, frame)}"
        yield from _broken(report, shown, frame)
        yield from _range(report, shown, frame)
        yield from _without(shown, frame)
    if report.error:
        yield f"The run {report.state}: {shortened(report.error, MESSAGE).rstrip('.')}"
    yield from _found(report)


def _size(graph: Graph) -> str:
    leaves = [node for node in graph.nodes if node.kind == "accumulate"]
    names = listed((shortened(one.variable, NAME) or "a leaf" for one in leaves), most=MOST_NAMES)
    ops = plural(len(graph.nodes) - len(leaves), "operation")
    return f"{ops} back to {plural(len(leaves), 'leaf', 'leaves')}, {names}" if leaves else ops


def _which(graph: Graph, frame: Frame | None) -> str:
    """Return which pass its colours are of."""
    if frame is None:
        return "; no pass was kept" if graph.passes_seen else ""
    return f"; gradients of pass {frame.pass_number} of {count(graph.passes_seen)}" if graph.passes_seen > 1 else ""


def _broken(report: TraceReport, graph: Graph, frame: Frame | None) -> Iterator[str]:
    """Yield where a number that is none came from, and what holds one in the pass that is shown."""
    older = forward_mark(graph)
    birth = older or next(iter(graph.first_nonfinite), None)
    if birth is not None:
        yield _born(report, graph, birth, "in the forward already" if older else "")
    bad = [node for node in graph.nodes if frame is not None and _is_bad(frame, node.index)]
    if bad and birth is not None:
        leaves = [shortened(node.variable, NAME) for node in bad if node.kind == "accumulate" and node.variable]
        hit = f", {listed(leaves, most=MOST_NAMES)} among them" if leaves else ""
        yield f"In this pass {count(len(bad))} of {plural(len(graph.nodes), 'node')} hold NaN or Inf{hit}"
    elif bad:
        names = listed((_called(report, node) for node in bad), most=MOST_NAMES)
        yield f"NaN or Inf in {count(len(bad))} of {plural(len(graph.nodes), 'node')}: {names}"


def _born(report: TraceReport, graph: Graph, birth: FirstNonfinite, where: str) -> str:
    what = "NaN" if birth.nan else "Inf"
    doubt = "" if birth.certain else ", or beside it"
    words = f"{what} was born in {_called(report, graph.nodes[birth.node])}{doubt}"
    return f"{words}, in pass {birth.pass_number}{f', {where}' if where else ''}"


def _is_bad(frame: Frame, index: int) -> bool:
    return index < len(frame.norms) and (not math.isfinite(frame.norms[index]) or str(index) in frame.bad)


def _range(report: TraceReport, graph: Graph, frame: Frame | None) -> Iterator[str]:
    """Yield the largest and the smallest finite gradient, and where they are."""
    if frame is None:
        return
    pairs = zip(frame.norms, graph.nodes, strict=False)
    finite = [(norm, node) for norm, node in pairs if measured(norm) and 0 < norm < math.inf]
    if len(finite) > 1:
        (most, largest), (least, smallest) = max(finite, key=_norm), min(finite, key=_norm)
        kind = "Largest finite" if len(finite) < len(graph.nodes) else "Largest"
        ends = f"{kind} gradient norm {norm_text(most)} in {_called(report, largest, text=False)}"
        yield f"{ends}, smallest {norm_text(least)} in {_called(report, smallest, text=False)}"


def _norm(pair: tuple[float, Node]) -> float:
    return pair[0]


def _without(graph: Graph, frame: Frame | None) -> Iterator[str]:
    """Yield how much got no gradient, or one that is exactly zero, and where the way of the gradient is cut."""
    if frame is not None:
        norms = frame.norms[: len(graph.nodes)]
        none, zero = sum(not touched(norm) for norm in norms), sum(norm == 0 for norm in norms)
        parts = [f"no gradient in {plural(none, 'node')}" if none else ""]
        parts += [f"exactly zero in {plural(zero, 'node')}" if zero else ""]
        if described := ", ".join(part for part in parts if part):
            yield described[0].upper() + described[1:]
    if graph.cuts:
        names = (f"{cut.op} of {shortened(cut.source_name, NAME)}" if cut.source_name else cut.op for cut in graph.cuts)
        yield f"The gradient is cut at {listed(names, most=MOST_NAMES)}"


def _found(report: TraceReport) -> Iterator[str]:
    if report.findings:
        first, more = report.findings[0], len(report.findings) - 1
        rest = f"; {plural(more, 'more finding')}" if more else ""
        where = f", {first.location.label}" if first.location is not None else ""
        message = shortened(first.message.replace("`", ""), MESSAGE).rstrip(".")
        yield f"{first.severity} {shortened(first.code, NAME)}{where}: {message}{rest}"


def _called(report: TraceReport, node: Node, *, text: bool = True) -> str:
    """Return what a node is called and where it is: ``log, cell 5, line 6: logp = p.log()``."""
    name = shortened(node.variable if node.kind == "accumulate" and node.variable else node.op, NAME)
    module = f" of {shortened(node.module, NAME)}" if node.module and node.kind != "accumulate" else ""
    if node.location is None or node.location >= len(report.locations):
        return f"{name}{module}"
    where = report.locations[node.location]
    return f"{name}{module} ({where.label}{f': {shortened(where.text, NAME)}' if where.text and text else ''})"
