"""Who keeps a tensor alive, in a terminal."""

from __future__ import annotations

import textwrap

from tensormagic.renderers.tensor.tensor_holders_words import nobody_else, notes, rows
from tensormagic.renderers.terminal.text_canvas import table
from tensormagic.reports import HoldersReport


def holders_lines(report: HoldersReport | None, name: str, width: int) -> list[str]:
    """Return the table with its notes, or nothing where not searched."""
    if report is None:
        return []
    if nobody_else(report, name):
        lines = [f" HELD BY  only {name}"]
    else:
        heads = ("HELD BY", "KEEPS ALIVE", "WHICH IS")
        lines = table([heads, *rows(report)], gap=2, width=width) if report.holders else []
    sentence = " ".join(notes(report, name))
    head = " " if lines else " HELD BY  "
    return lines + (textwrap.wrap(sentence, width, initial_indent=head, subsequent_indent=" ") if sentence else [])
