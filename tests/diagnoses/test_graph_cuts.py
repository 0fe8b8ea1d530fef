"""TM303: exact sentences and what is left alone, by hand-made cuts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensormagic.diagnoses import diagnose
from tensormagic.reports import UNTOUCHED, Cut, Graph, LeftOut, Location, LossWithoutGraph
from tests.diagnoses.samples import LINES, leaf, op, parameter, run

BODY = (LeftOut(name="net.body.weight", owner="net", shape=(4, 4), is_parameter=True),
        LeftOut(name="net.body.bias", owner="net", shape=(4,), is_parameter=True))  # fmt: skip


def cut(**more):
    facts = {"kind": "detach", "op": "detach", "location": 2, "line": 3, "target": 1, "left_out": BODY}
    return Cut(**{**facts, **more})


def cut_run(*cuts, parameters=(), roots=(1,)):
    """A run in which the head learned and the body did not."""
    nodes = (leaf(0, "net.head.weight"), op(1, "addmm", location=4))
    missing = [parameter("net.body.weight", [UNTOUCHED]), parameter("net.body.bias", [UNTOUCHED], shape=(4,))]
    graph = Graph(1, nodes, (), roots, cuts=cuts)
    return run(graph, parameters=[parameter("net.head.weight", [1.0]), *missing, *parameters])


def held(which, *, by):
    return tuple(replace(one, held=by) for one in which)


def test_a_cut_that_leaves_parameters_out():
    """Code, severity, sentence, both lines, numbers and remedy."""
    (found,) = diagnose(cut_run(cut(source_location=1)))
    assert (found.code, found.severity, found.subject) == ("TM303", "warning", "net.body.weight")
    assert found.message == (
        "net.body gets no gradient in 1 backward pass: `.detach()` cuts it off from the loss "
        "(2 of the 3 parameters of net)."
    )
    assert found.location == LINES[2]
    assert found.evidence == {"net.body.weight": 16, "net.body.bias": 4}
    assert [(line.what, line.location) for line in found.related] == [("made here", LINES[1]), ("used here", LINES[4])]
    assert "net.body.requires_grad_(False)" in found.remedy


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"kind": "no_grad", "op": "no_grad", "left_out": held(BODY, by=True)},
         "`torch.no_grad()` keeps what it computes from being recorded"),
        ({"kind": "data", "op": ".data"}, "`.data` cuts it off"),
        ({"kind": "item", "op": "float"}, "`float(...)` cuts it off"),
        ({"kind": "copy", "op": "tensor"}, "`torch.tensor(...)` cuts it off"),
        ({"kind": "non-differentiable", "op": "gt"}, "`>` cuts it off"),
        ({"kind": "cast", "op": "long", "selects": True}, "`.long()` only chooses elements with it"),
    ],
    ids=lambda value: value["op"] if isinstance(value, dict) else "",
)  # fmt: skip
def test_each_kind_in_its_words(facts, words):
    """What was called, as one writes it, and what that does."""
    (found,) = diagnose(cut_run(cut(**facts)))
    assert found.severity == "warning"
    assert words in found.message


@pytest.mark.parametrize(
    "left_out",
    [
        held(BODY, by=False),
        tuple(replace(one, written=True, held=True) for one in BODY),
        tuple(replace(one, owner="other") for one in BODY),
        (),
    ],
    ids=["in no optimizer", "kept up by an average", "of a model that nothing reached", "nobody"],
)
def test_what_is_meant_is_not_reported(left_out):
    """Whoever is not expected to learn here misses nothing; nor is TM601 told of what a cut left out."""
    assert [found.code for found in diagnose(cut_run(cut(left_out=left_out)))] == ([] if left_out else ["TM601"])


def test_an_optimizer_that_holds_it_decides():
    """A model that no gradient reached at all was to learn, where the optimizer's steps were to move it."""
    other = tuple(replace(one, owner="encoder", name=one.name.replace("net", "encoder"), held=True) for one in BODY)
    report = cut_run(cut(left_out=other))
    assert [found.subject for found in diagnose(report) if found.code == "TM303"] == ["encoder.body.weight"]


