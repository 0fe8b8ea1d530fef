"""A backward on a value without a graph, untraced: which line ended it, read from the source; or nothing is said."""

from __future__ import annotations

from contextlib import suppress

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tensormagic import api
from tests.corpus import ill_forum, ill_tracker_loops, ill_without_history  # noqa: F401  (for the cases in them)
from tests.corpus.cases import ILL
from tests.support.untraced import read_untraced

UPDATED = """w = torch.ones(2, requires_grad=True)
for _ in range(2):
    loss = (w * 2).sum()
    loss.backward()
    with torch.no_grad():
        w = w - 0.1 * w.grad
"""
CUT = [
    ("loss = net(x).mean().detach()", ("detach", "detach"), 1),
    ("out = net(x).detach()\nloss = out.mean()", ("detach", "detach"), 1),
    ("out = net(x)\nloss = F.mse_loss(out.data, y)", ("data", "data"), 2),
    ("loss = torch.tensor(net(x).mean().item())", ("item", "item"), 1),
    ("loss = torch.tensor(net(x).mean())", ("copy", "tensor"), 1),
    ("number = float(net(x).mean())\nloss = torch.tensor(number)", ("item", "float"), 1),
    ("loss = (net(x).argmax(1) == 0).float().mean()", ("non-differentiable", "argmax"), 1),
    ("loss = torch.argmax(net(x), 1).float().mean()", ("non-differentiable", "argmax"), 1),
    ("loss = (net(x) > 0).float().mean()", ("non-differentiable", "gt"), 1),
    ("out = net(x)\nloss = (out.long() - 1).float().sum()", ("cast", "long"), 2),
    ("loss = (net(x).to(torch.int64) * 1.0).sum()", ("cast", "to"), 1),
    ("with torch.no_grad():\n    out = net(x)\nloss = out.mean()", ("no_grad", "no_grad"), 1),
    ("with torch.inference_mode():\n    loss = net(x).mean()", ("inference_mode", "inference_mode"), 1),
    ("with torch.set_grad_enabled(phase == 'train'):\n    loss = net(x).mean()", ("no_grad", "no_grad"), 1),
    ("out = predicted(x)\nloss = out.mean()", ("no_grad", "no_grad"), None),
    ("losses = []\nfor _ in range(2):\n    losses.append(net(x).mean().item())\nloss = torch.tensor(losses).sum()",
     ("item", "item"), 3),
    (UPDATED, ("no_grad", "no_grad"), 5),
    ("a, b = net(x).detach(), x\nloss = a.sum() + b.sum()", ("detach", "detach"), 1),
    ("loss = torch.zeros(())\nloss = loss + net(x).detach().sum()", ("detach", "detach"), 2),
    ("F.mse_loss(net(x).detach(), y).backward()", ("detach", "detach"), 1),
]  # fmt: skip

UNCERTAIN = [  # what is true of these cannot be read off: nothing is said of them
    "loss = make(x)",
    "loss = make(x).item() * x.sum()",
    "if x.sum() > 0:\n    loss = net(x).detach().mean()\nelse:\n    loss = net(x).mean()",
    "loss = given",
    "if x.sum() > 1e9:\n    given = net(x).detach().sum()\n(given * 1).backward()",
    "loss = net(x).max(1)[1].float().mean()",
    "parts = net(x).detach().split(1)\nloss = sum(each.sum() for each in parts)",
    "holder.loss = x.sum()\nloss = holder.loss",
    "loss = x.new_tensor(make(x).tolist()).sum()",
    "out = net(x)\nloss = make(out)",
    "with torch.set_grad_enabled(bool(len('') - len(''))):\n    loss = net(x).mean()",
]


@torch.no_grad()
def predicted(x):
    """Return what a network without a history gives."""
    return nn.Linear(3, 2)(x)


def make(x):
    """Return a value of which the caller's source does not tell how it was made."""
    return x.sum().detach()


class Holder:
    """Holds what is put into it."""


def names():
    """Return what the programs use."""
    return {
        "torch": torch, "F": F, "net": nn.Linear(3, 2), "x": torch.ones(4, 3), "y": torch.ones(4, 2), "phase": "val",
        "predicted": predicted, "make": make, "given": torch.ones(()), "holder": Holder(),
    }  # fmt: skip


def refused(program, **given):
    """Run a program whose backward torch refuses; return the report of the error."""
    source = program if ".backward()" in program else f"{program}\nloss.backward()"
    with pytest.raises(RuntimeError) as raised:
        exec(source, {**names(), **given})
    return api.explain_error(raised.value, namespace={})


@pytest.mark.parametrize(("program", "what", "line"), CUT)
def test_what_ended_it(program, what, line):
    """The call and its line; the sentence is that of a trace, and names both lines."""
    report = refused(program)
    (cut,) = report.cuts
    assert (cut.kind, cut.op) == what
    ended = report.locations[cut.location]
    assert ended.line == line if line else ended.text == "@torch.no_grad()"
    (finding,) = report.findings
    assert (finding.code, finding.location) == ("TM306", report.locations[cut.call_location or cut.location])
    assert "%%tracegrad" not in finding.remedy


@pytest.mark.parametrize("program", UNCERTAIN)
def test_what_is_not_certain_is_not_said(program):
    """The sentence leaves it open, and says how to find out."""
    report = refused(program)
    assert (report.losses_without_graph, report.cuts) == ((), ())
    assert "%%tracegrad" in report.findings[0].remedy


def test_nothing_that_asks_for_a_gradient():
    """All that it was made from is known, and the model that it came from is frozen."""
    report = refused("out = net(x)\nloss = out.mean()", net=nn.Linear(3, 2).requires_grad_(False))
    (loss,) = report.losses_without_graph
    assert (loss.name, report.cuts) == ("loss", ())
    assert "all 2 parameters of net are frozen" in report.findings[0].message


