"""Tensor classes as other people write them: with memory or without, and none wants its code to be called."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

CALLS: list[str] = []  # what was called although nobody may: looking swallows errors, so that raising is not enough


class CalledError(AssertionError):
    """Code of a tensor's class was run only to show it."""

    def __init__(self, what: object) -> None:
        """Note what was called."""
        CALLS.append(str(what))
        super().__init__(what)


class Loud(torch.Tensor):
    """A subclass none of whose functions may be called."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Refuse."""
        raise CalledError(func)

    def __repr__(self, **_: Any) -> str:
        """Refuse."""
        raise CalledError("repr")


class Forbidding(torch.Tensor):
    """A subclass with memory of its own, none of whose operations may be dispatched."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Refuse."""
        raise CalledError(func)


class Wrapper(Forbidding):
    """A tensor without memory, around those it is given by name."""

    @staticmethod
    def __new__(cls, **inner: torch.Tensor) -> Any:
        """Make one that looks like three float32 numbers."""
        made = torch.Tensor._make_wrapper_subclass(cls, (3,), dtype=torch.float32)
        for name, item in inner.items():
            setattr(made, name, item)
        return made

    def __init__(self, **_: torch.Tensor) -> None:
        """Do nothing more."""


class Slotted(Forbidding):
    """A wrapper that tells its inner tensor through ``__tensor_flatten__`` alone."""

    __slots__ = ("hidden",)

    @staticmethod
    def __new__(cls, hidden: torch.Tensor) -> Any:
        """Make one around a tensor."""
        made = torch.Tensor._make_wrapper_subclass(cls, (3,), dtype=torch.float32)
        made.hidden = hidden
        return made

    def __init__(self, _: torch.Tensor) -> None:
        """Do nothing more."""

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        """Name the inner tensor."""
        return ["hidden"], None


class Rude(np.ndarray):
    """An array whose every display raises."""

    def __repr__(self) -> str:
        """Refuse."""
        raise CalledError("repr")

    def __getitem__(self, _: Any) -> Any:
        """Refuse."""
        raise CalledError("getitem")


def loud() -> torch.Tensor:
    """Return a subclass that overrides ``__torch_function__``."""
    return torch.Tensor._make_subclass(Loud, torch.tensor([1.0, 42.0]))


def forbidding() -> torch.Tensor:
    """Return a subclass with memory that overrides ``__torch_dispatch__``."""
    return torch.Tensor._make_subclass(Forbidding, torch.tensor([1.0, 43.0]))


def pair() -> torch.Tensor:
    """Return a wrapper around two tensors."""
    return Wrapper(left=torch.ones(3), right=torch.zeros(3))


def single() -> torch.Tensor:
    """Return a wrapper around one tensor."""
    return Wrapper(only=torch.tensor([2.0, 4.0, 8.0]))


def slotted() -> torch.Tensor:
    """Return a wrapper without a dictionary of its own attributes to look into."""
    return Slotted(torch.ones(3))


def hollow() -> torch.Tensor:
    """Return a wrapper around nothing that can be found."""
    return Wrapper()


def rude() -> np.ndarray:
    """Return an array of a class that must not be called."""
    return np.arange(3.0).view(Rude)
