"""What follows from hand-made facts of ranks: hosts, memory, placements, collectives, clocks; no process is started."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tensormagic as tm
from tensormagic.comparisons.rank_files import END, Begun, Facts, OnePass, OneStep
from tensormagic.comparisons.ranks import compare_ranks
from tensormagic.diagnoses import diagnose
from tensormagic.reports import UNTOUCHED

GIB = 2**30


def facts(rank, world=4, **row):
    """Return a rank that has done two steps."""
    found = Facts(world=world, names=["net.weight", "net.bias"])
    found.row = {"rank": rank, "host": "node0", "kinds": ("FSDP2",), "shares": tuple(range(world)), **row}
    found.row.setdefault("state", "finished")
    for step in (1, 2):
        found.passes[step] = OnePass(0.5, True, True, "train.py, line 3")
        found.steps[step] = OneStep((0.1,), None, [step], float(step))
    return found


def placed(found, names=("dp", "tp"), sizes=(2, 2), how=("R", "S(0)")):
    """Spread a rank's weight over a mesh of all ranks."""
    mesh = [list(names), list(sizes), list(range(found.world))]
    found.placed = {"meshes": [mesh], "of": [[0, 0, list(how), [8, 8]]]}
    return found


def begun(found, operations, *, at=0.0, group="0", sizes="[[4]]", first=1, moments=None):
    """Give a rank collectives of one group, a hundredth of a second apart."""
    kinds = [(group, tuple(range(found.world)), each, sizes, "train.py, line 9") for each in dict.fromkeys(operations)]
    which = [[kind[2] for kind in kinds].index(each) for each in operations]
    moments = [at + 0.01 * place for place in range(len(operations))] if moments is None else moments
    numbers = np.arange(first, first + len(operations), dtype=np.int32)
    found.begun = Begun(kinds, numbers, np.array(which, np.int32), np.array(moments, np.float64))
    return found


def said(found):
    """Return codes and messages; every form of the report can be made."""
    report = compare_ranks(found, "runs/a")
    told = [(finding.code, finding.message) for finding in diagnose(report)]
    assert len(str(report)) > 100
    return told


def test_a_rank_that_takes_more_memory():
    """Of ranks that share the data; half as much more is told, a little is not."""
    assert said([facts(rank, peak=(3 if rank == 2 else 2) * GIB) for rank in range(4)]) == [
        ("TM914", "Rank 2 took about 1.5 times as much memory at its peak as the 3 other ranks.")
    ]
    assert said([facts(rank, peak=2 * GIB + rank * 2**26) for rank in range(4)]) == []
    assert said([facts(rank, peak=(3 if rank == 2 else 2) * GIB, shares=()) for rank in range(4)]) == []


def test_tensor_parallelism_across_machines():
    """Told where the other dimension would have fitted on one; not where all goes across, or nothing does."""
    apart = [placed(facts(rank, host=f"node{rank // 2}"), ("tp", "dp"), how=("S(0)", "R")) for rank in range(4)]
    (code, message), *more = said(apart)
    assert (code, more) == ("TM916", [])
    assert message.startswith("The mesh dimension tp spans several machines, and dp stays on one: rank 0 is on node0")
    right = [placed(facts(rank, host=f"node{rank // 2}")) for rank in range(4)]
    every = [placed(facts(rank, host=f"node{rank}"), ("tp", "dp")) for rank in range(4)]
    assert said(right) == said(every) == said([placed(facts(rank)) for rank in range(4)]) == []


def test_placements_that_differ():
    """Of one parameter on one mesh."""
    ranks = [placed(facts(rank), how=("R", "S(1)" if rank == 3 else "S(0)")) for rank in range(4)]
    ((code, message),) = said(ranks)
    assert code == "TM912"
    assert message.endswith("net.weight is R S(0) on rank 0 and R S(1) on rank 3.")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"operations": ["gloo:all_reduce", "gloo:broadcast", "gloo:all_reduce"]}, "rank 3 broadcast of [4]"),
        ({"operations": ["gloo:all_reduce"] * 3, "sizes": "[[5]]"}, "rank 3 all_reduce of [5]"),
    ],
)
def test_ranks_part_at_a_collective(change, words):
    """The first that is another one, or is as large as no other."""
    ranks = [begun(facts(rank), ["gloo:all_reduce"] * 3) for rank in range(3)]
    ((code, message),) = said([*ranks, begun(facts(3), **change)])
    assert code == "TM906"
    assert words in message


