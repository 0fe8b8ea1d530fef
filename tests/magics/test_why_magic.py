"""``%why``: why a gradient is what it is, as a user types it."""

from __future__ import annotations

import sys

import pytest
from IPython.core.error import UsageError

from tensormagic.reports import FailureReport, WhyReport


def test_it_answers_from_the_last_traced_cell(shell, cell):
    """The cut of the cell, with its line; the report under a name; the same for ``.grad`` written out."""
    cell("w = torch.ones(3, requires_grad=True); b = torch.ones(3, requires_grad=True)")
    shell.run_cell_magic("tracegrad", "--text", "h = (w * 2).detach()\n(h * b).sum().backward()\n")
    shell.run_line_magic("why", "w --into answer --text")
    report = shell.user_ns["answer"]
    assert isinstance(report, WhyReport)
    assert (report.reason, report.location.line) == ("cut off", 2)
    shell.run_line_magic("why", "w.grad")
    bundle = shell.display_pub.outputs[-1]["data"]
    assert "cut its path to the loss" in bundle["text/plain"]
    assert "tm-way" in bundle["text/html"]


def test_a_model(shell, cell, capsys):
    """Its parameters by reason; here all by one."""
    cell("pass")
    shell.run_line_magic("why", "net --text")
    assert "The same holds for" in capsys.readouterr().out


def test_a_loss(shell, cell, capsys):
    """The loss that is given decides."""
    cell("a = torch.ones(2, requires_grad=True)\nb = torch.ones(2, requires_grad=True)\nl = (b * b).sum()")
    shell.run_line_magic("why", "a --loss l --text")
    assert "l was not computed from a" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nosuch", "there is no name 'nosuch'"),
        ("net x", "answers about one thing, but here are 2: net, x. Name one: %why net"),
        ("3", "3 is an int, not a tensor"),
        ("x --loss nosuch", "there is no name 'nosuch'"),
        ("x --nosuch", "unrecognized arguments: --nosuch"),
    ],
)
def test_what_cannot_be_answered_is_a_plain_message(shell, cell, line, words):
    """A usage error that says what was given and what would work."""
    cell("pass")
    with pytest.raises(UsageError, match=words):
        shell.run_line_magic("why", line)


def test_a_figure_there_is_not(shell, cell):
    """The answer is shown all the same."""
    cell("pass")
    with pytest.raises(UsageError):
        shell.run_line_magic("why", "x --figure")


def test_help(shell, capsys):
    """The usage, and every option."""
    shell.run_line_magic("why", "--help")
    assert "--loss EXPR" in capsys.readouterr().out


def test_a_loss_that_is_none(cell):
    """Said, and not passed over."""
    assert "the loss is an int, not a tensor: give the tensor that backward is called on" in cell("%why x --loss 3").err


def test_there_is_no_figure(cell):
    """The sentence says so, also where no kind was named."""
    assert cell("%why x --figure").err.strip() == "UsageError: there is no figure of a why report"


def test_the_remedy_of_integers_can_be_run(cell):
    """An expression takes no assignment."""
    assert "  torch.arange(3).float().requires_grad_()" in cell("%why torch.arange(3)").shown[0]["text/plain"]
    assert "  k = k.float().requires_grad_()" in cell("k = torch.arange(3)\n%why k").shown[0]["text/plain"]


def test_alone_it_explains_the_last_error(shell, cell):
    """As if the explaining of errors had been on: operands from the failing line, nothing run again."""
    cell("images, weight = torch.ones(32, 784), torch.ones(128, 10); runs = []")
    shell.run_cell("runs.append(1); images @ weight")
    shell.run_line_magic("why", "--into answer")
    report = shell.user_ns["answer"]
    assert isinstance(report, FailureReport)
    assert [operand.name for operand in report.operands] == ["images", "weight"]
    assert report.findings[0].code == "TM804"
    assert shell.user_ns["runs"] == [1]
    assert "weight" in shell.display_pub.outputs[-1]["data"]["text/html"]


