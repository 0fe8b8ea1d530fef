"""Completes names after the line magics: IPython's own completion gives nothing there when jedi is on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tensormagic import api
from tensormagic.errors import TensorMagicError
from tensormagic.magics import about
from tensormagic.reports import TraceReport

OPTIONS = ("--text", "--figure", "--save", "--into", "--help")
_SWITCHING = "%tensormagic"
COMPLETED = ("%aliases", "%compare", "%gpumem", "%gradgraph", "%tensor", "%tensors", "%why")


def _complete(shell: Any, event: Any) -> list[str]:
    symbol = str(event.symbol)
    if symbol.startswith("-"):
        return [option for option in OPTIONS if option.startswith(symbol)]
    if "." in symbol or "[" in symbol:
        matches: list[str] = shell.Completer.attr_matches(symbol)
        return matches
    runs = str(event.line).lstrip().startswith("%compare")
    return [name for name in _names(shell, _is_run if runs else _is_tensor) if name.startswith(symbol)]


def _complete_switch(_shell: Any, event: Any) -> list[str]:
    """Complete ``%tensormagic``: what can be switched, then on or off; topics of help."""
    before = str(event.line).split()[1 : None if str(event.line).endswith(" ") else -1]
    begun = str(event.symbol).lstrip("%").lower()
    return [word for word in _words_after(before) if word.lower().startswith(begun)]


def _words_after(before: list[str]) -> Iterable[str]:
    if not before:
        return dict.fromkeys((*about.SWITCHES, "check", about.HELP, *_topics()))
    if before == [about.HELP]:
        return _topics()
    return about.STATES if len(before) == 1 and before[0] in about.SWITCHES else ()


def _topics() -> list[str]:
    try:
        return [topic for part in api.help_topics().values() for topic in part]
    except TensorMagicError:  # an installation without its pages: nothing to offer
        return []


def _names(shell: Any, wanted: Callable[[Any], bool]) -> list[str]:
    """Return the person's own names, those of what is wanted first."""
    own = [name for name in shell.user_ns if not name.startswith("_") and name not in shell.user_ns_hidden]
    return sorted(own, key=lambda name: (not wanted(shell.user_ns[name]), name))


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "untyped_storage")


def _is_run(value: Any) -> bool:
    return isinstance(value, TraceReport | api.Trace)


def install(shell: Any) -> Callable[[], None]:
    """Complete tensor names and options after the line magics; returns what undoes it."""
    had = "complete_command" in shell.strdispatchers
    for command in COMPLETED:
        shell.set_hook("complete_command", _complete, str_key=command)
    shell.set_hook("complete_command", _complete_switch, str_key=_SWITCHING)

    def undo() -> None:
        strings = shell.strdispatchers["complete_command"].strs
        for command in (*COMPLETED, _SWITCHING):
            strings.pop(command, None)
        if not had:
            del shell.strdispatchers["complete_command"]

    return undo
