"""Two runs side by side (``%compare``): the sentence, losses, then parameters and nodes, the most different first."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from tensormagic.reports import Finding, comparison as reports
from tensormagic.reports.comparison import ComparisonReport, GraphDifference, Moment, NodeMention, NormDifference, Side
from tensormagic.views import nodes
from tensormagic.views.nodes import Bar, Cell, Column, Node, Paragraph, Section, Words, table_of
from tensormagic.views.panels.trace_words import measured, norm_text
from tensormagic.views.pictures.norms import LossesPicture, loss_scale, scale_of
from tensormagic.words import (
    TIMES,
    capitalised,
    listed,
    percent,
    plural,
    seconds_text,
    short_number,
    shortened,
    tuple_text,
)

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_LASTING = 3  # steps
_FACTOR = 1.1  # what is less is a percentage
_HEAD = ("steps", "passes", "time", "loss", "nodes", "edges", "findings")
MOST_PARAMETERS, OPEN_PARAMETERS, MOST_NODES, MOST_ONLY = 200, 4, 100, 60
_NAME = 60  # characters


def view(report: ComparisonReport) -> nodes.Panel:
    """Return the panel."""
    left, right = report.left, report.right
    names = Words(shortened(left.name, _NAME), "left"), Words(shortened(right.name, _NAME), "right")
    groups: tuple[tuple[Cell, Sequence[Finding]], ...] = (
        (("only in", names[0]), report.findings_only_left),  # what only one of the runs has first
        (("only in", names[1]), report.findings_only_right),
        ("in both", report.findings_both),
    )
    where = [where for where, findings in groups for _ in findings]
    body: list[Node] = [nodes.Findings([one for _, findings in groups for one in findings], where=where)]
    columns = Column("run", look="silent quiet"), Column(left.name, look="left"), Column(right.name, look="right")
    sides: list[Node] = [nodes.Table(columns, [*zip(_HEAD, _side(left), _side(right), strict=True)])]
    scale = loss_scale(loss for pair in report.losses for loss in (pair.left, pair.right))
    if scale is not None and len(report.losses) > 1:
        sides.append(LossesPicture(report, scale))
    for side in (left, right):  # its own title and how it ended, where that says more than the name
        title = side.title if left.title != right.title and side.title != side.name else ""
        end = f"{side.state}: {side.error}" if side.error else side.state if side.state != "finished" else ""
        if note := ", ".join(filter(None, (title, end))):
            sides.append(Paragraph(f"{side.name}: {note}", "quiet"))
    body += [Section("", sides), _parameters(report)]
    for graph in report.graphs:
        body += [_nodes(report, graph), *_alone(report, graph)]
    body.append(nodes.Findings((), report.gaps))
    return nodes.Panel("compare", "compare", "compare", names, body, "Comparison of two traced runs",
                       lead=capitalised(summary(report)), sheets=("comparison.css",))  # fmt: skip


Compared = reports.ParameterDifference | reports.NodeDifference


def _norm_columns(report: ComparisonReport, rows: Sequence[Compared]) -> tuple[Column, ...]:
    """Return the columns of a table of norms behind that of the name: two bars, on one scale, and three ratios."""
    names = (report.right.name, report.left.name)  # short ones only: a long one would make the column wide
    over = " / ".join(names) if max(map(len, names)) <= 8 else "ratio"
    moments = [moment for one in rows if (moment := shown_moment(one.norms)) is not None]
    scale = scale_of(norm for moment in moments for norm in (moment.left, moment.right))

    def bar(norm: float, ground: str) -> Bar:
        if measured(norm) and not math.isfinite(norm):
            return Bar(0.0, norm_text(norm), f"{ground} tm-bad")
        return Bar(max(scale.share(norm), 0.01) if measured(norm) and norm else 0.0, norm_text(norm), ground)

    def bars(one: Compared) -> Cell:
        moment = shown_moment(one.norms)
        return (bar(moment.left, "tm-a"), bar(moment.right, "tm-b")) if moment is not None else None

    def ratio(moment: Moment | None) -> Cell:  # marked by which run is larger
        text = factor(moment)
        if moment is None or not text.startswith(TIMES):
            return Words(text or "\u2013", "quiet")
        return (Words("\u25b2", "up") if moment.ratio > 0 else Words("\u25bc", "down")), text

    return (
        Column(f"gradient norm, {scale.text}", bars, "bars"),
        Column(over, lambda one: ratio(shown_moment(one.norms)), "code"),
        Column("first", lambda one: ratio(one.norms.first), "code"),
        Column("last", lambda one: ratio(one.norms.last), "code"),
    )


def _parameters(report: ComparisonReport) -> Section:
    def described(one: reports.ParameterDifference) -> Cell:
        shape = " | ".join(dict.fromkeys(map(tuple_text, (one.shape_left, one.shape_right))))
        return nodes.Noted(shortened(one.name + _moved(one.name, one.name_right), _NAME), [shape])

    shown = report.parameters[:MOST_PARAMETERS]
    columns = (
        Column("parameter", described, "name"),
        *_norm_columns(report, shown),
        Column("differ", lambda one: when(one.norms), "quiet"),
    )
    first, rest = table_of(columns, shown[:OPEN_PARAMETERS]), table_of(columns, shown[OPEN_PARAMETERS:])
    body: list[Node] = [first, Section(f"{len(rest.rows)} more", [rest], folded=True)]
    cut = len(report.parameters) - len(shown)
    body += [Paragraph(f"{cut} more with smaller differences", "quiet")] if cut else []
    for names, side in ((report.parameters_only_left, report.left), (report.parameters_only_right, report.right)):
        body += [f"parameters only in {side.name}: `{listed(names, most=MOST_ONLY)}`"] if names else []
    title = f"Gradients of {plural(len(report.parameters), 'parameter')}, the most different first"
    return Section(title if shown else "", body)


def _moved(name: str, name_right: str) -> str:
    """Return what is said behind a name of that in the right run, where more than the model is called otherwise."""
    return f" | {name_right}" if name_right and name_right.partition(".")[2] != name.partition(".")[2] else ""


def _nodes(report: ComparisonReport, graph: GraphDifference) -> Section:
    every = [one for one in graph.nodes if one.left.op != "accumulate" or one.reshaped]  # leaves are listed above
    shown = every[:MOST_NODES]

    def described(one: reports.NodeDifference) -> Cell:
        places = [each.variable if each.op == "accumulate" else each.module for each in (one.left, one.right)]
        name = node_name(one.left) + _moved(*places)
        return nodes.Noted(shortened(name, _NAME), [place(one.right) or place(one.left)])

    columns = (
        Column("node", described, "name"),
        *_norm_columns(report, shown),
        Column("differ", lambda one: "; ".join(filter(None, (when(one.norms), *_changes(one)))), "quiet"),
    )  # fmt: skip
    found = len(every) + graph.nodes_found - len(graph.nodes)
    number = f" of graph {graph.left}" if graph.left > 1 else ""
    same = f"; {plural(graph.equal, 'node')} the same in both" if graph.equal else ""
    title = f"{plural(found, 'inner node')}{number} that differ, the most different first{same}"
    more = ("more with a smaller difference", "more with smaller differences")
    left_out = (found - len(shown), 0)
    table = table_of(columns, shown, most=(MOST_NODES, 12), more=more, left_out=left_out)
    return Section(title, [table], folded=True)


def _alone(report: ComparisonReport, graph: GraphDifference) -> list[Node]:
    """Return the nodes that only one of the runs has."""
    body: list[Node] = []
    for found, mentions, side in _only(report, graph):
        lines = [(Words(node_name(one), "strong"), Words(place(one), "quiet")) for one in mentions[:MOST_ONLY]]
        rest = nodes.Items(lines, MOST_ONLY, left_out=max(found - len(lines), 0))
        body += [Section(f"{plural(found, 'node')} only in `{side.name}`", [rest])] if found else []
    edges = graph.edges_only_left + graph.edges_only_right
    if not body:
        return [Paragraph(f"{plural(edges, 'edge')} between nodes differ", "quiet")] if edges else []
    found = graph.only_left_found + graph.only_right_found
    return [Section(f"{plural(found, 'node')} only in one of them", body, folded=True)]


def summary(report: ComparisonReport) -> str:
    """Return the comparison in one sentence: the graph, the gradients, the loss."""
    left, right = _loss(report.left), _loss(report.right)
    loss = f"loss {left} in both" if left == right else f"loss {left or 'none'} against {right or 'none'}"
    loss = loss if left or right else ""
    return "; ".join(filter(None, (_graph_words(report), _gradient_words(report), loss)))


def _graph_words(report: ComparisonReport) -> str:
    """Return how the graphs differ; of several, the first that does."""
    more_left, more_right = report.graphs_only_left, report.graphs_only_right
    if not report.graphs:
        return "no graph in common" if more_left or more_right else "neither run has a backward graph"
    graph = next((graph for graph in report.graphs if not graph.same), report.graphs[0])
    counted = ((more_left, report.left), (more_right, report.right))
    alone = ", ".join(f"{plural(found, 'graph')} more in {side.name}" for found, side in counted if found)
    only = []
    for found, mentions, side in _only(report, graph):
        kinds = Counter(node.variable if node.op == "accumulate" and node.variable else node.op for node in mentions)
        words = (kind if number == 1 else f"{kind} {TIMES}{number}" for kind, number in kinds.items())
        only += [f"{found} only in {side.name} ({listed(words, most=3)})"] if found else []
    if graph.same:
        told = "same graph" if len(report.graphs) == 1 else f"same {len(report.graphs)} graphs"
        if reshaped := sum(one.reshaped for each in report.graphs for one in each.nodes):
            told += f" with other shapes or dtypes in {plural(reshaped, 'node')}"
    elif only:
        told = f"{plural(graph.matched, 'node')} in both, {', '.join(only)}"
    else:
        edges = plural(graph.edges_only_left + graph.edges_only_right, "edge")
        told = f"the same nodes, {edges} between them differ"
    return told + (f" ({alone})" if alone else "")


def _only(report: ComparisonReport, graph: GraphDifference) -> tuple[tuple[int, tuple[NodeMention, ...], Side], ...]:
    return (
        (graph.only_left_found, graph.only_left, report.left),
        (graph.only_right_found, graph.only_right, report.right),
    )


def _gradient_words(report: ComparisonReport) -> str:
    """Return what is most different about the gradients of the parameters, or that nothing is."""
    if not report.parameters:
        return ""
    if not report.steps_compared:
        return "no step to compare"
    if told := next(_told(report), ""):
        return told
    steps = plural(report.steps_compared, "step")
    if all(one.norms.same for one in report.parameters):
        return f"all gradients equal in {steps}"
    moments = [one.norms.worst for one in report.parameters]
    largest = 10 ** max(abs(_ratio(moment)) for moment in moments)
    most = f"a factor of {_two_digits(largest)}" if largest >= _FACTOR else percent(largest - 1)
    begin = min(one.norms.differs_from for one in report.parameters if one.norms.differs_from is not None)
    first = min(one.norms.first.step for one in report.parameters if one.norms.first is not None)
    since = f" from {'the first step' if begin == first else f'step {begin}'} on" if report.steps_compared > 1 else ""
    return f"gradients differ{since}" + (f", by up to {most}" if largest > 1 else "")


def _told(report: ComparisonReport) -> Iterator[str]:
    """Yield what differs, the worst first: NaN or Inf, no gradient, far apart from some step on, far apart once."""
    every, left, right = report.parameters, report.left.name, report.right.name

    def larger(ratio: float) -> str:
        return "larger" if ratio > 0 else "smaller"

    bad = [one for one in every if bool(one.norms.bad_left) != bool(one.norms.bad_right)]
    if bad:
        first = min(bad, key=lambda one: one.norms.bad_from_left or one.norms.bad_from_right or 0)
        step, name = first.norms.bad_from_left or first.norms.bad_from_right, left if first.norms.bad_left else right
        yield f"from step {step} on, gradients of {_names(bad, first)} are NaN or infinite only in {name}"
    for which, name in (("right", right), ("left", left)):
        if silenced := [one for one in every if one.norms.silenced == which]:
            verb = "gets" if len(silenced) == 1 else "get"
            yield f"{_names(silenced, silenced[0])} {verb} no gradient in {name}"
    apart = [one for one in every if _lasting(one.norms)]
    if apart:
        first = min(apart, key=lambda one: (one.norms.from_step or 0, -abs(_ratio(one.norms.last))))
        begin, ratio = first.norms.from_step, _ratio(first.norms.last)
        alike = [one for one in apart if one.norms.from_step == begin and _ratio(one.norms.last) * ratio > 0]
        most = times(ratio) if len(alike) == 1 else f"by up to {times(ratio)}"
        whose = f"gradients of {_names(alike, first)} are {larger(ratio)} in {right}"
        yield f"{_since(first.norms)}, {whose}, {most} in the end"
    first = max(every, key=lambda one: abs(_ratio(one.norms.worst)))
    worst = first.norms.worst
    if worst is not None and abs(worst.ratio) >= math.log10(reports.APART):
        described = f"{times(worst.ratio)} {larger(worst.ratio)} in {right}"
        yield f"furthest apart in step {worst.step}: the gradient of `{first.name}` is {described}"


def _since(norms: NormDifference) -> str:
    first = norms.first.step if norms.first else None
    return f"from step {norms.from_step} on" if norms.from_step != first else "in every step"


def _lasting(norms: NormDifference) -> bool:
    """Say whether two series are apart for long enough that "from then on" says something."""
    return norms.from_step is not None and (norms.apart_steps >= _LASTING or norms.apart_steps == norms.compared)


def _ratio(moment: Moment | None) -> float:
    return 0.0 if moment is None or math.isnan(moment.ratio) else moment.ratio


def _names(found: Sequence[reports.ParameterDifference], first: reports.ParameterDifference) -> str:
    more = len(found) - 1
    return f"`{first.name}`" + (f" and {plural(more, 'other')}" if more else "")


def times(ratio: float) -> str:
    """Return a ratio, given as a decimal logarithm, as a factor without its direction: ``1.4 times``, ``10⁴ times``."""
    return "infinitely" if math.isinf(ratio) else f"{_power(abs(ratio))} times"


def _power(ratio: float) -> str:
    return _two_digits(10**ratio) if abs(ratio) < 3 else f"10{str(round(ratio)).translate(_SUPERSCRIPTS)}"


def factor(moment: Moment | None) -> str:
    """Return right over left as a factor: ``×1.4``, ``×0.03``, ``×10⁴``, ``=``; empty where there is none."""
    if moment is None or math.isnan(moment.ratio):
        return ""
    if moment.ratio == 0:
        return "="
    if math.isinf(moment.ratio):
        return f"{norm_text(moment.left)} → {norm_text(moment.right)}"
    text = _power(moment.ratio)
    return "≈" if text == "1" else f"{TIMES}{text}"


def _two_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 9.95 else f"{value:.2g}"


def _loss(side: Side) -> str:
    """Return a run's loss, first and last; empty where it has none."""
    if side.loss_first is None or side.loss_last is None:
        return ""
    ends = short_number(side.loss_first), short_number(side.loss_last)
    return ends[0] if side.passes_seen == 1 else " → ".join(ends)


