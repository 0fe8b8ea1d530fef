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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torch.utils._python_dispatch import TorchDispatchMode

import tensormagic as tm

_HERE = str(Path(__file__).parents[2])
sys.path.insert(0, _HERE)
from tests.support.leftovers import leftovers, snapshot  # noqa: E402  (found there)

sys.path.remove(_HERE)
for _name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
    del sys.modules[_name]  # the other project may have modules of these names


class _Mode(TorchDispatchMode):
    report = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


_FOLLOWERS: dict[str, Callable[[], Any]] = {
    "mode": _Mode, "trace": tm.trace, "ops": lambda: tm.trace(level="ops"), "memory": tm.track_memory,
    "forward": lambda: tm.trace(forward=True, values=True), "budget": lambda: tm.trace(budget=0.2),
    "writes": tm.watch_writes, "draws": tm.track_rng,
    "unmeasured": lambda: tm.trace(forward=True, values=True, writes=True, draws=True),  # all but memory: quick
    "all": lambda: tm.trace(forward=True, values=True, memory=True, writes=True, draws=True),
}  # fmt: skip
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
    if (report := run.report) is not None:
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
