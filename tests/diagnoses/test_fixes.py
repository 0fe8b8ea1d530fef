"""A fix is a whole line with the user's own names, or there is none."""

from __future__ import annotations

import ast

import pytest
import torch

from tensormagic.diagnoses import with_fix
from tensormagic.diagnoses.lines import ONLY_IN_PLACE
from tensormagic.reports import Finding, Location, TraceReport
from tensormagic.reports.base import Report


def fixed(code, line, remedy="", *, subject="", severity="warning", **evidence):
    """Return the fix of a finding about a line; `Report` stands for a run of which nothing else is looked at."""
    found = Finding(code, severity, "", Location("cell.py", 3, line), evidence, remedy, subject)
    return with_fix(found, Report()).fix


@pytest.mark.parametrize(
    ("code", "line", "remedy", "fix"),
    [
        ("TM303", "z = f(x).detach()  # fast", "leave out `.detach()`: `z = f(x)  # fast`", "z = f(x)  # fast"),
        ("TM105", "loss = mse(f(x), y)", "The same shape: `f(x).squeeze(-1)`", "loss = mse(f(x).squeeze(-1), y)"),
        ("TM105", "d = é(ü, 2 * y)", "`(2 * y).squeeze(-1)`", "d = é(ü, (2 * y).squeeze(-1))"),
        ("TM308", "w -= lr * w.grad", "`with torch.no_grad(): …`", "with torch.no_grad():\n    w -= lr * w.grad"),
        ("TM307", "w = w - lr * w.grad", "", "with torch.no_grad():\n    w -= lr * w.grad"),
        ("TM307", "w = w.data - lr * w.grad", "", "with torch.no_grad():\n    w -= lr * w.grad"),
        ("TM301", "y.add_(1)", "Use `add` instead of `add_`", "y = y.add(1)"),
        ("TM301", "torch.relu_(y)", "Use `relu` instead of `relu_`", "y = torch.relu(y)"),
        ("TM312", "total += loss", "Add only the number: `total += loss.item()`", "total += loss.detach()"),
        ("TM805", "loss = mse(x, y)", "Convert once: `y = y.float()`; NumPy", "y = y.float()\nloss = mse(x, y)"),
    ],
)  # fmt: skip
def test_the_line_as_it_should_be(code, line, remedy, fix):
    """All but what is mended stays as it was written."""
    assert fixed(code, line, remedy) == fix
    assert ast.parse(fix)


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("y = torch.where(x > 0, x.sqrt(), 0.0)", "y = torch.where(x > 0, torch.where(x > 0, x, 1).sqrt(), 0.0)"),
        ("y = torch.where(x < 0, 0, torch.sqrt(x))", "y = torch.where(x < 0, 0, torch.sqrt(torch.where(x < 0, 1, x)))"),
        ("y = torch.where(m, x.sqrt(), z.sqrt())", ""),
        ("y = x.sqrt() * mask", ""),
    ],
)
def test_a_mask_before_the_op(line, fix):
    """The mask of the same line goes in front, on the side that it takes."""
    assert fixed("TM406", line, subject="sqrt", severity="error") == fix


@pytest.mark.parametrize(("line", "fix"), [
    ("w = w - 0.1 * w.grad", "with torch.no_grad():\n    w -= 0.1 * w.grad"),
    ("w = (w - 0.1 * w.grad).detach()", "with torch.no_grad():\n    w -= 0.1 * w.grad"),
    ("w = new = w - 0.1 * w.grad", ""),
])  # fmt: skip
def test_an_update_of_a_name_alone(line, fix):
    """One that binds a second name is left as it is: in place, that name would stand for nothing."""
    assert fixed("TM617", line) == fix


def test_what_is_unscaled_before_a_clip_has_had_its_backward():
    """Above a line that holds the backward as well, there is nothing to unscale yet."""
    cell = {"filename": "", "count": None, "lines": ["s.scale(loss).backward()"]}
    run, clip = TraceReport.from_dict({**_saved(), "cell": cell}), "clip_grad_norm_(ps, 1.0)"
    for line, fix in ((clip, f"s.unscale_(opt)\n{clip}"), (f"s.scale(loss).backward(); {clip}", "")):
        found = Finding("TM618", "warning", "", Location("cell.py", 3, line), {}, "Unscale: `scaler.unscale_(opt)`")
        assert with_fix(found, run).fix == fix


@pytest.mark.parametrize(
    ("line", "op", "fix"),
    [
        ("d = squares.sum().sqrt()", "sqrt", "d = (squares.sum() + 1e-8).sqrt()"),
        ("d = torch.sqrt(a - b)", "sqrt", "d = torch.sqrt(a - b + 1e-8)"),
        ("h = -(p * p.log()).sum()", "log", "h = -(p * p.clamp_min(1e-8).log()).sum()"),
        ("h = a.log() + b.log()", "log", ""),
        ("h = logger.log(3)", "log", ""),
    ],
)
def test_what_goes_into_a_singular_op(line, op, fix):
    """Only where it is one call, and a zero was its fault."""
    assert fixed("TM402", line, subject=op, **{"zeros saved": 2}) == fix
    assert fixed("TM402", line, subject=op, **{"zeros saved": 0}) == ""


@pytest.mark.parametrize(
    ("code", "line", "remedy"),
    [
        ("TM607", "optimizer.step()", "Step once for each backward: leave out the second `optimizer.step()`"),
        ("TM604", "optimizer.step()", "Make the optimizer …: `torch.optim.SGD(body.parameters(), …)`"),
        ("TM401", "y = f(x)", "Look at it with `%tensor x`"),
        ("TM303", "with torch.no_grad():", "move this out of the `torch.no_grad()` block"),
        ("TM303", "z = y.detach()", "If it should learn, use the value itself."),
        ("TM301", "states[:, t] = f(states)", "Write into a copy, `states = states.clone()` before it"),
        ("TM301", "net.weight.clamp_(0, 1)", "Use `clamp` instead of `clamp_`"),
        ("TM105", "f(a, a)", "`a.squeeze(-1)`"),
        ("TM605", "self.layers = (", "`self.layers = nn.ModuleList(…)`"),
        ("TM309", "loss.backward()", "Clear it after each update: `w.grad = None`"),
        ("TM805", "loss = mse(net(x),", "`y = y.float()`"),
    ],
)
def test_none_where_it_is_not_certain(code, line, remedy):
    """What depends on what is meant, on another line, or on what is not all here has no fix."""
    assert fixed(code, line, remedy) == ""


def test_a_note_about_what_may_be_meant():
    """A detach that may be meant is not taken away by a button."""
    remedy = "If it should learn, leave out `.detach()`: `z = encoder(x)`."
    assert fixed("TM303", "z = encoder(x).detach()", remedy, severity="note") == ""


def test_what_was_saved_before_there_were_fixes():
    """Files of older versions are read; their findings have none."""
    report = TraceReport.from_dict({**_saved(), "findings": [{"code": "TM607", "severity": "warning", "message": "m"}]})
    assert [finding.fix for finding in report.findings] == [""]
    assert TraceReport.from_dict(report.to_dict()) == report


def _saved():
    return {
        "tensormagic": "trace", "format": 1, "title": "", "state": "finished", "seconds": 0.0, "own_seconds": 0.0,
        "cell": {"filename": "", "count": None, "lines": []},
    }  # fmt: skip


def test_methods_without_another_are_those_that_torch_has_none_of():
    in_place = {name for name in dir(torch.Tensor) if name.endswith("_") and not name.startswith("_")}
    assert {name for name in in_place if not hasattr(torch.Tensor, name[:-1])} == ONLY_IN_PLACE