def _side(side: Side) -> tuple[str, ...]:
    numbers = str(side.steps_seen), str(side.passes_seen), seconds_text(side.seconds), _loss(side) or "none"
    return (*numbers, str(side.nodes), str(side.edges), str(side.findings or "none"))


def when(norms: NormDifference) -> str:
    """Return since when, or at which step, two series are apart, in words for a table."""
    if norms.same:
        return "equal"
    if norms.bad_from_left is not None or norms.bad_from_right is not None:
        steps = (norms.bad_from_left, norms.bad_from_right)
        return " | ".join("finite" if step is None else f"not finite from {step}" for step in steps)
    if norms.silenced:
        return "no gradient | some" if norms.silenced == "left" else "some | no gradient"
    if norms.from_step is not None and _lasting(norms):
        return _since(norms)
    if norms.worst is None:
        return ""
    begin = norms.differs_from
    return f"most in step {norms.worst.step}" + (f", from {begin} on" if begin not in {None, norms.worst.step} else "")


def shown_moment(norms: NormDifference) -> Moment | None:
    """Return the step whose two norms a table shows: the furthest apart, else the last."""
    return norms.last if norms.worst is None or norms.bad_left or norms.bad_right else norms.worst


def node_name(node: NodeMention) -> str:
    """Return what a node is called: its leaf, or its op and where it is."""
    if node.op == "accumulate" and node.variable:
        return node.variable
    return f"{node.op} in {node.module}" if node.module else node.op


def _changes(one: reports.NodeDifference) -> Iterator[str]:
    """Yield how shape, dtype and the share of zeros differ."""
    left, right = one.left, one.right
    if left.shapes != right.shapes:
        yield " | ".join(", ".join(map(tuple_text, each.shapes)) or "no shape" for each in (left, right))
    if left.dtype != right.dtype:
        yield f"{left.dtype} | {right.dtype}"
    if left.statistics is not None and right.statistics is not None:
        zeros = [stats.zero / stats.count if stats.count else 0.0 for stats in (left.statistics, right.statistics)]
        if abs(zeros[0] - zeros[1]) >= 0.1:
            yield f"zeros {zeros[0]:.0%} | {zeros[1]:.0%}"


def place(node: NodeMention) -> str:
    """Return a node's line."""
    return f"{node.location.label}: {node.location.text}" if node.location else ""
