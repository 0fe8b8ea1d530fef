"""What a person sees from ``%tensor x`` in a terminal: the panel in characters, same order, same codes, no colours."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import chain

from tensormagic.renderers.tensor.kind_text import kind_lines
from tensormagic.renderers.tensor.layout_verdicts_text import verdict_lines
from tensormagic.renderers.tensor.statistics_words import answer, answer_scope, statistics_rows, statistics_scope
from tensormagic.renderers.tensor.tensor_picture import picture_of
from tensormagic.renderers.tensor.tensor_shot_text import shot_text
from tensormagic.renderers.tensor.tensor_slices_text import slices_text
from tensormagic.renderers.tensor.tensor_text_layout import layout_lines
from tensormagic.renderers.tensor.tensor_words import (
    badges,
    details,
    kind,
    name,
    shape,
    size_in_memory,
)
from tensormagic.renderers.terminal.text_canvas import printable
from tensormagic.reports import Finding, Statistics, TensorReport
from tensormagic.views.nodes import Node, Section
from tensormagic.views.panels.tensor import memory_nodes, sharing_nodes, verdict_nodes
from tensormagic.views.panels.tensor_autograd import autograd_nodes
from tensormagic.views.pictures.text_bars import fewer, sparkline
from tensormagic.views.to_text import text
from tensormagic.words import DOT, evidence_text, number_of_bytes, short_count, short_number, shortened

SIGNS = {"error": "\u2716", "warning": "\u25b2", "note": "\u25cb"}
NARROWEST = 40


def render(report: TensorReport, *, width: int = 100) -> str:
    """Return the report as text, no line wider than ``width`` columns (never narrower than 40)."""
    width = max(width, NARROWEST)
    picture = picture_of(report)
    sections = [
        _header(report, width),
        _lines(verdict_nodes(report.verdict), width),
        list(chain.from_iterable(finding_lines(finding, width) for finding in report.findings)),
        list(chain.from_iterable(_filled(f" not shown: {gap.section}: {gap.reason}", width) for gap in report.gaps)),
        shot_text(report, width),
        kind_lines(report, width),
        layout_lines(report, picture, width) if picture is not None else [],
        verdict_lines(report, width),
        _lines(sharing_nodes(report), width),
        _values(report.statistics, width),
        slices_text(report, width),
        _lines([Section("Autograd", autograd_nodes(report))], width),
        _lines([Section("Memory and holders", memory_nodes(report))], width),
    ]
    lines = "\n\n".join("\n".join(section) for section in sections if section).split("\n")
    return "\n".join(shortened_line(printable(line), width) for line in lines)


def shortened_line(line: str, width: int) -> str:
    """Return ``line`` cut to ``width``, spaces kept, an ellipsis where something was cut."""
    return line if len(line) <= width else line[: width - 1] + "\u2026"


def _header(report: TensorReport, width: int) -> list[str]:
    size, behind = size_in_memory(report)
    facts = [name(report), shape(report), shortened(report.dtype, 24), report.device, shortened(kind(report), 32)]
    facts += [shortened(report.role, 40), f"{size} {behind}".strip()]
    rule = "\u2500\u2500 " + " \u2500\u2500 ".join(fact for fact in facts if fact) + " "
    second = " \u00b7 ".join([*badges(report), *(part.replace("`", "") for part in details(report))])
    if len(rule) > width:
        rule = textwrap.fill(rule, width, subsequent_indent="   ")
    values = _filled(_answer(report), width, indent="   ") if _answer(report) else []
    return [*rule.ljust(width, "\u2500").split("\n"), *values, *_filled(second, width, indent="   ")]


def _answer(report: TensorReport) -> str:
    """Return the values in short: smallest, a small histogram, largest, mean, NaN and Inf."""
    statistics = report.statistics
    found = [f"{label} {number}{'!' if bad else ''}" for label, number, bad in answer(statistics)]
    if statistics is None or not found:
        return ""
    bars = fewer(statistics.histogram_counts, 12)
    if len(bars) > 1:
        found[:2] = [f"{found[0]} {sparkline(bars)} {found[1]}"]
    return f" {DOT} ".join(filter(None, [*found, answer_scope(statistics)]))


def _filled(text: str, width: int, *, indent: str = "", hanging: str = "   ") -> list[str]:
    plain = " ".join(text.split()) if not text.startswith(" ") else text
    return textwrap.wrap(plain, width, initial_indent=indent, subsequent_indent=hanging, break_on_hyphens=False) or [""]


def finding_lines(finding: Finding, width: int) -> list[str]:
    """Return a finding: sign, severity, code and message, then remedy and place, under a hanging indent."""
    head = f" {SIGNS[finding.severity]} {finding.severity:<8} {finding.code}  "
    hanging = " " * len(head)
    lines = textwrap.wrap(_plain(finding.message), width, initial_indent=head, subsequent_indent=hanging)
    extra = [finding.remedy and f"remedy: {_plain(finding.remedy)}"]
    if finding.location is not None:
        extra.append(f"{finding.location.label}: {finding.location.text}".rstrip(": "))
    extra += [f"{line.what}: {line.location.label}: {line.location.text}" for line in finding.related]
    if finding.evidence:
        extra.append(f"evidence: {evidence_text(finding.evidence)}")
    wrapped = (textwrap.wrap(text, width, initial_indent=hanging, subsequent_indent=hanging) for text in extra if text)
    return lines + list(chain.from_iterable(wrapped))


def _plain(text: str) -> str:
    return " ".join(text.replace("`", "").split())


def _lines(nodes: Sequence[Node], width: int) -> list[str]:
    return [line for node in nodes for line in text(node, width)]


def _values(statistics: Statistics | None, width: int) -> list[str]:
    if statistics is None:
        return []
    rows = statistics_rows(statistics)
    left = "   ".join(f"{label} {value}" for label, value, _, _ in rows if label)
    right = "   ".join(f"{label} {number}" for _, _, label, number in rows if label)
    lines = [f" VALUES  {left}", f"         {right}"]
    if len(statistics.histogram_counts) > 1:
        lines.append(_histogram(statistics, width))
    scope = statistics_scope(statistics)
    return [*lines, *textwrap.wrap(scope, width, initial_indent=" " * 9, subsequent_indent=" " * 9)]


def _histogram(statistics: Statistics, width: int) -> str:
    """Return the histogram as one line; on a narrow one each bar stands for several of its bins."""
    low, high = (short_number(edge) for edge in (statistics.histogram_edges[0], statistics.histogram_edges[-1]))
    lead, after = f"         {low} ", f" {high}   highest bar "
    bins = statistics.histogram_counts
    for together in range(1, len(bins) + 1):
        bars = tuple(sum(bins[at : at + together]) for at in range(0, len(bins), together))
        line = f"{lead}{sparkline(bars)}{after}{short_count(max(bars))}"
        if len(line) <= width:
            break
    return line


def one_line(report: TensorReport) -> str:
    """Return the report in one line, for lists: ``x (i 4, j 2) float32 cpu 32 B``."""
    return printable(f"{name(report)} {shape(report)} {report.dtype} {report.device} {number_of_bytes(report.nbytes)}")
