"""Which calls end the gradient's way, told from the function alone: one look-up a call.

What a call is to the tracer is its role. Most have none; those are only timed and counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import torch

from tensormagic.reports.cuts import CutKind

GRAD_MODE: Final = "grad mode"
VALUELESS: Final = "valueless"  # the result does not depend on the values of what goes in
WRITTEN: Final = "written"  # the first argument holds something else afterwards
INTO: Final = "into"  # a part of the first argument is the last one afterwards
OVERWRITE: Final = "overwrite"  # and neither does what the first argument holds afterwards

CUTTING: dict[str, CutKind] = {
    **dict.fromkeys(("detach", "detach_"), "detach"),
    **dict.fromkeys(("item", "__float__", "__int__", "__index__", "__complex__"), "item"),
    **dict.fromkeys(("tolist", "numpy", "__array__"), "numpy"),
    **dict.fromkeys(("tensor", "asarray", "as_tensor", "new_tensor"), "copy"),
    **dict.fromkeys(("long", "int", "short", "char", "byte", "bool", "to", "type", "type_as"), "cast"),
    **dict.fromkeys(
        ("eq", "ne", "lt", "le", "gt", "ge", "greater", "greater_equal", "less", "less_equal", "not_equal", "isclose",
         "argmax", "argmin", "argsort", "multinomial", "bucketize", "searchsorted", "nonzero", "argwhere", "histc",
         "floor_divide", "__floordiv__", "__rfloordiv__", "logical_not", "signbit"),
        "non-differentiable",
    ),
}  # fmt: skip
_LIKE = ("zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "randint_like")
_NEW = ("new_zeros", "new_ones", "new_empty", "new_full", "new_empty_strided")
_FILLING = ("zero_", "fill_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_")
_SHOWN = {"__float__": "float", "__int__": "int", "__index__": "index", "__complex__": "complex"}


def _functions(names: Iterable[str]) -> Iterable[tuple[str, Any]]:
    """Yield each name with what bears it: the method of a tensor, and the function of torch."""
    for name in names:
        for owner in (torch.Tensor, torch):
            if callable(function := getattr(owner, name, None)) and not isinstance(function, type | torch.dtype):
                yield name, function


def _roles() -> dict[Any, str]:
    roles: dict[Any, str] = {function: CUTTING[name] for name, function in _functions(CUTTING)}
    roles |= dict.fromkeys((function for _, function in _functions((*_LIKE, *_NEW))), VALUELESS)
    roles |= dict.fromkeys((function for _, function in _functions(_FILLING)), OVERWRITE)
    tensor: Any = torch.Tensor
    roles |= {tensor.data.__get__: "data", tensor.grad.__get__: VALUELESS}
    roles |= {torch.Tensor.requires_grad_: "frozen", torch._C._set_grad_enabled: GRAD_MODE}
    roles |= {tensor.data.__set__: WRITTEN, torch.Tensor.__setitem__: INTO}
    return roles


ROLES: dict[Any, str] = _roles()


def op_label(function: Any, kind: str) -> str:
    """Return what was called, as a person knows it: ``detach``, ``.data``, ``float``, ``argmax``."""
    if kind == "data":
        return ".data"
    name = str(getattr(function, "__name__", kind))
    return _SHOWN.get(name, name)
