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


@pytest.mark.parametrize("run", HEALTHY_WRITES, ids=lambda run: run.__name__)
def test_nothing_above_a_note_is_said_of_healthy_programs(run):
    """A false alarm costs more than a miss; and everything could be looked at."""
    report = run()
    assert [found.message for found in report.findings if found.severity != "note"] == []
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


def test_every_code_has_three_programs_and_more():
    """At least three broken ones a code, and a dozen healthy ones."""
    for code in ("TM201", "TM202", "TM203", "TM204"):
        assert sum(case.code == code for case in ILL_WRITES) >= 3
    assert len(HEALTHY_WRITES) >= 12