def test_alone_after_a_traced_cell(shell, cell):
    """The lines of the cell, not the call by which IPython ran the magic; the values as evidence."""
    cell("table = torch.nn.Embedding(3, 2)")
    shell.run_cell("%%tracegrad --text\nrows = torch.tensor([0, 3])\ntable(rows)")
    shell.run_line_magic("why", "--into answer")
    report = shell.user_ns["answer"]
    assert report.location.line == 3
    assert [(place.line, place.text) for place in report.stack] == [(3, "table(rows)")]
    assert report.findings[0].evidence["rows"] == "0 to 3"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (None, "there was none"),
        ("{}['loss']", "KeyError is not PyTorch's"),
        ("%tensro x", r"that is a magic's UsageError now \(run the cell that failed again\)"),
    ],
)
def test_alone_without_an_error_of_torch(shell, cell, monkeypatch, code, words):
    """A usage error that says so, and what the magic takes."""
    monkeypatch.delattr(sys, "last_value", raising=False)
    cell("pass")
    if code:
        shell.run_cell(code)
    with pytest.raises(UsageError, match=f"{words}; %why x explains the gradient of x"):
        shell.run_line_magic("why", "")


def test_alone_some_cells_later(shell):
    """Names that were bound anew since stand for other tensors: said, as the error itself no longer tells."""
    for code in (
        "import torch; x = torch.ones(2, 3)",
        "x @ torch.ones(4)",
        "%why --into at_once",
        "x = torch.ones(2, 5)",
    ):
        shell.run_cell(code, store_history=True)
    shell.run_cell("%why --into later", store_history=True)
    at_once, later = shell.user_ns["at_once"], shell.user_ns["later"]
    assert "cells have run since" not in str(at_once)
    assert at_once.operands[0].shape == (2, 3)
    assert later.operands[0].shape == (2, 5)
    assert f"the operands as they were: cells have run since cell {later.location.cell}" in " ".join(str(later).split())


def test_alone_after_a_module_that_does_not_begin_with_super(shell, cell):
    """Torch says when, not what is missing."""
    cell("class Net(nn.Module):\n    def __init__(self):\n        self.fc = nn.Linear(2, 2)\nNet()")
    shell.run_line_magic("why", "--into answer")
    report = shell.user_ns["answer"]
    assert (report.location.line, report.location.text) == (3, "self.fc = nn.Linear(2, 2)")
    assert "`super().__init__()`" in str(report) or "try: super().__init__()" in str(report)


def test_alone_it_keeps_nothing_of_an_error_that_is_not_torch_s(shell):
    """What it raises becomes the last error: its frames hold nothing of the one before."""
    shell.run_cell("{}['a']")
    with pytest.raises(UsageError) as raised:
        shell.run_line_magic("why", "")
    held = [value for entry in raised.traceback[1:] for value in entry.frame.f_locals.values()]
    assert [value for value in held if isinstance(value, KeyError)] == []


def test_a_loss_alone_is_refused(shell, cell):
    """A loss says where a gradient comes from: of what, is missing."""
    cell("pass")
    with pytest.raises(UsageError, match="--loss l is the loss of a gradient, but none is asked for"):
        shell.run_line_magic("why", "--loss l")


def test_untraced_cells_are_read_for_what_ended_the_way_to_a_loss(cell):
    """The line of an earlier cell is named, with its number; nobody traced it."""
    cell("w = torch.ones(2, requires_grad=True); v = torch.ones(2, requires_grad=True)")
    cell("h = (w * 2).detach()\nloss = (h * v).sum()")
    (shown,) = cell("%why w --loss loss").shown
    words = " ".join(shown["text/plain"].split())
    assert "w.grad is None because .detach() (cell 2, line 1) cut its path to loss, so backward never" in words
    assert "Leave out .detach(): h = (w * 2)." in words
