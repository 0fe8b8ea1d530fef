"""Where a session's references begin: the person's names, IPython's history of outputs, the last error.

A root is one thing that a person can let go of, with every place in which the session refers to it: of one output that
are ``Out[5]``, ``_5``, for a while ``_``, and copies that IPython keeps in places of its own. All are dictionaries, so
that a place is a dictionary and a key: the same list serves to count the references and to drop them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tensormagic.collectors.objects.holdings import attributes_of
from tensormagic.collectors.objects.namespace import is_shells
from tensormagic.reports.memory import ReleaseKind

Place = tuple[dict[Any, Any], Any]
DROP_ALL = "%gpumem --free --yes"
_UNDERSCORES = ("_", "__", "___")
_NUMBERED = re.compile(r"_\d+")
_ERROR_NAMES = ("last_exc", "last_value", "last_traceback", "last_type")

_ATTRIBUTES = frozenset({"result", "error_in_exec", "error_before_exec", "tb"})


@dataclass(slots=True)
class Root:
    """One thing that can be let go of.

    Attributes:
        label: What to call it.
        kind: What sort of root it is; None for what nobody is to let go of.
        places: Where the session refers to it.
        code: What lets go of it.
    """

    label: str
    kind: ReleaseKind | None
    places: list[Place] = field(default_factory=list)
    code: str = ""

    def values(self) -> Iterator[Any]:
        """Yield what lies in its places, as often as it does."""
        for mapping, key in self.places:
            if key in mapping:
                yield mapping[key]

    def drop(self) -> None:
        """Let go of it, as IPython itself does when it clears its outputs."""
        for mapping, key in self.places:
            if key in _UNDERSCORES:
                mapping[key] = ""
            elif key in _ATTRIBUTES:
                mapping[key] = None
            else:
                mapping.pop(key, None)


def session_roots(namespace: Mapping[str, Any]) -> list[Root]:
    """Return everything that a session's references begin at: names first, then outputs, then the last error."""
    shell = shell_of(namespace)
    outputs = _outputs(namespace, shell)
    taken = {id(value) for root in outputs for value in root.values()}
    roots = [_of_name(namespace, name) for name in list(namespace) if not _is_output(namespace, name, taken)]
    error = _last_error(shell)
    return [*roots, *outputs, *([error] if error.places else [])]


def shell_of(namespace: Mapping[str, Any]) -> Any:
    """Return the IPython shell whose namespace this is, or None."""
    return getattr(namespace.get("get_ipython"), "__self__", None)


def _of_name(namespace: Mapping[str, Any], name: str) -> Root:
    own = name == "Out" or is_shells(name)
    places: list[Place] = [(namespace, name)] if isinstance(namespace, dict) else []
    return Root(name, None if own else "name", places, "" if own else f"del {name}")


def _is_output(namespace: Mapping[str, Any], name: str, taken: set[int]) -> bool:
    """Return whether a name is one that IPython gave to an output: the person may use ``_`` for something else."""
    return (name in _UNDERSCORES or _NUMBERED.fullmatch(name) is not None) and id(namespace[name]) in taken


def _outputs(namespace: Mapping[str, Any], shell: Any) -> list[Root]:
    """Return the outputs that the history keeps, each once, by their numbers."""
    history: Any = namespace.get("_oh")
    hook = attributes_of(getattr(shell, "displayhook", None))
    found: dict[int, Root] = {}
    for number, value in list(history.items()) if type(history) is dict else []:
        root = found.setdefault(id(value), Root("", "history"))
        root.label += f"{', ' if root.label else ''}Out[{number}]"
        root.code = root.code or _dropping(namespace, number, value)
        root.places.append((history, number))
    for name in _UNDERSCORES:
        if name in hook and hook[name] is not history:
            found.setdefault(id(hook[name]), Root(name, "history", code=DROP_ALL)).places.append((hook, name))
    for mapping in (namespace, getattr(shell, "user_ns_hidden", None)):
        if type(mapping) is dict:
            _add_aliases(mapping, found)
    result = attributes_of(getattr(shell, "last_execution_result", None))
    if id(result.get("result")) in found:
        found[id(result["result"])].places.append((result, "result"))
    return list(found.values())


def _dropping(namespace: Mapping[str, Any], number: Any, value: Any) -> str:
    return f"%xdel _{number}" if namespace.get(f"_{number}") is value else f"Out.pop({number!r})"


def _add_aliases(mapping: dict[str, Any], found: dict[int, Root]) -> None:
    for name, value in list(mapping.items()):
        if id(value) in found and (name in _UNDERSCORES or _NUMBERED.fullmatch(name)):
            found[id(value)].places.append((mapping, name))


def _last_error(shell: Any) -> Root:
    system = attributes_of(sys)
    result = attributes_of(getattr(shell, "last_execution_result", None))
    shown = attributes_of(getattr(shell, "InteractiveTB", None))
    places: list[Place] = [(system, name) for name in _ERROR_NAMES if system.get(name) is not None]
    places += [(result, name) for name in ("error_in_exec", "error_before_exec") if result.get(name) is not None]
    places += [(shown, "tb")] if shown.get("tb") is not None else []
    error = next((value for mapping, name in places if isinstance(value := mapping[name], BaseException)), None)
    kind = f" ({type(error).__name__})" if error is not None else ""
    return Root(f"the last error{kind}", "traceback", places, DROP_ALL)
