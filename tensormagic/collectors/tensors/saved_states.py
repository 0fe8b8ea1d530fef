"""What a node keeps for its backward, and in which state.

Reading a saved tensor raises after an in-place write and after the graph was freed: both are states worth showing. What
the person packed with saved-tensor hooks is not unpacked: that would run their code.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from functools import lru_cache
from typing import Any, cast

import torch

from tensormagic.collectors.graphs.nodes import isinstance_of_torch
from tensormagic.collectors.graphs.saved_tensors import is_packed
from tensormagic.collectors.tensors.subject import sizes_of
from tensormagic.reports import SavedState

MOST_SAVED = 12

_VERSIONS = re.compile(r"is at version (\d+); expected version (\d+)")


def saved_states(node: Any, names: Mapping[int, str] | None = None) -> tuple[SavedState, ...]:
    """Return what a live node keeps for its backward, and in which state."""
    known = names or {}
    if not isinstance_of_torch(node):
        return _custom(node, known)
    slots = _slots(cast("Hashable", type(node)))
    return tuple(state for slot in slots for state in _saved(node, slot, known))[:MOST_SAVED]


@lru_cache(maxsize=512)
def _slots(kind: Hashable) -> tuple[str, ...]:
    return tuple(name.removeprefix("_raw_saved_") for name in dir(kind) if name.startswith("_raw_saved_"))


def _saved(node: Any, slot: str, names: Mapping[int, str]) -> list[SavedState]:
    """Return the states of one slot: of one tensor, of several (as of indices), or of none."""
    try:
        if is_packed(getattr(node, f"_raw_saved_{slot}")):
            return [SavedState(slot, "packed by a hook")]
        value = getattr(node, f"_saved_{slot}")
    except RuntimeError as error:
        return [_spoilt(slot, str(error))]
    several = isinstance(value, tuple | list)
    named = [(f"{slot}[{at}]", each) for at, each in enumerate(value)] if several else [(slot, value)]
    return [_fine(label, each, names) for label, each in named if isinstance(each, torch.Tensor)]


def _custom(node: Any, names: Mapping[int, str]) -> tuple[SavedState, ...]:
    try:
        if any(is_packed(raw) for raw in node._raw_saved_tensors):
            return (SavedState("saved_tensors", "packed by a hook"),)
        values = node.saved_tensors
    except RuntimeError as error:
        return (_spoilt("saved_tensors", str(error)),)
    kept = [(f"saved_tensors[{at}]", value) for at, value in enumerate(values) if value is not None]
    return tuple(_fine(slot, value, names) for slot, value in kept[:MOST_SAVED])


def _fine(slot: str, value: torch.Tensor, names: Mapping[int, str]) -> SavedState:
    return SavedState(
        slot, "fine", names.get(value._cdata, ""), sizes_of(value),
        str(value.dtype).removeprefix("torch."), value.numel() * value.element_size(), *_versions(value),
    )  # fmt: skip


def _versions(value: torch.Tensor) -> tuple[int | None, int | None]:
    return (None, None) if value.is_inference() else (value._version, value._version)


def _spoilt(slot: str, message: str) -> SavedState:
    """Return the state that torch's message tells."""
    if found := _VERSIONS.search(message):
        return SavedState(slot, "changed in place", saved_version=int(found[2]), version=int(found[1]))
    freed = "freed" in message or "second time" in message
    return SavedState(slot, "freed" if freed else "unreadable")
