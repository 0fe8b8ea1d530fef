"""Which thread made a node: told apart although sequence numbers are counted by each thread for itself."""

from __future__ import annotations

import threading

import torch

from tensormagic.collectors.graphs import live_nodes
from tensormagic.collectors.graphs.live_nodes import NodeThreads
from tests.support.functions import Same


def made_by(thread, make):
    if thread == "here":
        return make()
    found = []
    worker = threading.Thread(target=lambda: found.append(make()))
    worker.start()
    worker.join()
    return found[0]


def test_nodes_of_this_thread_and_of_others():
    """Ops, in-place ops, views, leaves and what C++ makes of them; a custom Function's goes by what it was given."""
    x = torch.ones(4, requires_grad=True)
    ways = [lambda: x * 2, lambda: (x * 1).add_(1), lambda: (x * 1)[:2], lambda: torch.stack([x, x]).sum(0),
            lambda: Same.apply(x * 2)]  # fmt: skip
    here = NodeThreads()
    for way in ways:
        assert not here.is_foreign(made_by("here", way).grad_fn)
        assert here.is_foreign(made_by("there", way).grad_fn)


def test_another_thread_has_its_own_home():
    """What is foreign here is not foreign there."""
    x = torch.ones(4, requires_grad=True)
    node, of_there = made_by("there", lambda: ((x * 2).grad_fn, NodeThreads()))
    assert NodeThreads().is_foreign(node)
    assert not of_there.is_foreign(node)


def test_where_the_place_is_not_known_nothing_is_read(monkeypatch):
    """Another torch may lay nodes out otherwise: then no node counts as another thread's."""
    monkeypatch.setattr(live_nodes, "_place", lambda: None)
    x = torch.ones(4, requires_grad=True)
    assert not NodeThreads().is_foreign(made_by("there", lambda: x * 2).grad_fn)


def test_random_numbers_and_grad_mode_stay():
    """Finding out changes nothing that the user could see, also under inference mode."""
    before = torch.get_rng_state()
    with torch.inference_mode():
        NodeThreads()
        assert torch.is_inference_mode_enabled()
    assert torch.equal(torch.get_rng_state(), before)
