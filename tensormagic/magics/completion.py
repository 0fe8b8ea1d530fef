"""Completes names after the line magics: IPython's own completion gives nothing there when jedi is on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

OPTIONS = ("--text", "--figure", "--save", "--into", "--help")
COMPLETED = ("%aliases", "%gradgraph", "%tensor", "%tensors")


def _complete(shell: Any, event: Any) -> list[str]:
    symbol = str(event.symbol)
    if symbol.startswith("-"):
        return [option for option in OPTIONS if option.startswith(symbol)]
    if "." in symbol or "[" in symbol:
        matches: list[str] = shell.Completer.attr_matches(symbol)
        return matches
    return [name for name in _names(shell) if name.startswith(symbol)]


def _names(shell: Any) -> list[str]:
    """Return the person's own names, tensors first."""
    own = [name for name in shell.user_ns if not name.startswith("_") and name not in shell.user_ns_hidden]
    return sorted(own, key=lambda name: (not hasattr(shell.user_ns[name], "untyped_storage"), name))


def install(shell: Any) -> Callable[[], None]:
    """Complete tensor names and options after the line magics; returns what undoes it."""
    had = "complete_command" in shell.strdispatchers
    for command in COMPLETED:
        shell.set_hook("complete_command", _complete, str_key=command)

    def undo() -> None:
        strings = shell.strdispatchers["complete_command"].strs
        for command in COMPLETED:
            strings.pop(command, None)
        if not had:
            del shell.strdispatchers["complete_command"]

    return undo
