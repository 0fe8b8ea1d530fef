"""A refused call as a panel: what is wrong and what to do, the line with the call marked, the operands as a table.

Plain markup throughout, so that it is whole wherever the error is read: in a saved notebook, on a page without scripts.
What does not fit is framed, marked with a sign and said in words; colour only adds to that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tensormagic.renderers.assets import static
from tensormagic.renderers.basics.finding_html import finding_html, gaps_html, remedy_html, with_code
from tensormagic.renderers.basics.icons import icon
from tensormagic.renderers.basics.markup import escape, tag
from tensormagic.renderers.basics.panel import header, panel, section
from tensormagic.renderers.failure import failure_graph
from tensormagic.renderers.failure.failure_words import (
    Cell,
    Row,
    columns,
    finding_place,
    function_text,
    headline,
    marked,
    maybe,
    place_text,
    related_lines,
    rows,
    rule,
    torch_said,
    way_lines,
    works,
)
from tensormagic.renderers.graph.crash_mark import RAN, REFUSED, crash_words
from tensormagic.reports import FailureReport, Finding, Location, TraceReport
from tensormagic.views import to_html
from tensormagic.views.panels import memory as memory_panel
from tensormagic.words import TIMES

_HEADS = {"dtype": "dtype", "device": "device", "stride": "strides", "made": "made in"}


def render(report: FailureReport) -> str:
    """Return the panel as an HTML fragment that needs nothing from outside; where memory ran out, with its own."""
    label = f"{function_text(report)}: {headline(report)}"
    memory = to_html.render(memory_panel.view(report.memory, brief=True)) if report.memory is not None else ""
    return panel("tm-failure", label, [body(report)], css=("failure.css",)) + memory


def of_run(report: TraceReport) -> tuple[str, TraceReport]:
    """Return the call that ended a run as the top of the run's panel, and the run less what is told there."""
    failure = report.failure
    if failure is None:
        return "", report
    rest = tuple(found for found in report.findings if found not in failure.findings)
    graph = ""
    if failure.node is not None:
        place, node = failure.node
        graph = failure_graph.picture(report.graphs[place], node, crash_words(failure, RAN))
    inner = body(failure, drawn=bool(report.graphs))
    drawn = tag("div", inner, graph, class_="tm tm-failure tm-top")
    top = tag("style", static("failure.css")) + drawn
    return top, replace(report, findings=rest, error="")  # the error is told where it counts, above


def body(report: FailureReport, *, drawn: bool = True) -> str:
    """Return what the panel holds; with ``drawn`` the graph so far."""
    rows = [_finding(finding, report) for finding in report.findings]
    wrong = tag("div", *rows, class_="tm-find") if rows else ""
    graph = _graph(report) if drawn else ""
    return "".join((_header(report), wrong, _rule(report), _way(report), _operands(report), graph,
                    _sentence(report), gaps_html(report.gaps)))  # fmt: skip


def _header(report: FailureReport) -> str:
    what = tag("span", escape(headline(report)), class_="tm-what")
    return header(escape(function_text(report)), [what], about="error", second=[escape(place_text(report))])


def _finding(finding: Finding, report: FailureReport) -> str:
    more = [finding_place(finding, report), *related_lines(finding)]
    parts = [remedy_html(finding), *(tag("p", with_code(text)) for text in more if text)]
    return finding_html(finding, parts, is_open=True)


def _rule(report: FailureReport) -> str:
    text = rule(report)
    sentence = [tag("p", with_code(text))] if text else []
    for label, ways in (("works: ", works(report)), ("try: ", maybe(report))):
        if ways:
            sentence.append(tag("p", label, " or ".join(tag("code", escape(way)) for way in ways), class_="tm-fix"))
    return section("", *sentence, class_="tm-rule")


# -- the way there -------------------------------------------------------------------------------------------------


def _way(report: FailureReport) -> str:
    before, failed = way_lines(report)
    lines = [_step(step) for step in before] + ([_failed(failed, report.call)] if failed is not None else [])
    return section("", tag("table", tag("tbody", *lines), class_="tm-way"), class_="tm-ways") if lines else ""


def _step(step: Location | str) -> str:
    if not isinstance(step, Location):
        return tag("tr", tag("td", ""), tag("td", escape(f"\u2026 {step}"), class_="quiet"))
    return tag("tr", tag("td", escape(step.label), class_="tm-label"), tag("td", tag("code", escape(step.text))))


def _failed(place: Location, expression: str) -> str:
    before, call, after = marked(place, expression)
    code = tag("code", escape(before), tag("mark", escape(call)) if call else "", escape(after))
    label = tag("td", icon("error"), escape(place.label), class_="tm-label")
    return tag("tr", label, tag("td", code), class_="tm-here")


# -- the operands --------------------------------------------------------------------------------------------------


def _operands(report: FailureReport) -> str:
    found = rows(report)
    if not found:
        return ""
    shown = columns(found)
    heads = ["operand", "given as", "shape", *(_HEADS[name] for name in shown)]
    head = tag("thead", tag("tr", *(tag("th", name, scope="col") for name in heads)))
    body = tag("tbody", *(tag("tr", *_cells(row, shown), class_="tm-bad" if row.clashes else None) for row in found))
    return section("", tag("table", head, body, class_="tm-operands"))


def _cells(row: Row, shown: list[str]) -> Iterator[str]:
    name = _name(row.name.text)
    yield tag("td", icon("error") if row.clashes else "", name, _because(row.name), class_="tm-operand")
    yield tag("td", escape(row.role), class_="quiet")
    yield tag("td", _shape(row), class_="tm-shape")
    for column in shown:
        maker = tag("code", escape(row.maker)) if column == "made" and row.maker else ""
        yield tag("td", _framed(getattr(row, column)), " " if maker else "", maker, class_=f"tm-{column}")


def _name(name: str) -> str:
    """Return what an operand is called: code where it is some, words where it is told what it came from."""
    if not name:
        return tag("span", "\u2014", class_="quiet")
    return tag("span", with_code(name)) if " of " in name else tag("code", escape(name))


def _shape(row: Row) -> str:
    if row.dimensions is None:
        return _framed(row.text)
    sizes = [_framed(cell) for cell in row.dimensions]
    inside = tag("span", TIMES, class_="tm-times").join(sizes) if sizes else tag("span", "scalar", class_="quiet")
    return tag("span", inside, class_="tm-dims") + (f" {escape(row.text.text)}" if row.text.text else "")


def _framed(cell: Cell) -> str:
    if not cell.clash:
        return escape(cell.text)
    return tag("span", tag("b", escape(cell.text)), _because(cell), class_="tm-dim tm-not")


def _because(cell: Cell) -> str:
    return tag("i", escape(cell.clash)) if cell.clash else ""


def _graph(report: FailureReport) -> str:
    if report.graph is None:
        return ""
    return failure_graph.picture(report.graph, report.graph.roots[0], crash_words(report, REFUSED))


def _sentence(report: FailureReport) -> str:
    lead = tag("span", "torch said", class_="quiet")
    return section("", lead, " ", tag("code", escape(torch_said(report))), class_="tm-said")
