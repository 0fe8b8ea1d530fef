"""The source of code that ``exec`` runs from a string: Python forgets it, but the caller often still has the string.

A string is taken for the source only if it compiles to exactly the code that was running.
"""

from __future__ import annotations
import __future__

from collections.abc import Iterator
from types import CodeType, FrameType

from tensormagic.collectors.where.running import names_of

MOST_TEXTS = 64  # strings of the caller that are tried
LONGEST = 100_000  # characters
_FUTURE = __future__.annotations.compiler_flag  # which a string takes over from the code that executes it


def executed_source(frame: FrameType) -> str:
    """Return the source of a frame whose file is ``<string>``; empty where nobody has it any more."""
    code, caller = frame.f_code, frame.f_back
    while caller is not None and caller.f_code.co_filename == code.co_filename:
        caller = caller.f_back
    if not code.co_filename.startswith("<") or caller is None:
        return ""
    found = (text for text in _texts(caller) if len(text) <= LONGEST and _compiles_to(text, code))
    return next(found, "")


def _texts(frame: FrameType) -> Iterator[str]:
    """Yield strings that the caller has: in its code, then in its names."""
    values = (*frame.f_code.co_consts, *names_of(frame).values(), *list(frame.f_globals.values()))
    texts = [value for value in values if type(value) is str and value.strip()]
    yield from texts[:MOST_TEXTS]


def _compiles_to(text: str, code: CodeType) -> bool:
    for mode in ("exec", "eval"):
        try:
            made = compile(text, code.co_filename, mode, flags=code.co_flags & _FUTURE, dont_inherit=True)
        except (SyntaxError, ValueError):
            continue
        if any(each == code for each in _codes(made)):
            return True
    return False


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from _codes(value)
