"""Ranks that a launcher starts are known without being told."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

import tensormagic as tm
from tests.support.kernel import ROOT

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no processes to speak to"),
]


def test_torchrun(tmp_path):
    """Each rank writes its own file; what they were given differs, what was reduced does not."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    script = str(ROOT / "tests" / "ranks" / "launched_ranks.py")
    ran = subprocess.run(
        [*launcher, script, str(tmp_path / "runs")], env=environment, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    report = tm.ranks(tmp_path / "runs")
    assert [(one.rank, one.state, one.passes) for one in report.ranks] == [(0, "finished", 3), (1, "finished", 3)]
    assert (report.findings, report.gaps) == ((), ())
