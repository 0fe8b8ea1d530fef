"""Tells what a call was given as plain data: of a tensor its shape and kind, of anything else a short text."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from types import BuiltinFunctionType, FunctionType
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.overrides import get_testing_overrides, resolve_name

from tensormagic.collectors.objects.holdings import is_kind
from tensormagic.collectors.objects.still_values import UNKNOWN
from tensormagic.collectors.quiet import answers_itself, numbers, quiet
from tensormagic.reports import Location, Operand

MOST_OPERANDS = 24
MOST_TEXT = 60
MOST_READ = 1 << 20  # numbers of which the least and the greatest are looked for
RETURN_TYPES = "torch.return_types"  # the module of the named tuples that torch's functions return
_SCALARS = (bool, int, float, complex, str, bytes, type(None), slice, type(...))
_PLAIN = (torch.dtype, torch.device, torch.memory_format, torch.layout)


class Argument(NamedTuple):
    """One argument of a call, or one item of a list among them.

    Attributes:
        role: The parameter's name; empty where it is not known.
        place: ``"tensors[1]"`` for an item of a list; else empty.
        value: What was given, or `UNKNOWN`.
        at: Its place among the positional arguments, or the keyword by which it was given.
        item: Its place in the list; None where it is no item.
    """

    role: str
    place: str
    value: Any
    at: int | str
    item: int | None = None


def arguments_of(func: Any, given: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Argument]:
    """Return the arguments of a call with their roles; a list of tensors is one argument a tensor."""
    roles = roles_of(func)
    found = []
    for at, value in enumerate(given):
        if roles and at < len(given) - 1 and _takes_rest(roles, at) and not has_tensor(given[at:]):
            found.append(Argument(roles[at], "", given[at:], at))  # x.view(3, 4)
            break
        found += _arguments(roles[at] if at < len(roles) else "", value, at)
    for name, value in keywords.items():
        found += _arguments(name, value, name)
    return found


def _takes_rest(roles: tuple[str, ...], at: int) -> bool:
    """Return whether a parameter takes all arguments that follow: sizes, and the last one where there are more."""
    return at == len(roles) - 1 or (at < len(roles) and roles[at] == "size")


def _arguments(role: str, value: Any, index: int | str) -> Iterator[Argument]:
    if not has_tensor((value,)) or is_kind(value, torch.Tensor):
        yield Argument(role, "", value, index)
        return
    for at, item in enumerate(value):
        yield Argument(role, f"{role}[{at}]", item, index, at)


def has_tensor(values: Any) -> bool:
    """Return whether one of several values is a tensor, or a list or tuple with one in it."""
    return any(
        is_kind(value, torch.Tensor)
        or (type(value) in {list, tuple} and any(is_kind(item, torch.Tensor) for item in value))
        for value in values
    )


def is_plain(value: Any) -> bool:
    """Return whether something is a number, text, a dtype, or a list or tuple: its text says what it is."""
    return type(value) in {*_SCALARS, *_PLAIN, list, tuple, torch.Size}


def roles_of(func: Any) -> tuple[str, ...]:
    """Return the names of a function's positional parameters; none where they are not known."""
    try:
        described = get_testing_overrides().get(func)
        parameters = inspect.signature(described or func).parameters.values()
    except (TypeError, ValueError):  # no function, or one of C's that nobody describes
        return _schema_roles(getattr(func, "__name__", ""))
    roles = [each.name for each in parameters if each.kind in {each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD}]
    return tuple(role for role in roles if role != "out")


@cache
def _schema_roles(name: str) -> tuple[str, ...]:
    schemas = torch._C._jit_get_schemas_for_operator(f"aten::{name}") if name else []
    return tuple(argument.name for argument in schemas[0].arguments if not argument.is_out) if schemas else ()


def function_name(func: Any) -> str:
    """Return what a person calls a function of torch's: ``"torch.mm"``, ``"Tensor.view"``; empty for no function."""
    try:
        told = resolve_name(func)
    except Exception:  # what cannot be looked up has no other name
        told = None
    name = getattr(func, "__name__", "")
    if told:
        return _plain_name(_first_name(func, str(told), name))
    if not name or getattr(func, "__module__", "") == "builtins":
        return str(name)
    for home, prefix in ((torch, "torch"), (nn.functional, "torch.nn.functional"), (torch.Tensor, "Tensor")):
        if hasattr(home, name):
            return f"{prefix}.{name}"
    return f"{func.__module__}.{name}"


