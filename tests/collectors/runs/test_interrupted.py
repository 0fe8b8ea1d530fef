"""A run that is interrupted while it begins or ends: wherever that is, torch stands as before, and the next one runs.

Python handles signals where a function begins, where a call of C's returns and where a loop goes on. A profiler is
told of the first two: the tests raise there, one place after the other, once as a signal that may be held back, and
once as an error that cannot. A profiler is told as well of a generator that is closed before its end, as that of
`any(...)` is: Python handles no signal there, and drops what a profiler raises.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from inspect import isgenerator
from itertools import count
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch
from torch import nn

import tensormagic as tm
from tensormagic.reports.base import gc_paused
from tests.support.leftovers import leftovers, snapshot

STRIDE = int(os.environ.get("TENSORMAGIC_STRIDE", "401"))  # `make faults` goes through every place: 1
LONG = {"memory", "joint"}  # runs that go through all that Python holds
OWN = str(Path(tm.__file__).parent)


def net():
    torch.manual_seed(0)
    return nn.Linear(2, 1)


def nothing():
    """A run that does nothing: it begins and ends."""


def three_steps():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()


RUNS = {
    "trace": lambda: tm.trace(namespace={}),
    "ops": lambda: tm.trace(namespace={}, level="ops"),
    "budget": lambda: tm.trace(namespace={}, budget=0.05),
    "every": lambda: tm.trace(namespace={}, every=2),
    "memory": lambda: tm.track_memory(namespace={}),
    "writes": lambda: tm.watch_writes(namespace={}),
    "draws": lambda: tm.track_rng(namespace={}),
    "joint": lambda: tm.trace(namespace={}, memory=True, writes=True, draws=True),
    "explain": lambda: tm.explain(namespace={}),
}


def is_within_own(frame):
    """Return whether the package, or what it calls, is running."""
    while frame is not None:
        if frame.f_code.co_filename.startswith(OWN):
            return True
        frame = frame.f_back
    return False


def test_an_interrupt_where_the_search_for_garbage_is_switched_off():
    """It is on again, wherever that is."""
    tried = []
    for nth in range(1, 20):
        with Interrupt(nth, "error") as interrupt, suppress(KeyboardInterrupt), gc_paused():
            pass
        tried.append(interrupt.place)
        assert gc.isenabled(), interrupt.place
    assert any("gc_paused c_return" in place for place in tried)


class Places:
    """Notes when each place in the package was come to: by code, line and event, as it is counted by `Interrupt`."""

    def __init__(self):
        self.seen, self.at = 0, {}

    def __call__(self, frame, event, _):
        if event in {"call", "c_return"} and is_within_own(frame):
            self.seen += 1
            self.at.setdefault((frame.f_code, frame.f_lineno, event), []).append(self.seen)


def distinct(kind):
    """Return the first two and the last times that a run comes to each place: its loops go round 140,000 times."""
    places = Places()
    sys.setprofile(places)
    with RUNS[kind]():
        nothing()
    sys.setprofile(None)
    return sorted({nth for found in places.at.values() for nth in (*found[:2], found[-1])})


class Interrupt:
    """Raises at the ``nth`` place in the package where Python may handle a signal; counts them."""

    def __init__(self, nth, how):
        self.nth, self.how, self.seen, self.place, self.closing = nth, how, 0, "", False

    def __enter__(self):
        self._hook, sys.unraisablehook = sys.unraisablehook, self._unraisable
        sys.setprofile(self._event)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)
        sys.unraisablehook = self._hook

    def _unraisable(self, dropped):
        """Note that Python dropped the interrupt because it was raised where a generator is closed."""
        if dropped.exc_type is KeyboardInterrupt and isgenerator(dropped.object) and self._at is dropped.object.gi_code:
            self.closing = True
        else:
            self._hook(dropped)

    def _event(self, frame, event, _):
        if event not in {"call", "c_return"} or not is_within_own(frame):
            return
        self.seen += 1
        if self.seen == self.nth:
            self._at = frame.f_code if event == "call" else None
            self.place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name} {event}"
            if self.how == "signal":
                signal.raise_signal(signal.SIGINT)
            else:
                raise KeyboardInterrupt


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="its profiler is told of other places")
def test_an_interrupt_where_a_generator_is_closed_is_told_from_one_that_is_swallowed():
    """Of the places of an `any(...)` that ends early, the one at which Python drops what is raised; no other."""
    source, places = compile("any(number for number in (1, 2))", str(Path(OWN, "made.py")), "eval"), []
    for nth in range(1, 5):
        raised = False
        with Interrupt(nth, "error") as interrupt:
            try:
                eval(source)
            except KeyboardInterrupt:
                raised = True
        places.append((raised, interrupt.closing))
    assert places == [(True, False), (True, False), (True, False), (False, True)]


def interrupted(make, body, nth, how):
    """Run ``body`` followed, interrupted at a place; returns where, whether that was raised, and what was left."""
    standing, handler, raised = snapshot(), signal.getsignal(signal.SIGINT), False
    with Interrupt(nth, how) as interrupt:
        try:
            with make():
                body()
        except KeyboardInterrupt:
            raised = True
    left = leftovers(standing, snapshot())
    if signal.getsignal(signal.SIGINT) is not handler:
        left.append("another handler of signals")
    gc.enable()
    try:
        with make():
            pass
    except tm.TraceError as error:
        left.append(f"the next run was refused: {error}")
    return interrupt, raised, left


def wrong_places(kind, how):
    """Interrupt a run at one place after the other; returns how many, and what was wrong at which.

    A run of memory looks at all objects of Python and at what frames hold: this has a process to itself, and what was
    there before is frozen.
    """
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for make in RUNS.values():  # what is made once in a process is there
        with make():
            three_steps()
    gc.collect()
    gc.freeze()
    model = net()
    held = [model, model(torch.ones(1, 2)), torch.ones(3)[1:], {"x": torch.ones(2)}, torch.ones(2).numpy()]
    first, tried, wrong = 1 + list(RUNS).index(kind), 0, {}
    each = count(first, STRIDE) if kind not in LONG else distinct(kind)[first :: max(STRIDE // 16, 1)]
    for nth in each:
        interrupt, raised, left = interrupted(RUNS[kind], nothing, nth, how)
        if interrupt.place:
            tried += 1
            if left or not (raised or interrupt.closing):
                wrong[f"{nth} {interrupt.place}"] = left or "swallowed"
        elif kind not in LONG:
            break  # it has ended
    del held
    return tried, wrong


@pytest.fixture(scope="module")
def another_process():
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield pool


@pytest.mark.corpus
@pytest.mark.parametrize("how", ["signal", "error"])
@pytest.mark.parametrize("kind", RUNS)
def test_wherever_it_begins_or_ends(kind, how, another_process):
    """Nothing stays on torch, no later run is refused, and the interrupt is not lost."""
    tried, wrong = another_process.submit(wrong_places, kind, how).result()
    print(f"{kind}, {how}: {tried} places")
    assert tried > 1
    assert wrong == {}
