"""Where the gradient's way ends: the line, what went in and what used it, in programs that say it themselves."""

from __future__ import annotations

import gc
import sysconfig
import weakref

import pytest
import torch
from torch import nn

import tensormagic as tm
from tensormagic.collectors.detachment import detached_values as following
from tensormagic.collectors.detachment.detachment_log import MOST_CUTS
from tests.collectors import cut_programs
from tests.collectors.cut_programs import data

PURELIB = sysconfig.get_path("purelib")


def told(report):
    """Return every cut of a report as ``(op, line, what went in, what used it, input)``, with its count."""
    return [
        ((cut.op, report.location(cut.location).text, _source(graph, cut), _name(graph, cut.target), cut.input_number),
         cut.count)
        for graph in report.graphs
        for cut in graph.cuts
    ]  # fmt: skip


def _name(graph, index):
    return None if index is None else graph.nodes[index].variable or graph.nodes[index].op


def _source(graph, cut):
    inside = None if cut.source is None else graph.nodes[cut.source]
    if inside is None:
        return f"({cut.source_name})"
    return inside.variable if inside.kind == "accumulate" else inside.op


def traced(program):
    torch.manual_seed(0)
    with tm.trace() as trace:
        program()
    return trace.report


@pytest.mark.parametrize(
    ("program", "expected", "count"), cut_programs.CUT, ids=lambda each: getattr(each, "__name__", "")
)
def test_the_end_of_a_way(program, expected, count):
    """The line, the producer and the consumer of every end of a way are those of the program, and no others."""
    report = traced(program)
    found = dict(told(report))
    assert {what: number for what, number in found.items() if what[3] is not None} == dict.fromkeys(expected, count)
    assert not report.gaps


@pytest.mark.parametrize(("program", "expected"), cut_programs.HEALTHY, ids=lambda each: getattr(each, "__name__", ""))
def test_healthy_programs(program, expected):
    """What is meant to end ends where it is meant to; everyday calls end nothing."""
    assert list(dict.fromkeys(what for what, _ in told(traced(program)))) == expected


def test_uses_are_counted_over_the_run():
    """A cut of every step is one cut, with how often it was; its shape and dtype are those of what was used."""
    w = torch.ones(3, 2, requires_grad=True)
    with tm.trace() as trace:
        for _ in range(5):
            y = w * 2
            (w * y.detach().sum(1, keepdim=True)).sum().backward()
    (cut,) = trace.report.graphs[0].cuts
    assert (cut.count, cut.shape, cut.dtype) == (5, (3, 1), "float32")
    assert cut.line == trace.report.location(cut.location).line
    assert trace.report.location(cut.source_location).text == "y = w * 2"


def test_what_only_chooses_is_not_cut():
    """A mask and an index have no gradient to lose; a factor has."""
    x = torch.ones(3, requires_grad=True)
    with tm.trace() as trace:
        y = x * 2
        (torch.where(y > 0, y, -y) * (y > 1).float()).sum().backward()
    assert [(cut.detachment, cut.selects) for cut in trace.report.graphs[0].cuts] == [(True, False), (False, True)]


@pytest.mark.parametrize(
    "chosen",
    [
        lambda y: torch.where(y > 0, y, 0.0),
        lambda y: torch.where(y > 0, 0.0, y),
        lambda y: y.where(y > 0, 0.0),
        lambda y: y.masked_fill(y > 0, 0.0),
        lambda y: _written(y, y > 0),
        lambda y: y * (y > 0),
        lambda y: (y > 0) * y,
    ],
    ids=["where", "where the number first", "Tensor.where", "masked_fill", "x[mask] = 0", "x * mask", "mask * x"],
)
def test_a_mask_beside_a_number_only_chooses(chosen):
    """The number is an input of the node without a way back, the mask is none."""
    x = torch.ones(3, requires_grad=True)
    with tm.trace() as trace:
        chosen(x * 2).sum().backward()
    assert [(cut.detachment, cut.selects) for cut in trace.report.graphs[0].cuts] == [(False, True)]


@pytest.mark.parametrize("loss", [nn.functional.smooth_l1_loss, nn.functional.mse_loss])
@pytest.mark.filterwarnings("ignore:Using a target size")
def test_a_target_that_a_loss_broadcasts_is_compared_with(loss):
    """What the loss makes as large as its input is a view of the target, and chooses nothing."""
    x, w = torch.ones(3, 1, requires_grad=True), torch.ones(3, requires_grad=True)
    with tm.trace() as trace:
        loss(x * 2, (w * 2).detach()).backward()
    (cut,) = trace.report.graphs[0].cuts
    assert (cut.op, cut.selects, cut.input_number) == ("detach", False, 1)
    assert trace.report.graphs[0].nodes[cut.target].op == loss.__name__


def _written(y, mask):
    y[mask] = 0.0
    return y


def test_nothing_is_kept_alive():
    """What is followed is gone as soon as the user lets it go, and so is its mark."""
    x = torch.ones(3, requires_grad=True)
    with tm.trace() as trace:
        y = x * 2
        cut = y.detach()
        with torch.no_grad():
            other = y + 1
        gone = [weakref.ref(value) for value in (y, cut, other)]
        live = trace._tracer._recorder.detached.live
        assert len(live) == 2
        del y, cut, other
        gc.collect()
        assert [reference() for reference in gone] == [None] * 3
        assert not live
        x.sum().backward()
    assert trace.report.graphs[0].cuts == ()


def test_the_table_of_followed_values_is_bounded(monkeypatch):
    """Beyond the bound the oldest are let go: a miss, and no error."""
    monkeypatch.setattr(following, "MOST_LIVE", 4)
    x = torch.ones(3, requires_grad=True)
    with tm.trace() as trace:
        y = x * 2
        kept = [y.detach() for _ in range(6)]
        (kept[0] * x + kept[-1] * x).sum().backward()
    assert [(cut.op, cut.count) for cut in trace.report.graphs[0].cuts] == [("detach", 1)]


