"""Whether a result shares memory with its operands: exactly, by storage and by element."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from tensormagic.collectors.aliasing.footprint import Footprint, Piece, footprint_of
from tensormagic.collectors.geometry.overlap import overlap, overlap_elements
from tensormagic.collectors.geometry.versions import shares_version
from tensormagic.collectors.objects.namespace import is_kind
from tensormagic.collectors.quiet import quiet
from tensormagic.reports import CopyVerdict, Sharing

MOST_OPERANDS = 8
_ORDER = ("same object", "overlap", "may overlap", "same storage", "unknown", "separate")


def copy_or_view(result: Any, operands: Mapping[str, Any], *, name: str = "result") -> CopyVerdict:
    """Return whether a tensor or array shares memory with each of the operands that are tensors or arrays.

    Nothing is written, read from the device or kept.

    Args:
        result: A tensor, an array, or a tuple or list of them.
        operands: What it is compared with, by name; what is no tensor and no array is left out.
        name: What to call the result.
    """
    with quiet():
        found = [sharing(result, item, label) for label, item in operands.items()]
    known = sorted((each for each in found if each is not None), key=lambda each: _ORDER.index(each.relation))
    return CopyVerdict(name, tuple(known[:MOST_OPERANDS]), more_operands=max(len(known) - MOST_OPERANDS, 0))


def sharing(result: Any, operand: Any, name: str) -> Sharing | None:
    """Return what a result has in common with one operand; None where one of them is no tensor and no array."""
    mine, other = footprint_of(result), footprint_of(operand)
    if mine is None or other is None:
        return None
    found = compared(mine, other, name)
    tensors = is_kind(result, torch.Tensor) and is_kind(operand, torch.Tensor)
    if found.relation in {"separate", "unknown"} or not tensors:
        return found
    return replace(found, shares_version=_shares_version(result, operand))


def _shares_version(result: torch.Tensor, operand: torch.Tensor) -> bool | None:
    try:
        return shares_version(result, operand)
    except Exception:  # a wrapper without a counter of its own
        return None


def compared(mine: Footprint, other: Footprint, name: str) -> Sharing:
    """Compare two footprints, of which the second is the operand's."""
    elements = other.elements
    if mine.is_same_object(other):
        return Sharing(name, "same object", elements, elements)
    if mine.pieces is None or other.pieces is None:
        return Sharing(name, "unknown", None, elements)
    pairs = [
        (x, y, shift) for x in mine.pieces for y in other.pieces if (shift := x.memory.shift(y.memory)) is not None
    ]
    if not pairs:
        return Sharing(name, "separate", 0, elements)
    answers = [_overlap(x, y, shift) for x, y, shift in pairs]
    answer = "yes" if "yes" in answers else "maybe" if "maybe" in answers else "no"
    if answer == "no":
        return Sharing(name, "same storage", 0, elements)
    exact = len(pairs) == len(mine.pieces) == len(other.pieces) == 1
    count = _shared_elements(*pairs[0]) if exact else None
    return Sharing(name, "overlap" if answer == "yes" else "may overlap", count, elements)


def _overlap(mine: Piece, other: Piece, shift: int) -> str:
    return overlap(mine.region, replace(other.region, start=other.region.start + shift))


def _shared_elements(mine: Piece, other: Piece, shift: int) -> int | None:
    return overlap_elements(replace(other.region, start=other.region.start + shift), mine.region)
