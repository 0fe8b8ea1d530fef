"""Whether two tensors count their in-place writes on the same version counter, found out by looking alone.

``.detach()`` shares the counter, ``.data`` does not: the difference between an error and a silently wrong gradient.
torch tells a counter's *value*, not which counter it is, and finding out by writing would be a change to the person's
tensors. A tensor's C++ part (``c10::TensorImpl``) holds a pointer to its counter, though, at a place that is fixed in
one build of torch. That place is not assumed but found: it is the one word that is equal for tensors known to share a
counter and differs for tensors known not to. Where there is no such word, or more than one, the answer is "cannot
tell".
"""

from __future__ import annotations

import ctypes
from functools import cache

import torch

from tensormagic.collectors.quiet import quiet

_WORDS = 10  # a TensorImpl is over 150 bytes long (c10/core/TensorImpl.h checks its own size); these are the first 80


def shares_version(x: torch.Tensor, y: torch.Tensor) -> bool | None:
    """Return whether x and y count writes on one version counter; None where that cannot be told."""
    if x.is_inference() or y.is_inference():
        return False  # inference tensors have no counter
    if x._cdata == y._cdata:
        return True
    if x._version != y._version:
        return False
    place = _counter_place()
    if place is None:
        return None
    counter = _words(x)[place]
    return counter != 0 and counter == _words(y)[place]


def prepare_counters() -> None:
    """Find out where counters are, as long as that can be done: inside a dispatch mode autograd is out of reach."""
    _counter_place()


@cache
def _counter_place() -> int | None:
    """Return which word of a tensor's C++ part points to its version counter; None where no single word can be it."""
    with quiet(), torch.inference_mode(mode=False):
        first, second = torch.zeros(3), torch.zeros(3)
        sharing = [(first, first.detach()), (first, first[1:]), (second, second.view(3, 1)), (second, second.detach())]
        separate = [(first, second), (first, first.data), (second, second.data), (first.data, first.data)]
        places = [
            place
            for place in range(_WORDS)
            if all(_words(x)[place] == _words(y)[place] != 0 for x, y in sharing)
            and all(_words(x)[place] != _words(y)[place] for x, y in separate)
        ]
    return places[0] if len(places) == 1 else None


def _words(x: torch.Tensor) -> list[int]:
    return list((ctypes.c_size_t * _WORDS).from_address(x._cdata))


def counter_of(x: torch.Tensor) -> int | None:
    """Return which version counter x counts its writes on: equal for two that live at once only where they share it.

    None where it has none (inference tensors), or where that cannot be told.
    """
    place = None if x.is_inference() else _counter_place()
    return None if place is None else _words(x)[place] or None