def test_data_made_under_no_grad_is_no_reason():
    """It would have no history outside that block either."""
    program = "with torch.no_grad():\n    data = torch.ones(4, 3)\nloss = net(data).mean()"
    report = refused(program, net=nn.Linear(3, 2).requires_grad_(False))
    assert "all 2 parameters of net are frozen" in report.findings[0].message


def test_inside_a_function():
    """Its parameters tell nothing of how they were made; what it binds itself does."""
    given = "def step(loss):\n    loss.backward()\nstep(net(x).detach().sum())"
    with pytest.raises(RuntimeError) as raised:
        exec(given, names())
    assert api.explain_error(raised.value, namespace={}).cuts == ()
    made = "def step(net, x):\n    out = net(x)\n    loss = out.detach().sum()\n    loss.backward()\nstep(net, x)"
    with pytest.raises(RuntimeError) as raised:
        exec(made, names())
    report = api.explain_error(raised.value, namespace={})
    assert report.locations[report.cuts[0].location].text == "loss = out.detach().sum()"


def test_a_function_that_is_decorated(tmp_path):
    """The decorator is what is in the way, for all that the function does."""
    program = "@torch.no_grad()\ndef step(net, x):\n    loss = net(x).mean()\n    loss.backward()\nstep(net, x)"
    (path := tmp_path / "step.py").write_text(program, encoding="utf-8")
    with pytest.raises(RuntimeError) as raised:
        exec(compile(program, str(path), "exec"), names())
    report = api.explain_error(raised.value, namespace={})
    assert (report.cuts[0].kind, report.locations[1].text) == ("no_grad", "@torch.no_grad()")


CASES = [case for case in ILL if case.code == "TM306"]
READ = 13  # of these the source tells


def test_the_source_tells_what_a_trace_sees(monkeypatch):
    """Of every program of the corpus: the same call that ended the way, or nothing; of most of them, something."""
    read, told = read_untraced(monkeypatch), 0
    for case in CASES:
        read.clear()
        with suppress(RuntimeError):
            report = case.run()
        losses = getattr(report, "losses_without_graph", ())
        for fields in (one for one in read[:1] if losses and one.get("losses_without_graph")):
            seen = [report.cuts[one.cut] for one in losses[-1:] if one.cut is not None]
            switched = not fields["losses_without_graph"][0].grad_enabled
            cuts = [(cut.kind, cut.op) for cut in fields["cuts"]]
            assert switched or cuts == [(cut.kind, cut.op) for cut in seen], case.name
            told += 1
    assert told >= READ


WAYS = [
    ("h = (w * 2).detach()\nloss = (h * v).sum()", ("detach", "detach"), 1),
    ("with torch.no_grad():\n    h = w * 2\nloss = (h * v).sum()", ("no_grad", "no_grad"), 1),
    ("loss = (w.argmax() * v).sum()", ("non-differentiable", "argmax"), 1),
    ("g, = torch.autograd.grad((w ** 2).sum(), w)\nloss = (g * v).sum()", ("grad", "grad"), 1),
    ("h = (w * 2).detach().requires_grad_()\nloss = h.sum()", ("detach", "detach"), 1),
    ("loss = (predicted(w).sum() * v).sum()", ("no_grad", "no_grad"), None),
    ("if len('a'):\n    h = w.detach() * v\nelse:\n    h = w * v\nloss = h.sum()", ("detach", "detach"), 2),
]
NO_WAYS = [  # nothing ended, or it is not certain what did
    "loss = (v * 3).sum()",
    "with torch.no_grad():\n    h = make(w)\nloss = (h * v).sum()",
    "h = make(w)\nloss = (h * v).sum()",
    "loss = (predicted(v).sum() * v).sum()",
    "if len('a'):\n    h = w.detach() * v\nelse:\n    h = make(w) * v\nloss = h.sum()",
    "h = torch.tensor([1.0], requires_grad=True)\nloss = (h * v).sum()",
]


def asked(program):
    """Return why the gradient of w is None, given a loss that was not computed from it."""
    space = {**names(), "w": torch.ones(3, requires_grad=True), "v": torch.ones(3, requires_grad=True), "tm": api}
    source = f"{program}\nanswer = tm.why(w, 'w', loss=loss)"
    exec(source, space)
    return space["answer"]


@pytest.mark.parametrize(("program", "what", "line"), WAYS)
def test_what_ended_the_way_to_a_loss_that_learns_something_else(program, what, line):
    """`why` reads the source as an error is read, for the one tensor that it is asked about."""
    answer = asked(program)
    assert (answer.facts.cut.kind, answer.facts.cut.op) == what
    assert (answer.reason, answer.location.line if line else None) == ("cut off", line)
    assert "cut its path to loss, so backward never reached it" in answer.answer
    assert not any("%%tracegrad" in one for one in answer.remedy)
    assert [step.kind for step in answer.path][-2:] == ["cut", "loss"]


@pytest.mark.parametrize("program", NO_WAYS)
def test_of_what_is_not_certain_the_trace_is_asked(program):
    """Nothing is read into what the statements leave open."""
    answer = asked(program)
    assert (answer.reason, answer.facts.cut) == ("not part of the loss", None)


def test_a_gradient_without_a_graph_says_how_it_gets_one():
    """`torch.autograd.grad` ends a history where ``create_graph`` is not given."""
    report = refused("g, = torch.autograd.grad((net.weight ** 2).sum(), net.weight)\nloss = g.sum()")
    assert (report.cuts[0].kind, report.locations[report.cuts[0].location].line) == ("grad", 1)
    assert "create_graph=True" in report.findings[0].remedy