def test_a_run_that_goes_on_is_waited_for():
    """As long as no optimizer has made a step, the rest of the model's passes may come."""
    assert diagnose(replace(cut_run(cut()), state="running")) == ()
    held_by_one = replace(cut_run(cut(left_out=held(BODY, by=True))), state="running")
    assert [found.code for found in diagnose(held_by_one)] == ["TM303"]


def test_no_grad_without_an_optimizer_is_a_note():
    """Features made under no_grad are meant as often as not."""
    (found,) = diagnose(cut_run(cut(kind="no_grad", op="no_grad")))
    assert (found.code, found.severity) == ("TM303", "note")


def test_a_target_network_has_a_twin():
    """Parameters of the same names and shapes learn beside it, and it is only evaluated."""
    twin = [parameter("net.online.weight", [1.0]), parameter("net.online.bias", [1.0], shape=(4,))]
    target = held(BODY, by=True)
    assert diagnose(cut_run(cut(kind="no_grad", op="no_grad", left_out=target), parameters=twin)) == ()
    assert [found.code for found in diagnose(cut_run(cut(left_out=target), parameters=twin))] == ["TM303"]


def test_a_loss_made_anew():
    """Where backward starts from what a cut left, all behind it was to learn."""
    report = replace(cut_run(), cuts=(cut(kind="item", op="item", target=None),))
    (found,) = diagnose(report)
    assert (found.code, found.severity) == ("TM303", "warning")
    assert "`.item()` made the tensor that backward starts from, without a graph" in found.message
    refused = replace(report, losses_without_graph=(LossWithoutGraph(cut=0),), state="failed")
    assert sorted(found.code for found in diagnose(refused)) == ["TM306", "TM601"]


def test_a_line_that_only_detaches_is_to_go():
    """What remains without the call says nothing."""
    place = Location("model.py", 3, "h = h.detach()")
    report = cut_run(cut())
    (found,) = diagnose(replace(report, locations=(*report.locations[:2], place, *report.locations[3:])))
    assert found.remedy.startswith("If it should learn, remove this line.")


def test_one_cause_is_told_once():
    """A second cut that leaves out the same parameters adds nothing."""
    assert len(diagnose(cut_run(cut(), cut(location=5)))) == 1


def test_a_value_that_was_only_read_is_named_by_tm601():
    """Nothing used what came out: the way ended there all the same."""
    (found,) = diagnose(cut_run(cut(target=None)))
    assert found.code == "TM601"
    assert "cut off at `.detach()` (model.py, line 3)" in found.remedy
    assert [line.location for line in found.related] == [LINES[2]]


def test_reentrant_checkpoints_hide_their_parameters():
    """Where nobody can say who got a gradient, nothing is said."""
    report = cut_run(cut())
    (graph,) = report.graphs
    hidden = replace(op(2, "CheckpointFunction"), name="CheckpointFunctionBackward")
    assert diagnose(replace(report, graphs=(replace(graph, nodes=(*graph.nodes, hidden)),))) == ()


def lost(*, touched=False, **more):
    """Return a run in which all that a model makes ended in a cut that nothing is known to have used."""
    behind = held((replace(BODY[0], name="encoder.weight", owner="encoder"),), by=more.pop("by", True))
    gradient = [1.0] if touched else [UNTOUCHED]
    row = parameter("encoder.bias", gradient, owner="encoder", shape=(4,))
    report = cut_run(cut(target=None, left_out=behind, **more), parameters=(row,))
    return replace(report, parameters=(report.parameters[0], row))


def test_a_way_that_is_lost_outside_torch():
    """A model that an optimizer holds, of which nothing ever got a gradient."""
    (found,) = diagnose(lost())
    assert (found.code, found.severity, found.subject) == ("TM303", "warning", "encoder.weight")
    assert found.message == (
        "encoder.weight gets no gradient in 1 backward pass, although an optimizer holds it: the gradient of what it "
        "makes is cut at "
        "`.detach()`."
    )
    assert found.location == LINES[2]


@pytest.mark.parametrize(
    "facts", [{"by": False}, {"by": None}, {"touched": True}, {"kind": "no_grad", "op": "no_grad"}], ids=str
)
def test_a_value_that_was_only_looked_at_is_no_fault(facts):
    """Of a model that nobody trains here, or that learns in another way; an evaluation without gradients."""
    assert "TM303" not in {found.code for found in diagnose(lost(**facts))}
