"""Tells the cell of each line in a report: what collects without a notebook knows files alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from tensormagic.reports.finding import Location

AnyData = TypeVar("AnyData")


def with_cells(data: AnyData, cell_number: Callable[[str], int | None]) -> AnyData:
    """Return plain data with the cell's number in every `Location` that has none; what does not change is kept.

    Args:
        data: A report, or a part of one.
        cell_number: Gives a cell's execution count from its file name, or None.
    """
    told: AnyData = _told(data, cell_number)
    return told


def _told(data: Any, cell_number: Callable[[str], int | None]) -> Any:
    if isinstance(data, Location):
        number = cell_number(data.filename) if data.cell is None else None
        return data if number is None else replace(data, cell=number)
    if type(data) is tuple:
        made = tuple(_told(item, cell_number) for item in data)
        return made if any(one is not other for one, other in zip(made, data, strict=True)) else data
    if not is_dataclass(data) or isinstance(data, type):
        return data
    every = ((field.name, getattr(data, field.name)) for field in fields(data))
    changed = {name: made for name, value in every if (made := _told(value, cell_number)) is not value}
    return replace(data, **changed) if changed else data
