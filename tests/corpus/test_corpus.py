"""The rules run over real code: no false alarm where nothing is wrong, and what is wrong is named rightly."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from importlib import import_module
from pathlib import Path

import pytest
import torch

from tensormagic.diagnoses import RULES
from tensormagic.reports import Finding, Report, TraceReport
from tests.corpus.cases import HEALTHY, ILL, Case
from tests.corpus.parity import Shape, counted_walks, passes_of
from tests.ranks.test_many_ranks import ELSEWHERE, FAULTS

APART = {"ill_writes", "healthy_writes"}  # programs about in-place writes: test_writes_corpus
FILES = sorted(path.stem for pattern in ("ill_*.py", "healthy_*.py") for path in Path(__file__).parent.glob(pattern))
MODULES = [import_module(f"tests.corpus.{name}") for name in FILES if name not in APART]
LEAST_ILL, LEAST_NEARLY = 3, 2
LEAST_FAMILIES = 50
# By the module's scope pytest puts the two tests of a case beside each other, and `ran` keeps it for the second.
each_healthy_case = pytest.mark.parametrize("case", HEALTHY, ids=lambda case: case.name, scope="module")
CODE, NUMBER_AS_NAME = re.compile(r"`([^`]+)`"), re.compile(r"[A-Za-z_]\w*\.\d")  # `net.0.weight` is no Python
UNCOUNTED = {"TM201", "TM202", "TM203", "TM204"}  # the programs about these are counted in test_writes_corpus
OF_RANKS = {
    code for code, _ in FAULTS.values()
} | ELSEWHERE  # a program of the corpus is one process: tests/ranks plants these


@pytest.fixture(autouse=True)
def every_step_is_measured(monkeypatch):
    """A busy machine leaves measurements of steps out."""
    monkeypatch.setattr("tensormagic.collectors.gradients.pass_log.FREE_SECONDS", 60.0)


@pytest.fixture(autouse=True)
def same_numbers():
    """Every case starts from the same random numbers, and leaves torch's generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def told(report, expected: str) -> list[Finding]:
    """Return what a user would have to look at: all above a note, and whatever has the expected code."""
    return [found for found in report.findings if found.severity != "note" or (expected and found.code == expected)]


@lru_cache(maxsize=1)
def ran(case: Case) -> tuple[Report, Counter[Shape]]:
    """Run a healthy program, once for all that is asked of it; return its report, and the graphs that backward ran."""
    with counted_walks() as walks:
        return case.run(), walks


@each_healthy_case
def test_nothing_is_found_in_healthy_code(case):
    """A false alarm costs more than a miss."""
    report, _ = ran(case)
    if isinstance(report, TraceReport):
        assert all(done.finite for done in report.passes)
    assert [f"{found.code} {found.message}" for found in told(report, case.nearly)] == []


@each_healthy_case
def test_the_graph_is_that_of_the_grad_fn_chain(case):
    """Every graph that backward ran through is there, as often as it was run through, and no other; some run none."""
    report, walks = ran(case)
    if not isinstance(report, TraceReport):
        assert not walks
        return
    assert passes_of(report) == walks
    assert sum(walks.values()) == report.passes_seen + report.inner_passes_seen >= bool(case.family)


@pytest.mark.parametrize("case", ILL, ids=lambda case: case.name)
@pytest.mark.filterwarnings("ignore:std.*degrees of freedom:UserWarning")
def test_the_one_illness_is_found_and_nothing_else(case):
    """Code, severity, node, lines, subject and sentence are those that the case declares."""
    report = case.run()
    every = [found for found in told(report, case.code) if found.code not in case.also]
    assert [found.code for found in every] == [case.code], [found.message for found in every]
    (found,) = every
    assert case.severity in {"", found.severity}
    assert [words for words in case.says if words not in f"{found.message} {found.remedy}"] == []
    if case.line or isinstance(report, TraceReport):
        assert found.location is not None
        assert case.line in found.location.text
    assert case.subject in {"", found.subject}
    assert len(found.related) >= len(case.related)
    lines = zip(case.related, found.related, strict=False)
    assert [line.location.text for text, line in lines if text not in line.location.text] == []
    if case.op:
        graph, node = found.node
        assert report.graphs[graph].nodes[node].op == found.subject == case.op
    _assert_lines_are_there(found)
    assert [code for code in CODE.findall(found.remedy) if NUMBER_AS_NAME.search(code)] == []


def _assert_lines_are_there(found: Finding) -> None:
    """The text of each of a finding's lines is what is at that line of that file."""
    for place in (found.location, *(line.location for line in found.related)):
        if place is not None:
            lines = Path(place.filename).read_text(encoding="utf-8").splitlines()
            assert lines[place.line - 1].strip() == place.text


def test_what_a_gradient_scaler_skips_is_a_note_and_not_an_error():
    """Overflow in float16 that the last pass has got over is how the scale is found."""
    (case,) = [case for case in ILL if case.name == "a_gradient_scaler_that_looks_for_its_scale"]
    assert [finding.severity for finding in told(case.run(), "TM407")] == ["note"]


def test_every_case_is_run():
    """Each case function of the corpus is declared healthy or ill, once."""
    declared = [case.name for case in (*HEALTHY, *ILL)]
    assert [name for name, count in Counter(declared).items() if count > 1] == []
    assert {case.run.__module__ for case in (*HEALTHY, *ILL)} == {module.__name__ for module in MODULES}


def test_there_are_fifty_families():
    """Healthy training programs of at least fifty different families, each of them once."""
    families = Counter(case.family for case in HEALTHY if case.family)
    assert [name for name, count in families.items() if count > 1] == []
    assert len(families) >= LEAST_FAMILIES


@pytest.mark.parametrize("code", sorted({rule.code for rule in RULES} - UNCOUNTED - OF_RANKS))
def test_every_code_has_its_cases(code):
    """At least three broken programs a code, and two healthy ones that nearly have the fault."""
    assert sum(case.code == code for case in ILL) >= LEAST_ILL
    assert sum(case.nearly == code for case in HEALTHY) >= LEAST_NEARLY