def test_more_cuts_than_are_kept_are_told(monkeypatch):
    """Different cuts beyond the bound are a named gap."""
    monkeypatch.setattr("tensormagic.collectors.detachment.detachment_log.MOST_CUTS", 2)
    x = torch.ones(3, requires_grad=True)
    with tm.trace() as trace:
        y = x * 2
        (x * y.detach() * y.data * y.detach()).sum().backward()
    assert len(trace.report.graphs[0].cuts) == 2
    assert [gap.section for gap in trace.report.gaps] == ["cuts"]
    assert MOST_CUTS == 256


def test_a_view_that_was_written_to_is_not_asked_for_its_node():
    """Asking would make torch build a node: the graph of the run stays what it is."""

    def numbers():
        base = torch.ones(4, requires_grad=True) * 2
        view = base[:2]
        base.mul_(3)
        before = torch.autograd._get_sequence_nr()
        view.detach()
        after = torch.autograd._get_sequence_nr()
        (base * view).sum().backward() if base.shape == view.shape else base.sum().backward()
        return after - before

    with tm.trace():
        inside = numbers()
    assert inside == numbers() == 0


class Asked(torch.overrides.TorchFunctionMode):
    """A mode of the user's own, which lists what it sees."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(func.__name__)
        return func(*args, **(kwargs or {}))


def test_modes_and_classes_of_the_person_see_their_own_calls_alone():
    """What is asked of tensors while cuts are followed reaches neither a mode nor a class of the user's."""

    class Loud(torch.Tensor):
        seen = []  # noqa: RUF012  (one list for all of them is the point)

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            cls.seen.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    def run():
        x = torch.ones(3, requires_grad=True).as_subclass(Loud)
        y = x * 2
        with torch.no_grad():
            z = y + 1
        return y.detach() * x + z * x

    def seen(trace):
        Loud.seen.clear()
        with Asked() as mode:
            if trace:
                with tm.trace():
                    run()
            else:
                run()
        return mode.seen, list(Loud.seen)

    assert seen(trace=True) == seen(trace=False)


def test_a_run_that_only_evaluates_has_no_cuts():
    """A network that runs without gradients is none of it: nothing is used by a backward."""
    model = nn.Linear(3, 2)
    with tm.trace() as trace:
        with torch.no_grad():
            scores = [model(data(4, 3)).argmax(1) for _ in range(3)]
        model(data(4, 3)).sum().backward()
    assert len(scores) == 3
    assert trace.report.graphs[0].cuts == ()


@pytest.mark.parametrize(
    ("end", "op"),
    [
        (lambda loss: loss.detach().requires_grad_(), "detach"),
        (lambda loss: torch.tensor(loss.item(), requires_grad=True), "item"),
        (lambda loss: loss.detach(), "detach"),
    ],
    ids=["made a leaf", "made anew", "cut"],
)
def test_backward_of_what_has_no_way_back(end, op):
    """The call does what it does without a trace, also where it raises; the report says on which line the way ended."""
    w = torch.ones(3, requires_grad=True)
    trace = tm.trace()
    error = ""
    with trace:
        loss = (w * 2).sum()
        cut = end(loss)
        try:
            cut.backward()
        except RuntimeError as raised:
            error = str(raised)
    (found,) = trace.report.cuts
    assert (found.op, found.source_name) == (op, "sum")
    assert trace.report.location(found.location).text
    assert bool(error) is not cut.requires_grad
    assert f"{op}, line {found.line}: sum (line" in str(trace.report) or f"line {found.line}: sum" in str(trace.report)
    assert w.grad is None


@pytest.mark.parametrize(
    ("folder", "severity"), [("/usr/lib/site-packages/distilled", "note"), ("/home/me", "warning")]
)
def test_a_teacher_that_a_library_keeps_from_learning(folder, severity):
    """A library's own ``no_grad`` around a part that the optimizer was given with the rest is meant: a note."""
    source = """import torch
class Distilled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.teacher, self.student = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3, bias=False)
    def forward(self, x):
        with torch.no_grad():
            wanted = self.teacher(x)
        return (self.student(x) - wanted).square().mean()
"""
    made = {"__name__": "distilled"}
    exec(compile(source, f"{folder}/distilled.py", "exec"), made)
    model = made["Distilled"]()
    optimizer = torch.optim.Adam(model.parameters())
    with tm.trace(namespace={"model": model}) as trace:
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(5, 4)).backward()
            optimizer.step()
    (found,) = [found for found in trace.report.findings if found.code == "TM303"]
    assert (found.severity, found.subject) == (severity, "model.teacher.weight")


@pytest.mark.parametrize(
    ("folder", "by_library"),
    [(f"{PURELIB}/pyro/distributions", True), (PURELIB, False), ("/home/ada/distributions", False)],
)
def test_a_comparison_in_the_density_of_a_distribution(folder, by_library):
    """A point mass has a density of 1 or 0, by ``==``: that belongs to it. Elsewhere it may be a mistake."""
    names = {}
    code = "def log_prob(x, v):\n    return (x == v).type(x.dtype).log().sum()\n"
    exec(compile(code, f"{folder}/delta.py", "exec"), names)
    w = torch.ones(3, requires_grad=True)
    with tm.trace(namespace={}) as trace:
        ((w**2).sum() - names["log_prob"](w * 1, w.detach())).backward()
    (cut,) = (cut for cut in trace.report.graphs[0].cuts if cut.kind == "non-differentiable")
    assert cut.by_library is by_library
    assert ("TM313" in [finding.code for finding in trace.report.findings]) is not by_library
