"""What grows with every iteration, and what only looks like it: by hand-made allocations."""

from __future__ import annotations

import pytest

from tensormagic.collectors.memory_runs.leaks import RunFacts, StorageOwner, SurvivingStorage, find_ended, find_leaks
from tensormagic.reports import Location

LINES = tuple(Location("cell.py", number, f"line {number}") for number in range(1, 6))
STORED = Location("cell.py", 9, "losses.append(loss)")
MIB = 2**20
TRAINING = RunFacts(LINES, backwards=range(10, 400, 10))  # 39 backwards, ten operations apart
INFERENCE = RunFacts(LINES)
LOSSES = StorageOwner("losses", location=STORED, graph=True, results=40, scalars=True)
FEATURES = StorageOwner("features", location=STORED)


def each(
    hold: StorageOwner | None, allocations=range(5, 400, 10), *, line: int = 0, nbytes: int = MIB, **facts
) -> list[SurvivingStorage]:
    """Return one storage at each allocation, from one line."""
    return [SurvivingStorage(line, nbytes, allocated_at, hold=hold, **facts) for allocated_at in allocations]


def items(hold: StorageOwner = FEATURES, allocations=range(5, 400, 10), **facts) -> list[SurvivingStorage]:
    """Return the items of a list, one at each allocation."""
    holds = (
        StorageOwner(hold.name, item=f"[{at}]", location=hold.location, ends=hold.ends)
        for at in range(len(allocations))
    )
    return [SurvivingStorage(0, MIB, at, hold=held, **facts) for held, at in zip(holds, allocations, strict=True)]


def test_losses_with_their_graphs():
    """All that one list keeps is one leak: its graphs counted, the line that made the most, the line that stores."""
    stays = each(LOSSES) + each(LOSSES, range(6, 400, 10), line=1, nbytes=3 * MIB)
    (leak,) = find_leaks(stays, TRAINING)
    assert (leak.holder, leak.graph, leak.training, leak.scalars) == ("losses", True, True, True)
    assert (leak.iterations, leak.each, leak.kept) == (40, 4 * MIB, 160 * MIB)
    assert (leak.location.line, leak.holder_location) == (2, STORED)


def test_graphs_need_no_backward_between():
    """A validation loop that runs with gradients."""
    (leak,) = find_leaks(each(LOSSES), INFERENCE)
    assert (leak.graph, leak.training) == (True, False)


def test_a_graph_that_is_carried_over_needs_a_backward_between():
    """A recurrent network goes over many steps in one graph, and is right to."""
    state = StorageOwner("state", "carried", graph=True)
    (leak,) = find_leaks(each(state), TRAINING)
    assert (leak.form, leak.iterations) == ("carried", 40)
    assert find_leaks(each(state), INFERENCE) == ()


