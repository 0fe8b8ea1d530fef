"""Calls torch in the name of the person's own line.

Python and torch attribute a warning to the frame that made the call, and show it once for each such place. While a
function mode is on, that frame would be the mode's. So the call is made from a frame that bears the file name, the
line and the globals of the one that called: a warning then reads, and is repeated or not, as if nobody had looked.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FrameType, FunctionType
from typing import Any, TypeVar

MARK = "tensormagic_call"  # the name of such frames, by which they are taken out of tracebacks

HANDS_OVER = "handle_torch_function"  # torch's own frame between a Python function of its and the mode
_Call = Callable[[Any, Any, Any], Any]


# All on its first line, which a copy moves.
_CODE = (lambda func, args, kwargs: func(*args, **kwargs) if kwargs else func(*args)).__code__


_UNCOUNTED = "<tensormagic importlib._bootstrap>"
_Function = TypeVar("_Function", bound=Callable[..., Any])


def uncounted(function: _Function) -> _Function:
    """Let the frames of a function not count where a warning says how far up the line is that it is about.

    Python leaves out its own frames of importing there, which it knows by the words in their file name: those of this
    function get them too. Tracebacks and the search for the person's line leave them out by their name.
    """
    code = function.__code__.replace(co_filename=_UNCOUNTED, co_name=MARK)
    function.__code__ = code
    return function


def calling_frame(frame: FrameType) -> FrameType:
    """Return the frame that called torch, given the one above the mode: past torch's own hand-over."""
    while frame.f_code.co_name == HANDS_OVER and frame.f_back is not None and frame.f_back.f_back is not None:
        frame = frame.f_back.f_back
    return frame


class Callers:
    """The stand-ins made so far, one for each calling place.

    A frame knows at once at which instruction it is; its line it works out from a table, which takes ten times as long.

    Attributes:
        made: By the ``id`` of a frame's code and its instruction.
    """

    def __init__(self) -> None:
        self.made: dict[tuple[int, int], _Call] = {}
        self._codes: dict[int, CodeType] = {}  # kept: their ids are in the keys

    def standing_in_for(self, frame: FrameType) -> _Call:
        """Return a function that makes a call as if ``frame`` made it, at its current line."""
        key = (id(frame.f_code), frame.f_lasti)
        known = self.made.get(key)
        if known is None:
            self._codes[key[0]] = frame.f_code
            known = self.made[key] = _stand_in(frame)
        return known


def _stand_in(frame: FrameType) -> _Call:
    code = _CODE.replace(co_name=MARK, co_filename=frame.f_code.co_filename, co_firstlineno=frame.f_lineno)
    return FunctionType(code, frame.f_globals)