def _first_name(func: Any, told: str, name: str) -> str:
    """Return the name that a function itself has where it is told by another: ``torch.spmm`` is ``torch.mm``."""
    home = told.rpartition(".")[0]
    space = {"torch": torch, "torch.nn.functional": nn.functional, "torch.Tensor": torch.Tensor}.get(home)
    return f"{home}.{name}" if space is not None and getattr(space, name, None) is func else told


def _plain_name(told: str) -> str:
    name = (
        told.replace("torch.functional.", "torch.")
        .removesuffix(".__get__")
        .removesuffix(".__set__")
        .removesuffix(".__delete__")
    )
    return name.removeprefix("torch.") if name.startswith("torch.Tensor.") else name


def operand_of(argument: Argument, name: str, made_at: Callable[[Any], Location | None]) -> Operand:
    """Return an argument as plain data. Never raises: what cannot be read is left out.

    Args:
        argument: The argument.
        name: What the person calls it.
        made_at: Gives the line that made a tensor.
    """
    value, role, place = argument.value, argument.role, argument.place
    try:
        with quiet():
            if is_kind(value, torch.Tensor):
                return replace(_tensor(value, name, role, place), location=made_at(value))
            return Operand(name=name, role=role, place=place, is_tensor=False, **_other(value))
    except Exception as error:
        return Operand(name=name, role=role, place=place, is_tensor=False, text=f"unreadable: {type(error).__name__}")


def _tensor(value: torch.Tensor, name: str, role: str, place: str) -> Operand:
    nested = value.is_nested
    strided = value.layout == torch.strided and not nested
    least, most = _range(value) if strided else (None, None)
    return Operand(
        name=name, role=role, place=place, shape=() if nested else _sizes(value.shape),
        dtype=_bare(value.dtype), device=str(value.device), stride=_sizes(value.stride()) if strided else (),
        layout="nested" if nested else _bare(value.layout),
        requires_grad=bool(value.requires_grad), is_leaf=bool(value.is_leaf), least=least, most=most,
    )  # fmt: skip


def _range(value: torch.Tensor) -> tuple[float, float] | tuple[None, None]:
    """Return the least and the greatest of numbers that can be read at once: an index, classes, probabilities."""
    if value.is_complex() or not value.is_cpu or not 0 < value.numel() <= MOST_READ or answers_itself(value):
        return None, None
    try:
        least, most = map(float, torch.aminmax(value))
    except (RuntimeError, NotImplementedError):  # of a kind without an order
        return None, None
    return (least, most) if math.isfinite(least) and math.isfinite(most) else (None, None)


def _sizes(sizes: Any) -> tuple[int, ...]:
    return numbers(sizes)


def _bare(value: Any) -> str:
    return str(value).removeprefix("torch.")


def _other(value: Any) -> dict[str, Any]:
    """Return the fields of something that is no tensor."""
    if value is UNKNOWN:
        return {"text": ""}
    if is_kind(value, torch.Generator):
        return {"text": "torch.Generator", "device": str(value.device)}
    if "numpy.ndarray" in {f"{kind.__module__}.{kind.__name__}" for kind in type(value).__mro__}:
        return {"text": "numpy array", "shape": _sizes(value.shape), "dtype": str(value.dtype)}
    return {"text": short_text(value)}


def short_text(value: Any, depth: int = 2) -> str:
    """Return something as one would write it, shortened, without running any of the person's code."""
    kind = type(value)
    if kind in _SCALARS or kind in _PLAIN:
        text = repr(value)
    elif kind.__module__ == RETURN_TYPES:
        text = f"{RETURN_TYPES}.{kind.__name__}({', '.join(kind.__match_args__)})"
    elif is_kind(value, torch.Size) or kind in {list, tuple}:
        opening, closing = ("[", "]") if kind is list else ("(", ")")
        items = [short_text(item, depth - 1) for item in value[:MOST_OPERANDS]] if depth else ["…"]
        text = f"{opening}{', '.join(items)}{',' if len(items) == 1 and kind is not list else ''}{closing}"
    elif is_kind(value, torch.Tensor):
        text = f"tensor {tuple(value.shape)}"
    elif is_kind(value, type, FunctionType, BuiltinFunctionType):
        text = value.__name__
    else:
        text = f"{'an' if kind.__name__[:1] in 'aeiouAEIOU' else 'a'} {kind.__name__}"
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 1]}…"
