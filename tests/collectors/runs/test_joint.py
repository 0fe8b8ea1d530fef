"""Several questions to one run: each part says what it says alone, through one dispatch mode, and all end together."""

from __future__ import annotations

import gc
import json
import math
import re
import sys
import weakref
from functools import partial
from xml.etree import ElementTree as ET

import pytest
import torch

import tensormagic as tm
from tensormagic.api.running import Trace
from tensormagic.reports import Finding, Location, RunReport
from tests.collectors.runs.test_nesting import Operations, asked, followed, patient, training
from tests.corpus.test_corpus import HEALTHY, ILL
from tests.support.leftovers import leftovers, snapshot
from tests.support.same_report import told_apart

ASKED = {"memory": True, "writes": True, "draws": True}
# TM104: what nobody has initialised holds another number each time.
CASES = [case for case in (*HEALTHY, *ILL) if "trace" in case.run.__code__.co_names and case.code != "TM104"][::24]
unhurried = patient  # pytest finds it here, too


@pytest.fixture(scope="module")
def alone():
    """What each says alone, once torch has made what it makes once in a process."""
    for kind in ("trace", "ops", "memory", "writes", "draws"):
        followed([kind])
    return {kind: followed([kind])[1][0] for kind in ("trace", "ops", "memory", "writes", "draws")}


@pytest.mark.parametrize(
    "besides", [ASKED, {"memory": True}, {"writes": True, "draws": True}, {"draws": True}, {**ASKED, "level": "ops"}],
    ids="+".join,
)  # fmt: skip
def test_each_part_says_what_it_says_alone(besides, alone):
    """No number differs, the program is what it is without, and nothing stays on torch."""
    standing = snapshot()
    seen, (report,) = followed([asked(**besides)])
    assert leftovers(standing, snapshot()) == []
    assert seen == training()
    assert isinstance(report, RunReport)
    trace = "ops" if "level" in besides else "trace"
    apart = told_apart(alone[trace], report.trace)
    for kind in ASKED:
        part = getattr(report, kind)
        assert (part is not None) == (kind in besides)
        apart += told_apart(alone[kind], part) if part is not None else []
    assert apart[:4] == []


class _First(Trace):
    """A trace of which the first part is shown; what nobody holds any more is gone by then."""

    @property
    def report(self):
        gc.collect()
        report = super().report
        return report.trace if isinstance(report, RunReport) else report


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.filterwarnings("ignore")
def test_a_program_has_the_trace_that_it_has_alone(case, monkeypatch):
    """Programs of the corpus, with all questions asked of them, and with one: the same numbers and findings."""
    original, reports = tm.trace, []
    monkeypatch.setattr(torch, "seed", partial(torch.manual_seed, 0))  # which programs without a seed begin with
    for besides in ({}, {}, ASKED):

        def trace(*, besides=besides, **options):
            made = original(**{"namespace": sys._getframe(1).f_globals, **options}, **besides)
            made.__class__ = _First
            return made

        monkeypatch.setattr(tm, "trace", trace)
        torch.manual_seed(0)
        reports.append(case.run())
    once, plain, joint = reports
    unsteady = {path for path, *_ in told_apart(once, plain)}
    unsteady.add(".training.by_hand.holds")  # who is alive: ``locals()`` keeps what it had when it was asked for last
    names = "locals" in case.run.__code__.co_names  # that dictionary gets new names where somebody asks for its own
    apart = [each for each in told_apart(plain, joint) if each[0] not in unsteady]
    apart = [each for each in apart if not (names and each[0].endswith((".variable", "].name")))]
    if any(parameter.dtype == "float16" for parameter in plain.parameters):
        apart = [each for each in apart if not ("norms[" in each[0] and _is_rounding(*each[1:]))]
    assert [each for each in apart if {_without_alias(name) for name in each[1:]} != {"view"}][:4] == []


def _is_rounding(one, other):
    """Return whether two norms are the same but for the last bits of a float32: of half precision torch sums up in it.

    In which order it adds depends on where in memory a gradient lies.
    """
    return math.isclose(one, other, rel_tol=2**-22)


def _without_alias(name):
    """Return the name of a view's node: ``reshape`` makes it by another operator where torch sees any dispatch mode."""
    return re.sub(r"reshape_?alias", "view", str(name), flags=re.IGNORECASE).lower().removesuffix("backward0")


@pytest.mark.parametrize(
    "besides", [{"memory": True}, {"writes": True}, {"draws": True}, {"level": "ops"}], ids="+".join
)
def test_a_call_around_which_the_mode_is_off_is_seen(besides):
    """Torch computes `cross_entropy` otherwise under a mode, so another function stands there: it is the same call."""
    net = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Softmax(dim=1))
    with tm.trace(namespace={"net": net}, **besides) as trace:
        torch.nn.functional.cross_entropy(net(torch.ones(16, 8)), torch.zeros(16, dtype=torch.long)).backward()
    report = trace.report.trace if isinstance(trace.report, RunReport) else trace.report
    assert [finding.code for finding in report.findings if finding.code == "TM608"] == ["TM608"]


def test_one_dispatch_mode_serves_all_who_listen():
    """With memory it is that of the memory run; without, one of their own."""
    for besides in (ASKED, {"writes": True, "draws": True}):
        with tm.trace(namespace={}, **besides):
            assert torch._C._len_torch_dispatch_stack() == 1
        assert torch._C._len_torch_dispatch_stack() == 0


def test_what_the_run_does_for_itself_is_no_operation():
    """A dispatch mode of the user's counts as many as without."""
    counts = []
    for besides in ([], [asked(**ASKED)]):
        with Operations() as operations:
            followed(besides)
        counts.append(operations.count)
    assert counts[0] == counts[1]


