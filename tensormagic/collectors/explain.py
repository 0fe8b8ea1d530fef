"""Says what something is that is no tensor, and what to write instead. Imports torch only if it is loaded already."""

from __future__ import annotations

import sys
from typing import Any


def why_not_a_tensor(value: Any, name: str) -> str:
    """Return why ``value`` cannot be shown as a tensor and what would work; empty where it is one."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return ""
    return f"{name} is {_what(value)}, not a tensor; {_instead(value, name, torch)}"


def _what(value: Any) -> str:
    kind = type(value)
    title = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__.split('.')[0]}.{kind.__name__}"
    article = "an" if title[0] in "aeiouAEIOU" else "a"
    if value is None:
        return "None"
    if isinstance(value, list | tuple | dict | set):
        return f"{article} {title} of {len(value)}"
    return f"{article} {title}"


def _instead(value: Any, name: str, torch: Any) -> str:
    subject = name if name.isidentifier() else f"({name})"
    if torch is not None and isinstance(value, torch.nn.Module):
        return _of_module(value, subject)
    if type(value).__module__.startswith("numpy") and hasattr(value, "__array_interface__"):
        return f"torch.from_numpy({name}) is one, and shares the array's memory"
    if torch is not None and isinstance(value, list | tuple | dict):
        return _of_container(value, subject, torch)
    if isinstance(value, bool | int | float | complex):
        return f"torch.tensor({name}) makes one"
    return "give an expression that makes a torch.Tensor"


def _of_module(module: Any, subject: str) -> str:
    first = next((path for path, _ in module.named_parameters()), None)
    return f"its parameters are: {subject}.{first}" if first else "and it has no parameters to show"


def _of_container(value: Any, subject: str, torch: Any) -> str:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    key = next((key for key, item in items if isinstance(item, torch.Tensor)), None)
    if key is not None:
        return f"{subject}[{key!r}] is one"
    return f"torch.tensor({subject}) makes one" if isinstance(value, list | tuple) else "and holds none"
