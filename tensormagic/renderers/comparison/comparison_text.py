"""Two runs side by side as plain text: the sentence, the two runs, what differs most first, what only one has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tensormagic.renderers.comparison.comparison_words import (
    HEAD,
    factor,
    inner_nodes,
    node_changes,
    node_name,
    place,
    side_notes,
    side_row,
    summary,
    told_moment,
    when,
)
from tensormagic.renderers.terminal.text_canvas import table
from tensormagic.renderers.trace.trace_phrases import norm_text
from tensormagic.renderers.trace.trace_text_lines import filled, printable
from tensormagic.reports import Finding
from tensormagic.reports.comparison import ComparisonReport, GraphDifference, NodeMention, NormDifference
from tensormagic.words import count, listed, plural, shortened

NARROWEST = 40
MOST_PARAMETERS, MOST_NODES, MOST_ONLY = 24, 12, 12
_NAME = 34
_NOTHING = "\u2013"  # where there is no number


def render(report: ComparisonReport, *, width: int = 100) -> str:
    """Return the comparison as text, no line wider than ``width`` (at least 40) columns."""
    width = max(width, NARROWEST)
    sections = [
        _head(report, width),
        _parameters(report, width),
        *(_nodes(report, graph, width) for graph in report.graphs),
        *(_only(report, graph, width) for graph in report.graphs),
        _findings(report, width),
        [line for gap in report.gaps for line in filled("not compared: ", f"{gap.section}: {gap.reason}", width)],
    ]
    lines = "\n\n".join("\n".join(section) for section in map(list, sections) if section).split("\n")
    return printable("\n".join(_cut(line, width) for line in lines)) + "\n"


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else line[: width - 1] + "…"


def _head(report: ComparisonReport, width: int) -> Iterator[str]:
    yield _cut(f"compare  {_one(report.left.name)} | {_one(report.right.name)}", width)
    yield from filled("", summary(report).replace("`", ""), width)
    yield "─" * width
    sides = (tuple(map(_one, side_row(side))) for side in (report.left, report.right))
    yield from table([HEAD, *sides], indent=0, width=width)
    for name, note in side_notes(report):
        yield from filled(f"{_one(name)}: ", note, width)


def _one(text: str) -> str:
    return shortened(text, _NAME)


def _parameters(report: ComparisonReport, width: int) -> Iterator[str]:
    shown = report.parameters[:MOST_PARAMETERS]
    if shown:
        head = ("parameter", *(f"norm in {_one(side.name)}" for side in (report.left, report.right)), "ratio", "differ")
        rows = ((shortened(one.name, _NAME), *_numbers(one.norms)) for one in shown)
        yield from table([head, *rows], indent=0, width=width)
    if len(report.parameters) > len(shown):
        yield f"not shown: {plural(len(report.parameters) - len(shown), 'parameter')} that differ less"
    for names, side in ((report.parameters_only_left, report.left), (report.parameters_only_right, report.right)):
        if names:
            yield f"only in {_one(side.name)}: {listed(names, most=MOST_ONLY)}"


def _numbers(norms: NormDifference) -> tuple[str, str, str, str]:
    moment = told_moment(norms)
    left, right = ("", "") if moment is None else (norm_text(moment.left), norm_text(moment.right))
    return left or _NOTHING, right or _NOTHING, factor(moment) or _NOTHING, when(norms)


def _nodes(report: ComparisonReport, graph: GraphDifference, width: int) -> Iterator[str]:
    inner = inner_nodes(graph)
    shown = inner[:MOST_NODES]
    if not shown:
        return
    head = ("node", *(f"in {_one(side.name)}" for side in (report.left, report.right)), "ratio", "differ", "")
    rows = [(shortened(node_name(one.left), _NAME), *_numbers(one.norms), node_changes(one)) for one in shown]
    yield from table([head, *rows], indent=0, width=width)
    left_out = len(inner) - len(shown) + graph.nodes_found - len(graph.nodes)
    if left_out:
        yield f"not shown: {plural(left_out, 'node')} that differ less"
    if graph.equal:
        yield f"{plural(graph.equal, 'node')} the same in both"


def _only(report: ComparisonReport, graph: GraphDifference, width: int) -> Iterator[str]:
    yield from _alone(report.left.name, graph.only_left, graph.only_left_found, width)
    yield from _alone(report.right.name, graph.only_right, graph.only_right_found, width)


def _alone(name: str, nodes: Sequence[NodeMention], found: int, width: int) -> Iterator[str]:
    if not found:
        return
    yield f"only in {_one(name)}: {plural(found, 'node')}"
    yield from table([(node_name(node), place(node)) for node in nodes[:MOST_ONLY]], indent=2, width=width)
    if found > MOST_ONLY:
        yield f"  not shown: {count(found - MOST_ONLY)} more"


def _findings(report: ComparisonReport, width: int) -> Iterator[str]:
    yield from _found(f"found only in {_one(report.left.name)}", report.findings_only_left, width)
    yield from _found(f"found only in {_one(report.right.name)}", report.findings_only_right, width)
    yield from _found("found in both", report.findings_both, width)


def _found(title: str, findings: Iterable[Finding], width: int) -> Iterator[str]:
    for finding in findings:
        yield from filled(f"{title}: ", f"{finding.code} {finding.severity}: {finding.message}", width)
