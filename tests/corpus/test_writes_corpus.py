"""The rules of writes over real programs: no false alarm where nothing is wrong, and what is wrong named rightly."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.corpus.healthy_writes import HEALTHY_WRITES
from tests.corpus.ill_writes import ILL_WRITES


@pytest.fixture(autouse=True)
def same_numbers():
    """Every program starts from the same random numbers, and leaves torch's generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@pytest.mark.parametrize("case", HEALTHY_WRITES, ids=lambda case: case.name)
def test_nothing_above_a_note_is_said_of_healthy_programs(case):
    """A false alarm costs more than a miss; of what a program nearly has not even a note is told."""
    report = case.run()
    told = [found for found in report.findings if found.severity != "note" or found.code == case.nearly]
    assert [found.message for found in told] == []
    assert report.gaps == ()


@pytest.mark.parametrize("case", ILL_WRITES, ids=lambda case: case.name)
def test_the_illness_is_named_at_its_line(case):
    """Code, severity, line and words of the worst finding, and nothing else above a note."""
    report = case.run()
    worst = report.findings[0]
    assert (worst.code, worst.severity) == (case.code, case.severity)
    text = f"{worst.message} {worst.remedy}"
    assert [words for words in case.says if words not in text] == []
    assert worst.location is not None
    assert case.line in worst.location.text
    lines = Path(worst.location.filename).read_text(encoding="utf-8").splitlines()
    assert lines[worst.location.line - 1].strip() == worst.location.text
    assert [found.message for found in report.findings[1:] if found.severity != "note"] == []


@pytest.mark.parametrize("code", ["TM201", "TM202", "TM203", "TM204"])
def test_every_code_has_its_programs(code):
    """At least three broken ones, and three healthy ones that nearly have the fault."""
    assert sum(case.code == code for case in ILL_WRITES) >= 3
    assert sum(case.nearly == code for case in HEALTHY_WRITES) >= 3
