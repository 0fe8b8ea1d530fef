"""Copy or view, in a terminal: one sentence, and the steps of a chain where there are several."""

from __future__ import annotations

import textwrap

from tensormagic.renderers.tensor_copy_words import cost, left_out, outcome, sentence, word
from tensormagic.renderers.text_canvas import table
from tensormagic.reports import CopyVerdict


def copy_lines(verdict: CopyVerdict | None, width: int) -> list[str]:
    """Return the block, or nothing where there is no verdict."""
    if verdict is None:
        return []
    head = f" {word(verdict).upper()}  "
    said = "; ".join(part for part in (sentence(verdict), cost(verdict), _only_reason(verdict)) if part)
    lines = textwrap.wrap(_plain(said), width, initial_indent=head, subsequent_indent=" " * len(head))
    return lines + _steps(verdict)


def _only_reason(verdict: CopyVerdict) -> str:
    return verdict.steps[0].reason if len(verdict.steps) == 1 else ""


def _steps(verdict: CopyVerdict) -> list[str]:
    if len(verdict.steps) < 2:
        return []
    rows = [(step.code, _plain(outcome(step)), _plain(step.reason)) for step in verdict.steps]
    note = left_out(verdict)
    return table(rows, indent=2, gap=2) + ([f"  {note}"] if note else [])


def _plain(text: str) -> str:
    return text.replace("`", "")
