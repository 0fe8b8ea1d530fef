"""Other people's tensor classes: with memory of their own, or wrapped around other tensors.

Their code is not run where that can be avoided: inner tensors are read from the instance's dictionary; only where it
has none is ``__tensor_flatten__`` asked, which is made for that and is not allowed to change anything.
"""

from __future__ import annotations

from typing import Any

import torch

from tensormagic.collectors.geometry.storage import Memory
from tensormagic.collectors.kinds.kind import MOST_NAMED, Description, Kind, Part, Values, overrides
from tensormagic.reports import Fact
from tensormagic.words import plural, tuple_text


def dispatches(x: Any) -> bool:
    """Return whether operations on this tensor run Python code of its class."""
    for cls in type(x).__mro__:
        if "__torch_dispatch__" in cls.__dict__:
            return cls is not torch.Tensor and cls.__dict__["__torch_dispatch__"] is not _disabled()
    return False


def _disabled() -> object:
    return torch._C._disabled_torch_dispatch_impl


def has_memory(x: Any) -> bool:
    """Return whether there is memory behind a tensor's storage, so that it can be read as a plain tensor."""
    try:
        return Memory.of(x).address != 0
    except (RuntimeError, NotImplementedError):
        return False


def plain_view(x: torch.Tensor) -> torch.Tensor:
    """Return a plain tensor over the same memory, without running any code of the tensor's class."""
    with torch._C._DisableTorchDispatch():
        return x.detach()


def _is_wrapper(x: Any) -> bool:
    return dispatches(x) and not has_memory(x)


def _describe_wrapper(x: Any) -> Description:
    inner = inner_tensors(x)
    one = inner[0][1] if len(inner) == 1 and inner[0][1].layout == torch.strided else None
    held = f" around {plural(len(inner), 'inner tensor')}" if inner else "; no inner tensor was found in it"
    return Description(
        label="wrapper subclass",
        summary=f"{type(x).__name__} has no memory of its own: its __torch_dispatch__ implements it{held}.",
        facts=(
            *_class_facts(x),
            Fact(
                "looks like",
                tuple_text(x.shape),
                f"{str(x.dtype).removeprefix('torch.')} on {x.device}, as it says itself",
            ),
            Fact("inner tensors", ", ".join(name for name, _ in inner[:MOST_NAMED]) or "none found"),
        ),
        parts=tuple(Part(f".{name}", "an inner tensor", item) for name, item in inner[:MOST_NAMED]),
        values=Values(one, f"the {plural(one.numel(), 'value')} of its inner tensor {inner[0][0]}")
        if one is not None
        else None,
        no_values=""
        if one is not None
        else "only its class knows its elements, and that code is not run to inspect them",
    )


def inner_tensors(x: Any) -> list[tuple[str, torch.Tensor]]:
    """Return the tensors that an instance holds, by attribute."""
    found = [(name, item) for name, item in _dictionary(x).items() if torch.Tensor in type(item).__mro__]
    return found or _flattened(x)


def _dictionary(x: Any) -> dict[str, Any]:
    try:
        return dict(object.__getattribute__(x, "__dict__"))
    except AttributeError:
        return {}


def _flattened(x: Any) -> list[tuple[str, torch.Tensor]]:
    if not overrides(x, "__tensor_flatten__"):
        return []
    try:
        names, _ = x.__tensor_flatten__()
        found = [(str(name), getattr(x, name)) for name in names]
    except Exception:  # its class's own code: whatever it raises, there is nothing to show then
        return []
    return [(name, item) for name, item in found if torch.Tensor in type(item).__mro__]


def _class_facts(x: Any) -> tuple[Fact, ...]:
    own = [
        name
        for name in ("__torch_function__", "__torch_dispatch__", "__tensor_flatten__", "__repr__")
        if overrides(x, name)
    ]
    cls = type(x)
    return (
        Fact("class", f"{cls.__module__}.{cls.__qualname__}"),
        Fact("overrides", ", ".join(own) or "nothing", "not called to show this panel" if own else ""),
    )


def _is_subclass(x: Any) -> bool:
    return overrides(x, "__torch_function__") or dispatches(x)


def _describe_subclass(x: Any) -> Description:
    hook = "__torch_dispatch__" if dispatches(x) else "__torch_function__"
    return Description(
        label="tensor subclass",
        summary=f"{type(x).__name__} is a tensor with memory of its own whose operations go through its {hook}.",
        facts=_class_facts(x),
    )


KINDS = (
    Kind("wrapper_subclass", _is_wrapper, _describe_wrapper, printable=False),
    Kind("subclass", _is_subclass, _describe_subclass, strided=True),
)
