"""A backward that raised, untraced: who wrote and what was freed is read from the source where it leaves no doubt."""

from __future__ import annotations

import contextlib
import io

import pytest
import torch
from torch import nn

from tensormagic import api
from tensormagic.reports import TraceReport
from tests.corpus import ill_backward, ill_saved  # noqa: F401  (for the cases in them)
from tests.corpus.cases import ILL
from tests.support.untraced import read_untraced

STEPPED = """opt = torch.optim.SGD(net.parameters(), 0.1)
loss = net(x).sum()
loss.backward(retain_graph=True)
opt.step()
loss.backward()
"""
CLAMPED = """opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(2):
    loss = net(net(x)).sum()
    with torch.no_grad():
        net.weight.clamp_(-1, 1)
    loss.backward()
    opt.step()
"""  # the step comes after what failed
WRITES = [
    ("y = x.exp()\ny += 1\ny.sum().backward()", "add_", 2, 1),
    ("y = x.exp()\ny[0] = 1\ny.sum().backward()", "__setitem__", 2, 1),
    ("y = x.sigmoid()\ny.mul_(2)\ny.sum().backward()", "mul_", 2, 1),
    ("z = torch.ones(3)\nloss = (x * z).sum()\nz.zero_()\nloss.backward()", "zero_", 3, None),
    (STEPPED, "SGD.step", 4, None),
]  # fmt: skip

UNCERTAIN = [
    "y = x.exp()\nz = y.view(-1)\nz += 1\ny.sum().backward()",  # through another name
    "y = x.exp()\ny += 1\ny += 2\ny.sum().backward()",  # one of two
    "y = x.exp()\nchange(y)\ny.sum().backward()",  # in a function
    "y = torch.zeros(3)\ny += 1\ny = x.exp()\nchange(y)\ny.sum().backward()",  # what was written to is another tensor
    "y = x.exp()\nif x.sum() > 1e9:\n    y += 1\nchange(y)\ny.sum().backward()",  # it may not have run
    CLAMPED,
]

FREED = [
    ("loss = (x * x).sum()\nloss.backward()\nloss.backward()", {"whole": True, "first": 2}),
    ("loss = (x * x).sum()\n(g,) = torch.autograd.grad(loss, x)\nloss.backward()", {"whole": True, "first": 2}),
    ("out = net(x).tanh()\na = out.sum()\nb = out.mean()\na.backward()\nb.backward()",
     {"joint_name": "out", "made": 1, "first": 4}),
    ("h = torch.zeros(3)\nfor _ in range(2):\n    h = torch.tanh(net(h))\n    loss = h.sum()\n    loss.backward()",
     {"joint_name": "h", "made": 3, "joint_again": True}),
    ("state = None\nfor _ in range(2):\n    out, state = lstm(rows, state)\n    out.sum().backward()",
     {"joint_name": "state", "made": 3, "joint_again": True, "joint_tuples": ("state",)}),
    ("scale = x.exp()\nfor _ in range(2):\n    loss = (net(x) * scale).sum()\n    loss.backward()",
     {"joint_name": "scale", "made": 1, "joint_again": False}),
]  # fmt: skip


def change(y):
    """Write to a tensor where the caller's source does not show it."""
    y.add_(1)


def explained(program):
    """Run a program whose last backward raises; return the report of the error."""
    torch.manual_seed(0)
    names = {
        "torch": torch, "net": nn.Linear(3, 3), "x": torch.randn(3, requires_grad=True), "change": change,
        "lstm": nn.LSTM(3, 3), "rows": torch.randn(2, 3),
    }  # fmt: skip
    with pytest.raises(RuntimeError) as raised:
        exec(program, names)
    return api.explain_error(raised.value, namespace={})


@pytest.mark.parametrize(("program", "call", "line", "saved"), WRITES)
def test_who_wrote(program, call, line, saved):
    """The call and its line, and where it was saved, as far as that is sure; no trace is asked for."""
    report = explained(program)
    (write,) = report.backward.modified.writes
    assert (write.call, write.location.line) == (call, line)
    found = report.backward.modified.location
    assert (found and found.line) == saved
    assert "%%tracegrad" not in report.findings[0].remedy


