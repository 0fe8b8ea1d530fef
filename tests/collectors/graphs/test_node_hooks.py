"""Hooks that are put on and taken off together: those of others stay theirs, on other threads as well."""

from __future__ import annotations

import sys
from threading import Event, Thread

import pytest
import torch
from torch.utils.hooks import RemovableHandle

from tensormagic.collectors.graphs.live_nodes import Hooks

MODULE = sys.modules[torch.autograd.Function.__module__]


def node_of(leaf):
    return (leaf * 2).grad_fn


def ignore(_gradients):
    """Leave the gradients as they are."""


def test_one_handle_serves_all_and_removes_all():
    """Both nodes call; afterwards neither does."""
    leaf, called = torch.ones(2, requires_grad=True), []
    product = leaf * 2
    total = product.sum()
    hooks = Hooks()
    with hooks.together() as handle:
        assert total.grad_fn.register_prehook(lambda _: called.append("sum")) is handle
        assert product.grad_fn.register_prehook(lambda _: called.append("mul")) is handle
    total.backward(retain_graph=True)
    assert called == ["sum", "mul"]
    hooks.remove()
    total.backward()
    assert called == ["sum", "mul"]


def test_the_person_s_hooks_on_the_same_node_have_handles_of_their_own():
    """One from before and one from after: removing ours leaves them, and theirs can be removed."""
    leaf, called = torch.ones(2, requires_grad=True), []
    total = (leaf * 2).sum()
    before = total.grad_fn.register_prehook(lambda _: called.append("before"))
    hooks = Hooks()
    with hooks.together() as handle:
        assert total.grad_fn.register_prehook(lambda _: called.append("ours")) is handle
    after = total.grad_fn.register_prehook(lambda _: called.append("after"))
    total.backward(retain_graph=True)
    hooks.remove()
    total.backward(retain_graph=True)
    before.remove()
    after.remove()
    total.backward()
    assert called == ["before", "ours", "after", "before", "after"]
    assert len({before.id, handle.id, after.id}) == 3


def test_another_thread_gets_handles_of_its_own_meanwhile():
    """What replaces torch's handles is for the thread alone that puts the hooks on."""
    found, hooks, node = [], Hooks(), node_of(torch.ones(2, requires_grad=True))
    with hooks.together() as handle:
        thread = Thread(target=lambda: found.append(node.register_prehook(ignore)))
        thread.start()
        thread.join()
    assert type(found[0]) is RemovableHandle
    assert found[0] is not handle


def test_the_hooks_of_two_threads_may_begin_and_end_in_any_order():
    """Whoever ends while the other, who came later, goes on has handles of its own again at once."""
    node, mine, others, began, over = node_of(torch.ones(2, requires_grad=True)), Hooks(), Hooks(), Event(), Event()

    def beside() -> None:
        with others.together():
            began.set()
            assert over.wait(10)

    thread = Thread(target=beside)
    with mine.together() as handle:
        thread.start()
        assert began.wait(10)
    after = node.register_prehook(ignore)
    over.set()
    thread.join()
    assert after is not handle
    assert MODULE.hooks is torch.utils.hooks


def test_torch_finds_its_own_module_again_and_all_of_it_meanwhile():
    """Nothing is left behind, also by an error; other names of the module are there all the time."""
    original, hooks = MODULE.hooks, Hooks()
    with hooks.together():
        assert MODULE.hooks is not original
        assert MODULE.hooks.unserializable_hook is original.unserializable_hook
    assert MODULE.hooks is original
    with pytest.raises(KeyboardInterrupt), hooks.together():
        raise KeyboardInterrupt
    assert MODULE.hooks is original


def test_where_torch_keeps_its_handles_elsewhere_each_hook_has_its_own(monkeypatch):
    """Such handles are kept, and removed with the others."""
    called, total = [], (torch.ones(2, requires_grad=True) * 2).sum()
    hooks = Hooks()
    monkeypatch.setattr("tensormagic.collectors.graphs.live_nodes._NAME", "elsewhere")
    with hooks.together() as handle:
        other = total.grad_fn.register_prehook(lambda _: called.append("sum"))
        assert other is not handle
        hooks.keep(other)
    hooks.remove()
    total.backward()
    assert called == []
