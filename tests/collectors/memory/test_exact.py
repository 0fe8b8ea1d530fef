"""The sum over storages is what is alive, on random programs: views, resizing, set_, autograd, modules, optimizers."""

from __future__ import annotations

import gc
import warnings
import weakref

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings, strategies as st
from torch.multiprocessing.reductions import StorageWeakRef

from tensormagic.collectors.memory.live_memory import collect_memory
from tensormagic.collectors.memory.live_tensors import LiveTensors
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.session.session_walk import THOROUGH, ObjectWalk
from tests.collectors.memory.programs import STEPS, Program, counted

numbers = st.integers(0, 40)
programs = st.lists(st.tuples(st.integers(0, len(STEPS) - 1), st.tuples(numbers, numbers, numbers)), max_size=14)


def live(names):
    """Return the bytes of each storage that are found, and those of memory that several lie over."""
    with quiet():
        found = LiveTensors(ObjectWalk(THOROUGH).through(names), everything=True)
        assert found.gaps == ()
        return {identity: block for block in found.blocks for identity in block.identities}


def over_arrays(storages):
    """Return the bytes of the arrays that storages lie over, each array once."""
    arrays = {}
    for storage in storages:
        stop = storage.data_ptr() + storage.nbytes()
        arrays[stop] = max(arrays.get(stop, 0), storage.nbytes())
    return sum(arrays.values())


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)
@given(programs)
@example([(10, (0, 0, 0)), (5, (0, 0, 0)), (9, (0, 0, 0)), (11, (1, 0, 0)), (11, (1, 0, 0))])  # its names are gone
def test_what_is_found_is_what_is_alive(steps):
    """Every storage that lives is found, with its bytes, and no other; what lies over an array counts once."""
    before = live({})
    with warnings.catch_warnings(), counted() as count:
        warnings.simplefilter("ignore")
        program = Program(count)
        program.run(steps)
    alive, found = count.storages, live(program.names)
    assert alive.keys() <= found.keys() <= alive.keys() | before.keys()
    own = {key: nbytes for key, nbytes in alive.items() if len(found[key].identities) == 1}
    assert {key: found[key].nbytes for key in own} == own
    shared = {id(found[key]): found[key].nbytes for key in alive.keys() - own.keys()}
    every = {key: torch.UntypedStorage._new_with_weak_ptr(count._storages[key]) for key in alive}
    lent = {key: storage for key, storage in every.items() if not storage.resizable()}
    assert sum(shared.values()) == over_arrays(lent.values()) - sum(own[key] for key in own.keys() & lent.keys())


@pytest.mark.filterwarnings("ignore")
def test_the_report_adds_up():
    """The totals of a report grow by what a program leaves alive, to the byte."""
    before = collect_memory({}, readers=())
    with counted() as count:
        program = Program(count)
        program.run([(step, (step, 1, 2)) for step in (0, 0, 6, 7, 2, 10, 1)])
    after = collect_memory(program.names, readers=())
    after.check()
    assert after.nbytes - before.nbytes == sum(count.storages.values()) > 0
    assert sum(dict(after.by(lambda one: one.category)).values()) == after.nbytes


def test_looking_keeps_nothing_alive():
    """After fifty looks Python knows as many objects as before, and what is let go of dies."""
    net = torch.nn.Linear(4, 4)
    loss = net(torch.ones(2, 4)).sum()
    names = {"net": net, "loss": loss}
    collect_memory(names)
    gc.collect()
    before, storages = len(gc.get_objects()), collect_memory(names).devices[0].storages
    for _ in range(50):
        report = collect_memory(names)
    assert report.devices[0].storages == storages
    del report
    gc.collect()
    assert len(gc.get_objects()) <= before + 5
    gone = weakref.ref(loss)
    names.clear()
    del loss
    assert gone() is None


def test_what_a_graph_keeps_dies_with_it_after_a_look():
    """Without the collector's help: a look leaves no cycle behind that holds nodes or what they have saved."""
    names = {"loss": torch.ones(2, 4, requires_grad=True).exp().sum()}
    saved = names["loss"].grad_fn.next_functions[0][0]._saved_result
    kept = StorageWeakRef(saved.untyped_storage())
    del saved
    gc.collect()
    gc.disable()
    try:
        collect_memory(names)
        assert not kept.expired()
        names.clear()
        assert kept.expired()
    finally:
        gc.enable()


def test_looking_leaves_no_cycles():
    """What is let go of after a look dies at once: no walk of ours waits for the garbage collector."""
    net = torch.nn.Linear(4, 4)
    names = {"net": net, "loss": net(torch.ones(2, 4)).sum(), "optimizer": torch.optim.SGD(net.parameters(), lr=0.1)}
    gc.disable()
    try:
        report = collect_memory(names)
        gone = weakref.ref(names.pop("loss")), weakref.ref(net.bias)
        names.clear()
        del net
        assert [reference() for reference in gone] == [None, None]
    finally:
        gc.enable()
    assert report.nbytes > 0
