"""TM401 of a run: exact sentences, and who tells what, by hand-made runs."""

from __future__ import annotations

import dataclasses
import math

import pytest

from tensormagic.diagnoses import diagnose
from tensormagic.reports import Edge, FirstNonfinite, ForwardNonfinite, ForwardValues, Graph, NonfiniteSource
from tests.diagnoses.samples import LINES, born, frame, leaf, op, parameter, run


def faulty(name="log", *, first=None, value=math.nan, first_nonfinite=(), of=1, dtype="float32", bad=True):
    """Return a run ``x → op → sum`` whose loss is not finite."""
    nodes = (leaf(0, "x"), op(1, name, location=2, module="net.0", dtype=dtype), op(2, "sum", location=4))
    shown = {"0": (1, 0)} if bad else {}
    norms = (math.nan if bad else 1.0, 1.0, 1.0)
    frames = (frame(1, norms, shown), *(frame(at, (1.0, 1.0, 1.0)) for at in range(2, of + 1)))
    edges = (Edge(2, 1, 0, 0), Edge(1, 0, 0, 0))
    graph = Graph(1, nodes, edges, (2,), (2, 1, 0), of, frames, first_nonfinite, nonfinite_source=first)
    report = run(graph, count=of, bad=(1,) if bad else ())
    done = (dataclasses.replace(report.passes[0], value=value), *report.passes[1:])
    return dataclasses.replace(report, passes=done)


def only(report, code="TM401"):
    (found,) = diagnose(report)
    assert found.code == code
    return found


def test_data_that_held_it_already():
    """Code, severity, sentence, line, numbers, remedy, subject and node."""
    found = only(faulty("addmm", first=NonfiniteSource(1, 1, "data", 3, 0, 320, "images", (32, 10))))
    assert found.severity == "error"
    assert found.message == (
        "images, which goes into addmm of net.0, model.py, line 3, already holds 3 NaN among its 320 elements."
    )
    assert found.location == LINES[2]
    assert found.evidence == {"nan": 3, "inf": 0, "elements": 320, "pass": 1}
    assert "`images = torch.nan_to_num(images)`" in found.remedy
    assert (found.subject, found.node) == ("images", (0, 1))


def test_data_without_a_name():
    """Its shape is told instead."""
    found = only(faulty("addmm", first=NonfiniteSource(1, 1, "data", 0, 1, 320, "", (32, 10))))
    assert found.message.startswith("The data of shape (32, 10), which goes into addmm")
    assert found.message.endswith("already holds 1 infinite element among its 320 elements.")
    assert found.subject == "addmm"


def test_a_leaf_that_held_it_already():
    """The line is that of the op that uses it; a later pass says whose doing it is."""
    found = only(faulty(first=NonfiniteSource(1, 0, "leaf", 2, 0, 8, shape=(8,))))
    assert found.message == (
        "x holds 2 NaN among its 8 elements before the forward begins: it was there from the start."
    )
    assert found.location == LINES[2]
    later = faulty(first=NonfiniteSource(2, 0, "leaf", 2, 0, 8, shape=(8,)), of=3)
    assert only(later).message.endswith("before the forward begins, in backward pass 2 of 3.")
    trained = dataclasses.replace(later, parameters=(parameter("x", (1.0,) * 3),))
    assert "in backward pass 2 of 3: an earlier optimizer step produced it." in only(trained).message


@pytest.mark.parametrize("number", [1, 2])
def test_what_a_stage_of_a_pipeline_received(number):
    """It was neither there from the start nor made by a step: another rank has it from its own forward."""
    report = faulty(first=NonfiniteSource(number, 0, "leaf", 2, 0, 8, shape=(8,)), of=3)
    nodes = (leaf(0, "received by the stage 2"), *report.graphs[0].nodes[1:])
    found = only(dataclasses.replace(report, graphs=(dataclasses.replace(report.graphs[0], nodes=nodes),)))
    assert found.message.endswith(": it came from the previous stage.")
    assert found.remedy == "Look at the report of the rank that holds that stage."


@pytest.mark.parametrize(
    ("name", "facts", "words"),
    [
        ("log", {"negative": 2}, "its input holds 2 negative numbers, so 3 of the 10 elements of its result are NaN."),
        ("log", {"zero": 1, "negative": 2}, "its input holds 1 zero and 2 negative numbers, so 3 of"),
        ("acos", {"negative": 1}, "its input holds 1 element outside its domain, so"),
        ("div", {"zero": 4}, "its divisor holds 4 zeros, so"),
        ("mul", {}, "3 of the 10 elements of its result are NaN, although all inputs are finite."),
        ("mul", {"certain": False}, "3 of the 10 elements of its result are NaN."),
    ],
)
def test_what_an_op_made(name, facts, words):
    """What it made, and of what."""
    found = only(faulty(name, first=NonfiniteSource(1, 1, "made", 3, 0, 10, **facts)))
    opening = (
        "The forward makes its first NaN value in"
        if facts.get("certain", True)
        else ("The first NaN value that can be seen in the forward is made by")
    )
    assert found.message.startswith(f"{opening} {name} of net.0, model.py, line 3: ")
    assert found.message.endswith(words) or words in found.message


