"""``%tensormagic watch on``: a quick look after each cell, silent unless something new is wrong."""

from __future__ import annotations

import ast
import dataclasses
import functools
import re
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from tensormagic import api
from tensormagic.magics.arguments import expressions
from tensormagic.magics.frames import answer_of, show, value_of
from tensormagic.magics.live_output import last_report
from tensormagic.magics.shared_assets import cell_number
from tensormagic.words import error_text

if TYPE_CHECKING:
    from tensormagic.reports import Finding, TraceReport, WatchReport

EVENT = "post_run_cell"
_AMOUNTS = ("bytes", "elements", "bytes a run")  # the evidence that has to double before a finding is reported again

_Key = tuple[str, str]


class Watcher:
    """Looks after each cell of a shell, while it is switched on."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._watch: api.Watch | None = None
        self._described: dict[_Key, float] = {}
        self._panel: TraceReport | None = None  # plain data

    def switch(self, *, on: bool) -> None:
        """Begin to look, or leave nothing behind; twice is the same as once."""
        if on and self._watch is None:
            self._watch = api.Watch(functools.partial(cell_number, self._shell))
            self._panel = last_report(self._shell)
            self._shell.events.register(EVENT, self._look)
        elif not on and self._watch is not None:
            self._shell.events.unregister(EVENT, self._look)
            self._watch = None
            self._described.clear()
            self._panel = None

    def check(self) -> None:
        """Show all of the current state."""
        watch = self._watch or api.Watch(functools.partial(cell_number, self._shell))
        show(watch.look(self._shell.user_ns))

    def check_start(self, expression: str) -> None:
        """Show what one batch shows about a training before it begins: ``net, optimizer, loader, loss``.

        Raises:
            UsageError: for what is no expression, for a name that is not there, or where there is no model among them.
        """
        from tensormagic.reports.base import with_cells

        if option := re.search(r"(?:^|\s)--\w+", expression):
            raise UsageError(f"%tensormagic check takes no options, but was given {option[0].strip()}")
        expression = ", ".join(expressions(expression.split()))  # with or without commas, as for %tensor
        given = value_of(self._shell, expression)
        several = isinstance(ast.parse(expression, mode="eval").body, ast.Tuple)
        report = answer_of(api.start, given if several else (given,), self._shell.user_ns)
        show(with_cells(report, functools.partial(cell_number, self._shell)))

    def _look(self, result: Any) -> None:
        """Look, and show what is new; what goes wrong is one line: the cell's own outcome counts."""
        if self._watch is None:
            return
        try:
            code = str(getattr(getattr(result, "info", None), "raw_cell", ""))
            report = self._watch.look_after(code, self._shell.user_ns)
            if new := self._new(report):
                show(dataclasses.replace(report, findings=new, sizes=()))
        except Exception as error:  # noqa: BLE001  (whatever it is, it is no error of the cell's)
            print(f"tensormagic watch failed: {error_text(error)}")  # noqa: T201

    def _new(self, report: WatchReport) -> tuple[Finding, ...]:
        """Return what is above a note and was not reported yet, or is twice as much as when it was."""
        panel = last_report(self._shell)  # what the last traced run reported while the watch was on is not told twice
        shown = {_key(one) for one in panel.findings} if panel is not None and panel is not self._panel else set()
        found = [one for one in report.findings if one.severity != "note" and _key(one) not in shown]
        known = [self._described.get(_key(finding)) for finding in found]
        new = tuple(finding for finding, described in zip(found, known, strict=True)
                    if described is None or _amount(finding) >= 2 * described > 0)  # fmt: skip
        self._described.update((_key(finding), _amount(finding)) for finding in new)
        if not report.gaps:  # what was mended is reported again if it comes back
            there = {_key(finding) for finding in found}
            self._described = {key: amount for key, amount in self._described.items() if key in there}
        return new


def _key(finding: Finding) -> _Key:
    """Return what a finding is about; the history and the last error are one thing each, whatever lies in them."""
    return finding.code, "" if finding.code in {"TM501", "TM502"} else finding.subject


def _amount(finding: Finding) -> float:
    numbers = (finding.evidence.get(name) for name in _AMOUNTS)
    return next((float(number) for number in numbers if isinstance(number, int | float)), 0.0)
