"""A mesh of two by two ranks: what runs is the same to the bit, replicas of shards are compared. One launch does."""

from __future__ import annotations

import os
import pickle
import subprocess

import pytest
import torch

import tensormagic as tm
from tests.support import warm
from tests.support.kernel import ROOT

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no processes to speak to"),
]

WORLD = 4
PROGRAMS = ("sharded_over_tensor_parallel", "sharded_replicas", "replica_that_drifts", "tensor_parallel")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the ranks wrote."""
    folder = tmp_path_factory.mktemp("ranks")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [*warm.python(), str(ROOT / "tests" / "ranks" / "four_ranks.py")]
    started = [
        subprocess.Popen([*command, str(rank), str(WORLD), str(folder)], env=environment, stderr=subprocess.PIPE)
        for rank in range(WORLD)
    ]
    said = [each.communicate(timeout=300)[1].decode() for each in started]
    assert [each.returncode for each in started] == [0] * WORLD, "\n".join(said)
    return folder


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_followed_run_is_the_same_and_takes_no_collective_of_ours(folder, program):
    """Losses, shards and generator to the bit on each rank, and as many collectives in each group."""
    for rank in range(WORLD):
        alone, followed, counts, codes = pickle.loads((folder / f"found{rank}").read_bytes())[program]
        assert followed == [alone] * 7
        assert counts == [counts[0]] * 8
        assert sum(counts[0]) > 0
        assert codes == []


def test_nothing_is_found_where_nothing_is_wrong(folder):
    """Ranks of tensor parallelism are given the same; shards differ, and their replicas do not."""
    for program in set(PROGRAMS) - {"replica_that_drifts"}:
        assert tm.ranks(folder / program).findings == ()


def test_ranks_that_hold_the_same_shards_are_known(folder):
    """As FSDP2 says; of other meshes nothing is claimed."""
    rows = tm.ranks(folder / "sharded_replicas").ranks
    assert [one.replicas for one in rows] == [(0, 2), (1, 3), (0, 2), (1, 3)]
    assert [one.shares for one in rows] == [(0, 1, 2, 3)] * WORLD
    assert [one.coordinate[1] for one in rows] == [("shard", 0), ("shard", 1)] * 2
    assert {one.replicas + one.shares for one in tm.ranks(folder / PROGRAMS[0]).ranks} == {()}


def test_a_shard_that_drifts_from_its_replica(folder):
    """It is named, with its rank."""
    (finding,) = tm.ranks(folder / "replica_that_drifts").findings
    assert finding.code == "TM901"
    assert "After step 4, with equal gradients" in finding.message
    assert "0.weight is different on rank 3" in finding.message


def test_placements_are_told_of_the_whole_mesh(folder):
    """FSDP's cut comes after that of tensor parallelism; the panel has a grid."""
    report = tm.ranks(folder / "sharded_over_tensor_parallel")
    first = next(one for one in report.spread if one.name.endswith("0.weight"))
    assert first.placements == ("_S(0)", "S(0)")
    assert [ranks for _, ranks in sorted(first.holders().items())] == [[0], [2], [1], [3]]
    assert "dp: _S(0), tp: S(0)" in report._repr_html_()
    assert report.arrivals is not None
