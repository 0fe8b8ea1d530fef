"""The rules run over real training code: no false alarm where nothing is wrong, and what is wrong is named rightly."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tensormagic.reports import Finding
from tests.corpus import healthy_loops, healthy_models, healthy_numbers, ill_magnitude, ill_not_finite, ill_parameters
from tests.corpus.cases import HEALTHY, ILL

MODULES = (healthy_loops, healthy_models, healthy_numbers, ill_magnitude, ill_not_finite, ill_parameters)
FAMILIES = ("TM4", "TM6")


@pytest.fixture(autouse=True)
def same_numbers():
    """Every case starts from the same random numbers, and leaves torch's generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def findings(report) -> list[Finding]:
    """Return what was found about gradients and modules."""
    return [finding for finding in report.findings if finding.code.startswith(FAMILIES)]


@pytest.mark.parametrize("case", HEALTHY, ids=lambda case: case.name)
def test_nothing_is_found_in_healthy_training(case):
    """A false alarm costs more than a miss."""
    report = case.run()
    assert report.passes_seen > 0
    assert all(done.finite for done in report.passes)
    assert [finding.message for finding in findings(report)] == []


@pytest.mark.parametrize("case", ILL, ids=lambda case: case.name)
@pytest.mark.filterwarnings("ignore:std.*degrees of freedom:UserWarning")
def test_the_one_illness_is_found_and_nothing_else(case):
    """Code, node, line, subject and sentence are those that the case declares."""
    report = case.run()
    (found,) = findings(report)
    assert found.code == case.code
    assert [words for words in case.says if words not in found.message] == []
    assert found.location is not None
    assert case.line in found.location.text
    assert case.subject in {"", found.subject}
    if case.op:
        graph, node = found.node
        assert report.graphs[graph].nodes[node].op == found.subject == case.op


@pytest.mark.parametrize("case", ILL, ids=lambda case: case.name)
@pytest.mark.filterwarnings("ignore:std.*degrees of freedom:UserWarning")
def test_the_location_is_in_the_file_that_it_names(case):
    """The text of a finding's line is what stands at that line of that file."""
    (found,) = findings(case.run())
    lines = Path(found.location.filename).read_text(encoding="utf-8").splitlines()
    assert lines[found.location.line - 1].strip() == found.location.text


def test_what_a_gradient_scaler_skips_is_a_note_and_not_an_error():
    """Overflow in float16 that the last pass has got over is how the scale is found."""
    (case,) = [case for case in ILL if case.name == "a_gradient_scaler_that_looks_for_its_scale"]
    assert [finding.severity for finding in findings(case.run())] == ["note"]


def test_every_case_is_run():
    """Each case function of the corpus is declared healthy or ill, once."""
    declared = [case.name for case in (*HEALTHY, *ILL)]
    assert len(set(declared)) == len(declared)
    assert {case.run.__module__ for case in (*HEALTHY, *ILL)} == {module.__name__ for module in MODULES}
