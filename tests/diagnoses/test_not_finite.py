"""TM401 and TM402: exact sentences, by hand-made reports."""

from __future__ import annotations

import dataclasses
import re

import pytest

from tensormagic.diagnoses import diagnose
from tensormagic.diagnoses.singular import SINGULARITIES, in_names_of_the_line
from tensormagic.reports import BadSlice, Edge, Graph
from tests.diagnoses.samples import CALL, LINES, born, frame, leaf, op, passes, run
from tests.reports.samples import tensor_report


def only(report, code):
    (found,) = [finding for finding in diagnose(report) if finding.code == code]
    return found


def message(**facts):
    return only(born(**facts), "TM402").message


@pytest.mark.parametrize("known", SINGULARITIES.values(), ids=SINGULARITIES)
def test_remedies_mark_their_code(known):
    """What can be typed stands between backticks, so that every panel sets it as code."""
    prose = re.sub(r"`[^`]+`", "", known.remedy)
    assert "`" not in prose
    assert not re.search(r"\w\(|\bF\.|torch\.|\bx\.", prose)


# -- TM402 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "line", "code"),
    [
        ("sqrt", "n = (X[step] * w).pow(2).sum().sqrt()", "torch.sqrt((X[step] * w).pow(2).sum() + 1e-8)"),
        ("sqrt", "n = torch.sqrt(a - b)", "torch.sqrt((a - b) + 1e-8)"),
        ("sqrt", "n = a.sqrt() + b.sqrt()", "torch.sqrt(x + 1e-8)"),
        ("log", "h = p.log()", "p.clamp_min(1e-8).log()"),
        ("div", "r = x / (a - b)", "x / ((a - b) + 1e-8)"),
    ],
)
def test_the_remedy_has_the_names_of_the_line(op, line, code):
    assert f"`{code}`" in in_names_of_the_line(SINGULARITIES[op].remedy, op, line)


def test_the_whole_finding():
    """Code, severity, sentence, line, numbers, remedy, subject and node of a logarithm of zero."""
    found = only(born(nan=3, saved_name="self", saved_zero=3), "TM402")
    assert found.severity == "error"
    assert found.message == (
        "The first NaN gradient appears in log, model.py, line 3: its input holds 3 zeros, so 3 of the 320 elements it "
        "sends to x are NaN; it spreads to 1 of 3 nodes."
    )
    assert found.location == LINES[2]
    assert found.evidence == {
        "nan": 3, "inf": 0, "elements": 320, "incoming norm": 1.5, "input": 0, "zeros saved": 3, "pass": 1,
    }  # fmt: skip
    assert "clamp_min(1e-8).log()" in found.remedy
    assert (found.subject, found.node) == ("log", (0, 1))


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"inf": 1, "count": 320}, "so 1 of the 320 elements it sends to x is infinite"),
        ({"inf": 1, "count": 1}, "so the one element it sends to x is infinite"),
        ({"inf": 2, "count": 2}, "so both elements it sends to x are infinite"),
        ({"nan": 9, "count": 9}, "so all 9 elements it sends to x are NaN"),
        ({"nan": 2, "inf": 5, "count": 9}, "so 2 of the 9 elements it sends to x are NaN"),
        ({"nan": 12345, "count": 1000000}, "so 12\u00a0345 of the 1\u00a0000\u00a0000 elements it sends to x are NaN"),
    ],
)
def test_numbers_agree_with_their_nouns_and_verbs(facts, words):
    """One is, several are, all, both; NaN is told before infinity; big numbers are grouped."""
    assert words in message(saved_name="self", saved_zero=1, **facts)


