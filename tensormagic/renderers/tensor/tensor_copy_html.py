"""Copy or view, as HTML: one line under the header, and the steps of a chain where there are several."""

from __future__ import annotations

from tensormagic.renderers.basics.finding_html import with_code
from tensormagic.renderers.basics.markup import escape, tag
from tensormagic.renderers.tensor.tensor_copy_words import cost, left_out, outcome, sentence, word
from tensormagic.reports import CopyVerdict, Step

_NEW = {"copy", "new", "separate"}  # outcomes in memory of their own: a filled mark; in an input's: an open one


def copy_html(verdict: CopyVerdict | None) -> str:
    """Return the block, or nothing where there is no verdict."""
    if verdict is None:
        return ""
    parts = [tag("b", escape(word(verdict))), tag("span", with_code(sentence(verdict)))]
    parts += [tag("span", escape(cost(verdict)), class_="quiet")] if cost(verdict) else []
    only = verdict.steps[0].reason if len(verdict.steps) == 1 else ""
    line = tag("p", _mark(verdict.outcome), " ".join(parts), class_="tm-said")
    more = tag("p", with_code(only), class_="tm-why quiet") if only else ""
    return tag("div", line, more, _steps(verdict), class_="tm-section tm-copy")


def _mark(state: str) -> str:
    return tag("i", "", class_="tm-mark tm-filled" if state in _NEW else "tm-mark")


def _steps(verdict: CopyVerdict) -> str:
    if len(verdict.steps) < 2:
        return ""
    rows = [_row(step) for step in verdict.steps]
    note = left_out(verdict)
    rows += [tag("tr", tag("td", escape(note), colspan=3, class_="quiet"))] if note else []
    return tag("table", tag("tbody", *rows), class_="tm-list tm-steps")


def _row(step: Step) -> str:
    cells = tag("td", _mark(step.outcome), with_code(outcome(step))), tag("td", with_code(step.reason), class_="quiet")
    return tag("tr", tag("th", tag("code", escape(step.code))), *cells)
