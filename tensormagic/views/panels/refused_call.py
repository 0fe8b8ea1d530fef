"""A refused call (``%tensormagic explain on``): what is wrong and what to do, the way there, the operands, the graph.

The same nodes are the top of the panel of a traced run that ended with it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import groupby

from tensormagic.reports import FailureReport, Location, Operand, TraceReport
from tensormagic.views import nodes
from tensormagic.views.graph.marks import crash_words
from tensormagic.views.nodes import Cell, Clash, Column, Line, Node, Paragraph, Section, Shape, Words
from tensormagic.views.panels import memory
from tensormagic.views.panels.memory_run import out_of_memory_words
from tensormagic.views.pictures.gradient_graph import EndedGraph
from tensormagic.words import ELLIPSIS, NOT_EQUAL, plural, refused_by, shortened, tuple_text

MOST_WAY = 5
_KINDS = {
    "shape": "the shapes do not fit",
    "dtype": "the dtypes do not fit",
    "device": "the tensors are on different devices",
    "view": "this view is not possible",
    "layout": "the memory layouts do not fit",
    "index": "an index does not fit",
    "argument": "an argument does not fit",
}
_SHORT = {"torch.nn.functional.": "F.", "torch.autograd.": "autograd."}
_UNKNOWN_SHAPE = "not kept"
_NAME, _TEXT, _FACT = 60, 120, 24  # characters
_LONGEST = 1_500  # characters of what torch said: some list every form that a call can have
_LOOK = re.compile(r"  # at (?:most|least) -?\d+$")  # nothing is changed by it: it shows whether values fit
_BACKENDS = " This could be because the operator doesn't exist for this backend"


def view(report: FailureReport, *, graph: bool = True) -> nodes.Panel:
    """Return the panel; where memory ran out, with the panel of memory below it; the ``graph`` may be left out."""
    known = any(one.is_tensor or one.shape or one.text for one in report.operands)
    gaps = report.gaps if known else [gap for gap in report.gaps if gap.section != "operands"]
    body: list[Node] = [nodes.Findings(report.findings, gaps), Section("", rule_nodes(report)), way(report)]
    if known and (report.node is None or report.mismatch is not None):
        body.append(Section("", [operands(report)]))
    if graph and report.graph is not None:
        body.append(EndedGraph(report.graph, report.graph.roots[0], crash_words(report)))
    who = refused_by(report.function, report.error)
    body.append(Paragraph((f"{who} said", Words(torch_message(report), "code")), "quiet"))
    name = report.function or report.call or "a call of torch"
    name = next((short + name.removeprefix(long) for long, short in _SHORT.items() if name.startswith(long)), name)
    within, what = report.phase == "backward", f"{who} refused this"
    if report.out_of_memory is not None:
        what = "memory ran out"
    elif report.mismatch is not None:
        what = _KINDS[report.mismatch.kind]
    elif within and report.node is not None:
        what = "failed within backward"
    parts = (
        report.location.label if report.location is not None else "", report.module and f"in {report.module}",
        report.inside and f"inside {report.inside.replace('torch.nn.functional.', 'F.')}",
        "within backward" if within and report.node is None else "",
    )  # fmt: skip
    return nodes.Panel(
        "failure", "error", name, [Words(what, "failed")], body, f"{name}: {what}",
        second=[", ".join(filter(None, parts))], sheets=("failure.css",),
        after=[memory.view(report.memory, below=True)] if report.memory is not None else [],
    )  # fmt: skip


def top_of(report: TraceReport, failure: FailureReport) -> tuple[nodes.Panel, TraceReport]:
    """Return the call that ended a run as the top of the run's panel, and the run without what is shown there."""
    rest = tuple(found for found in report.findings if found not in failure.findings)
    # A node that failed in backward is marked in the run's own graph; the error is shown above.
    graph = failure.node is None and bool(report.graphs)
    return view(failure, graph=graph), replace(report, findings=rest, error="")


def way(report: FailureReport) -> nodes.Source:
    """Return the lines that lead there, a long way without its middle; in the last the call is marked."""
    failed, left = [report.location] if report.location is not None else [], len(report.stack) - MOST_WAY
    before = report.stack[:-1] if left <= 0 else (report.stack[0], *report.stack[-MOST_WAY + 1 : -1])
    files = [(file, [*places]) for file, places in groupby(
        (*before, *failed), lambda place: place.label.rsplit(", line ", 1)[0])]  # fmt: skip
    lines: list[Line] = []
    for file, places in files:
        lines += [Line(0, file)] if len(files) > 1 else []
        lines += [Line(each.line, each.text) for each in places]
    if left > 0:
        at = 2 if len(files) > 1 else 1
        lines.insert(at, Line(0, f"{ELLIPSIS} {plural(left + 1, 'line')} more"))
    if failed:
        lines[-1] = replace(lines[-1], sign="error", marked=marked(failed[0], report.call))
    return nodes.Source(lines)


