"""Notes the lines of custom ``autograd.Function`` calls, which a function mode does not see.

``Function.apply`` asks one question of its module, whether the class has a ``setup_context``, and then hands over to
C++, which numbers the node before it runs the forward. So the node that a call makes is the next one, and the caller
of whoever asks is the line. The answer is given before the forward runs: no frame of ours is ever in its stack,
nothing is added to a traceback or a warning. The question costs about 1 µs more.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType, ModuleType
from typing import Any

import torch

from tensormagic.collectors.hooks.dynamo import skip_in_dynamo, without_dynamo
from tensormagic.collectors.hooks.replacing import replace

_MODULE: ModuleType = sys.modules[torch.autograd.Function.__module__]
_QUESTION = "_is_setup_context_defined"
_APPLY = torch.autograd.Function.apply.__func__.__code__  # type: ignore[attr-defined]


@contextmanager
def noted_applies(note: Callable[[FrameType | None], None]) -> Iterator[None]:
    """Call ``note`` with the calling frame whenever a custom Function is about to make a node, in any thread."""
    if not hasattr(_MODULE, _QUESTION):  # another torch: these nodes have the line of the next call then, and say so
        yield
        return
    undo = replace(_MODULE, _QUESTION, partial(_asking, note))
    try:
        yield
    finally:
        undo()


def _asking(note: Callable[[FrameType | None], None], original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def is_setup_context_defined(method: Any) -> Any:
        asking = sys._getframe(1)
        if asking.f_code is _APPLY:
            without_dynamo(note, asking.f_back)
        return original(method)

    skip_in_dynamo(is_setup_context_defined)
    return is_setup_context_defined
