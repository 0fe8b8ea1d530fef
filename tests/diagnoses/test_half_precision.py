"""TM407: exact sentences and thresholds, by hand-made casts and measures."""

from __future__ import annotations

import dataclasses
from array import array

import pytest

from tensormagic.diagnoses import diagnose
from tensormagic.reports import Edge, Frame, Graph
from tests.diagnoses.samples import LINES, leaf, op, run


def cast(before, after, *, dtype="float16", source="float32", row=None):
    """Return a run ``x → addmm (narrow) → to_copy → mean``, its norms above and below the cast, pass by pass."""
    nodes = (
        leaf(0, "x"), op(1, "addmm", dtype=dtype, location=3, shapes=((10, 10),)),
        op(2, "to_copy", dtype=source), op(3, "mean", dtype="float32"),
    )  # fmt: skip
    edges = tuple(Edge(at, at - 1, 0, 0) for at in range(1, 4))
    measures = array("f", [-1.0] * 6 + list(row) + [-1.0] * 12) if row else array("f")
    frames = tuple(
        Frame(at, array("f", (low, low, high, 1.0)), {}, measures)
        for at, (high, low) in enumerate(zip(before, after, strict=True), 1)
    )
    return run(Graph(1, nodes, edges, (3,), (), len(frames), frames), count=len(frames))


def test_a_cast_that_takes_the_gradient_away():
    """Code, severity, sentence, line, numbers, remedy, subject and node."""
    (found,) = diagnose(cast((1e-6, 1e-6), (4e-7, 3e-7)))
    assert (found.code, found.severity) == ("TM407", "warning")
    assert found.message == (
        "The gradient underflows float16 at model.py, line 4 in all 2 backward passes: the gradient that comes back to "
        "addmm has a norm of 1e\u22126 in float32 and of 3e\u22127 in float16."
    )
    assert found.location == LINES[3]
    assert found.evidence["norm after it"] == pytest.approx(3e-7)
    assert "GradScaler" in found.remedy
    assert (found.subject, found.node) == ("addmm", (0, 1))


@pytest.mark.parametrize(
    ("before", "after", "more"),
    [
        ((1e-6, 1e-6), (9.2e-7, 4e-7), {}),  # one pass kept its digits
        ((1e-6,), (3e-7,), {}),  # one pass alone
        ((0.0, 0.0), (0.0, 0.0), {}),
        ((1e-6, 1e-6), (3e-7, 3e-7), {"dtype": "bfloat16"}),
        ((1e-6, 1e-6), (3e-7, 3e-7), {"dtype": "float32"}),
        ((1e-6, 1e-6), (3e-7, 3e-7), {"source": "float16"}),  # nothing is cast
    ],
)
def test_casts_that_do_no_harm(before, after, more):
    """Each of these alone is enough to say nothing."""
    assert diagnose(cast(before, after, **more)) == ()


FAINT = (2e-7, 0.0, 1e-7, 0.5, 0.5, 0.0)  # abs_max, mean, std, zero, subnormal, saturated


@pytest.mark.parametrize(
    ("norm", "row", "found"),
    [
        (5e-6, FAINT, True),
        (8e-6, FAINT, False),  # an average above sixteen steps of the smallest number
        (5e-6, (*FAINT[:4], 0.4, 0.0), False),  # a fifth of what is not zero is a normal number
        (5e-6, None, False),  # nothing was measured
        (0.0, FAINT, False),
    ],
)
def test_a_gradient_below_the_normal_numbers(norm, row, found):
    """Judged by what is not zero: how much of it is subnormal, and how large it is on average."""
    report = cast((norm, norm), (norm, norm), row=row)
    assert bool(diagnose(report)) is found
    if found:
        assert (
            "of the gradient that comes back to addmm, 100 % of nonzero elements are below"
            in diagnose(report)[0].message
        )


@pytest.mark.parametrize(("share", "found"), [(0.02, True), (0.005, False)])
def test_float8_that_sticks_at_its_end(share, found):
    """A share of one percent is too much."""
    row = (448.0, 0.0, 100.0, 0.1, 0.0, share)
    report = cast((900.0, 900.0), (900.0, 900.0), dtype="float8_e4m3fn", row=row)
    assert bool(diagnose(report)) is found
    if found:
        assert "2 % of the gradient that comes back to addmm is at the largest number of" in diagnose(report)[0].message


def test_passes_that_are_not_finite_are_not_judged():
    """What overflowed is told where it was born."""
    report = cast((1e-6, 1e-6), (3e-7, 3e-7))
    (graph,) = report.graphs
    frames = (graph.frames[0], dataclasses.replace(graph.frames[1], bad={"0": (0, 1)}))
    found = diagnose(dataclasses.replace(report, graphs=(dataclasses.replace(graph, frames=frames),)))
    assert [each.code for each in found] == ["TM402"]
