"""Turns report dataclasses into JSON-ready dictionaries and back, from their type hints alone.

JSON has no NaN and no infinities, and a report must keep them apart from each other and from "nothing":
non-finite floats travel as ``{"float": "nan"}``, ``"inf"`` or ``"-inf"``, which no text can be mistaken for. Packed
arrays travel as lists.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from array import array
from contextlib import suppress
from functools import cache
from typing import Any

from tensormagic.errors import ReportFormatError

_FLOAT = "float"
_PLAIN = {str: "text", int: "a whole number", bool: "true or false"}
# Fields that were called otherwise in files saved before 0.1.0: the name of today, and the older one.
RENAMED = {
    "first_nonfinite": "births",
    "losses_without_graph": "rootless",
    "swallowed_errors": "caught",
    "silent_errors": "quiet",
    "unknown_parameters": "strangers",
    "unknown_shapes": "stranger_shapes",
    "unknown_idle": "strangers_idle",
    "unknown_owner": "strangers_of",
    "last_norms": "standing",
    "unregistered_tensors": "loose",
    "unregistered_modules": "hidden",
}
_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def encode(value: Any) -> Any:
    """Return ``value`` as JSON-ready plain data: dictionaries, lists, strings, numbers, booleans, None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else {_FLOAT: str(value)}
    if value is None or isinstance(value, bool | int | str):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, tuple | list | array):
        return [encode(item) for item in value]
    raise ReportFormatError(f"a report holds plain data only, but here is a {type(value).__name__}: {value!r:.80}")


def decode(data: Any, hint: Any) -> Any:
    """Build the value that ``hint`` describes from JSON-ready ``data``; the inverse of `encode`.

    Raises:
        ReportFormatError: where ``data`` does not have the shape that ``hint`` asks for.
    """
    try:
        return _decode(data, hint)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        name = getattr(hint, "__name__", str(hint))
        raise ReportFormatError(f"this is not a saved {name}: {type(error).__name__}: {error!s:.200}") from error


def _decode(data: Any, hint: Any) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in {typing.Union, types.UnionType}:
        return _decode_union(data, arguments)
    if origin is tuple:
        return _decode_tuple(data, arguments)
    if origin is dict:
        return {key: _decode(item, arguments[1]) for key, item in data.items()}
    if hint is array:
        return array("f", [_decode_float(item) for item in data])
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _decode_dataclass(data, hint)
    return _decode_float(data) if hint is float else _decode_plain(data, hint)


def _decode_plain(data: Any, hint: Any) -> Any:
    """Return text, whole numbers, booleans and words of a fixed list, where they are what they should be."""
    if hint in _PLAIN and type(data) is not hint:
        raise TypeError(f"expected {_PLAIN[hint]}, but here is {data!r:.80}")
    if hint is int and abs(data) >> 64:
        raise ValueError("a whole number of more than 64 bits")
    if typing.get_origin(hint) is typing.Literal and data not in typing.get_args(hint):
        raise ValueError(f"expected one of {typing.get_args(hint)}, but here is {data!r:.80}")
    return data


def _decode_float(data: Any) -> float:
    if isinstance(data, dict):
        return _NON_FINITE[data[_FLOAT]]
    if type(data) not in {int, float}:
        raise TypeError(f"expected a number, but here is {data!r:.80}")
    return float(data)


def _decode_union(data: Any, arguments: tuple[Any, ...]) -> Any:
    if data is None and type(None) in arguments:
        return None
    candidates = [argument for argument in arguments if argument is not type(None)]
    if len(candidates) == 1:
        return _decode(data, candidates[0])
    if type(data) in candidates:
        return _decode(data, type(data))
    if float in candidates:
        return _decode_float(data)
    for candidate in candidates:
        with suppress(TypeError, ValueError, KeyError, AttributeError):
            return _decode(data, candidate)
    raise TypeError(f"expected {' or '.join(map(str, candidates))}, but here is {data!r:.80}")


def _decode_tuple(data: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return tuple(_decode(item, arguments[0]) for item in data)
    return tuple(_decode(item, hint) for item, hint in zip(data, arguments, strict=True))


def _decode_dataclass(data: Any, cls: type) -> Any:
    hints = _hints(cls)
    given = {name: name if name in data else RENAMED.get(name, name) for name in hints}
    return cls(**{name: _decode(data[given[name]], hint) for name, hint in hints.items() if given[name] in data})


@cache
def _hints(cls: type) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}