@pytest.mark.parametrize("program", UNCERTAIN)
def test_who_may_have_written_is_not_said(program):
    """More than one statement may have done it, or none that is seen."""
    report = explained(program)
    assert report.backward.modified.writes == ()
    assert "%%tracegrad" in report.findings[0].remedy


@pytest.mark.parametrize(("program", "expected"), FREED)
def test_which_graph_was_freed(program, expected):
    """By an earlier backward on a line above, or by that of an earlier iteration."""
    freed = explained(program).backward.freed
    assert freed.known
    seen = {
        "whole": freed.whole, "first": freed.first.line, "joint_again": freed.joint_again,
        "joint_name": freed.joint_name, "joint_tuples": freed.joint_tuples,
        "made": freed.joint_location and freed.joint_location.line,
    }  # fmt: skip
    assert {name: seen[name] for name in expected} == expected


def test_a_view_that_may_not_be_asked_for_its_node_hides_nothing():
    """It has a name beside, was written to, and raises where its ``grad_fn`` is read."""
    stale = "part, _ = (x * 2).split([1, 2])\nwith torch.no_grad():\n    part.mul_(2)"
    report = explained(f"{stale}\nloss = (x * x).sum()\nloss.backward()\nloss.backward()")
    assert report.gaps == ()
    assert (report.backward.freed.first.line, report.backward.freed.joint_name) == (5, "loss")


def test_a_sum_made_before_the_loop_has_saved_nothing_that_could_be_gone():
    """It is the state that is carried on, though both are used again."""
    loop = "for _ in range(2):\n    h = torch.tanh(net(h) + both)\n    h.sum().backward()"
    freed = explained(f"both = x + x\nh = torch.zeros(3)\n{loop}").backward.freed
    assert (freed.joint_name, freed.joint_again) == ("h", True)


def test_what_a_block_binds_and_reads_is_not_carried_on():
    """The names below ``with`` are of this iteration; what was made before the loop is used again."""
    block = "    with torch.enable_grad():\n        out = net(x).tanh()\n        loss = (out * scale).sum()"
    freed = explained(f"scale = x.exp()\nfor _ in range(2):\n{block}\n    loss.backward()").backward.freed
    assert (freed.joint_name, freed.joint_again) == ("scale", False)


def test_a_backward_in_a_function_that_nobody_called_freed_nothing():
    """Making a function, or a lambda, runs nothing of it."""
    made = "def again():\n    loss.backward()\nlater = lambda: loss.backward()"
    program = f"loss = (x * x).sum()\n{made}\n[each.backward() for each in [loss]]\nloss.backward()"
    assert not explained(program).backward.freed.known


def test_the_sentence_counts_no_nodes_that_nobody_counted():
    """Of an iteration that is gone no node is known."""
    (finding,) = explained(FREED[3][0]).findings
    assert finding.message == (
        "h belongs to a graph that an earlier backward has freed, and the graph of loss leads back into it."
    )
    assert "`h = h.detach()`" in finding.remedy


CASES = [case for case in ILL if case.code in {"TM301", "TM304"}]
TOLD = 13  # of these the source tells


def test_the_source_tells_what_a_trace_sees(monkeypatch):
    """Of every program of the corpus: the same writer, or the same shared value; or nothing."""
    read, told = read_untraced(monkeypatch), 0
    for case in CASES:
        read.clear()
        with contextlib.redirect_stdout(io.StringIO()):
            report = case.run()
        seen = report.failure.backward if isinstance(report, TraceReport) and report.failure is not None else None
        for fault in (one["backward"] for one in read[:1] if seen is not None):
            if fault.modified is not None and fault.modified.writes:
                told += 1
                assert fault.modified.writes[0].location == seen.modified.writes[0].location, case.name
            if fault.freed is not None and fault.freed.known:
                told += 1
                same = (fault.freed.whole, fault.freed.joint_location, fault.freed.joint_again)
                assert same == (seen.freed.whole, seen.freed.joint_location, seen.freed.joint_again), case.name
    assert told >= TOLD