@pytest.mark.parametrize(
    ("name", "facts", "words"),
    [
        ("log", {"saved_zero": 1}, "line 3: its input holds 1 zero, so "),
        ("log", {"saved_negative": 2}, "its input holds 2 negative numbers, so "),
        ("log2", {"saved_zero": 1, "saved_negative": 1}, "its input holds 1 zero and 1 negative number, so "),
        ("log10", {"saved_zero": 1, "saved_bad": 2}, "its input holds 1 zero and 2 NaN or infinite elements, so "),
        ("log", {"saved_bad": 2}, "its input is already not finite at 2 elements, so "),
        ("log1p", {"saved_zero": 3, "saved_negative": 1}, "its input is not above -1 everywhere, so "),
        ("sqrt", {"saved_name": "result", "saved_zero": 1}, "its input holds 1 zero, so "),
        (
            "sqrt",
            {"saved_name": "result", "saved_zero": 1, "saved_bad": 1},
            "its input holds 1 zero and 1 negative, NaN or infinite element, so ",
        ),
        ("div", {"saved_name": "other", "saved_zero": 2, "saved_negative": 7}, "its divisor holds 2 zeros, so "),
        ("reciprocal", {"saved_name": "result", "saved_bad": 1}, "it divides by zero at 1 element, so "),
        ("rsqrt", {"saved_name": "result", "saved_bad": 1, "count": 1}, "it divides by zero, so "),
        ("pow", {"saved_zero": 4}, "its input holds 4 zeros, so "),
        ("pow", {"saved_zero": 4, "saved_negative": 1}, "its input holds 1 negative number, so "),
        ("pow", {"saved_zero": 4, "saved_negative": 1, "nan": 0, "inf": 4}, "its input holds 4 zeros, so "),
        ("acos", {"saved_zero": 4}, "its input is not strictly between -1 and 1 everywhere, so "),
        ("exp", {"saved_name": ""}, "its result is not finite, so "),
        ("mul", {"saved_name": ""}, "it multiplies a finite gradient by a value that is already not finite, so "),
        ("mse_loss", {"saved_name": ""}, "its forward result was already not finite, so "),
        ("mystery", {"saved_name": ""}, "it receives a finite gradient (norm 1.5), but "),
        ("mystery", {"saved_name": "", "incoming_norm": 3e28}, "is finite but huge (norm 3e28), and "),
        ("log", {"saved_name": "", "incoming_norm": 3e28}, "is finite but huge (norm 3e28), and "),
        ("mystery", {"saved_name": "", "incoming_norm": -2.0}, "the gradient it receives could not be read; "),
        ("log", {"saved_zero": 1, "certain": False}, "it is one of several that feed the same gradient; its input"),
    ],
)
def test_the_reason(name, facts, words):
    """Each op has its own reason, and only what was counted is told."""
    assert words in message(name=name, **{"saved_name": "self", "nan": 1, **facts})


@pytest.mark.parametrize("zero", [0, 1])
def test_the_root_of_a_negative_number_is_not_mended_by_a_small_number(zero):
    """What is added under a root keeps it from zero, and leaves a negative number where it is."""
    facts = {"saved_name": "result", "saved_zero": zero, "saved_bad": 1}
    found = only(born("sqrt", nan=1 + zero, **facts), "TM402")
    assert found.remedy.startswith("Make the input positive where it is made")
    assert found.fix == ""


def test_zeros_that_do_not_matter_are_not_told():
    """A zero in the input of log1p or acos, a negative divisor: harmless, and no reason."""
    assert "zero" not in message(name="log1p", nan=1, saved_name="self", saved_zero=3)
    assert "negative" not in message(name="div", nan=1, saved_name="other", saved_zero=3, saved_negative=1)


def test_a_hook_in_between_may_have_made_it():
    """What an op sends goes through the hooks of the code: the op is not accused, unless what it saved explains it."""
    found = only(born("addmm", nan=1, count=1, receiver=leaf(0, "net.bias"), hooked=True), "TM402")
    assert found.message == (
        "The first NaN gradient is made on the way from addmm, model.py, line 3 to net.bias: addmm receives a finite "
        "gradient (norm 1.5), a hook runs on what it sends, and the one element net.bias receives is NaN; "
        "it spreads to 1 of 3 nodes."
    )
    assert "hook" in found.remedy
    assert "appears in log" in only(born("log", nan=3, saved_name="self", saved_zero=3, hooked=True), "TM402").message


