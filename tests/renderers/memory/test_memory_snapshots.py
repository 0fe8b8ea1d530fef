"""Exact snapshots of memory: what is alive and what a run did, as text and as a panel."""

from __future__ import annotations

import pytest

from tensormagic import renderers
from tests.renderers.samples_memory import SAMPLES
from tests.renderers.samples_memory_run import SAMPLES as RUNS
from tests.renderers.snapshots import assert_snapshot

CASES = {
    "memory_small.html": SAMPLES["small"],
    "memory_small.svg": SAMPLES["small"],
    "memory_gpt.txt": SAMPLES["gpt"],
    "memory_run_functions.txt": RUNS["functions"],
    "memory_run_died.txt": RUNS["died"],
    "memory_run_functions.svg": RUNS["functions"],
}


@pytest.mark.parametrize("filename", CASES)
def test_as_it_was(filename: str) -> None:
    """What a person saw is what a person sees; what changed on purpose is read in the difference."""
    assert_snapshot(filename, renderers.render(CASES[filename], filename.rsplit(".", 1)[1]))


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("report", [SAMPLES["gpt"], RUNS["training"]], ids=["now", "run"])
def test_no_line_is_wider_than_asked_for(report, width: int) -> None:
    """From forty columns on."""
    assert max(map(len, renderers.render(report, "txt", width=width).split("\n"))) <= width
