"""Which elements a masked or indexed write reaches: ``x[mask] = 0`` writes to some of x, not to all.

The op is done once more, on a fresh tensor of truth values of the same shape: what is true afterwards was written to.
Only on the CPU and within a bound; else the answer is "at most all of it".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

LIMIT = 2**20  # elements

Mark = Callable[[torch.Tensor, tuple[Any, ...]], Any]


def _put(mark: torch.Tensor, args: tuple[Any, ...]) -> None:
    mark.index_put_(list(args[1]), torch.tensor(data=True))


def _fill_at_index(mark: torch.Tensor, args: tuple[Any, ...]) -> None:
    mark.index_fill_(args[1], args[2], True)  # noqa: FBT003  (the value)


def _scatter(mark: torch.Tensor, args: tuple[Any, ...]) -> None:
    mark.scatter_(args[1], args[2], True)  # noqa: FBT003


def _masked(mark: torch.Tensor, args: tuple[Any, ...]) -> None:
    mark.masked_fill_(args[1], True)  # noqa: FBT003


def _put_flat(mark: torch.Tensor, args: tuple[Any, ...]) -> None:
    mark.put_(args[1], torch.ones_like(args[1], dtype=torch.bool))


_MARKS: dict[str, Mark] = {
    "index_put_": _put,
    "_index_put_impl_": _put,
    "index_fill_": _fill_at_index,
    "index_copy_": _fill_at_index,
    "index_add_": _fill_at_index,
    "index_reduce_": _fill_at_index,
    "scatter_": _scatter,
    "scatter_add_": _scatter,
    "scatter_reduce_": _scatter,
    "masked_fill_": _masked,
    "masked_scatter_": _masked,
    "put_": _put_flat,
}


def is_scattered(op_name: str) -> bool:
    """Return whether this op writes to some elements of its target only."""
    return op_name in _MARKS


def written_elements(op_name: str, target: torch.Tensor, args: tuple[Any, ...]) -> np.ndarray | None:
    """Return which elements of ``target`` the call wrote to, as an array of truth values; None where not known.

    Call it outside all modes (`quiet`).
    """
    if target.device.type != "cpu" or target.numel() > LIMIT or not args or args[0] is not target:
        return None
    mark = torch.zeros(target.shape, dtype=torch.bool)
    try:
        _MARKS[op_name](mark, args)
    except (RuntimeError, IndexError, TypeError, ValueError, KeyError):
        return None  # other arguments than these ops have today
    found: np.ndarray = mark.numpy()
    return found
