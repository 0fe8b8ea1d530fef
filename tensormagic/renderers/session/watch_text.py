"""What a check says in a terminal: findings first, then what was looked at."""

from __future__ import annotations

from tensormagic.renderers.session.watch_words import SIZES_HEAD, all_clear, sizes, summary
from tensormagic.renderers.tensor.tensor_text import finding_lines, shortened_line
from tensormagic.renderers.terminal.text_canvas import printable
from tensormagic.renderers.terminal.text_canvas import table as columns
from tensormagic.renderers.trace.trace_text_lines import filled
from tensormagic.reports import WatchReport
from tensormagic.words import shortened

NARROWEST = 40
_NAME_WIDTH = 48


def render(report: WatchReport, *, width: int = 100) -> str:
    """Return the report as text, no line wider than ``width`` columns (never narrower than 40)."""
    width = max(width, NARROWEST)
    sections = [
        [f"\u2500\u2500 check \u2500\u2500 {summary(report)} ".ljust(width, "\u2500")],
        [line for finding in report.findings for line in finding_lines(finding, width)]
        or filled(" ", all_clear(report), width),
        [line for gap in report.gaps for line in filled(" not shown: ", f"{gap.section}: {gap.reason}", width)],
        _sizes(report, width),
    ]
    lines = "\n\n".join("\n".join(section) for section in sections if section).split("\n")
    return "\n".join(shortened_line(printable(line), width) for line in lines)


def _sizes(report: WatchReport, width: int) -> list[str]:
    rows = [(shortened(name, _NAME_WIDTH), *numbers) for name, *numbers in sizes(report)]
    return columns([SIZES_HEAD, *rows], gap=2, width=width) if rows else []
