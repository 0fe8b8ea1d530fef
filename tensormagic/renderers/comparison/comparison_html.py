"""Two runs side by side in a notebook: the sentence, losses, then parameters and nodes, the most different first.

Everything is in the markup and there is no script: bars are elements with a width, the losses are a picture with
their numbers beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tensormagic.renderers.alternatives.comparison_alternative import losses_alternative
from tensormagic.renderers.basics.finding_html import finding_html, gaps_html, remedy_html, with_code
from tensormagic.renderers.basics.markup import corner, escape, svg_image, tag
from tensormagic.renderers.basics.panel import fold, folds, header, panel, section
from tensormagic.renderers.comparison.comparison_chart import HEIGHT, WIDTH, loss_scale, loss_svg
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
from tensormagic.renderers.trace.trace_phrases import measured, norm_text
from tensormagic.reports import Finding
from tensormagic.reports.comparison import (
    ComparisonReport,
    GraphDifference,
    Moment,
    NodeDifference,
    NodeMention,
    NormDifference,
    ParameterDifference,
    Side,
)
from tensormagic.words import count, listed, plural, short_number, shortened, tuple_text

MOST_PARAMETERS, OPEN_PARAMETERS = 200, 4
MOST_NODES = 100
MOST_ONLY = 60
_NAME = 60


def render(report: ComparisonReport) -> str:
    """Return the panel as an HTML fragment: a ``<section>`` that needs nothing from outside."""
    parts = [
        _header(report),
        _findings(report),
        section("", _sides(report), _losses(report), class_="tm-two"),
        _parameters(report),
        *(_graph(report, graph) for graph in report.graphs),
        gaps_html(report.gaps),
    ]
    return panel("tm-compare", "Two traced runs side by side", parts, css=("comparison.css",))


def _header(report: ComparisonReport) -> str:
    names = f"{_chip(report.left, 'a')} {_chip(report.right, 'b')}"
    return header("compare", [tag("span", names)], about="compare", lead=with_code(_capital(summary(report))))


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _chip(side: Side, letter: str) -> str:
    return tag("span", escape(shortened(side.name, _NAME)), class_=f"tm-chip tm-{letter}")


def _sides(report: ComparisonReport) -> str:
    """Return the two runs as a table: what they are below each other, the runs beside each other."""
    columns = [HEAD, side_row(report.left), side_row(report.right)]
    chips = tag("tr", corner("run"), *(tag("th", chip) for chip in (_chip(report.left, "a"), _chip(report.right, "b"))))
    rows = [
        tag("tr", tag("th", escape(name), scope="row"), *(tag("td", escape(cell)) for cell in cells))
        for name, *cells in list(zip(*columns, strict=True))[1:]
    ]
    notes = [tag("p", escape(f"{name}: {note}"), class_="quiet") for name, note in side_notes(report)]
    return tag("div", tag("table", tag("thead", chips), tag("tbody", *rows), class_="tm-sides"), *notes)


def _losses(report: ComparisonReport) -> str:
    scale = loss_scale(report.losses)
    if scale is None:
        return ""
    first, last = report.losses[0].step, report.losses[-1].step
    picture = svg_image(loss_svg(report.losses, scale), losses_alternative(report), width=WIDTH, height=HEIGHT)
    ends = tag("span", escape(short_number(scale.high))) + tag("span", escape(short_number(scale.low)))
    steps = tag("span", f"step {first}") + tag("span", f"step {last}")
    kind = ", log scale" if scale.logarithmic else ""
    return tag(
        "figure",
        tag("figcaption", f"loss{kind}"),
        tag("div", tag("div", ends, class_="tm-ends"), tag("div", picture, class_="tm-plot"), class_="tm-chart"),
        tag("div", steps, class_="tm-steps"),
    )


class _Scale:
    """One logarithmic axis for all bars of a table."""

    def __init__(self, differences: Iterable[NormDifference]) -> None:
        moments = [moment for one in differences if (moment := told_moment(one)) is not None]
        norms = [norm for moment in moments for norm in (moment.left, moment.right) if norm > 0 and math.isfinite(norm)]
        self.high = math.ceil(math.log10(max(norms, default=1.0)) + 1e-9)
        low = math.floor(math.log10(min(norms, default=0.1)))
        self.low = min(max(low, self.high - 12), self.high - 1)

    @property
    def text(self) -> str:
        return f"1e{self.low} to 1e{self.high}".replace("-", "−")

    def percent(self, norm: float) -> float:
        share = (math.log10(norm) - self.low) / (self.high - self.low)
        return round(100 * min(max(share, 0.01), 1.0), 1)


def _bars(norms: NormDifference, scale: _Scale) -> str:
    moment = told_moment(norms)
    if moment is None:
        return ""
    return _bar(moment.left, scale, "a") + _bar(moment.right, scale, "b")


def _bar(norm: float, scale: _Scale, letter: str) -> str:
    finite = measured(norm) and math.isfinite(norm)
    bad = measured(norm) and not finite
    inner = tag("i", class_=f"tm-{letter}", style=f"width:{scale.percent(norm)}%") if finite and norm else ""
    track = tag("span", tag("i", class_="tm-bad") if bad else inner, class_="tm-track")
    described = tag("span", norm_text(norm), class_="tm-norm tm-notfinite" if bad else "tm-norm")
    return tag("div", track, described, class_="tm-line")


def _ratio(moment: Moment | None) -> str:
    """Return the factor, marked by which run is larger."""
    text = factor(moment)
    if moment is None or not text.startswith("×"):
        return tag("span", escape(text) or "\u2013", class_="quiet")
    larger = moment.ratio > 0
    sign = tag("span", "▲" if larger else "▼", class_="tm-sign tm-up" if larger else "tm-sign tm-down")
    return f"{sign} {escape(text)}"


def _over(report: ComparisonReport) -> str:
    """Return the heading of the ratios, short names only: a long one would make the column wide."""
    names = (report.right.name, report.left.name)
    return " / ".join(names) if max(map(len, names)) <= 8 else "ratio"


def _parameters(report: ComparisonReport) -> str:
    shown = report.parameters[:MOST_PARAMETERS]
    scale = _Scale(one.norms for one in shown)
    head = ("parameter", f"gradient norm, {scale.text}", _over(report), "first", "last", "differ")
    rows = [_parameter(one, scale) for one in shown]
    title = f"Gradients of {plural(len(report.parameters), 'parameter')}, the most different first"
    cut = f"{len(report.parameters) - len(shown)} more differ less" if len(shown) < len(report.parameters) else ""
    only = _only_names(report.parameters_only_left, report.left) + _only_names(
        report.parameters_only_right, report.right
    )
    return _folded(title, head, rows, OPEN_PARAMETERS, _quiet(cut), only)


def _parameter(one: ParameterDifference, scale: _Scale) -> str:
    shape = tuple_text(one.shape_left)
    if one.shape_left != one.shape_right:
        shape = f"{shape} | {tuple_text(one.shape_right)}"
    renamed = f" | {one.name_right}" if one.name_right.partition(".")[2] != one.name.partition(".")[2] else ""
    name = tag("b", escape(shortened(one.name + renamed, _NAME))) + tag("span", escape(shape), class_="tm-sub")
    return _row(name, one.norms, scale, tag("td", escape(when(one.norms)), class_="quiet"))


def _row(name: str, norms: NormDifference, scale: _Scale, *more: str) -> str:
    numbers = (_ratio(told_moment(norms)), _ratio(norms.first), _ratio(norms.last))
    cells = (tag("td", number, class_="tm-ratio") for number in numbers)
    return tag("tr", tag("th", name, scope="row"), tag("td", _bars(norms, scale), class_="tm-bars"), *cells, *more)


def _folded(title: str, head: Sequence[str], rows: Sequence[str], most: int, *below: str) -> str:
    """Return a section with a table, its further rows one click away."""
    if not rows:
        return section("", *below)
    top = tag("thead", tag("tr", *(tag("th", escape(name), scope="col") for name in head)))
    shown = tag("table", top, tag("tbody", *rows[:most]), class_="tm-list tm-pairs")
    rest = tag("table", tag("tbody", *rows[most:]), class_="tm-list tm-pairs") if rows[most:] else ""
    return section(title, shown, fold(f"{count(len(rows) - most)} more", rest), *below)


def _quiet(text: str) -> str:
    return tag("p", escape(text), class_="quiet") if text else ""


def _only_names(names: Sequence[str], side: Side) -> str:
    if not names:
        return ""
    shown = listed(names, most=MOST_ONLY)
    return tag(
        "p", f"parameters only in {escape(side.name)}: ", tag("span", escape(shown), class_="code"), class_="tm-only"
    )


# -- graphs -------------------------------------------------------------------------------------------------------


def _graph(report: ComparisonReport, graph: GraphDifference) -> str:
    return folds(_nodes(report, graph), _alone(report, graph))


def _nodes(report: ComparisonReport, graph: GraphDifference) -> str:
    inner = inner_nodes(graph)
    shown = inner[:MOST_NODES]
    if not shown:
        return ""
    scale = _Scale(one.norms for one in shown)
    head = ("node", f"gradient norm, {scale.text}", _over(report), "first", "last", "differ")
    same = f"; {plural(graph.equal, 'node')} the same in both" if graph.equal else ""
    number = f" of graph {graph.left}" if graph.left > 1 else ""
    found = len(inner) + graph.nodes_found - len(graph.nodes)
    title = f"{plural(found, 'inner node')}{number} that differ, the most different first{same}"
    cut = f"{found - len(shown)} more differ less" if len(shown) < found else ""
    top = tag("thead", tag("tr", *(tag("th", escape(name), scope="col") for name in head)))
    table = tag("table", top, tag("tbody", *(_node(one, scale) for one in shown)), class_="tm-list tm-pairs")
    return fold(escape(title), table, _quiet(cut))


def _node(one: NodeDifference, scale: _Scale) -> str:
    line = place(one.right) or place(one.left)
    name = tag("b", escape(shortened(node_name(one.left), _NAME))) + tag("span", escape(line), class_="tm-sub")
    described = "; ".join(part for part in (when(one.norms), node_changes(one)) if part)
    return _row(name, one.norms, scale, tag("td", escape(described), class_="quiet"))


def _alone(report: ComparisonReport, graph: GraphDifference) -> str:
    lists = [
        _only(graph.only_left, graph.only_left_found, report.left, "a"),
        _only(graph.only_right, graph.only_right_found, report.right, "b"),
    ]
    edges = graph.edges_only_left + graph.edges_only_right
    note = _quiet(f"{plural(edges, 'edge')} between nodes differ") if edges and not any(lists) else ""
    found = graph.only_left_found + graph.only_right_found
    title = f"{plural(found, 'node')} only in one of them"
    return fold(title, tag("div", *lists, class_="tm-two")) if any(lists) else note


def _only(nodes: Sequence[NodeMention], found: int, side: Side, letter: str) -> str:
    if not found:
        return ""
    rows = [
        tag("li", tag("b", escape(node_name(node))), " ", tag("span", escape(place(node)), class_="quiet code"))
        for node in nodes[:MOST_ONLY]
    ]
    more = [tag("li", f"and {count(found - MOST_ONLY)} more", class_="quiet")] if found > MOST_ONLY else []
    head = tag("p", f"{plural(found, 'node')} only in ", _chip(side, letter))
    return tag("div", head, tag("ul", *rows, *more))


# -- findings -----------------------------------------------------------------------------------------------------


def _findings(report: ComparisonReport) -> str:
    rows = [
        *(_finding(finding, f"only in {_chip(report.left, 'a')}") for finding in report.findings_only_left),
        *(_finding(finding, f"only in {_chip(report.right, 'b')}") for finding in report.findings_only_right),
        *(_finding(finding, "in both") for finding in report.findings_both),
    ]
    return tag("div", *rows, class_="tm-find") if rows else ""


def _finding(finding: Finding, where: str) -> str:
    return finding_html(finding, [remedy_html(finding)], before=f"{where}: ", is_open=False)
