"""``%gpumem --free``: what only the history keeps is listed, then let go of; nothing of the user's is touched."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from tensormagic.reports import FreeHistoryReport, MemoryReport

FAILING = "def failing():\n    inside = torch.zeros(2000)\n    raise ValueError('no')\nfailing()"
_ERRORS = ("last_exc", "last_value", "last_traceback", "last_type")


@pytest.fixture(autouse=True)
def _own_errors() -> Iterator[None]:
    """Put the errors that the test runner keeps back."""
    kept = {name: vars(sys).pop(name) for name in _ERRORS if name in vars(sys)}
    yield
    for name in _ERRORS:
        vars(sys).pop(name, None)
    vars(sys).update(kept)


def weak(x: torch.Tensor) -> StorageWeakRef:
    """Return a weak reference to a tensor's storage."""
    return StorageWeakRef(x.untyped_storage())


def entries(report: FreeHistoryReport) -> dict[str, int]:
    """Return what frees how much."""
    return {one.name: one.nbytes for one in report.entries}


def test_the_history_is_listed_and_nothing_is_dropped(cell, shell):
    """Outputs that no name leads to, and the last error's locals; an output that is a variable is not listed."""
    for source in ("torch.zeros(1000)", "a", FAILING):
        cell(source)
    ran = cell("%gpumem --free --into kept")
    report = shell.user_ns["kept"]
    assert entries(report) == {"the last error (ValueError)": 8000, "Out[1]": 4000}
    assert (report.nbytes, report.dropped, report.freed) == (12_000, False, 0)
    assert "keep 11.7 KiB that nothing else holds" in ran.shown[0]["text/plain"]
    assert sorted(shell.user_ns["Out"]) == [1, 2]


def test_what_showing_an_error_left_behind_holds_nothing_up(cell, shell):
    """IPython formats frames into objects that refer to each other: they are garbage, and count as that."""
    cell(FAILING)
    circle = [sys.last_value.__traceback__]
    circle.append(circle)
    del circle
    report = cell("%gpumem --into found --text\nfound").value
    assert {one.name: one.nbytes for one in report.freeable}["the last error (ValueError)"] == 8000
    cell("%gpumem --free --into kept")
    assert entries(shell.user_ns["kept"]) == {"the last error (ValueError)": 8000}


def test_an_output_that_was_deleted_leaves_nothing_behind(cell, shell):
    """``%xdel`` of the last output leaves None for it, which is also the value of a cell that shows none."""
    cell("torch.zeros(1000)")
    cell("%xdel _1")
    assert cell("%gpumem --text --into found").error is None
    assert cell("%gpumem --free --into kept").error is None
    assert entries(shell.user_ns["kept"]) == {}


def test_yes_lets_go_of_what_only_the_history_holds(cell, shell):
    """The storages are gone, as measured; ``Out``, ``_`` and ``sys.last_value`` are clear of them; variables stay."""
    for source in ("torch.zeros(1000)", "a", FAILING, "torch.zeros(500)"):
        cell(source)
    gone = [weak(shell.user_ns["Out"][number]) for number in (1, 4)]
    stays = weak(shell.user_ns["a"])
    cell("%gpumem --free --yes --into freed")
    report = shell.user_ns["freed"]
    assert (report.dropped, report.freed, report.nbytes, report.storages) == (True, 14_000, 14_000, 3)
    assert [one.expired() for one in gone] == [True, True]
    assert not stays.expired()
    assert sorted(shell.user_ns["Out"]) == [2]
    assert "_1" not in shell.user_ns
    assert shell.user_ns["_"] == ""
    assert not hasattr(sys, "last_value")
    assert [gain.device for gain in report.gains][:1] == ["cpu"]


def test_after_letting_go_ipython_works_on(cell, shell):
    """The next output gets its number and its underscore; a second time there is nothing to let go of."""
    cell("torch.zeros(10)")
    cell("%gpumem --free --yes")
    assert "Neither the outputs nor the last error" in cell("%gpumem --free").shown[0]["text/plain"]
    cell("1 + 1")
    assert (shell.user_ns["_"], shell.user_ns["Out"][4]) == (2, 2)
    assert cell("%tb").error is None


def test_an_underscore_of_the_persons_own_is_left_alone(cell, shell):
    """``for _ in batches`` leaves the last batch in ``_``: that is a variable."""
    cell("torch.zeros(10)")
    cell("for _ in [torch.zeros(30)]: pass")
    kept = weak(shell.user_ns["_"])
    cell("%gpumem --free --yes")
    assert not kept.expired()
    assert tuple(shell.user_ns["_"].shape) == (30,)


def test_two_outputs_that_share_memory_go_together(cell, shell):
    """Neither frees anything alone; both are listed, with the sum of what they free together."""
    cell("torch.zeros(1000)")
    cell("_[:10]")
    cell("%gpumem --free --into kept")
    report = shell.user_ns["kept"]
    assert entries(report) == {"Out[1]": 0, "Out[2]": 0}
    assert report.nbytes == 4000
    cell("%gpumem --free --yes --into freed")
    assert shell.user_ns["freed"].freed == 4000


def test_the_code_that_is_told_frees_what_is_told(cell, shell):
    """Running the code of each release in IPython frees its bytes: of an output, of a name and an output together."""
    for source in ("torch.zeros(1000)", "mine = torch.zeros(3000)", "mine"):
        cell(source)
    cell("%gpumem --into seen")
    report: MemoryReport = shell.user_ns["seen"]
    freeable = {one.name: one for one in report.freeable}
    assert {name: freeable[name].nbytes for name in ("Out[1]", "mine, Out[3]", "mine")} == {
        "Out[1]": 4000, "mine, Out[3]": 12_000, "mine": 0,
    }  # fmt: skip
    first, second = weak(shell.user_ns["Out"][1]), weak(shell.user_ns["mine"])
    cell(freeable["Out[1]"].code)
    gc.collect()
    assert (first.expired(), second.expired()) == (True, False)
    cell(freeable["mine, Out[3]"].code)
    gc.collect()
    assert second.expired()


def test_what_does_not_go_together_is_refused(cell):
    """``--yes`` needs ``--free``; names are the user's, whom ``--free`` does not touch."""
    assert "%gpumem --free --yes" in cell("%gpumem --yes").err
    assert "use del for your own names" in cell("%gpumem --free a").err