def test_what_a_training_loop_collects():
    """Two tensors an iteration are one amount."""
    (leak,) = find_leaks(items(allocations=range(5, 400, 5)), TRAINING)
    assert (leak.graph, leak.training, leak.iterations, leak.each) == (False, True, 40, 79 * MIB // 40)


def test_what_is_collected_without_a_training():
    """By its items, where a known line puts them in."""
    (leak,) = find_leaks(items(), INFERENCE)
    assert (leak.training, leak.iterations, leak.each) == (False, 40, MIB)
    assert find_leaks(items(StorageOwner("features")), INFERENCE) == ()


def test_what_nothing_holds_that_has_a_name():
    """Called with a training loop only, and where all names were looked at."""
    (leak,) = find_leaks(each(None), TRAINING)
    assert (leak.holder, leak.iterations) == ("", 40)
    assert find_leaks(each(None), INFERENCE) == ()
    assert find_leaks(each(None), RunFacts(LINES, TRAINING.backwards, complete=False)) == ()


@pytest.mark.parametrize(
    "stays",
    [
        items(allocations=range(10)),
        items(allocations=range(5, 200, 10)),
        items(allocations=range(365, 400, 10)),
        items(allocations=range(5, 400, 60)),
        items(StorageOwner("queue", location=STORED, ends=True)),
        each(StorageOwner("losses", graph=True, results=3, location=STORED)),
        each(StorageOwner("losses", graph=True, results=40, ends=True)),
        each(None, category="optimizer state"),
        each(None, category="gradient"),
        each(None, line=-1),
        each(None, range(5, 40, 10)),
        [SurvivingStorage(0, MIB << (allocated_at // 10 % 5 * 2), allocated_at) for allocated_at in range(5, 400, 10)],
        [],
    ],
    ids=[
        "data made before the training", "a warm-up that ended", "the last few, of a cache", "one in six steps",
        "a queue with an end", "three graphs", "a list that the source empties", "momentum", "gradients",
        "no line", "four iterations", "other amounts each time", "nothing",
    ],
)  # fmt: skip
def test_what_is_left_alone(stays):
    """A false alarm costs more than a miss."""
    assert find_leaks(stays, TRAINING) == ()


@pytest.mark.parametrize(
    "hold",
    [StorageOwner("acts", item="['conv1']", location=STORED), StorageOwner("model.cache", "joined", ends=True)],
    ids=str,
)
def test_what_is_left_alone_without_a_training(hold):
    """Items that have keys of their own; one tensor that no line makes from itself."""
    assert find_leaks(each(hold), INFERENCE) == ()


def test_a_ring_that_overwrites_what_is_old():
    """Its line ran long before what is left of it was made."""
    latest = items(allocations=range(305, 400, 10))
    assert find_leaks(latest, RunFacts(LINES, TRAINING.backwards, first={0: 5})) == ()
    (leak,) = find_leaks(latest, RunFacts(LINES, TRAINING.backwards, first={0: 295}))
    assert leak.iterations == 10


def test_a_tensor_that_is_joined_from_itself():
    """Each one replaces the one before: only the last is alive, but it is larger each time."""
    allocations = [(allocated_at, (at + 1) * MIB) for at, allocated_at in enumerate(range(5, 400, 10))]
    memory = SurvivingStorage(2, 40 * MIB, 395, hold=StorageOwner("memory", "joined", location=LINES[2]))
    (leak,) = find_leaks([memory], RunFacts(LINES, TRAINING.backwards, {2: allocations}))
    assert (leak.form, leak.training, leak.each, leak.iterations, leak.kept) == ("joined", True, MIB, 39, 39 * MIB)
    (leak,) = find_leaks([memory], RunFacts(LINES, (), {2: allocations}))
    assert not leak.training


@pytest.mark.parametrize("sizes", [[2, 2, 2, 2, 2, 2, 2], [1, 2, 3, 2, 3, 4, 5], [1, 2, 3, 4, 5]], ids=str)
def test_joined_tensors_that_do_not_grow(sizes):
    """The same size each time, up and down, too few."""
    allocations = [(at, nbytes) for at, nbytes in enumerate(sizes)]
    stay = SurvivingStorage(2, sizes[-1], len(sizes) - 1, hold=StorageOwner("memory", "joined", location=LINES[2]))
    assert find_leaks([stay], RunFacts(LINES, (), {2: allocations})) == ()


def test_the_largest_first():
    """Devices apart."""
    stays = items() + [SurvivingStorage(1, 4 * MIB, stay.allocated_at, "cuda:0", hold=stay.hold) for stay in items()]
    assert [(leak.device, leak.each) for leak in find_leaks(stays, INFERENCE)] == [("cuda:0", 4 * MIB), ("cpu", MIB)]


def test_what_grew_up_to_the_peak_and_was_freed_all_at_once():
    """A function that returns lets go of what it collected; what comes after it is no part of its rhythm."""
    stays = each(None, range(5, 200, 10), freed_at=205)
    (leak,) = find_ended(stays, TRAINING, 196)
    assert (leak.ended, leak.training, leak.holder, leak.iterations, leak.each) == (True, True, "", 20, MIB)


@pytest.mark.parametrize(
    ("facts", "rhythm"),
    [
        ({"freed_at": 205}, INFERENCE),
        ({"freed_at": 205, "category": "saved for backward"}, TRAINING),
        ({"freed_at": 205}, RunFacts(LINES, range(10, 200, 100))),
    ],
    ids=["the activations of a forward", "what a backward freed", "two backwards"],
)
def test_what_was_alive_at_the_peak_and_is_no_growth(facts, rhythm):
    """One forward, one backward, one step."""
    assert find_ended(each(None, range(5, 200, 10), **facts), rhythm, 196) == ()


def test_a_queue_at_the_peak_is_freed_one_after_the_other():
    """It does not die all at once."""
    stays = [SurvivingStorage(0, MIB, allocated_at, freed_at=allocated_at + 95) for allocated_at in range(105, 200, 10)]
    assert find_ended(stays, TRAINING, 196) == ()
