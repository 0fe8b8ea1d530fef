"""A deep graph that was walked can be let go, and nothing is kept by that."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections import deque

import torch

import tensormagic as tm
from tensormagic.collectors.graphs.live_nodes import (
    ASKED_BETWEEN,
    MANY_BELOW,
    STRIDE,
    _DeallocStop,
    _FreedLater,
    dealloc_stops,
    grad_fn_of,
)
from tensormagic.collectors.graphs.structure import Walker
from tensormagic.collectors.objects.identity import Leaves, ModuleNames
from tensormagic.collectors.where.caller import Origins

DEEP = 45_000  # freed one inside the other, these would need 9 MB of stack; there are 8

_WALK_AND_LET_GO = f"""
import sys, torch, tensormagic as tm
torch.set_num_threads(1)
w = torch.ones(2, requires_grad=True)
def chain():
    x = w
    for _ in range({DEEP}):
        x = x.sin()
    return x.sum()
with tm.trace():
    loss = chain()
    loss.backward()
loss = None
print("traced and freed", flush=True)
loss = chain()
report = tm.gradgraph(loss)
sys.setprofile(lambda *_: None)
loss = None
sys.setprofile(None)
print("drawn and freed, under a profiler", flush=True)
loss = chain()
report = tm.gradgraph(loss)
"""


def test_a_deep_graph_is_freed_without_a_crash():
    """A very long chain of ops, walked and then dropped, or never dropped: the process lives on, and ends well."""
    done = subprocess.run(
        [sys.executable, "-c", _WALK_AND_LET_GO], capture_output=True, text=True, check=False, timeout=100
    )
    assert (done.returncode, done.stdout) == (0, "traced and freed\ndrawn and freed, under a profiler\n"), done.stderr[
        -2000:
    ]


def test_who_frees_at_once_is_the_last_owner():
    """CPython 3.13 under a profiler comes while the stop still runs: nothing may be left that goes with the stop."""
    node = deque()
    gone, seen = weakref.ref(node), []

    class AtOnce(_FreedLater):
        def ask_once(self):
            self.nodes.clear()
            seen.append(gone() is None)

    stop = _DeallocStop((node,), AtOnce())
    del node
    del stop
    assert seen == [True]


_NEVER_WALKED = f"""
import torch, tensormagic as tm
torch.set_num_threads(1)
w = torch.ones(1, requires_grad=True)
def chain():
    x = w.clone()
    for _ in range({DEEP}):
        x = x.sin()
    return x
for given in ({{}}, {{"forward": True}}):
    with tm.trace(**given):
        chain()
print("traced without a backward", flush=True)
loss = chain()
report = tm.why(w, namespace=globals())
loss = None
print("searched for a way", flush=True)
loss = chain()
with tm.track_memory():
    loss.backward()
    loss = None
loss = chain()
report = tm.memory(namespace=globals())
loss = None
print("asked what it holds", flush=True)
"""


def test_a_deep_graph_asked_node_by_node_is_freed_without_a_crash():
    """Calls that make it are followed, or what is below a loss is gone down for other reasons than to draw it."""
    done = subprocess.run(
        [sys.executable, "-c", _NEVER_WALKED], capture_output=True, text=True, check=False, timeout=300
    )
    said = "traced without a backward\nsearched for a way\nasked what it holds\n"
    assert (done.returncode, done.stdout) == (0, said), done.stderr[-2000:]


def test_nothing_of_a_deep_graph_lives_longer():
    """Once its loss is gone, so is a tensor that the bottom of a deep graph saved."""
    w = torch.ones(2, requires_grad=True)
    saved = w * 1
    gone = weakref.ref(saved)
    x = saved.sin()
    del saved
    for _ in range(4 * STRIDE):
        x = x + 1
    tm.gradgraph(x.sum())
    gc.disable()
    try:
        assert gone() is not None
        del x
        for _ in range(2):  # the interpreter tidies up at the turn of a loop
            pass
        assert gone() is None
    finally:
        gc.enable()


def test_the_middle_of_a_deep_graph_stays_usable():
    """What still belongs to somebody is not taken apart: backward from a tensor half way down is as ever."""
    w = torch.ones(2, requires_grad=True)
    half = w
    for _ in range(3 * STRIDE):
        half = half + w
    loss = half
    for _ in range(3 * STRIDE):
        loss = loss + w
    tm.gradgraph(loss.sum())
    del loss
    half.sum().backward()
    assert w.grad.tolist() == [3 * STRIDE + 1] * 2


def _links(*ends):
    return [[(at, end, 0) for at, end in enumerate(node)] for node in ends]


def test_landings_lie_where_a_path_leaves_a_stride():
    """In a chain they are a stride apart, however many short ways lead past them; the last stride needs none."""
    count = 3 * STRIDE + 10
    chain = [(place + 1,) if place + 1 < count else () for place in range(count)]
    found = dealloc_stops(_links(*chain))
    assert [count - 1 - place for place, _ in found] == [3 * STRIDE, 2 * STRIDE]
    assert [below for place, below in found] == [(place + 1,) for place, _ in found]
    shortcuts = [(*ends, count - 1) for ends in chain]
    assert dealloc_stops(_links(*shortcuts)) == found


def test_small_graphs_are_left_as_they_are():
    """A graph of a usual depth gets nothing: its nodes' metadata stays empty."""
    x = torch.ones(2, requires_grad=True)
    for _ in range(STRIDE - 10):
        x = x.sin()
    Walker(Origins(), Leaves({}, ModuleNames({}))).walk([x.grad_fn])
    assert x.grad_fn.metadata == {}
    few = torch.ones(2, requires_grad=True)
    for _ in range(MANY_BELOW - 10):
        few = few.sin()
    for _ in range(2 * ASKED_BETWEEN):
        grad_fn_of(few)
    assert few.grad_fn.metadata == {}
