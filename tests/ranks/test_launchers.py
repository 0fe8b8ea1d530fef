"""Ranks that a launcher starts are known without being told; `make ecosystem` has the launchers that are missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from tests.ecosystem.launchers import LAUNCHERS, faults, missing

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no processes to speak to"),
]


@pytest.mark.parametrize("name", LAUNCHERS)
def test_each_rank_is_the_same_under_a_trace_and_told(name, tmp_path):
    """Losses, parameters, generator and the number of collectives; each rank writes its own file."""
    if reason := missing(LAUNCHERS[name]):
        pytest.skip(reason)
    assert faults(Path(sys.executable), name, tmp_path) == []
