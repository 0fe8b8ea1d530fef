"""Calls that change shapes or join tensors: copies, elements that are regrouped, views that are all the same memory."""

from __future__ import annotations

import ast
from itertools import permutations

import torch

from tensormagic.collectors.calls.call_notes import Call, CallNotes, running_part
from tensormagic.collectors.where.source import is_own_code

SMALLEST = 1 << 16  # bytes; what is less is not even counted

NAMES = ("reshape", "flatten", "ravel", "reshape_as")


def copied(watch: CallNotes, call: Call) -> None:
    """Note a copy, identified by the storage behind the result."""
    result, source = call.result, call.args[0] if call.args else call.kwargs.get("input")
    if result is source or not isinstance(result, torch.Tensor) or not isinstance(source, torch.Tensor):
        return
    nbytes = result.numel() * result.element_size()
    if nbytes < SMALLEST or result.layout is not torch.strided or result.device.type == "meta":
        return
    if result.untyped_storage()._cdata != source.untyped_storage()._cdata:
        watch.note("copy", call, operands=(source,), result=result, nbytes=nbytes)


# ``view`` and ``reshape`` keep the order of the elements. Where the new sizes are the old ones in another order, the
# elements end up under indices that they do not belong to: (B, C, H, W) as (B, H * W, C) mixes the channels.

RESHAPING = ("view", "reshape")
_MOST_DIMS = 5


def regrouped(watch: CallNotes, call: Call) -> None:
    """Note a new shape whose sizes are the old ones in another order, or heads that were split off without a swap."""
    source, result = call.args[0] if call.args else None, call.result
    if not isinstance(source, torch.Tensor) or not isinstance(result, torch.Tensor) or result.dtype != source.dtype:
        return
    old, new = (tuple(int(size) for size in x.shape if size != 1) for x in (source, result))
    if old == new or not 2 <= len(old) <= _MOST_DIMS or not 2 <= len(new) <= _MOST_DIMS or 0 in old:
        return
    for before, after in _segments(old, new):
        order = _order(before, after)
        if order and (order != "swapped" or _says_sizes(call)):
            watch.note("regrouped", call, operands=(source,), result=result, detail=order)
            return


def _says_sizes(call: Call) -> bool:
    """Return whether the line gives sizes as they are: ``view(t, b * heads, -1)`` splits on purpose."""
    part = running_part(call.frame) if is_own_code(call.frame.f_code.co_filename) else None
    return part is not None and not any(isinstance(node, ast.Mult | ast.FloorDiv) for node in ast.walk(part))


def _segments(old: tuple[int, ...], new: tuple[int, ...]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the parts of both shapes that hold the same elements, and that are neither one dimension split nor merged.

    (8, 16, 4, 4) as (8, 16, 16): the first dimension stays, and (16, 4, 4) becomes (16, 16).
    """
    found, first, second = [], 0, 0
    while first < len(old) and second < len(new):
        begin, start = first, second
        left, right = old[first], new[second]
        first, second = first + 1, second + 1
        while left != right:
            if left < right:
                left, first = left * old[first], first + 1
            else:
                right, second = right * new[second], second + 1
        if first - begin > 1 and second - start > 1:
            found.append((old[begin:first], new[start:second]))
    return found


def _order(before: tuple[int, ...], after: tuple[int, ...]) -> str:
    """Return how the dimensions would have to be swapped for the new sizes; empty where the sizes do not tell."""
    same = tuple(range(len(before)))
    for order in permutations(same):
        swapped = tuple(before[at] for at in order)
        if order != same and swapped != before and _merges(swapped, after):
            return "swapped" if len(before) == len(after) == 2 else "permuted"
    if len(before) == 2 and len(after) == 3 and after[1] == before[0] != after[0] and after[0] * after[2] == before[1]:
        return "split"
    return ""


def _merges(sizes: tuple[int, ...], into: tuple[int, ...]) -> bool:
    """Return whether neighbouring sizes multiply to the others, one after the other."""
    at = 0
    for size in into:
        product = 1
        while product < size and at < len(sizes):
            product, at = product * sizes[at], at + 1
        if product != size:
            return False
    return at == len(sizes)


# Tensors that were stored one by one and are all the same memory: every one is the last.

STACKING = ("stack", "cat", "concat")
_FEWEST, _MOST = 3, 256


def same_memory(watch: CallNotes, call: Call) -> None:
    """Note tensors that are joined and are different objects over one memory, which was written in between."""
    given = call.args[0] if call.args else None
    if not isinstance(given, list | tuple) or len(given) < _FEWEST or not isinstance(call.result, torch.Tensor):
        return
    first, second = given[:2]
    if first is second or not (_is_plain(first) and _is_plain(second)) or first.data_ptr() != second.data_ptr():
        return
    some = given[:_MOST]
    if len({id(x) for x in some}) < len(some) or not all(_is_same(x, first) for x in some):
        return
    numpy = not first.untyped_storage().resizable()
    if numpy or first._version >= len(given) - 1:
        watch.note("same memory", call, operands=(first,), of=2, result=call.result,
                   detail=f"{len(given)} {'numpy' if numpy else 'torch'}")  # fmt: skip


def _is_plain(x: object) -> bool:
    return type(x) is torch.Tensor and x.layout is torch.strided and x.device.type == "cpu" and x.numel() > 0


def _is_same(x: torch.Tensor, first: torch.Tensor) -> bool:
    return _is_plain(x) and x.shape == first.shape and x.data_ptr() == first.data_ptr()
