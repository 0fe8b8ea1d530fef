"""A refused call as plain text: what is wrong first, then the line, then the operands, then torch's own words.

Nothing rests on colour: what does not fit is marked by a sign and said in words.
"""

from __future__ import annotations

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
from tensormagic.renderers.terminal.text_canvas import table
from tensormagic.renderers.trace.trace_text_lines import filled, printable
from tensormagic.reports import FailureReport, Finding, Location
from tensormagic.views import to_text
from tensormagic.views.panels import memory as memory_panel
from tensormagic.words import shortened

_NARROWEST = 40
_NAME_WIDTH, _TEXT_WIDTH, _CELL_WIDTH = 34, 40, 24
_SIGN = "✖"
_HEADS = {"dtype": "dtype", "device": "device", "stride": "strides", "made": "made in"}


def render(report: FailureReport, *, width: int = 100) -> str:
    """Return the refused call as text, no line wider than ``width`` (at least 40) columns."""
    memory = "\n" + to_text.render(memory_panel.view(report.memory), width=width) if report.memory is not None else ""
    return printable("\n".join(lines(report, max(width, _NARROWEST)))) + "\n" + memory


def lines(report: FailureReport, width: int, *, found: bool = True) -> list[str]:
    """Return the refused call as lines of text.

    Args:
        report: The refused call.
        width: Of the widest line.
        found: Whether to tell what was found, and what torch said; not where that stands above already.
    """
    described = found or report.out_of_memory is not None
    head, wrong = _head(report, width), _wrong(report, width) if described else []
    sentence = filled("torch said: ", torch_said(report), width) if found else []
    sections = (head, wrong, _way(report, width), _operands(report, width), [*sentence, *_gaps(report, width)])
    spaced = [line for section in sections if section for line in ("", *section)]
    return [line[:width].rstrip().replace("`", "") for line in spaced[1:]]


def _head(report: FailureReport, width: int) -> list[str]:
    lines = filled("", f"error  {function_text(report)}: {headline(report)}", width)
    return [*lines, *filled("", place_text(report), width), "─" * width]


def _wrong(report: FailureReport, width: int) -> list[str]:
    lines = [line for finding in report.findings for line in _finding(finding, report, width)]
    if text := rule(report):
        lines += filled("", text, width)
    for way in works(report):
        lines += filled("works: ", way, width)
    for way in maybe(report):
        lines += filled("try: ", way, width)
    return lines


def _finding(finding: Finding, report: FailureReport, width: int) -> list[str]:
    lead = f"{finding.code} {finding.severity}  "
    lines = filled(lead, finding.message, width)
    for text in (finding_place(finding, report), *related_lines(finding)):
        lines += filled(" " * len(lead), text, width) if text else []
    return lines + (filled(" " * len(lead), f"→ {finding.remedy}", width) if finding.remedy else [])


def _way(report: FailureReport, width: int) -> list[str]:
    before, failed = way_lines(report)
    room = max((len(line.label) for line in (*report.way, failed) if line is not None), default=0)
    lines = [
        _line(f"  {step.label:{room}}  ", step.text, width)
        if isinstance(step, Location)
        else f"  {'':{room}}  … {step}"
        for step in before
    ]
    if failed is None:
        return lines
    lead = f"→ {failed.label:{room}}  "
    mark = _mark(failed, report.call)
    return [*lines, _line(lead, failed.text, width), *([" " * len(lead) + mark] if mark else [])]


def _line(lead: str, text: str, width: int) -> str:
    return lead + shortened(text, max(width - len(lead), 8))


def _mark(location: Location, call: str) -> str:
    before, failed, _ = marked(location, call)
    return " " * len(before) + "‾" * len(failed) if failed else ""


def _operands(report: FailureReport, width: int) -> list[str]:
    found = rows(report)
    if not found:
        return []
    shown = columns(found)
    head = ("", "operand", "given as", "shape", *(_HEADS[name] for name in shown))
    body = [
        (
            _SIGN if row.clashes else "", shortened(_name(row) or "—", _NAME_WIDTH), row.role,
            shortened(_shape(row), _TEXT_WIDTH), *(_of(row, name) for name in shown),
        )
        for row in found
    ]  # fmt: skip
    clashes = (line for row in found for text in _clashes(row) for line in filled(f"{_SIGN} ", text, width))
    return [*table([head, *body], gap=2, width=width), *clashes]


def _name(row: Row) -> str:
    return row.name.text.replace("`", "")


def _of(row: Row, name: str) -> str:
    cell: Cell = getattr(row, name)
    return shortened(cell.text, _CELL_WIDTH)


def _shape(row: Row) -> str:
    if row.dimensions is None:
        return row.text.text
    sizes = [f"{_SIGN}{cell.text}" if cell.clash else cell.text for cell in row.dimensions]
    inside = ", ".join(sizes) + ("," if len(sizes) == 1 else "")
    return f"({inside})" + (f" {row.text.text}" if row.text.text else "")


def _clashes(row: Row) -> list[str]:
    """Return what does not fit in an operand, a line each."""
    name = _name(row) or row.role or "an operand"
    sentence = [f"{name}: {cell.text} in dimension {at}, {cell.clash}"
            for at, cell in enumerate(row.dimensions or ()) if cell.clash]  # fmt: skip
    sentence += [f"{name}: {cell.text}, {cell.clash}"
             for cell in (row.text, row.dtype, row.device, row.stride) if cell.clash]  # fmt: skip
    return sentence + ([f"{name}: {row.name.clash}"] if row.name.clash else [])


def _gaps(report: FailureReport, width: int) -> list[str]:
    return [line for gap in report.gaps for line in filled("not seen: ", f"{gap.section}: {gap.reason}", width)]
