"""Objects that raise when they are asked for one thing, for each thing and each kind of object in turn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

ASKED = (
    "__getattribute__", "__getattr__", "__class__", "__dict__", "__len__", "__iter__", "__eq__", "__hash__", "__bool__",
    "__repr__", "__str__", "__getitem__", "__contains__", "__int__", "__float__", "__index__", "__array__",
    "__array_interface__", "__call__", "__dir__", "__sizeof__", "__reduce__", "__format__", "__instancecheck__",
    "__doc__", "__name__", "__wrapped__", "__self__", "__closure__", "__code__", "__buffer__", "__dlpack__",
    "__fspath__", "__torch_function__", "_ipython_display_", "_repr_html_", "_repr_mimebundle_",
    "_ipython_canary_method_should_not_exist_", "shape", "dtype", "device", "layout", "grad", "grad_fn", "_base",
    "requires_grad", "is_leaf", "data", "items", "values", "keys", "param_groups", "state", "parameters", "children",
    "modules", "named_parameters", "named_modules", "get_state", "bit_generator", "_modules", "_parameters",
    "_buffers", "training", "untyped_storage", "data_ptr", "stride", "storage_offset", "numel",
)  # fmt: skip
_NO_PROPERTIES = {"__getattribute__", "__getattr__"}
KINDS = (object, list, tuple, set, dict, type, nn.Module, torch.Tensor, np.ndarray, torch.optim.SGD)


class RefusedError(Exception):
    """What all of them raise."""


def _refusing(name: str) -> Any:
    def refuse(*_: Any, **__: Any) -> Any:
        raise RefusedError(name)

    return refuse


def _made(kind: type, name: str, *, as_property: bool) -> Any:
    body = {name: property(_refusing(name)) if as_property else _refusing(name)}
    if name == "__dict__" and not as_property:
        body = {"__module__": 7}  # a class need not say in words where it is from
    odd: Any = type("Odd", (kind,), body)
    if kind is torch.Tensor:
        return torch.Tensor._make_subclass(odd, torch.ones(3))
    if kind is np.ndarray:
        return np.ones(3).view(odd)
    if kind is torch.optim.SGD:
        return odd([nn.Parameter(torch.ones(2))], lr=0.1)
    if kind is type:
        return odd("Made", (), {})
    made = odd([1, 2]) if kind in {list, tuple, set} else odd(a=torch.ones(2)) if kind is dict else odd()
    if kind is nn.Module:
        made.weight, made.inner = nn.Parameter(torch.ones(2)), nn.Linear(2, 2)
    return made


def raising(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the objects of one kind that can be made, and what each raises at."""
    for name in ASKED:
        for as_property in (False, True):
            if not as_property or name not in _NO_PROPERTIES:
                try:
                    made = _made(kind, name, as_property=as_property)
                except Exception:  # Python or torch needs it itself
                    continue
                yield f"{name.strip('_')}_{int(as_property)}", made
