"""Completes names and options after the magics: IPython's own completion gives nothing there when jedi is on."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tensormagic import api
from tensormagic.collectors import requirements
from tensormagic.errors import TensorMagicError
from tensormagic.magics import about
from tensormagic.magics.arguments import pieces

_SWITCHING = "%tensormagic"
_STATEMENT = re.compile(r"\s*\w+\s*[=+*/@|&^<>!,;.]")  # `aliases = …`: Python, whatever magic is called so


def commands() -> dict[str, str]:
    """Return the key in `about.MAGICS` of each magic that has options, by how its line begins."""
    found = {name: module for module, name in about.MAGICS.items()}
    return found | {"%tracegrad": found["%%tracegrad"], "%%rng": found["%rng"]}


def _complete(shell: Any, event: Any) -> list[str]:
    line, before, symbol = str(event.line), str(event.text_until_cursor), str(event.symbol)
    command = str(event.command).lstrip("%")
    if _STATEMENT.match(line):
        return []
    name = "%" * (not line.lstrip().startswith("%")) + str(event.command)
    magic = about.magic(commands()[name])  # its file is imported for it
    options = magic.parser().options
    last = before.removesuffix(symbol).split()[-1]
    option = options.get(last.removesuffix("="))
    found: Iterable[str]
    if symbol.startswith("-"):
        found = [name for name in options if name.startswith("--")]
    elif option is not None and option.choices:
        found = option.choices
    elif last == "--figure=":
        found = magic.kinds_of_figure
    elif command == "ranks" and (folders := _folders(symbol)):
        found = folders
    elif "." in symbol or "[" in symbol:
        found = _attributes(shell, before, symbol)
    else:
        wanted = _WANTED.get(command, requirements.is_tensor)
        own = [name for name in shell.user_ns if not name.startswith("_") and name not in shell.user_ns_hidden]
        found = sorted(own, key=lambda name: (not wanted(shell.user_ns[name]), name))
    return [one for one in found if one.startswith(symbol)]


def _folders(begun: str) -> list[str]:
    """Return the folders whose path begins so."""
    folder = Path(begun).expanduser() if begun.endswith("/") else Path(begun).expanduser().parent
    start = begun[: begun.rfind("/") + 1]
    try:
        inside = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError:
        return []
    return [start + name for name in inside if name.startswith(begun[len(start) :])]


def _attributes(shell: Any, before: str, symbol: str) -> list[str]:
    """Complete behind a dot: what holds tensors first, and nothing that begins with an underscore unless asked for.

    ``net[0].w`` is read from lists, dictionaries and modules without running any code; of anything else IPython's own
    completer is asked.
    """
    owner, _, begun = (pieces(before) or [symbol])[-1].rpartition(".")
    try:
        value = _read(shell, ast.parse(owner, mode="eval").body)
    except (SyntaxError, ValueError):  # no expression, or an index that is not written out
        value = _UNKNOWN
    if value is _UNKNOWN:
        found = [match.rpartition(".")[2] for match in shell.Completer.attr_matches(symbol)]
    else:
        held = _held(value)
        first = [name for name, one in held.items() if requirements.is_tensor(one) or name in _held(value, "_modules")]
        found = [*first, *held, *dir(type(value))]
    plain = (name for name in dict.fromkeys(found) if begun.startswith("_") or not name.startswith("_"))
    return [f"{symbol.rpartition('.')[0]}.{name}" for name in plain if name.startswith(begun)]


_UNKNOWN = object()


def _read(shell: Any, node: ast.expr) -> Any:
    """Return what an expression of names, attributes of modules and constant indices stands for; runs nothing."""
    if isinstance(node, ast.Name):
        return shell.user_ns.get(node.id, _UNKNOWN)
    if isinstance(node, ast.Attribute):
        return _held(_read(shell, node.value)).get(node.attr, _UNKNOWN)
    if isinstance(node, ast.Subscript):
        return _item(_read(shell, node.value), ast.literal_eval(node.slice))
    return _UNKNOWN


def _item(owner: Any, key: Any) -> Any:
    if type(owner) in {list, tuple, dict}:
        try:
            return owner[key]
        except (LookupError, TypeError):
            return _UNKNOWN
    children = list(_held(owner, "_modules").items()) if isinstance(key, int | str) else []
    if isinstance(key, int) and -len(children) <= key < len(children):
        return children[key][1]
    return dict(children).get(key, _UNKNOWN)


def _held(owner: Any, *kinds: str) -> dict[str, Any]:
    """Return what an object holds by name: of a module its parameters, buffers and children before anything else."""
    own = getattr(owner, "__dict__", {})
    found: dict[str, Any] = {}
    for kind in kinds or ("_parameters", "_buffers", "_modules"):
        found |= own.get(kind) or {}
    return found if kinds else {**found, **own}


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


def _is_run(value: Any) -> bool:
    if not type(value).__module__.startswith("tensormagic."):  # before there is one, nothing is imported to look for it
        return False
    from tensormagic.reports import TraceReport

    return isinstance(value, TraceReport | api.Trace)


# where that is not a tensor
_WANTED: dict[str, Callable[[Any], bool]] = {
    "compare": _is_run,
    "model": lambda value: hasattr(type(value), "named_modules"),
}


def _matcher(shell: Any) -> Callable[[Any], Any] | None:
    """Return what completes the same for IPython 8.6 and later; None for an older one, see `_without_jedi`.

    Beside what the hook gives, such a one lists jedi's: after ``--`` every name there is, as in ``--x``. Right behind a
    dot the names come without what precedes it: JupyterLab keeps their order only where there is no text to match.
    """
    try:
        from IPython.core.completer import SimpleCompletion, context_matcher
    except ImportError:
        return None

    def tensormagic_matcher(context: Any) -> dict[str, Any]:
        found, token = _completed(shell, context), context.token
        owner = token if token.endswith(".") else ""
        completions = [SimpleCompletion(text=text.removeprefix(owner), type="magic") for text in found]
        fragment = token.removeprefix(owner)
        return {"completions": completions, "suppress": bool(found), "ordered": True, "matched_fragment": fragment}

    made: Callable[[Any], Any] = context_matcher()(tensormagic_matcher)
    return made


def _completed(shell: Any, context: Any) -> list[str]:
    line, before = str(context.line_with_cursor), str(context.text_until_cursor)
    command = (before.split() or [""])[0]
    if command not in {*commands(), _SWITCHING} or not before.lstrip().startswith(f"{command} "):
        return []
    event = SimpleNamespace(line=line, symbol=context.token, command=command, text_until_cursor=before)
    return (_complete_switch if command == _SWITCHING else _complete)(shell, event)


def _without_jedi(shell: Any) -> None:
    """Keep an IPython before 8.6 from listing jedi's before what the hook gives."""
    completer = shell.Completer
    ask_jedi = completer._jedi_matches  # noqa: SLF001  (such a one has no other place for it, and does not change)

    def jedi_matches(cursor_column: int, cursor_line: int, text: str) -> Iterable[Any]:
        line = completer.line_buffer
        token = completer.splitter.split_line(line, cursor_column)
        context = SimpleNamespace(line_with_cursor=line, text_until_cursor=completer.text_until_cursor, token=token)
        return () if _completed(shell, context) else ask_jedi(cursor_column, cursor_line, text)

    completer._jedi_matches = jedi_matches  # noqa: SLF001  (likewise)


def install(shell: Any) -> Callable[[], None]:
    """Complete tensor names and options after the magics; returns what undoes it."""
    had = "complete_command" in shell.strdispatchers
    for command in commands():
        shell.set_hook("complete_command", _complete, str_key=command)
    shell.set_hook("complete_command", _complete_switch, str_key=_SWITCHING)
    matcher, matchers = _matcher(shell), getattr(shell.Completer, "custom_matchers", [])
    if matcher is not None:
        matchers.append(matcher)
    else:
        _without_jedi(shell)

    def undo() -> None:
        if matcher in matchers:
            matchers.remove(matcher)
        if matcher is None:
            del shell.Completer._jedi_matches  # noqa: SLF001  (that of the class stands behind it)
        strings = shell.strdispatchers["complete_command"].strs
        for command in (*commands(), _SWITCHING):
            strings.pop(command, None)
        if not had:
            del shell.strdispatchers["complete_command"]

    return undo