def test_infinite_products_are_told_from_nan_ones():
    """A finite gradient times a finite factor can overflow to infinity, but never to NaN."""
    assert "already not finite" in message(name="mul", nan=1)
    assert "already not finite" not in message(name="mul", inf=1)


def test_the_pass_is_named_where_there_are_several():
    """In a loop the first bad pass stands behind the line; in a single pass nothing does."""
    report = born(nan=1, saved_name="self", saved_zero=1, of=6)
    assert "line 3, in backward pass 1 of 6: " in only(report, "TM402").message
    assert "pass" not in message(nan=1, saved_zero=1, saved_name="self")


def test_a_run_that_gets_over_it_is_a_warning():
    """Where the last pass is finite again, the NaN reached no parameter."""
    found = only(born(nan=1, saved_name="self", saved_zero=1, of=3), "TM402")
    assert found.severity == "warning"
    assert found.message.endswith("; the last pass is finite again.")


@pytest.mark.parametrize(("of", "severity"), [(1, "error"), (5, "note")])
def test_float16_that_overflows_is_a_gradient_scaler_at_work(of, severity):
    """Where the run gets over it: a note; where it does not: an error; either way float16 is named."""
    report = born(
        "to_copy",
        inf=3,
        incoming_norm=245e3,
        of=of,
        receiver=op(0, "addmm", dtype="float16"),
        node={"dtype": "float32"},
    )
    found = only(report, "TM407")
    assert found.severity == severity
    assert "the gradient it receives (norm 245\u00a0000) does not fit float16, so 3 of the 320" in found.message
    assert "GradScaler" in found.remedy


def test_an_inexact_line_is_said_to_be_one():
    """What a custom Function made has the line of the next call."""
    report = born("Halved", inf=1, node={"kind": "custom", "exact_location": False})
    assert "appears in Halved, at or before model.py, line 3: " in only(report, "TM402").message


def test_a_node_without_a_line():
    """Where the line is not known the sentence goes without."""
    report = born("log", nan=1, saved_name="self", saved_zero=1, node={"location": None})
    found = only(report, "TM402")
    assert found.message.startswith("The first NaN gradient appears in log: its input")
    assert found.location is None


def test_the_earliest_pass_of_all_graphs_counts():
    """Births in two graphs: the one of the smaller pass number, with the index of its own graph."""
    late, early = born(nan=1, saved_name="self", saved_zero=1), born("sqrt", inf=1, saved_name="result", saved_zero=1)
    (nonfinite,) = late.graphs[0].first_nonfinite
    fourth = dataclasses.replace(nonfinite, pass_number=4)
    later = dataclasses.replace(late.graphs[0], first_nonfinite=(fourth,), frames=())
    report = dataclasses.replace(late, graphs=(later, early.graphs[0]), passes=passes(4), passes_seen=4)
    found = only(report, "TM402")
    assert (found.subject, found.node) == ("sqrt", (1, 1))


def test_a_bad_gradient_that_was_given():
    """A pass in which none appeared began with it: the line is that of the call of backward."""
    nodes = (leaf(0, "x"), op(1, "mul"))
    bad = {"1": (1, 0), "0": (1, 0)}
    graph = Graph(1, nodes, (Edge(1, 0, 0, 0),), (1,), (1, 0), 1, (frame(1, (1.0, 1.0), bad),))
    found = only(run(graph, bad=(1,)), "TM402")
    assert found.message == (
        "Backward was started with a gradient that is not finite: 1 element of what mul receives is NaN."
    )
    assert found.location == CALL
    assert (found.severity, found.node) == ("error", (0, 1))


