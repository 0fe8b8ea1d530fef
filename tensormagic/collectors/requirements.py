"""What is required: a torch that is new enough, and a value that is a tensor. Judged without importing torch."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import metadata
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tensormagic.errors import RequirementError, TensorMagicError
from tensormagic.words import article, binding

if TYPE_CHECKING:
    import torch


OLDEST_TORCH, NEWEST_TORCH = (2, 10), (2, 15)  # that is needed, and that all magics were tried with
_NEEDED = ".".join(map(str, OLDEST_TORCH))


@cache
def require_torch() -> None:
    """Check that torch is there and new enough, once: reading what is installed takes ten milliseconds.

    Raises:
        RequirementError: says what was found, what is needed, and how to get it.
    """
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        raise RequirementError(
            f"tensormagic needs torch {_NEEDED} or newer, but found none: pip install torch"
        ) from None
    if numbers_of(version) < OLDEST_TORCH:
        raise RequirementError(
            f"tensormagic needs torch {_NEEDED} or newer, but found torch {version}: pip install --upgrade torch"
        )


def numbers_of(version: str) -> tuple[int, ...]:
    """Return the numbers of a version: ``2.11.0a0+git`` has 2, 11 and 0."""
    parts = version.split("+", maxsplit=1)[0].split(".")
    return tuple(int(digits[0]) for part in parts if (digits := re.match(r"\d+", part)))


def shows_widgets() -> bool:
    """Return whether a page shows this kernel's widgets: those of today show ipywidgets 8, and Colab shows 7."""
    try:
        return "COLAB_RELEASE_TAG" in os.environ or numbers_of(metadata.version("ipywidgets")) >= (8,)
    except metadata.PackageNotFoundError:
        return False


def torch_facts() -> dict[str, str]:
    """Return what torch says of itself and of the devices here; no device is started."""
    import torch

    if torch.version.cuda is None and torch.version.hip is None:
        cuda = "this torch was built without it"
    elif torch.cuda.is_available():
        cuda = ", ".join(torch.cuda.get_device_name(at) for at in range(torch.cuda.device_count()))
    else:
        cuda = "none: no device, or no driver for it"
    others = {"MPS": torch.backends.mps, "XPU": torch.xpu}
    there = {name: "there" if backend.is_available() else "none" for name, backend in others.items()}
    return {"threads": str(torch.get_num_threads()), "CUDA": cuda, **there}


def small_step() -> Callable[[], torch.Tensor]:
    """Return a function that makes one step of a small network, and returns the loss."""
    import torch
    from torch import nn

    net, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)), torch.ones(16, 4)

    def step() -> torch.Tensor:
        loss: torch.Tensor = net(x).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    return step


_ALL = "; tensors() lists all its tensors"


def why_not_a_tensor(value: Any, name: str) -> str:
    """Return why ``value`` cannot be shown as a tensor and what would work; empty where it is one."""
    if is_tensor(value) or is_array(value):
        return ""
    sentence = "is" if value is None and name == "None" else f"is {what(value)},"
    return f"{name} {sentence} not a tensor; {_instead(value, name)}"


def is_tensor(value: Any) -> bool:
    """Return whether ``value`` is a ``torch.Tensor``; torch need not be loaded."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_array(value: Any) -> bool:
    """Return whether ``value`` is a NumPy array; NumPy need not be loaded."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and numpy.ndarray in type(value).__mro__


def what(value: Any) -> str:
    """Return what something is, with its article: ``a list of 3``, ``an nn.ReLU``, ``None``."""
    if value is None:
        return "None"
    if isinstance(value, type | ModuleType):
        return "a class" if isinstance(value, type) else "a Python module"
    kind, of = type(value), f" of {len(value)}" if isinstance(value, list | tuple | dict | set) else ""
    if kind.__module__.startswith("torch.nn."):
        return f"an nn.{kind.__name__}{of}"
    home = _home(kind)
    return article(kind.__name__ if home in {"builtins", "__main__"} else f"{home}.{kind.__name__}") + of


def _home(kind: type) -> str:
    """Return the module that a user imports a class from: the outermost that has it, ``concurrent.futures``."""
    parts = kind.__module__.split(".")
    homes = (".".join(parts[:length]) for length in range(1, len(parts)))
    return next(
        (home for home in homes if getattr(sys.modules.get(home), "__dict__", {}).get(kind.__name__) is kind),
        kind.__module__,
    )


def require(given: Any, kind: type, call: str, takes: str) -> None:
    """Raise a TensorMagicError where a function was given what it does not take; says what it takes and was given."""
    if not isinstance(given, kind):
        raise TensorMagicError(f"{call} takes {takes}, but was given {what(given)}")


def require_name(name: Any, call: str) -> None:
    """Check that what a function was given as a name is text: a loss, say, is given by its own keyword."""
    require(name, str, call, "a name as text")


def require_names(given: Any, function: str) -> Mapping[str, Any]:
    """Return what a function was given as names and values; raises a TensorMagicError where it is no such mapping."""
    takes = 'names and their values, as in {"x": x}'
    require(given, Mapping, f"{function}()", takes)
    for name in list(given):
        require(name, str, f"{function}()", f"{takes}: a name is text")
    return given  # type: ignore[no-any-return]


def names_here(namespace: Any, function: str) -> Mapping[str, Any]:
    """Return the names that a public function was given, checked; by default the globals of whoever called it."""
    caller = sys._getframe(2)
    return caller.f_globals if namespace is None else require_names(namespace, function)


def _instead(value: Any, name: str) -> str:
    torch, subject = sys.modules.get("torch"), binding(name)
    if value is None and name.endswith(".grad"):
        return f"no backward has left a gradient in {name.removesuffix('.grad')} yet"
    if torch is not None and isinstance(value, torch.nn.Module):
        names = [path for path, _ in value.named_parameters()]
        many = f"one of its {len(names)} parameters{_ALL}" if len(names) > 1 else "its parameter"
        return f"{subject}.{names[0]} is {many}" if names else "it has no parameters to show"
    if torch is not None and isinstance(value, list | tuple | dict):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        if (key := next((key for key, item in items if isinstance(item, torch.Tensor)), None)) is not None:
            return f"{subject}[{key!r}] is one{_ALL}"
        numbers = not isinstance(value, dict) and all(isinstance(each, int | float | complex | list) for each in value)
        return f"torch.tensor({subject}) makes one" if numbers else "it holds none"
    made_by = (
        (type(value).__module__.startswith("numpy") and hasattr(value, "__array_interface__"),
         f"torch.as_tensor({name}) makes one"),
        (isinstance(value, int | float | complex), f"torch.tensor({name}) makes one"),
        (isinstance(value, Iterator), f"list({name}) collects its items and shows the tensors among them"),
        (callable(getattr(type(value), "to_numpy", None)),  # a table, a column or an index of pandas or polars
         f"torch.as_tensor({subject}.to_numpy()) makes one of numbers"),
        (True, "give an expression that makes a torch.Tensor"),
    )  # fmt: skip
    return next(way for is_so, way in made_by if is_so)
