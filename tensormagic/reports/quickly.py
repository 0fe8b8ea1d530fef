"""Makes frozen records in a quarter of the time: a graph of a hundred thousand nodes has half a million of them.

The ``__init__`` of a frozen dataclass goes through ``object.__setattr__`` for every field. One that is not frozen
stores them directly; where both have the same slots, a record may be made as the one and become the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, field, fields, make_dataclass
from typing import Any, TypeVar

Record = TypeVar("Record")


def quickly(cls: type[Record]) -> Callable[..., Record]:
    """Return what makes records of a frozen, slotted dataclass that derives from no other, and is called as it is."""

    def become(self: Any) -> None:
        self.__class__ = cls

    own = [(each.name, Any, _as_given(each)) for each in fields(cls)]  # type: ignore[arg-type]
    return make_dataclass(cls.__name__, own, slots=True, namespace={"__post_init__": become})


def _as_given(each: Field[Any]) -> Any:
    return field(default=each.default, default_factory=each.default_factory)