def test_what_may_differ_between_ranks_in_a_collective():
    """Lines; sizes of what is gathered; how far back the recorder goes; a rank that was stopped earlier."""
    gathered = [begun(facts(rank), ["gloo:all_gather"] * 3, sizes=f"[[{rank}]]") for rank in range(4)]
    later = [begun(facts(rank), ["gloo:all_reduce"] * (5 - rank), first=1 + rank) for rank in range(4)]
    fewer = [begun(facts(rank), ["gloo:all_reduce"] * (5 - rank)) for rank in range(4)]
    assert said(gathered) == said(later) == said(fewer) == []


def test_a_rank_that_never_came():
    """Where another one failed for it."""
    ranks = [begun(facts(rank), ["gloo:all_reduce"] * 3) for rank in range(3)]
    ranks[0].row["state"] = "failed"
    found = said([*ranks, begun(facts(3), ["gloo:all_reduce"] * 2)])
    ((code, message),) = found
    assert code == "TM906"
    assert message == (
        "Rank 3 never reached collective 3 of group 0: all_reduce of [4] (train.py, line 9), where rank 0 waited "
        "and failed."
    )


@pytest.mark.parametrize(("made", "codes"), [((60, 60), []), ((60, 61), ["TM908"])])
def test_passes_that_were_not_looked_at_are_counted(made, codes, tmp_path):
    """Under a budget each rank follows others, and as many as it has time for: that tells nothing of the run."""
    for rank, (passes, followed) in enumerate(zip(made, ([1, 2], [1, 9, 60]), strict=True)):
        lines = [{"k": "rank", "v": 1, "rank": rank, "world": 2, "host": "node0", "pid": 7, "at": 0.0},
                 {"k": "place", "kinds": ["DDP"], "replicas": [0, 1]}]  # fmt: skip
        lines += [{"k": "pass", "n": n, "loss": 0.5, "finite": True, "reduced": False, "line": "", "at": 1.0,
                   "norms": None} for n in followed]  # fmt: skip
        lines.append({"k": "end", "state": "finished", "error": "", "passes": passes, "peak": 0, "at": 2.0})
        (tmp_path / f"rank0000{rank}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = tm.ranks(tmp_path)
    assert [one.passes for one in report.ranks] == list(made)
    assert [one.code for one in report.findings] == codes


GLOO = "RuntimeError: Timed out waiting 5000ms for recv operation to complete"


def failed(rank, kinds, error=GLOO, *, ends=10.0, **options):
    """Return a rank that began these and failed."""
    return begun(facts(rank, state="failed", error=error, seconds=ends), kinds, **options)


def test_a_rank_that_came_when_the_others_had_given_up():
    """All began it: that a rank is slow is no fault of the collective. Where nobody gave up, nothing is said."""
    ranks = [failed(rank, ["gloo:all_reduce"], ends=10.0) for rank in range(3)]
    late = failed(3, ["gloo:all_reduce"], "RuntimeError: Connection closed by peer", at=30.0, ends=31.0)
    ((code, message),) = said([*ranks, late])
    assert code == "TM906"
    assert message == (
        "Rank 3 came to collective 1 of group 0 30.0 s after rank 0: all_reduce of [4] (train.py, line 9). "
        "It had timed out by then."
    )
    own = [failed(rank, ["gloo:all_reduce"], "ValueError: no such sample", ends=10.0) for rank in range(3)]
    assert said([*own, late]) == []


@pytest.mark.parametrize(
    ("operation", "error", "codes"),
    [
        ("gloo:broadcast", GLOO, ["TM906"]),  # each from another rank
        ("gloo:all_reduce", GLOO, []),  # the network: nobody is named in it
        ("gloo:broadcast", "ValueError: no such sample", []),  # an error of all ranks, after it
    ],
)
def test_all_ranks_give_up_what_all_began(operation, error, codes):
    """Where a rank is named in it, and is not the same."""
    found = said([failed(rank, [operation], error) for rank in range(4)])
    assert [code for code, _ in found] == codes
    assert all("All ranks began collective 1 of group 0 and gave it up: broadcast" in message for _, message in found)
    later = [failed(rank, [operation, "gloo:barrier"], error) for rank in range(4)]
    for one in later:
        one.begun.kinds[1] = ("1", *one.begun.kinds[1][1:])
        one.begun.numbers = np.array([1, 1], np.int32)
    assert said(later) == []


def test_a_rank_that_begins_nothing_in_a_group():
    """Two of four wait for each other in two groups: none of their errors is the cause."""
    ranks = [failed(rank, ["gloo:all_reduce"] * (2 if rank else 1)) for rank in range(4)]
    pair = begun(facts(0, 2), ["gloo:all_reduce"], group="1").begun
    ranks[0].begun.kinds += pair.kinds
    ranks[0].begun.numbers = np.array([1, 1], np.int32)
    ranks[0].begun.which = np.array([0, 1], np.int32)
    ranks[0].begun.moments = np.array([0.0, 0.01])
    words = "Rank {} never reached collective {} of group {}: all_reduce of [4] (train.py, line 9), where {} waited "
    words += "and failed. Rank {} waited in another group meanwhile."
    assert [message for _, message in said(ranks)] == [
        words.format(0, 2, 0, "ranks 1 to 3", 0),
        words.format(1, 1, 1, "rank 0", 1),
    ]


@pytest.mark.parametrize(("factors", "codes"), [((0.1, 0.2), ["TM913"]), ((0.1, 0.1), [])])
def test_flat_shards_are_clipped_by_one_factor(factors, codes):
    """FSDP1 cuts one flat parameter: each rank holds a part of its gradient, and has the method that clips it."""
    found = [facts(rank, 2, kinds=("FSDP1",)) for rank in range(2)]
    for one, factor in zip(found, factors, strict=True):
        held = np.array([1.0 + one.rank], np.float32)
        one.passes[2].held, one.steps[2].used = held, held * factor
    report = compare_ranks(found, "runs/a")
    assert [(one.code, one.remedy) for one in diagnose(report)] == [
        (code, "`net.clip_grad_norm_(most)` computes the norm over all shards.") for code in codes
    ]


def steps(found, late, *, clock=0.0, many=20):
    """Let a rank come late to one collective in each of many steps of 0.1 s."""
    for step in range(1, many + 1):
        found.steps[step] = OneStep((0.1,), None, [], 0.1 * step + clock)
    moments = [0.1 * step - 0.05 + clock + late(step) for step in range(1, many + 1)]
    return begun(found, ["gloo:all_reduce"] * many, moments=moments)


@pytest.mark.parametrize("clock", [0.0, 3600.0])
def test_a_straggler_is_found_on_one_machine_alone(clock):
    """By the moments of arrival; clocks of several machines are not the same, and are not compared for it."""
    ranks = [steps(facts(rank), lambda step, rank=rank: 0.04 * (rank == 2), clock=clock) for rank in range(4)]
    ((code, message),) = said(ranks)
    assert code == "TM915"
    assert message == (
        "The other ranks wait for rank 2: it was last in 18 of 18 steps, to all_reduce at train.py, line 9."
    )


@pytest.mark.parametrize(
    "late",
    [
        lambda rank, step: 0.04 * (step % 4 == rank),  # each in turn
        lambda rank, step: 0.002 * (rank == 2),  # a little
        lambda rank, step: 0.04 * (rank == 2 and step < 9),  # at first
    ],
)
def test_what_is_no_straggler(late):
    """Ranks that are late now and then, or by little."""
    assert said([steps(facts(rank), lambda step, rank=rank: late(rank, step)) for rank in range(4)]) == []


def test_of_a_gpu_nothing_is_said_of_stragglers():
    """The recorder knows when the host came, not the device."""
    ranks = [steps(facts(rank), lambda step, rank=rank: 0.04 * (rank == 2)) for rank in range(4)]
    for one in ranks:
        one.begun.kinds = [(kind[0], kind[1], "nccl:all_reduce", *kind[3:]) for kind in one.begun.kinds]
    assert said(ranks) == []


def trained(used, brought, *, ends=(7, 7), starts=(7, 7), reduced=True, world=2, **row):
    """Return ranks that made two steps: norms that each used and brought, and hashes at the start and the end."""
    found = [facts(rank, world, **{"kinds": ("DDP",), "replicas": tuple(range(world)), **row}) for rank in range(world)]
    for one, mine, own, start, end in zip(found, used, brought, starts, ends, strict=True):
        for step in (1, 2):
            one.passes[step].reduced = reduced
            one.steps[step].used, one.passes[step].norms = np.array(mine, np.float32), np.array(own, np.float32)
        one.hashes = {0: np.array([start] * 2, np.uint64), END: np.array([end] * 2, np.uint64)}
    return found


OWN = [[1.0, 2.0], [1.0, 3.0]]  # norms of weight and bias: that of the bias differs between two ranks
BROUGHT = [[0.9, 2.0], [1.1, 3.0]]


@pytest.mark.parametrize(
    ("brought", "cause"),
    [
        (BROUGHT, "that pass reduced other gradients, and each rank used its own of these"),
        ([[0.9, 2.1], [1.1, 3.0]], "they were reduced, and then changed on each rank separately"),
    ],
)
def test_a_gradient_that_nothing_reduces_is_no_gradient_that_was_changed(brought, cause):
    """Of a parameter that was made, or unfrozen, after wrapping, each rank uses what its own pass brought."""
    ((code, message),) = said(trained(OWN, brought, ends=(7, 8)))
    assert code == "TM902"
    assert "of 1 of 2 parameters: the norm of net.bias.grad is 2 on rank 0 and 3 on rank 1" in message
    assert cause in message


def test_of_several_passes_it_is_not_known_what_a_step_would_have_kept():
    """Norms of sums do not follow from norms."""
    found = trained(OWN, BROUGHT, ends=(7, 8))
    for one in found:
        one.steps[1].passes = [1, 2]
    assert "they were reduced, and then changed" in said(found)[0][1]


@pytest.mark.parametrize(("ends", "codes"), [((8, 8), []), ((7, 8), ["TM902"])])
def test_parameters_that_were_averaged_are_not_those_of_ranks_that_part(ends, codes):
    """Local SGD steps on each rank alone, and makes all hold the same now and then."""
    assert [code for code, _ in said(trained(OWN, OWN, ends=ends, reduced=False))] == codes


def test_what_fsdp2_leaves_out_is_whole_on_each_rank():
    """A layer that no `fully_shard` was called for is to be the same; shards are not, and are not compared."""
    row = {"kinds": ("FSDP2",), "replicas": ()}
    sharded = [placed(one, (), (2,), ("S(0)",)) for one in trained(OWN, BROUGHT, ends=(7, 8), **row)]
    ((code, message),) = said(sharded)
    assert code == "TM902"
    assert "of 1 of 1 parameter: the norm of net.bias.grad" in message
    shards = trained([[1.0, 2.0], [3.0, 2.0]], BROUGHT, **row)
    assert said([placed(one, ("dp",), (2,), ("S(0)",)) for one in shards]) == []


@pytest.mark.parametrize(("names", "codes"), [(("tp",), ["TM902"]), (("model",), []), ((), [])])
def test_what_tensor_parallelism_leaves_whole_is_the_same_on_its_ranks(names, codes):
    """A norm or an embedding that is in no plan: other data, or another seed, gives it other gradients."""
    row = {"kinds": ("DTensor",), "replicas": (), "shares": ()}
    found = said([placed(one, names, (2,), ("S(0)",)) for one in trained(OWN, BROUGHT, ends=(7, 8), **row)])
    assert [code for code, _ in found] == codes
    assert all("tensor parallelism leaves them whole" in message for _, message in found)
    same = [placed(one, names, (2,), ("S(0)",)) for one in trained([[1.0, 2.0], [3.0, 2.0]], BROUGHT, **row)]
    assert said(same) == []


@pytest.mark.parametrize(
    ("used", "reduced", "told"), [(UNTOUCHED, False, True), (UNTOUCHED, True, False), (1.0, False, False)]
)
def test_steps_on_what_fsdp2_keeps_back(used, reduced, told):
    """It hands over no gradient until a pass reduces; a step on others, or of another optimizer, is no such step."""
    row = {"kinds": ("FSDP2",), "replicas": ()}
    sharded = [placed(one, ("dp",), (2,), ("S(0)",)) for one in trained([[used] * 2] * 2, OWN, reduced=reduced, **row)]
    words = "2 steps changed nothing: no pass reduced gradients"
    assert [message.startswith(words) for _, message in said(sharded)] == [True] * told


@pytest.mark.parametrize(
    ("used", "brought", "codes"),
    [
        ([[1.0, 2.0]] * 2, BROUGHT, ["TM901"]),  # averaged by hand, of models that are not the same
        (BROUGHT, BROUGHT, []),  # each for itself
        ([[1.0, 2.0]] * 2, [[1.0, 2.0]] * 2, []),  # the same twice
        ([[UNTOUCHED, 2.0]] * 2, [[0.9, 2.0], [1.1, 2.0]], []),  # what no step uses
    ],
)
def test_ranks_that_average_gradients_by_hand_are_replicas(used, brought, codes):
    """Nothing wraps the model: that steps use the same of passes that differ tells it."""
    found = trained(used, brought, starts=(7, 8), ends=(9, 10), kinds=(), replicas=(), shares=())
    assert [code for code, _ in said(found)] == codes
    alike = trained(used, brought, starts=(7, 7), ends=(9, 9), kinds=(), replicas=(), shares=())
    assert said(alike) == []
    words = compare_ranks(alike, "runs/a")._repr_html_()
    assert ("stayed the same" in words) is bool(codes)


@pytest.mark.parametrize(
    ("brought", "drew", "words"),
    [
        ([[1.0, 2.0], [1.0, 2.0001]], False, "they compute the same gradients, so the other ranks add nothing."),
        ([[1.0, 2.0], [1.0, 2.5]], False, None),  # held against other targets
        ([[1.0, 2.0], [1.0, 2.5]], True, "the other ranks add no data of their own."),  # other dropout masks
    ],
)
def test_the_same_input_is_the_same_data_where_gradients_say_so(brought, drew, words):
    """What a model is given is not all that a loss is made of."""
    found = trained([[1.0, 2.0]] * 2, brought, shares=(0, 1))
    for one in found:
        for step in (1, 2):
            state = f"{one.rank * drew}{step}"
            one.passes[step].forward = {"given": f"{step}", "sizes": [6], "state": state, "drew": drew}
    expected = [("TM905", f"Ranks 0 and 1 were given the same input in all 2 forwards: {words}")]
    assert said(found) == expected * (words is not None)


def test_what_an_earlier_run_left_in_the_folder_is_not_of_this_run():
    """A run of four ranks, then one of two. A rank may be over when another begins: nothing makes them wait."""
    now = [facts(rank, 2) for rank in range(2)]
    for one in now:
        one.began = 100.0
    report = compare_ranks([*now, facts(2, 4), facts(3, 4)], "runs/a")
    assert (report.world_size, [one.rank for one in report.ranks]) == (2, [0, 1])
    assert [gap.reason for gap in report.gaps] == [
        f"rank {rank} was left out: what it wrote is of an earlier run" for rank in (2, 3)
    ]
    assert compare_ranks([now[0], facts(1, 2, seconds=50.0)], "runs/a").gaps == ()


@st.composite
def runs(draw):
    """Draw ranks that write of a run, and where parts of it were changed on some of them."""
    world = draw(st.integers(2, 7))
    found = []
    for rank in range(world):
        one = facts(rank, world, kinds=("DDP",), replicas=tuple(range(world)), peak=draw(st.integers(1, 9)) * GIB)
        for step in (1, 2):
            norms = np.array([draw(st.sampled_from([0.5, 0.5, 0.5, 1.0, np.nan])) for _ in one.names], np.float32)
            one.passes[step].norms = one.steps[step].used = norms
            one.hashes[step] = np.array([draw(st.sampled_from([7, 7, 7, 8]))] * 2, np.uint64)
        if draw(st.booleans()):
            begun(one, ["gloo:all_reduce"] * draw(st.integers(1, 3)), at=rank * 0.001)
        found.append(one)
    return found[: draw(st.integers(1, world))]


def merged(draw, parts):
    """Merge reports as a tree of a shape that is drawn, in an order that is drawn."""
    if len(parts) == 1:
        return parts[0]
    at = draw(st.integers(1, len(parts) - 1))
    return tm.ranks(draw(st.permutations([merged(draw, parts[:at]), merged(draw, parts[at:])])))


@given(runs(), st.data())
def test_merging_as_a_tree_is_merging_at_once(found, data):
    """Whatever the shape of the tree: the same data, to be merged again, and the same panel."""
    leaves = [compare_ranks([one], "") for one in data.draw(st.permutations(found))]
    tree, flat = merged(data.draw, leaves), tm.ranks(leaves)
    tree = pickle.loads(pickle.dumps(tree))
    assert tree.to_dict() | {"findings": []} == flat.to_dict() | {"findings": []}
    assert [one.rank for one in tree.written] == [one.rank for one in flat.written] == list(range(len(found)))
    if len(found) > 1:
        assert tree.findings == flat.findings
        assert str(tree) == str(flat)


def test_what_cannot_be_merged(tmp_path):
    """The same rank twice; a report that was saved, which holds what was found and not what was compared."""
    one = compare_ranks([facts(0)], "")
    with pytest.raises(tm.TraceError, match=r"one report of each rank is needed, but these are of ranks \[0, 0\]"):
        tm.ranks([one, one])
    one.save(tmp_path / "one.json")
    saved = tm.load(tmp_path / "one.json")
    assert saved == one
    with pytest.raises(tm.TraceError, match="a saved report of ranks cannot be merged"):
        tm.ranks([saved, compare_ranks([facts(1)], "")])
