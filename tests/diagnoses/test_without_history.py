"""TM306: exact sentences, by hand-made runs that torch refused."""

from __future__ import annotations

import ast
import contextlib
import warnings
from dataclasses import replace

import pytest
import torch

import tensormagic as tm
from tensormagic.diagnoses import diagnose
from tensormagic.diagnoses.lines import under_no_grad, update_by_hand
from tensormagic.reports import Cut, FailureReport, LossWithoutGraph, ModelInScope, Operand
from tests.diagnoses.samples import CALL, LINES, run

PARTLY = (ModelInScope(name="net", parameters=4, frozen=3),)
REFUSED = "element 0 of tensors does not require grad and does not have a grad_fn"


def refused(*, cuts=(), error=f"RuntimeError: {REFUSED}", **facts):
    one = LossWithoutGraph(**{"name": "loss", "location": 7, "dtype": "float32", **facts})
    state = "failed" if error else "finished"
    return replace(run(), state=state, error=error, losses_without_graph=(one,), cuts=cuts, passes=(), passes_seen=0)


def test_a_line_that_ended_the_way():
    """The finding is on that line, and names the other one."""
    (found,) = diagnose(refused(cut=0, cuts=(Cut(kind="item", op="item", location=2, line=3),)))
    assert (found.code, found.severity, found.subject) == ("TM306", "error", "loss")
    assert found.message == "loss has no graph for backward: `.item()` cut it off."
    assert found.location == LINES[2]
    assert [(line.what, line.location) for line in found.related] == [("backward was called here", CALL)]
    assert found.remedy.startswith("Keep the tensor")


@pytest.mark.parametrize(
    ("facts", "why", "remedy"),
    [
        ({}, "nothing it was made from requires a gradient", "requires_grad=True"),
        ({"inference": True}, "it was made under `torch.inference_mode()`", "outside"),
        ({"grad_enabled": False}, "gradients are switched off", "set_grad_enabled(True)"),
        ({"dtype": "int64"}, "it is int64, and only floating-point values have gradients", "floating-point loss"),
        ({"models": (ModelInScope(name="net", parameters=4, frozen=4),)},
         "nothing it was made from requires a gradient; all 4 parameters of net are frozen",
         "`net.requires_grad_(True)`"),
        ({"models": (*PARTLY, ModelInScope(name="old", parameters=2, frozen=2))},
         "nothing it was made from requires a gradient, although 1 parameter of net does", "what net returns"),
    ],
    ids=["nothing", "inference", "switched off", "integers", "frozen", "not made from the model"],
)  # fmt: skip
def test_a_way_that_never_was(facts, why, remedy):
    """The first reason that holds is told, and what to do."""
    (found,) = diagnose(refused(**facts))
    assert found.message == f"loss has no graph for backward: {why}."
    assert remedy in found.remedy
    assert found.location == CALL


def test_what_somebody_caught_is_a_note():
    """The run went on, as in a lesson that shows the error; so it did where something else ended it."""
    for error in ("", "ValueError: a fault of another kind", "KeyboardInterrupt"):
        assert [found.severity for found in diagnose(refused(error=error))] == ["note"]


def test_what_was_caught_again_and_again_is_a_warning():
    """Nothing was learned; unless the code says that it expects the error."""
    assert [found.severity for found in diagnose(refused(error="", count=3))] == ["warning"]
    assert [found.severity for found in diagnose(refused(error="", count=3, expected=True))] == ["note"]


def failure(**root):
    operand = Operand(**{"name": "loss", "dtype": "float32", **root})
    return FailureReport(error_type="RuntimeError", error=REFUSED, phase="backward", location=CALL, operands=(operand,))


def test_a_refusal_outside_a_trace():
    """Which line ended the way cannot be known then; what can is said."""
    (found,) = diagnose(failure())
    assert (found.code, found.location, found.subject) == ("TM306", CALL, "loss")
    assert "%%tracegrad" in found.remedy
    (found,) = diagnose(failure(dtype="int64"))
    assert "it is int64, and only floating-point values have gradients" in found.message


def test_other_errors_are_others():
    """A backward that failed for another reason is not this."""
    assert diagnose(replace(failure(), error="Trying to backward through the graph a second time")) == ()


def test_a_trace_says_it_once_and_better():
    """What the run knows of its failure comes before what the failing call tells."""
    (found,) = diagnose(replace(refused(grad_enabled=False), failure=failure()))
    assert "gradients are switched off" in found.message


@pytest.mark.parametrize("line", [
    "with torch.no_grad(): ps = [p - 0.1 * p.grad for p in ps]",
    "with torch.no_grad(): ps = {name: p - 0.1 * p.grad for name, p in ps.items()}",
    "for ps in groups: ps = [p - 0.1 * p.grad for p in ps]",
    "ps = [p - 0.1 * p.grad for p in ps]",
    "w, b = w - 0.1 * w.grad, b - 0.1 * b.grad",
])  # fmt: skip
def test_an_update_in_place_is_code_under_no_grad_too(line):
    """A loop cannot stand behind another head on one line."""
    update = update_by_hand(line)
    for code in (update.in_place, under_no_grad(update.in_place)):
        assert "-= 0.1 * " in ast.unparse(ast.parse(code))


@pytest.mark.parametrize(("line", "in_place"), [
    ("x = x.clamp(0, 1)", "x.clamp_(0, 1)"),
    ("x = torch.clamp(x, min=0)", "x.clamp_(min=0)"),
    ("x = x.detach().clamp(0, 1).requires_grad_()", "x.clamp_(0, 1)"),
    ("x = (x.data / x.norm()).clone()", "x /= x.norm()"),
    ("x = torch.sub(x, step)", "x -= step"),
    ("x = y.clamp(0, 1)", ""),
    ("x = F.normalize(x)", ""),
])  # fmt: skip
def test_other_changes_of_a_leaf_in_place(line, in_place):
    """Only of what is known to be a leaf; what makes another tensor of it altogether is none."""
    update = update_by_hand(line, of_leaf=True)
    assert (update.in_place if update else "") == in_place
    assert update_by_hand(line) is None


def test_a_list_of_leaves_that_an_update_made_anew_is_updated_in_place():
    """What was made in the list has no gradient in the next round."""
    ps, x = [torch.ones(3, requires_grad=True)], torch.ones(2, 3)
    with contextlib.suppress(TypeError), warnings.catch_warnings(), tm.trace() as trace:
        warnings.simplefilter("ignore")
        for _ in range(2):
            (x @ ps[0]).sum().backward()
            ps = [p - 0.1 * p.grad for p in ps]
    (found,) = [one for one in trace.report.findings if one.code == "TM307"]
    assert "`with torch.no_grad():\n    for p in ps: p -= 0.1 * p.grad`" in found.remedy