def test_an_error_ends_all_parts():
    """Each says so, and how; the traceback holds the user's frames alone."""
    with pytest.raises(RuntimeError) as raised, tm.trace(**ASKED) as run:
        torch.ones(3, requires_grad=True).add(1).backward()
    assert [part.state for part in run.report.parts] == ["failed"] * 4
    assert (run.report.state, run.report.error) == ("failed", run.report.trace.error)
    assert run.report.trace.failure is not None
    assert [entry for entry in raised.traceback if "tensormagic/" in str(entry.path)] == []
    with pytest.raises(tm.TraceError, match="before"):
        run.__enter__()


def test_what_is_asked_after_it_is_answered_from_its_trace():
    """`why` and `model` take the joint report as they take a trace's."""
    net = torch.nn.Linear(2, 1)
    with tm.trace(memory=True) as run:
        net(torch.ones(1, 2)).sum().backward()
    assert tm.why(net.weight, "net.weight").reason == tm.why(net.weight, "net.weight", trace=run).reason == "fine"
    assert tm.model(net, "net", trace=run).rows


def test_nothing_is_kept_alive():
    """When the run has ended, a tensor dies with its last name."""
    with tm.trace(namespace={}, **ASKED) as run:
        x = torch.zeros(10, requires_grad=True)
        (x * 2).sum().backward()
    gone = weakref.ref(x)
    del x
    assert gone() is None
    assert run.report.memory.state == "finished"


def test_the_cost_of_tracing_is_a_share_of_this_run():
    """With some steps traced: not of the time that went by before the run began, which a budget could never use up."""
    w = torch.ones(3, requires_grad=True)

    def cost():
        with tm.trace(namespace={}, every=3, memory=True) as run:
            for _ in range(60):
                (w * 2).sum().backward()
        return run.report.trace.sampling.cost  # unknown where the machine paused too often

    known = next(found for found in (cost() for _ in range(10)) if found is not None)
    assert known > 1e-3


@pytest.fixture(scope="module")
def report():
    """A run with findings of several parts."""
    a = torch.zeros(6)
    with tm.trace(namespace={"a": a}, title="all of it", **ASKED) as run:
        b = a[2:]
        b.add_(torch.rand(4))
        w = torch.ones(4, requires_grad=True)
        (w * b).log().sum().backward()
    return run.report


def test_it_is_saved_and_loaded(report, tmp_path):
    """As JSON, whole."""
    report.save(tmp_path / "run.json")
    again = tm.load(tmp_path / "run.json")
    assert isinstance(again, RunReport)
    assert again.to_dict() == report.to_dict() == json.loads(json.dumps(report.to_dict()))


def test_every_form_has_what_was_found_first_and_all_parts(report, tmp_path):
    """HTML, text and SVG; each finding is before the first part."""
    text = str(report)
    assert report.findings
    titles = ("all of it", "gpumem", "in-place writes", "random numbers")  # the first stands above all of them, too
    heads = [text.rindex(f"── {title} ──") for title in titles]
    assert heads == sorted(heads)
    assert all(text.index(finding.code) < heads[0] for finding in report.findings)
    bundle = report._repr_mimebundle_()
    assert [
        bundle["text/html"].count(f'class="tm tm-{kind}"') for kind in ("run", "trace", "memory", "writes", "rng")
    ] == [1] * 5
    report.save(tmp_path / "run.svg")
    picture = ET.parse(tmp_path / "run.svg").getroot()
    tops = [float(part.get("y")) for part in picture]
    assert len(tops) == 5
    assert tops == sorted(tops)
    assert float(picture.get("height")) > tops[-1]
    report.save(tmp_path / "run.html", slide=True)


def test_code_that_several_parts_need_is_carried_once(report):
    """The export menu stands below each part; its code lies in the first."""
    html = report._repr_mimebundle_()["text/html"]
    carried = [
        piece for piece in html.split('data-tm-code="export-')[1:] if not piece.split('">', 1)[1].startswith("</")
    ]
    assert len(carried) == 1


def test_it_has_the_figures_of_its_parts(report):
    """A figure is asked of the run; one that no part has is refused with a list of those there are."""
    pytest.importorskip("plotly")
    assert report.figure("timeline").layout.title.text
    with pytest.raises(tm.errors.TensorMagicError, match="gradient_flow"):
        report.figure("nothing")


def test_findings_about_one_line_stand_together():
    """The most severe leads; what two parts say with one code about one line is said once."""
    from tensormagic.diagnoses.rule import joined

    lines = [Location("a.py", number, "x") for number in (1, 2)]
    report = tm.trace(namespace={}, **ASKED).report
    trace = [Finding("TM402", "error", "nan", lines[1]), Finding("TM701", "note", "draws", lines[0])]
    draws = [Finding("TM701", "note", "draws", lines[0]), Finding("TM701", "note", "once more", None)]
    writes = [Finding("TM201", "warning", "writes", lines[0]), Finding("TM203", "note", "reads", lines[1])]
    parts = [type("Part", (), {"findings": tuple(found)}) for found in (trace, writes, draws)]
    assert [(one.code, one.location and one.location.line) for one in joined(parts)] == [
        ("TM402", 2), ("TM203", 2), ("TM201", 1), ("TM701", 1), ("TM701", None),
    ]  # fmt: skip
    assert report.state == "running"


def test_it_is_compared_as_a_trace(report, tmp_path):
    """With another such run, or with a trace; a file as well."""
    report.save(tmp_path / "run.json")
    assert tm.compare(report, report.trace).to_dict() == tm.compare(report.trace, tmp_path / "run.json").to_dict()
