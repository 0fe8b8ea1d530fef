"""TM301, TM304, TM305, TM308 and TM311 of hand-made reports: exact sentences, lines, and what is not told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensormagic.diagnoses import diagnose
from tensormagic.reports import FailureReport, Location, Operand
from tensormagic.reports.failure import BackwardFault, FreedGraph, ModifiedSavedTensor, SavedWrite, WrongReturn

MADE = Location("train.py", 3, "y = torch.sigmoid(x)")
WRITE = Location("train.py", 4, "y += 1")
CALL = Location("train.py", 9, "loss.backward()")
SPOILT = ModifiedSavedTensor(
    op="sigmoid", slot="result", name="y", shape=(3,), location=MADE, backward=CALL, graph=0, node=1, version=1,
    writes=(SavedWrite(call="add_", location=WRITE, version=1),), writes_seen=1,
)  # fmt: skip
FREED = FreedGraph(
    op="tanh", root="loss", backward=CALL, first=CALL, known=True, joint="mul", joint_name="h", joint_location=MADE,
    shared=4,
)  # fmt: skip
RETURN = Location("model.py", 21, "return grad, None")
RETURNED = WrongReturn(
    function="Scale", problem="count", arguments=("x", "factor"), got="1", expected="2", returns=(RETURN,),
    location=MADE, backward=CALL,
)  # fmt: skip


def failed(error="", *, function="Tensor.backward", operands=(), call="", **fault):
    return FailureReport(
        error_type="RuntimeError", error=error, function=function, phase="backward", location=CALL, operands=operands,
        call=call, backward=BackwardFault(**fault) if fault else None,
    )  # fmt: skip


def only(report):
    (found,) = diagnose(report)
    return found


def test_a_changed_tensor_is_told_with_both_lines_and_both_versions():
    """The finding is on the line that wrote; the line that saved and the one that called backward are beside it."""
    found = only(failed(modified=SPOILT))
    assert (found.code, found.severity, found.subject, found.node) == ("TM301", "error", "y", (0, 1))
    assert found.message == (
        "y was changed in place by `y += 1` after sigmoid had saved it for backward: "
        "it was at version 0 then and is at version 1 now."
    )
    assert found.location == WRITE
    assert [(line.what, line.location) for line in found.related] == [("saved by sigmoid", MADE), ("backward", CALL)]
    assert found.remedy == "Make a new tensor: `y = y + 1`."
    assert found.evidence["version"] == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "", "writes": (SavedWrite(call="relu_", module="net.2"),)},
         "The result of sigmoid was changed in place by `relu_` in net.2"),
        ({"name": "", "slot": "self", "writes": ()}, "An input of sigmoid was changed in place after sigmoid"),
        ({"name": ""}, "y was changed in place by `y += 1`"),
        ({"module": "net.act"}, "after sigmoid in net.act had saved it"),
        ({"writes": (SavedWrite(call="Adam.step", kind="step"),)}, "y was changed in place by Adam's step"),
    ],
)  # fmt: skip
def test_what_has_no_name_is_told_by_what_is_known(changes, words):
    """By the line that wrote, else by the node that saved it; never by a guess."""
    assert words in only(failed(modified=replace(SPOILT, **changes))).message


def test_a_write_that_nobody_saw_is_not_invented():
    """The finding is where the tensor was saved, and says that what changed it was not seen."""
    found = only(failed(modified=replace(SPOILT, writes=(), writes_seen=0)))
    assert found.location == MADE
    assert [line.what for line in found.related] == ["backward"]
    assert found.remedy.startswith("The change was not seen")


def test_without_a_trace_the_way_to_the_lines_is_told():
    """Outside a trace nobody knows either line."""
    found = only(failed(modified=replace(SPOILT, writes=(), location=None, graph=None, node=None, backward=None)))
    assert (found.location, found.node, found.related) == (CALL, None, ())
    assert "%%tracegrad" in found.remedy


SHARED = "to a graph that an earlier backward has freed, and the graph of loss leads back into it"
GONE = "4 nodes of it were visited before."
TWICE = "backward goes through the graph of loss a second time: the first one freed what it had saved."
UNKNOWN = "The graph was used by an earlier backward: what tanh had saved is freed."
BOTH = Location("model.py", 1, "out, (h, c) = lstm(x, (h, c))")
TUPLE = Location("model.py", 1, "out, hidden = lstm(x, hidden)")
LIST = Location("model.py", 1, "scores.append(net(x))")
STATE = Location("model.py", 1, "hidden = self.cell(x, hidden)")


@pytest.mark.parametrize(
    ("changes", "message", "remedy"),
    [
        ({"whole": True}, TWICE, "retain_graph=True"),
        ({"joint_again": True}, f"h belongs {SHARED}: {GONE}", "`h = h.detach()`"),
        ({"joint_again": True, "joint_name": "", "joint_location": BOTH}, f"h and c belong {SHARED}: {GONE}",
         "`h, c = h.detach(), c.detach()`"),
        ({"joint_again": True, "joint_name": "", "joint_location": TUPLE}, f"hidden belongs {SHARED}: {GONE}",
         "`hidden = tuple(part.detach() for part in hidden)`"),
        ({"joint_again": True, "joint_name": "", "joint_location": STATE, "joint_tuples": ("hidden",)},
         f"hidden belongs {SHARED}: {GONE}", "`hidden = tuple(part.detach() for part in hidden)`"),
        ({"joint_again": True, "joint_name": "", "joint_location": LIST}, f"The result of mul belongs {SHARED}: {GONE}",
         "`scores = []`"),
        ({"joint_again": True, "joint_name": "", "joint_location": None}, f"The result of mul belongs {SHARED}: {GONE}",
         "Detach what is carried from step to step before"),
        ({"joint_name": "", "shared": 1}, f"y belongs {SHARED}: 1 node of it was visited before.",
         "Compute y again in each step"),
        ({"joint_name": "", "joint_location": None, "first": WRITE}, f"The result of mul belongs {SHARED}: {GONE}",
         "a detached copy of it"),
        ({"root": "", "shared": 1}, f"h belongs {SHARED}: 1 node of it was visited before.".replace(
            "the graph of loss", "this backward"), "Compute h again in each step"),
        ({"known": False, "root": ""}, UNKNOWN, "Compute the loss again"),
    ],
)  # fmt: skip
def test_a_freed_graph_is_told_by_what_both_passes_share(changes, message, remedy):
    """The same loss twice, a state that is handed on, something from before the loop, two losses, or nothing known."""
    found = only(failed(freed=replace(FREED, **changes)))
    assert (found.code, found.severity, found.location) == ("TM304", "error", CALL)
    assert found.message == message
    assert remedy in found.remedy


def root(name="loss", shape=(8,), **facts):
    return Operand(name=name, role="self", shape=shape, dtype="float32", requires_grad=True, **facts)


SCALARS = "grad can be implicitly created only for scalar outputs"


def test_a_root_with_several_elements_is_named_with_its_shape():
    """And with the line that made it."""
    found = only(failed(SCALARS, operands=(root(location=MADE),)))
    assert (found.code, found.severity, found.subject) == ("TM305", "error", "loss")
    assert found.message == ("loss has 8 elements, shape (8,): backward() without arguments needs a single number.")
    assert "`loss.mean().backward()`" in found.remedy
    assert [line.location for line in found.related] == [MADE]


def test_the_root_of_autograd_grad_is_told_without_torchs_list():
    """Torch puts a single root into a tuple; the user did not."""
    found = only(failed(SCALARS, function="torch.autograd.grad", operands=(root("u[0]"),), call="grad(u, t)"))
    assert found.message.startswith("u has 8 elements")
    assert "torch.autograd.grad(u.sum(), …)" in found.remedy


@pytest.mark.parametrize("report", [failed(SCALARS), failed(SCALARS, operands=(root(shape=()),)), failed("other")])
def test_what_is_not_known_to_have_several_elements_is_not_told(report):
    """No operands, a single number, another error."""
    assert diagnose(report) == ()


def test_a_leaf_written_to_is_named_with_the_statement():
    """The remedy is that statement under no_grad."""
    error = "a leaf Variable that requires grad is being used in an in-place operation."
    report = replace(
        failed(error, function="Tensor.sub_", operands=(root("w", (3,), location=MADE),)),
        location=Location("train.py", 5, "w -= lr * w.grad"), phase="forward",
    )  # fmt: skip
    found = only(report)
    assert (found.code, found.severity, found.subject) == ("TM308", "error", "w")
    assert found.message == (
        "w is a leaf that requires a gradient: `w -= lr * w.grad` would change it in place, and autograd forbids that "
        "while it records."
    )
    assert "`with torch.no_grad(): w -= lr * w.grad`" in found.remedy
    of_index = only(replace(report, error=f"a view of {error}"))  # as `w[0] = 5`: what is named is the leaf itself
    assert of_index.message.startswith("w is a leaf that requires a gradient: ")
    (operand,) = report.operands
    view = only(replace(report, error=f"a view of {error}", operands=(replace(operand, is_leaf=False),)))
    assert "w is a view of a leaf" in view.message
    assert diagnose(replace(report, error="a leaf fell")) == ()


TOO_FEW = (
    "Scale.backward returns 1 gradient, but its forward takes 2 arguments{}: it must return one gradient for each."
)


@pytest.mark.parametrize(
    ("changes", "message", "remedy"),
    [
        ({}, TOO_FEW.format(" (x and factor)"), "`return grad_x, grad_factor`"),
        ({"arguments": ()}, TOO_FEW.format(""), "one gradient for each argument"),
        ({"problem": "shape", "argument": "x", "got": "(2,)", "expected": "(3,)"},
         "Scale.backward returns a gradient of shape (2,) for x, whose shape is (3,).", "x.shape"),
        ({"problem": "not None", "argument": "factor"},
         "Scale.backward returns a gradient for factor, which is not a tensor: it must be None.", "`None`"),
        ({"problem": "not a tensor", "got": "float", "expected": ""},
         "Scale.backward returns a float instead of a tensor or None.", "full_like"),
        ({"problem": "device", "argument": "x", "got": "cpu", "expected": "cuda:0"},
         "Scale.backward returns a gradient with device cpu for x; it must be cuda:0.", "`.to(x.device)`"),
        ({"problem": "dtype", "got": "", "expected": ""},
         "Scale.backward returns a complex gradient for a real input.", "`grad.real`"),
    ],
)  # fmt: skip
def test_a_wrong_return_is_told_with_its_line_and_argument(changes, message, remedy):
    """On the line of the return, with the line that applied the Function beside it."""
    found = only(failed(returned=replace(RETURNED, **changes)))
    assert (found.code, found.severity, found.location, found.subject) == ("TM311", "error", RETURN, "Scale")
    assert found.message == message
    assert remedy in found.remedy
    assert [line.location for line in found.related] == [MADE, CALL]


def test_of_several_returns_all_are_told():
    """Which of them ran is not known."""
    other = Location("model.py", 25, "return grad")
    found = only(failed(returned=replace(RETURNED, returns=(RETURN, other), location=None)))
    assert [(line.what, line.location) for line in found.related] == [("or here", other), ("backward", CALL)]
