"""Functions that replace others are taken away in any order."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from tensormagic.collectors.hooks import replacing
from tensormagic.collectors.hooks.replacing import Replacement


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_any_order(order):
    """Whoever goes first, the others go on working, and at last the original is back."""
    owner = SimpleNamespace(word=lambda: "")
    original = owner.word
    layers = [Replacement(owner, "word", lambda below, at=at: lambda: f"{at}{below()}") for at in range(3)]
    for layer in layers:
        layer.__enter__()
    assert owner.word() == "210"
    for at in order:
        layers[at].__exit__()
        layers[at].__exit__()  # twice is as once
    assert owner.word is original
    assert not replacing._layers


def test_what_somebody_else_put_on_top_stays():
    """Theirs goes on to ours, which goes on to what lay below."""
    owner = SimpleNamespace(word=lambda: "original")
    replacement = Replacement(owner, "word", lambda below: lambda: f"ours {below()}")
    replacement.__enter__()
    ours = owner.word
    owner.word = lambda: f"theirs {ours()}"
    replacement.__exit__()
    assert owner.word() == "theirs ours original"
