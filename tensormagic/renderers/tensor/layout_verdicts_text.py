"""The verdicts on a layout as lines of a terminal."""

from __future__ import annotations

import textwrap

from tensormagic.renderers.tensor.layout_words import verdicts
from tensormagic.reports import TensorReport


def verdict_lines(report: TensorReport, width: int) -> list[str]:
    """Return one paragraph a verdict under a hanging indent; nothing for a tensor without strides."""
    if report.layout is None or not report.layout.shape:
        return []
    lines = []
    for title, sentence in verdicts(report.layout):
        head = f" {title.upper():<8}"
        lines += textwrap.wrap(
            sentence.replace("`", ""),
            width,
            initial_indent=head,
            subsequent_indent=" " * len(head),
            break_on_hyphens=False,
        )
    return lines
