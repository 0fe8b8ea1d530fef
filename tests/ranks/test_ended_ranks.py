"""Ranks that are ended from outside, or can write no more: what was written is read, what is missing is said."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

import tensormagic as tm
from tests.ranks.ended_ranks import model, train
from tests.support import warm
from tests.support.kernel import ROOT

pytest.importorskip("resource", reason="this system has no limits of a process")
pytestmark = pytest.mark.processes


def launched(folder, world, **ends):
    """Start ``world`` ranks; ``rank2="full"`` lets one of them write onto a full disk."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "WORLD_SIZE": str(world)}
    command = [*warm.python(), str(ROOT / "tests" / "ranks" / "ended_ranks.py")]
    started = []
    for rank in range(world):
        given = [*command, str(rank), str(folder), ends.get(f"rank{rank}", "")]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(given, env={**environment, "RANK": str(rank)}, **pipes))
    return started


def passes_in(folder):
    """Return how many passes each file holds so far."""
    return [file.read_text().count('"k":"pass"') for file in sorted(folder.glob("rank*.jsonl"))]


def test_all_ranks_are_terminated_and_one_had_a_full_disk(tmp_path):
    """As a launcher ends all when one fails: each file is read up to its last line."""
    ranks = launched(tmp_path, 3, rank2="full")
    printed, said = ranks[2].communicate(timeout=120)
    until = time.monotonic() + 120
    while len(at := passes_in(tmp_path)) < 3 or min(at[:2]) < 3:
        assert time.monotonic() < until, at
        time.sleep(0.05)
    for rank in ranks[:2]:
        rank.send_signal(signal.SIGTERM)
    errors = [rank.communicate(timeout=60)[1] for rank in ranks[:2]] + [said]
    assert [rank.returncode for rank in ranks] == [-signal.SIGTERM, -signal.SIGTERM, 0], errors

    net = model()
    assert list(train(net, range(6))) == list(range(6))
    assert printed.startswith(str(net.weight.tolist()))
    assert "this rank's file ends early: OSError" in printed
    assert "this rank's full report was not saved: OSError" in printed
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"rank0000{rank}.jsonl" for rank in range(3)]
    assert printed.endswith(" 6\n")

    report = tm.ranks(tmp_path)
    assert [one.state for one in report.ranks] == ["running"] * 3
    assert all(one.passes >= 3 for one in report.ranks[:2])
    assert report.ranks[2].passes == 3
    (gap,) = [gap.reason for gap in report.gaps]
    assert "rank00002.jsonl cannot be read, and the rest was left out" in gap


@pytest.mark.skipif(sys.platform != "linux", reason="C++ is ended by the name that it has on Linux")
def test_ranks_that_torchs_c_plus_plus_ends(tmp_path):
    """No Python runs any more: what was written until then is read, and each rank is told as one that stopped."""
    ranks = launched(tmp_path, 2, rank0="terminate", rank1="terminate")
    said = [rank.communicate(timeout=120)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [-signal.SIGABRT] * 2, said
    assert all("terminate called" in each for each in said)
    report = tm.ranks(tmp_path)
    assert [(one.state, one.passes, one.steps) for one in report.ranks] == [("running", 3, 3)] * 2
    assert [one.line.rpartition(", ")[0] for one in report.ranks] == ["ended_ranks.py"] * 2
    assert report.gaps == ()
