"""When memory runs out, what was alive then is told, by whom it was held, and nothing of it is kept."""

from __future__ import annotations

import gc
import traceback
import weakref
from contextlib import nullcontext

import pytest
import torch

import tensormagic
from tensormagic.collectors.failures.failures import Surroundings, failure_of
from tensormagic.collectors.memory.live_memory import collect_memory
from tests.support.gaps import own_gaps

ASKED = 2**48  # elements: no machine has them
SEEN: list[weakref.ref[torch.Tensor]] = []


def forward(x):
    """Ask for too much, with a result and a list of results at hand."""
    hidden = x * 2
    kept = [hidden * 3]
    SEEN[:] = [weakref.ref(hidden), weakref.ref(kept[0])]
    return torch.empty(ASKED), kept


def step(net):
    """Call it with a batch of its own."""
    batch = torch.ones(1000)
    return forward(batch), net


def explained(net):
    """Return the report of the error, by ``tm.explain``."""
    with (
        pytest.raises(RuntimeError, match="DefaultCPUAllocator") as caught,
        tensormagic.explain(namespace={"net": net}) as told,
    ):
        step(net)
    return told.report, caught


def ended(watch):
    """Return how it ends under a context manager: type, message, lines and what came before."""
    with pytest.raises(RuntimeError) as caught, watch():
        step(None)
    names = [(entry.name, entry.lineno) for entry in traceback.extract_tb(caught.value.__traceback__)]
    return caught.type, str(caught.value), names, caught.value.__context__


def test_what_was_alive_is_told_with_the_variables_of_the_functions_that_failed():
    """The call, its line, the bytes asked for; names, and locals as holders with the line where each function stood."""
    net = torch.nn.Linear(100, 100)
    report, _ = explained(net)
    told = report.out_of_memory
    assert (told.device, told.asked, told.op) == ("cpu", 4 * ASKED, "torch.empty")
    assert told.location.text == "return torch.empty(ASKED), kept"
    assert told.free > 0
    assert report.operands == ()
    assert report.mismatch is None
    found = {one.name: one for one in report.memory.storages}
    assert found["net.weight"].nbytes == 40_000
    hidden, batch = found["forward.<locals>.hidden"], found["forward.<locals>.x"]
    assert (hidden.nbytes, hidden.holders[0].kind, hidden.holders[0].location.line) == (
        4000, "traceback", told.location.line,
    )  # fmt: skip
    assert [holder.path for holder in batch.holders] == ["forward.<locals>.x", "step.<locals>.batch"]
    assert found["forward.<locals>.kept[0]"].nbytes == 4000


def test_what_only_the_error_holds_is_counted():
    """Bytes of these functions are free once the error is let go of, but for those that a name leads to as well."""
    net = torch.nn.Linear(100, 100)
    report, _ = explained(net)
    assert report.out_of_memory.only_error == 3 * 4000


def test_what_a_name_would_free_is_told_even_then():
    """The error has its variables, and a name has its own: what ``del`` of it frees does not depend on the error."""
    names = {"losses": [torch.ones(2000)], "net": torch.nn.Linear(10, 10)}
    with pytest.raises(RuntimeError), tensormagic.explain(namespace=names) as told:
        step(names["net"])
    freed = {one.name: one.nbytes for one in told.report.memory.freeable}
    assert freed["losses"] == 8000
    assert freed["net"] == 0  # `step` was given it, and the error has `step`


@pytest.mark.parametrize("how", ["explain", "track"])
def test_nothing_is_kept_alive(how):
    """What the functions that failed had is gone as soon as the error is, without a look of Python's for cycles."""
    gc.collect()
    gc.disable()
    try:
        run = tensormagic.explain() if how == "explain" else tensormagic.track_memory()
        try:
            with run:
                step(None)
        except RuntimeError as error:
            assert SEEN[0]() is not None
            del error
        assert [one() for one in SEEN] == [None, None]
        assert run.report.out_of_memory.asked == 4 * ASKED
    finally:
        gc.enable()


def test_a_look_at_the_memory_makes_no_cycle_that_holds_it():
    """A tensor that was deleted after ``tm.memory`` is gone at once: the walk left nothing that holds it."""
    x = torch.ones(1000, requires_grad=True)
    y = (x * 2).sin()
    gc.collect()
    gc.disable()
    try:
        assert collect_memory({"y": y}).looked > 0
        alive = weakref.ref(y)
        del y
        assert alive() is None
    finally:
        gc.enable()


def test_the_error_is_what_it_was():
    """Type, message and traceback lines are those of a run without us."""
    assert ended(nullcontext) == ended(tensormagic.explain) == ended(tensormagic.track_memory)


def test_a_run_that_died_tells_the_moment():
    """``tm.track_memory`` has the refused call, and who held what at that moment."""
    with pytest.raises(RuntimeError), tensormagic.track_memory(namespace={}) as run:
        step(None)
    report = run.report
    assert report.state == "failed"
    assert (report.out_of_memory.asked, report.out_of_memory.op) == (4 * ASKED, "torch.empty")
    assert {"forward.<locals>.hidden", "forward.<locals>.kept[0]"} <= {one.name for one in report.at_end}


def test_pythons_own_memory_error_is_told_too():
    """A list or array of Python's that does not fit: the same picture, without a call of torch's."""

    def build():
        weights = torch.ones(500)
        return bytearray(2**55), weights

    with pytest.raises(MemoryError), tensormagic.explain(namespace={}) as told:
        build()
    report = told.report
    assert (report.function, report.out_of_memory.asked, report.out_of_memory.device) == ("", None, "cpu")
    assert "build.<locals>.weights" in {one.name for one in report.memory.storages}
    assert str(report).startswith("── a call of torch ── memory ran out ──")


def test_what_cannot_be_looked_at_is_a_gap():
    """Where looking itself fails, what the message tells is told all the same."""

    class Closed(dict):
        """Names that nobody may read."""

        def items(self):
            """Refuse."""
            raise MemoryError("no more")

    try:
        torch.empty(ASKED)
    except RuntimeError as error:
        report = failure_of(error, Surroundings(Closed()))
    assert report.out_of_memory.asked == 4 * ASKED
    assert [gap.section for gap in own_gaps(report.memory)] == ["memory"]


def test_other_errors_are_explained_as_before():
    """A refused call that has nothing to do with memory gets no such picture."""
    with pytest.raises(RuntimeError), tensormagic.explain(namespace={}) as told:
        torch.ones(2, 3) @ torch.ones(4, 5)
    assert told.report.out_of_memory is None
    assert told.report.memory is None
    assert len(told.report.operands) == 2
