"""What one rank of several says of itself is true: DDP, FSDP of both kinds, DTensor. One launch of two does for all."""

from __future__ import annotations

import math
import os
import pickle
import subprocess

import pytest
import torch

from tensormagic.reports import UNTOUCHED, Parallel, TraceReport
from tensormagic.views.panels import trace as trace_html
from tests.support import warm
from tests.support.kernel import ROOT
from tests.views import trace_forms

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no processes to speak to"),
]

WORLD = 2
SHARDED = ("fsdp2", "fsdp2_kept", "tensor_parallel", "dtensor")
MODELS = ("ddp", "ddp_no_sync", "fsdp2", "fsdp2_kept", "fsdp1", "fsdp1_original", "tensor_parallel")
ALL = (*MODELS, "ddp_static", "ddp_hook", "dtensor", "gpipe", "one_f_one_b", "ddp_clipped", "fsdp2_kept_back")
PARTS = ("0.weight", "0.bias", "2.weight", "2.bias")


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """What each rank found."""
    folder = tmp_path_factory.mktemp("ranks")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [*warm.python(), str(ROOT / "tests" / "ranks" / "programs.py")]
    started = [
        subprocess.Popen(
            [*command, str(rank), str(WORLD), str(folder)], env=environment, stderr=subprocess.PIPE, text=True
        )
        for rank in range(WORLD)
    ]
    said = [each.communicate(timeout=300)[1] for each in started]
    assert [each.returncode for each in started] == [0] * WORLD, "\n".join(said)
    return [pickle.loads((folder / f"rank{rank}").read_bytes()) for rank in range(WORLD)]


@pytest.fixture(params=range(WORLD))
def found(request, ranks):
    """What one rank found."""
    return ranks[request.param]


def codes(report):
    return [finding.code for finding in report.findings]


@pytest.mark.parametrize("program", ALL)
def test_a_followed_run_is_the_same_and_takes_no_collective_of_ours(found, program):
    """To the bit: losses, parameters, generator; and as many collectives as without."""
    ended, collectives = found[program]["alone"]
    assert collectives > 0 or program in {"dtensor", "gpipe", "one_f_one_b"}
    for level in ("grad", "ops", "written", "all"):
        assert found[program][level][0] == ended
        assert found[program][level][2] == collectives
    assert found[program]["others"] == [(ended, collectives)] * 5


@pytest.mark.parametrize("program", [*MODELS, "dtensor"])
@pytest.mark.parametrize("level", ["grad", "ops"])
def test_nothing_is_found_where_nothing_is_wrong(found, program, level):
    """No optimizer that steps on nothing, and no parameter that a cut keeps from learning."""
    report = found[program][level][1]
    assert codes(report) == []
    (optimizer,) = report.training.optimizers
    assert {pattern.kind for pattern in optimizer.patterns} == {"fresh"}
    assert optimizer.unknown_parameters == 0


@pytest.mark.parametrize("program", ["fsdp2", "fsdp2_kept", "tensor_parallel"])
@pytest.mark.parametrize("level", ["grad", "ops"])
def test_the_shard_and_the_whole_are_one_parameter(found, program, level):
    """Each has a name, a norm in each pass, and moves by the optimizer's step; nothing else got a gradient."""
    report = found[program][level][1]
    assert [one.name.partition(".")[2] for one in report.parameters] == list(PARTS)
    for one in report.parameters:
        assert one.is_parameter
        assert one.used
        assert one.touched == len(one.norms) == 3
        assert [norm for norm in (*one.norms, *one.updates) if not 0 < norm < math.inf] == []
    assert report.training.optimizers[0].holds == (0, 1, 2, 3)
    assert report.gaps == ()


def test_norms_are_those_of_the_gradients(ranks):
    """FSDP2's are the whole local gradients, as DDP's are, of the same batches; the same network is sharded."""
    for found in ranks:
        whole, sharded = (found[name]["grad"][1].parameters for name in ("ddp", "fsdp2"))
        for one, other in zip(whole, sharded, strict=True):
            assert list(one.norms) == pytest.approx(list(other.norms), rel=1e-5)
            assert one.shape == other.shape


def test_of_a_dtensor_the_shard_that_lies_here_is_measured(found):
    """The norm is that of what ``.grad`` holds here; the loss is a sum over both ranks, and not told."""
    ended, report, _ = found["dtensor"]["grad"]
    (one,) = report.parameters
    assert list(one.norms) == pytest.approx(ended[0] * 3)
    assert [pass_.value for pass_ in report.passes] == [None] * 3
    assert [gap.section for gap in report.gaps] == ["loss"]


@pytest.mark.parametrize("program", ["fsdp1", "fsdp1_original"])
def test_a_flat_parameter_is_told_by_what_lies_in_it(found, program):
    """Whether the user sees it or the parameters in it, one name stands for what got the gradient."""
    (one,) = found[program]["grad"][1].parameters
    assert one.name == "FullyShardedDataParallel._flat_param[0.weight … 2.bias, 4 parameters]"
    assert one.shape == (212,)
    assert one.touched == 3
    assert UNTOUCHED not in one.updates


def test_memory_is_told_though_one_tensor_refuses(found):
    """FSDP1 leaves views that raise when asked for their history: the others keep their names."""
    run = found["looks"]["run"]
    assert [gap for gap in run.gaps if gap.section == "names" or "could not be looked at" in gap.reason] == []


