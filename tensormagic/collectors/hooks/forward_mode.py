"""Notes where derivatives are taken forwards: there no graph is built, so none can be shown, and that is said.

``torch.func.jvp`` and ``jacfwd``, ``torch.autograd.forward_ad`` and ``functional.jvp(strategy="forward-mode")`` all
enter a level of dual numbers by one function of `torch.autograd.forward_ad`. It returns before the person's code runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

from torch.autograd import forward_ad

from tensormagic.collectors.hooks.dynamo import skip_in_dynamo, without_dynamo
from tensormagic.collectors.hooks.replacing import replace
from tensormagic.reports import Location

_ENTER = "enter_dual_level"


def forward_mode_gap(place: Location) -> str:
    """Return the sentence about derivatives that were taken forwards at a place."""
    return f"{place.label} takes derivatives forwards (jvp, dual numbers): that builds no graph to be shown"


@contextmanager
def noted_dual_levels(note: Callable[[FrameType], None]) -> Iterator[None]:
    """Call ``note`` with the calling frame whenever a level of dual numbers is entered, until the block ends."""
    undo = replace(forward_ad, _ENTER, partial(_entering, note))
    try:
        yield
    finally:
        undo()


def _entering(note: Callable[[FrameType], None], original: Callable[[], Any]) -> Callable[[], Any]:
    def enter_dual_level() -> Any:
        without_dynamo(note, sys._getframe(1))
        return original()

    skip_in_dynamo(enter_dual_level)
    return enter_dual_level