def marked(place: Location, call: str) -> str:
    """Return the part of a line that is the failing call, also where it goes on in the next; empty where it is not."""
    for length in range(len(call), 0, -1):
        at = place.text.find(call[:length])
        if at >= 0 and (length == len(call) or at + length == len(place.text)):
            return call[:length]
    return ""


def rule_nodes(report: FailureReport) -> list[Node]:
    """Return what the call asks for and what would have worked, where no finding says it already."""
    if report.out_of_memory is not None:
        return [out_of_memory_words(report.out_of_memory)]
    mismatch, findings = report.mismatch, report.findings
    if mismatch is None:
        return []
    is_in_a_finding = any(mismatch.rule.rstrip(".") in one.message for one in findings)
    nodes: list[Node] = [] if is_in_a_finding or not mismatch.rule else [mismatch.rule]
    looks = tuple(way for way in mismatch.maybe if _LOOK.search(way))
    rest = tuple(way for way in mismatch.maybe if way not in looks)
    for label, ways in (("works", mismatch.works), ("try", rest), ("check", looks)):
        left = [f"`{one}`" for one in ways if not any(one in found.remedy for found in findings)]
        nodes += [f"{label}: {' or '.join(left)}"] if left else []
    return nodes


def torch_message(report: FailureReport) -> str:
    """Return the exception as Python's last line has it, without the page on backends that a missing kernel brings."""
    sentence = report.error.split(_BACKENDS, 1)[0]
    sentence = shortened(sentence, _LONGEST, tail=_LONGEST // 3) if len(sentence) > _LONGEST else sentence
    return f"{report.error_type}: {sentence}" if sentence else report.error_type


def operands(report: FailureReport) -> nodes.Table:
    """Return the operands as rows, with what does not fit marked; columns that are empty are left out."""
    mismatch, each = report.mismatch, report.operands
    parts, kind = (mismatch.parts, mismatch.kind) if mismatch is not None else ((), "")
    # One dimension clashes between operands, counted from the right as broadcasting does.
    places = [(part.dimension - len(each[part.operand].shape), part.operand)
              for part in parts if part.dimension is not None]  # fmt: skip
    several = len({operand for _, operand in places}) > 1
    aligned = "number" if several and len({place for place, _ in places}) == 1 else ""
    elsewhere = kind == "device" or any(one.device not in {"", "cpu"} for one in each)
    rows = []
    for at, one in enumerate(each):
        facts = {"dtype": one.dtype, "device": one.device if elsewhere else ""}
        facts["view"] = tuple_text(one.stride) if one.stride else one.layout.removeprefix("strided")
        unfit: dict[int | None, str] = {}
        for part in reversed(parts):
            if part.operand == at:
                needed = f"{NOT_EQUAL} {part.expected}" if part.expected.isdigit() else f"needs {part.expected}"
                unfit[part.dimension] = needed if part.expected else "does not fit"
        rows.append(_row(one, facts, unfit, kind))
    columns = (
        Column("operand", look="name"), Column("given as", look="quiet"), Column("shape", look=aligned),
        Column("dtype"), Column("device"), Column("strides", look="code"), Column("made in", look="quiet wide"),
    )  # fmt: skip
    return nodes.filled(nodes.Table(columns, rows))


def _row(one: Operand, facts: dict[str, str], unfit: dict[int | None, str], kind: str) -> list[Cell]:
    """Return an operand as cells.

    ``facts`` say what it is, by the kind of clash that is about each, and ``unfit`` what would have fitted in place of
    a dimension, and of the whole (None): that stands at the fact of this ``kind``, or where none shows it, at the name.
    """
    whole, place = unfit.get(None, ""), one.location
    aside = "" if facts.get(kind) else whole
    name, text = shortened(one.name, _NAME), shortened(one.text, _TEXT)
    called: Cell = (name if " of " in name else Words(name, "code")) if name else Words("\u2014", "quiet")
    if one.is_tensor or one.shape:
        called = Clash(name, aside) if aside else called
        sizes = Shape([Clash(str(size), unfit[at]) if at in unfit else str(size) for at, size in enumerate(one.shape)])
        shape: Cell = (sizes, text) if text else sizes
    else:
        text = text or _UNKNOWN_SHAPE
        shape = Clash(text, aside) if aside else text
    known = {fact: shortened(words, _FACT) for fact, words in facts.items()}
    told = (Clash(words, whole) if words and whole and fact == kind else words for fact, words in known.items())
    made: Cell = "" if place is None else (f"{place.label}:", Words(place.text, "code")) if place.text else place.label
    return [called, one.place or one.role, shape, *told, made]
