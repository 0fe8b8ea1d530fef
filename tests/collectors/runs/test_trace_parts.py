"""A question more to a trace: one class and one line in a table, and its answer stands in the report."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

import pytest
import torch

import tensormagic as tm
from tensormagic.collectors.gradients.gradients import PassRecorder
from tensormagic.collectors.gradients.pass_log import TraceContext, TracePart, hearing
from tensormagic.collectors.runs import run, trace
from tensormagic.reports import Gap, TraceReport


class Toy(TracePart):
    """Counts the nodes of each pass, and writes down what it is told of."""

    def __init__(self, shared: TraceContext, *given) -> None:
        self._shared, self._given = shared, given
        self._losses, self._told = [], []

    def enter(self, undoing) -> None:
        undoing.callback(self._told.append, "undone")
        self._told.append("enter")

    def pass_called(self, roots, followed) -> None:
        self._told.append("called")

    def graph_begins(self, found, graph) -> None:
        self._told.append("new graph")

    def begin_pass(self, found, followed) -> None:
        self._told.append(f"{len(found.nodes)} nodes")

    def before_pass(self, call, followed) -> None:
        self._told.append("before")

    def end_pass(self, found, followed, call, error) -> None:
        self._told.append(f"ended {type(error).__name__}")

    def keep_pass(self, followed):
        return lambda done: self._losses.append(done.value)

    def after_pass(self, call, followed) -> None:
        self._told.append("after")

    def finish(self, error) -> None:
        self._told.append("finish")

    def explain(self, error) -> None:
        self._told.append(f"explain {type(error).__name__}")

    def gaps(self):
        return (Gap("toy", "it sees little"),)

    def fields(self, graphs):
        return {"toy_losses": tuple(self._losses), "toy_told": (*self._told, *self._given), "toy_graphs": len(graphs)}


@dataclass(frozen=True, kw_only=True)
class ToyReport(TraceReport):
    """A report with the fields of one question more."""

    toy_losses: tuple[float, ...] = ()
    toy_told: tuple[str, ...] = ()
    toy_graphs: int = 0


@pytest.fixture
def toy_report(monkeypatch):
    monkeypatch.setattr(trace, "Toy", Toy, raising=False)  # its file
    monkeypatch.setattr(trace, "TraceReport", ToyReport)


PASS = ["called", "new graph", "3 nodes", "before", "ended NoneType", "after"]


@pytest.mark.usefixtures("toy_report")
@pytest.mark.parametrize("pace", [{}, {"every": 2}])
def test_a_new_question_is_one_class_and_one_line_in_the_table(monkeypatch, pace):
    monkeypatch.setitem(run.TRACE_PARTS, "toy", ("runs.trace", "Toy"))
    w = torch.ones(2, requires_grad=True)
    with tm.trace(**pace) as traced:
        (w * 2).sum().backward()
    report = traced.report
    assert (report.toy_losses, report.toy_graphs) == ((4.0,), 1)
    assert report.toy_told == ("enter", *PASS, "undone", "finish")
    assert Gap("toy", "it sees little") in report.gaps


@pytest.mark.usefixtures("toy_report")
def test_it_is_told_of_what_fails(monkeypatch):
    monkeypatch.setitem(run.TRACE_PARTS, "toy", ("runs.trace", "Toy"))
    w = torch.ones(2, requires_grad=True)
    loss, traced = (w * w).sum(), tm.trace()

    def twice():
        with traced:
            loss.backward()
            loss.backward()

    with pytest.raises(RuntimeError):
        twice()
    again = [*PASS[:1], *PASS[2:4], "ended RuntimeError", "after"]
    assert list(traced.report.toy_told) == ["enter", *PASS, *again, "undone", "finish", "explain RuntimeError"]


@pytest.mark.usefixtures("toy_report")
def test_one_that_has_to_be_asked_for_is_there_where_it_is_asked(monkeypatch):
    monkeypatch.setitem(run.ASKED_PARTS, "toy", ("runs.trace", "Toy"))
    w = torch.ones(2, requires_grad=True)
    asked, other = tm.trace(), tm.trace()
    asked._tracer.ask("toy", "given")
    for traced in (asked, other):
        with traced:
            (w * 2).sum().backward()
    assert asked.report.toy_told == ("enter", *PASS, "undone", "finish", "given")
    assert other.report.toy_told == ()


def test_parts_are_called_only_for_what_they_look_at():
    class Silent(TracePart):
        pass

    silent, toy = Silent(), Toy(None)
    assert hearing([silent, toy], "begin_pass") == (toy,)
    assert hearing([silent, toy], "forget") == ()


@pytest.mark.parametrize("table", [run.TRACE_PARTS, run.ASKED_PARTS], ids=["always", "asked"])
def test_every_line_of_the_tables_leads_to_a_part(table):
    kinds = {
        name: getattr(import_module(f"tensormagic.collectors.{module}"), kind) for name, (module, kind) in table.items()
    }
    assert [name for name, kind in kinds.items() if not issubclass(kind, TracePart)] == []


def test_a_pass_that_cannot_be_kept_is_a_gap_and_no_error_of_the_run(monkeypatch):
    """Whatever cannot be read when a backward ends: the run goes on, and the next pass is told."""
    closed, w = PassRecorder.close, torch.ones(3, requires_grad=True)

    def close(recorder):
        closed(recorder)
        if w.grad is None or w.grad[0] < 4:
            raise ValueError("odd")

    monkeypatch.setattr(PassRecorder, "close", close)
    with tm.trace(namespace={"w": w}) as trace:
        for _ in range(2):
            w.square().sum().backward()
    assert w.grad.tolist() == [4.0] * 3
    (gap,) = trace.report.gaps
    assert gap.reason == "a backward could not be traced to its end: ValueError: odd"
    assert [one.outcome for one in trace.report.passes] == ["finished"]