def test_what_is_alive_is_told_of_sharded_models(ranks):
    """Beside an array, whose memory is matched by address: a DTensor has none of its own."""
    memory = ranks[0]["looks"]["memory"]
    names = {storage.name for storage in memory.storages}
    assert any(name.startswith("model.0.weight") for name in names)
    assert not any("could not" in gap.reason for gap in memory.gaps)


def test_a_dtensor_is_as_large_as_what_lies_here(ranks):
    """A weight of (16, 8) takes 256 of its 512 bytes on each of two ranks, and is counted."""
    table = ranks[0]["looks"]["tensors"]
    sizes = {row.name: row.nbytes for row in table.rows}
    assert sizes["model.0.weight"] == 256
    assert sizes["model.2.bias"] == 8
    (total,) = table.totals
    assert total.nbytes >= 2 * sum(sizes[f"model.{part}"] for part in PARTS)  # gradients, too


def test_why_reads_the_shard_and_asks_nobody(ranks):
    """Only the first rank asked: a sum over all ranks would have waited for ever."""
    told = str(ranks[0]["looks"]["why"])
    assert "could not be read" not in told
    assert "its norm is 0." in told


REDUCED = {
    "ddp": [True] * 3, "ddp_no_sync": [False, True] * 3, "fsdp2": [True] * 3, "fsdp1": [True] * 3,
    "fsdp2_kept_back": [False, True] * 2, "ddp_clipped": [True], "tensor_parallel": [None] * 3, "gpipe": [None] * 12,
}  # fmt: skip
KINDS = {"ddp": ("DDP",), "fsdp2": ("FSDP2",), "fsdp1": ("FSDP1",), "tensor_parallel": ("DTensor",), "gpipe": ()}


@pytest.mark.parametrize("program", REDUCED)
def test_which_pass_reduced_gradients_is_known(found, program):
    """By the collectives that the process began, and FSDP's own flags."""
    assert [one.reduced for one in found[program]["grad"][1].passes] == REDUCED[program]


@pytest.mark.parametrize("program", KINDS)
def test_a_report_says_which_rank_it_is_of(ranks, program):
    """And by what its parameters are spread."""
    for rank, found in enumerate(ranks):
        report = found[program]["grad"][1]
        assert report.parallel == Parallel(rank, WORLD, KINDS[program], report.parallel.unsharded)
        assert TraceReport.from_dict(report.to_dict()) == report


def test_what_a_step_used_stands_beside_what_the_backward_brought(ranks):
    """DDP: the same on both ranks, and the mean of what they brought is no larger than the mean of their norms."""
    first, second = (found["ddp"]["grad"][1].parameters for found in ranks)
    for one, other in zip(first, second, strict=True):
        assert list(one.stepped) == list(other.stepped)
        assert list(one.norms) != list(other.norms)
        for brought, too, used in zip(one.norms, other.norms, one.stepped, strict=True):
            assert 0 < used <= (brought + too) / 2 * 1.00001


def test_what_a_step_used_is_clipped(found):
    """The norm of all that the step used is what it was clipped to."""
    parameters = found["ddp_clipped"]["grad"][1].parameters
    assert math.hypot(*(one.stepped[0] for one in parameters)) == pytest.approx(0.01, rel=1e-3)


def test_the_shards_of_what_a_step_used_make_the_whole(ranks):
    """Over both ranks, FSDP's shards have the norm that DDP's gradient has."""
    whole = [list(one.stepped) for one in ranks[0]["ddp"]["grad"][1].parameters]
    for program in ("fsdp2", "fsdp2_kept"):
        shards = zip(*(found[program]["grad"][1].parameters for found in ranks), strict=True)
        joined = [[math.hypot(*norms) for norms in zip(*(one.stepped for one in each), strict=True)] for each in shards]
        assert joined == [pytest.approx(norms, rel=1e-4) for norms in whole]


def test_it_is_said_in_the_panel(ranks):
    """In words: of what the norms are, which passes reduced, and what the last step used."""
    report = ranks[0]["ddp_no_sync"]["grad"][1]
    told = " ".join(trace_forms.text(report).split())
    assert "rank 0 of 2, DDP: norms of this rank's gradients, before they are reduced" in told
    assert "3 of 6 passes reduced gradients over the ranks; passes 1, 3 and 5 kept them back" in told
    assert "norms used at the optimizer's last step, in brackets those before" in told
    assert "rank 0 of 2" in trace_html.render(report)
    assert "rank 0 of 2" in trace_forms.svg(report)


@pytest.mark.parametrize("program", ["gpipe", "one_f_one_b"])
def test_a_step_of_a_pipeline_is_one_step(ranks, program):
    """Three steps of four microbatches: no pass of memory that nobody filled, and one graph on each rank."""
    for found in ranks:
        report = found[program]["grad"][1]
        assert [one.step for one in report.passes] == [1] * 4 + [2] * 4 + [3] * 4
        assert report.steps_seen == 3
        assert len(report.graphs) == 1
        assert codes(report) == []
    last = ranks[1][program]["grad"][1]
    assert [one.name for one in last.parameters] == [
        "Sequential.0.weight",
        "Sequential.0.bias",
        "received by the stage",
    ]
    assert all(0 < one.value < 2 for one in last.passes)
    assert [one.value for one in ranks[0][program]["grad"][1].passes] == [None] * 12
