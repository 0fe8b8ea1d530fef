"""A tensor in one line: what ``%tensor x --line`` prints, and every print of a tensor while `set_repr` says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensormagic.collectors.objects import explain
from tensormagic.collectors.requirements import require_torch
from tensormagic.errors import NotATensorError, SettingError

REPRS = ("torch", "line")

_end: Callable[[], None] | None = None  # what ends that tensors are printed in one line; None while they are not


def tensor_lines(value: Any, name: str = "tensor") -> list[str]:
    """Return a line for a tensor or array, or for each of those that a collection, module or object holds.

    Args:
        value: What is looked at; it is neither changed nor kept.
        name: What to call it.

    Raises:
        NotATensorError: where there is no tensor in it.
    """
    require_torch()
    from tensormagic.collectors.objects.namespace import Walk, walk_arrays

    if explain.is_tensor(value) or explain.is_array(value):
        return [f"{name}: {_line(value)}"]
    found = [f"{label}: {_line(item)}" for label, item in walk_arrays(Walk({name: value}))]
    if not found:
        raise NotATensorError(explain.why_not_a_tensor(value, name) or f"{name} holds no tensor")
    return found


def _line(value: Any) -> str:
    from tensormagic.collectors.tensors.arrays import collect_array
    from tensormagic.collectors.tensors.tensor import collect_briefly
    from tensormagic.views.panels.tensor_line import line

    return line(collect_array(value) if explain.is_array(value) else collect_briefly(value))


def set_repr(kind: str) -> str:
    """Say how tensors are printed from now on; returns how they were until now.

    Args:
        kind: ``"line"``: in one line with shape, dtype, range, histogram, mean, NaN and Inf; ``"torch"``: as torch
            prints. A class that has a ``__repr__`` of its own keeps it.

    Raises:
        SettingError: for anything else.
        RequirementError: where torch is missing or too old.
    """
    if kind not in REPRS:
        raise SettingError(f"set_repr() takes {' or '.join(map(repr, REPRS))}, but was given {kind!r}")
    global _end  # noqa: PLW0603  (a setting of the session, as what is ignored is)
    before = "torch" if _end is None else "line"
    if kind == "torch" and _end is not None:
        _end()
        _end = None
    elif kind == "line" and _end is None:
        require_torch()
        from tensormagic.collectors.hooks.tensor_repr import print_with

        _end = print_with(_line)
    return before