def test_a_bad_gradient_of_unknown_origin():
    """Where backward was started well and no node can be blamed, the first bad node is named, without a story."""
    nodes = (leaf(0, "x"), op(1, "mul", location=4), op(2, "sum"))
    edges = (Edge(2, 1, 0, 0), Edge(1, 0, 0, 0))
    graph = Graph(1, nodes, edges, (2,), (2, 1, 0), 1, (frame(1, (1.0, 1.0, 1.0), {"1": (0, 4)}),))
    found = only(run(graph, bad=(1,)), "TM402")
    assert found.message == "A gradient that is not finite was seen: 4 elements of what mul receives are infinite."
    assert found.location == LINES[4]


def test_a_finite_run_has_no_finding():
    """Nothing is found where every gradient is finite."""
    nodes = (leaf(0, "x"), op(1, "mul"))
    assert diagnose(run(Graph(1, nodes, (Edge(1, 0, 0, 0),), (1,), (1, 0), 1, (frame(1, (1.0, 1.0)),)))) == ()
    assert diagnose(run()) == ()


# -- TM401 --------------------------------------------------------------------------------------------------------


def counted(name="x", slices=(), **numbers):
    report = tensor_report()
    zero = {"count": 6, "of": 6, "nan": 0, "positive_infinity": 0, "negative_infinity": 0, "first_nan": None}
    zero |= {"first_positive_infinity": None, "first_negative_infinity": None}
    statistics = dataclasses.replace(report.statistics, **{**zero, **numbers})
    return dataclasses.replace(report, name=name, findings=(), aliases=(), statistics=statistics, slices=slices)


@pytest.mark.parametrize(
    ("numbers", "severity", "message"),
    [
        ({"nan": 1, "first_nan": (0, 2)}, "warning", "In x 1 of the 6 elements is NaN; the first is x[0, 2]."),
        ({"nan": 6}, "warning", "In x all 6 elements are NaN."),
        ({"nan": 2, "positive_infinity": 1}, "warning", "In x 2 of the 6 elements are NaN, and 1 infinite."),
        ({"negative_infinity": 3}, "note", "In x 3 of the 6 elements are infinite."),
        (
            {"negative_infinity": 1, "first_negative_infinity": (1, 2)},
            "note",
            "In x 1 of the 6 elements is infinite; the first is x[1, 2].",
        ),
        ({"nan": 2, "of": 600}, "warning", "In x 2 of the 6 elements looked at are NaN."),
    ],
)
def test_values_that_are_not_finite(numbers, severity, message):
    """NaN warns, infinities are noted; the sample is called one."""
    found = only(counted(**numbers), "TM401")
    assert (found.severity, found.message) == (severity, message)
    assert found.evidence["nan"] == numbers.get("nan", 0)
    assert bool(found.remedy) == (severity == "warning")


def test_the_one_slice_that_holds_all_of_them_is_named():
    """Of several bad elements the one index that holds them all is said; not of two, not of a sample, not of one."""
    (one,) = tensor_report().slices
    item = dataclasses.replace(one, size=32, cell_bad=(3, 0), bad=(BadSlice(17, 3, 0),))
    said = "; all of them lie in i=17, one of 32."
    assert only(counted(nan=3, slices=(item,)), "TM401").message.endswith(said)
    for change in ({"size": 2}, {"bad_exact": False}, {"cell_bad": (1, 0)}, {"bad_count": 2}):
        other = dataclasses.replace(item, **change)
        assert "all of them" not in only(counted(nan=3, slices=(other,)), "TM401").message


def test_finite_values_and_values_that_could_not_be_read():
    """Neither finite values nor missing statistics give a finding."""
    assert diagnose(counted()) == ()
    assert diagnose(dataclasses.replace(counted(), statistics=None)) == ()


def test_a_loss_that_is_infinite_together_with_its_gradient_is_one_finding():
    """Where the gradient is bad as well, TM402 says where; the loss is not reported besides."""
    import torch

    import tensormagic as tm

    x = torch.tensor([0.0, 1.0], requires_grad=True)
    with tm.trace(namespace={"x": x}) as trace:
        (x * 1.0).log().sum().backward()
    assert [found.code for found in trace.report.findings] == ["TM402"]
