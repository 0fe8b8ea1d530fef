"""Records that are made in a shorter way are the very same records."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

from tensormagic.reports import Frame, Node
from tensormagic.reports.base import quickly


def test_they_are_what_the_class_makes():
    """By place and by name, with defaults that are values and defaults that are made."""
    assert quickly(Node)(1, "SinBackward0", "sin", kind="op") == Node(1, "SinBackward0", "sin", kind="op")
    assert type(quickly(Node)(1, "SinBackward0", "sin", "op")) is Node
    made = quickly(Frame)
    assert made(1, []) == Frame(1, [])
    assert made(1, []).bad is not made(1, []).bad


def test_they_are_frozen_and_hold_nothing_else():
    """As any other of their class: they can be copied, sent, and asked for their hash, and not changed."""
    node = quickly(Node)(1, "SinBackward0", "sin", "op")
    assert copy.copy(node) == pickle.loads(pickle.dumps(node)) == node
    assert hash(node) == hash(Node(1, "SinBackward0", "sin", "op"))
    with pytest.raises(dataclasses.FrozenInstanceError):
        node.index = 2
    assert not hasattr(node, "__dict__")


def test_a_missing_field_is_refused():
    """As the class refuses it."""
    with pytest.raises(TypeError, match="kind"):
        quickly(Node)(1, "SinBackward0", "sin")