def test_a_function_of_the_persons_own():
    """What it does is not known: its forward may leave a domain as well as a range."""
    report = faulty("Clamp", first=NonfiniteSource(1, 1, "made", 0, 3, 10))
    (graph,) = report.graphs
    nodes = (graph.nodes[0], dataclasses.replace(graph.nodes[1], kind="custom"), graph.nodes[2])
    found = only(dataclasses.replace(report, graphs=(dataclasses.replace(graph, nodes=nodes),)))
    assert "a logarithm, a root or a division at zero" in found.remedy
    assert "a logarithm" not in only(report).remedy


def test_float16_that_overflows_in_the_forward():
    """TM407: made of finite numbers, and beyond 65504."""
    first = NonfiniteSource(1, 1, "made", 0, 5, 10)
    found = only(faulty("addmm", first=first, dtype="float16", value=math.inf), "TM407")
    assert found.message == (
        "The forward overflows float16 in addmm of net.0, model.py, line 3: 5 of the 10 elements of its result are "
        "infinite, although all inputs are finite."
    )
    assert "65504" in found.remedy
    only(faulty("addmm", first=first, dtype="bfloat16", value=math.inf))
    only(faulty("addmm", first=dataclasses.replace(first, certain=False), dtype="float16", value=math.inf))


def test_a_run_that_gets_over_it_or_whose_gradients_are_finite_is_a_warning():
    """Nothing was lost but one step."""
    first = NonfiniteSource(1, 1, "made", 1, 0, 10, negative=1)
    assert only(faulty(first=first, of=3)).severity == "warning"
    assert only(faulty(first=first, bad=False)).severity == "warning"
    assert only(faulty(first=first)).severity == "error"


def nonfinite(**facts):
    return FirstNonfinite(**{"pass_number": 1, "node": 1, "receiver": 0, "input_number": 0, "nan": 1, "inf": 0,
                    "count": 10, "incoming_norm": 1.0, **facts})  # fmt: skip


def test_tm402_tells_more_of_an_op_that_it_knows():
    """A logarithm whose slope is infinite and whose value is, too: one finding, with the better remedy."""
    first = NonfiniteSource(1, 1, "made", 0, 1, 10, zero=1)
    only(faulty(first=first, first_nonfinite=(nonfinite(saved_name="self", saved_zero=1),)), "TM402")
    only(faulty("mul", first=first, first_nonfinite=(nonfinite(),)), "TM401")


def test_what_is_older_is_told():
    """Data that were bad, and a backward that only hands it on: TM401; a gradient of an earlier pass: TM402."""
    first = NonfiniteSource(1, 1, "data", 1, 0, 10, "x")
    only(faulty("mul", first=first, first_nonfinite=(nonfinite(),)))
    late = dataclasses.replace(first, pass_number=3)
    only(faulty("mul", first=late, first_nonfinite=(nonfinite(),), of=3), "TM402")


def test_a_loss_of_which_nothing_is_known():
    """The loss alone is told, where no saved tensor explains it and every gradient is finite."""
    found = only(faulty(bad=False))
    assert found.severity == "warning"
    assert found.message == "The loss is NaN, although every gradient is finite."
    assert found.location == LINES[4]


def test_where_the_forward_was_measured():
    """The first NaN of the pass, though an infinity that was given came before it; without a bad gradient, nothing."""
    report = born("softmax", nan=1)
    (graph,) = report.graphs
    (first, *rest) = graph.frames
    forward = ForwardValues(first.norms, first.measures, {"0": (0, 4), "1": (2, 0)})
    given = ForwardNonfinite(1, 0, 0, 4, 16, given=True)
    frames = (dataclasses.replace(first, forward=forward), *rest)
    bad = dataclasses.replace(graph, frames=frames, forward_nonfinite=given)
    found = only(dataclasses.replace(report, graphs=(bad,)))
    assert found.message == (
        "The forward makes its first NaN value in softmax, model.py, line 3: 2 of the 16 elements of its result are "
        "NaN."
    )
    healthy = dataclasses.replace(
        bad, first_nonfinite=(), frames=tuple(dataclasses.replace(one, bad={}) for one in bad.frames)
    )
    done = tuple(dataclasses.replace(one, finite=True) for one in report.passes)
    assert diagnose(dataclasses.replace(report, graphs=(healthy,), passes=done)) == ()


def test_infinities_alone_of_a_forward_whose_loss_is_finite_are_none():
    """A logarithm of zero that a mask leaves out is not what made a gradient elsewhere infinite."""
    report = born("to_copy", inf=1, node={"dtype": "float32"})
    (graph,) = report.graphs
    (first,) = graph.frames
    forward = ForwardValues(first.norms, first.measures, {"1": (0, 2)})
    made = dataclasses.replace(
        graph,
        frames=(dataclasses.replace(first, forward=forward),),
        forward_nonfinite=ForwardNonfinite(1, 1, 0, 2, 16, given=False),
    )
    assert [found.code for found in diagnose(dataclasses.replace(report, graphs=(made,)))] == ["TM402"]
