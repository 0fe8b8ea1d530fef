"""Copy or view, in a terminal: one sentence, and the steps of a chain where there are several."""

from __future__ import annotations

import textwrap

from tensormagic.renderers.tensor.tensor_copy_words import cost, left_out, outcome, sentence, word
from tensormagic.renderers.terminal.text_canvas import table
from tensormagic.reports import CopyVerdict, Step


def copy_lines(verdict: CopyVerdict | None, width: int) -> list[str]:
    """Return the block, or nothing where there is no verdict."""
    if verdict is None:
        return []
    head = f" {word(verdict).upper()}  "
    phrase = "; ".join(part for part in (sentence(verdict), cost(verdict), _only_reason(verdict)) if part)
    lines = textwrap.wrap(_plain(phrase), width, initial_indent=head, subsequent_indent=" " * len(head))
    return lines + _steps(verdict, width)


def _only_reason(verdict: CopyVerdict) -> str:
    return verdict.steps[0].reason if len(verdict.steps) == 1 else ""


def _steps(verdict: CopyVerdict, width: int) -> list[str]:
    if len(verdict.steps) < 2:
        return []
    rows = table([(step.code, _plain(outcome(step)), "") for step in verdict.steps], indent=2, gap=2)
    room = max(map(len, rows)) + 2
    lines = [line for row, step in zip(rows, verdict.steps, strict=True) for line in _row(row.ljust(room), step, width)]
    note = left_out(verdict)
    return lines + ([f"  {note}"] if note else [])


def _row(head: str, step: Step, width: int) -> list[str]:
    """Return one step with its reason beside it, on as many lines as that takes."""
    wrapped = textwrap.wrap(_plain(step.reason), max(width - len(head), 24)) or [""]
    return [
        (start + line).rstrip() for start, line in zip([head, *[" " * len(head)] * len(wrapped)], wrapped, strict=False)
    ]


def _plain(text: str) -> str:
    return text.replace("`", "")
