"""A pytest plugin that follows every test of another project.

``PYTHONPATH=…/tests/ecosystem FOLLOW=trace python -m pytest -p followed their/tests``, and the same with
``FOLLOW=none`` (or ``mode``: a dispatch mode that does nothing): a test that fails in the first alone shows a defect of
tensormagic. A test fails, too, where its run cannot begin, end or be drawn, or leaves something behind.
"""

from __future__ import annotations

import collections
import contextlib
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tensormagic as tm

_HERE = str(Path(__file__).parents[2])
sys.path.insert(0, _HERE)
from tests.ecosystem.follow import FOLLOWERS, Idle  # noqa: E402  (found there)
from tests.support.leftovers import leftovers, snapshot  # noqa: E402  (likewise)

sys.path.remove(_HERE)
for _name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
    del sys.modules[_name]  # the other project may have modules of these names


_FOLLOWERS = FOLLOWERS | {
    "mode": Idle,
    "unmeasured": lambda: tm.trace(forward=True, values=True, writes=True, draws=True),  # all but memory: quick
}
_FOLLOW = os.environ.get("FOLLOW", "none")
_found: collections.Counter[str] = collections.Counter()
_gaps: collections.Counter[str] = collections.Counter()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Follow a test; its own outcome is what counts, where it has failed."""
    if _FOLLOW == "none":
        return (yield)
    before = snapshot()
    with _FOLLOWERS[_FOLLOW]() as run:
        result = yield
    if (report := getattr(run, "report", None)) is not None:
        with warnings.catch_warnings(), contextlib.redirect_stdout(None):
            warnings.simplefilter("ignore")
            report._repr_mimebundle_()
        _found.update(f"{one.code} {one.severity}" for one in report.findings if one.severity != "note")
        _gaps.update(gap.reason for gap in report.gaps)
    if left := leftovers(before, snapshot()):
        pytest.fail("; ".join(left))
    return result


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say what was found, and what could not be seen."""
    for title, counted in (("findings", _found), ("gaps", _gaps)):
        if counted:
            terminalreporter.section(f"{title} under {_FOLLOW}")
        for text, times in counted.most_common(30):
            terminalreporter.line(f"{times:6} {text}")
