"""Functional wrappers: what torch.compile uses to turn in-place operations into ones that return new tensors."""

from __future__ import annotations

from typing import Any

import torch

from tensormagic.collectors.kinds.kind import Description, Kind, Part, Values, has_class
from tensormagic.reports import Fact
from tensormagic.words import plural


def _is_functional(x: Any) -> bool:
    return _is_python_wrapper(x) or bool(torch._is_functional_tensor(x))


def _is_python_wrapper(x: Any) -> bool:
    return has_class(x, "torch._subclasses.functional_tensor", "FunctionalTensor")


def _describe(x: Any) -> Description:
    wrapped = object.__getattribute__(x, "__dict__")["elem"] if _is_python_wrapper(x) else x
    inside = torch._from_functional_tensor(wrapped)
    chain = ["FunctionalTensor (Python)"] if wrapped is not x else []
    return Description(
        label="functional wrapper",
        summary="Writes to it are recorded and later replayed on the tensor behind it, as torch.compile requires.",
        facts=(
            Fact("wrapped by", ", then ".join([*chain, "FunctionalTensorWrapper (C++)"])),
            Fact("writes recorded so far", "yes" if _was_written(wrapped) else "none"),
        ),
        parts=(Part(" behind its wrapper", "the tensor that holds the numbers, as of the last replay", inside),),
        values=Values(inside, f"the {plural(inside.numel(), 'value')} behind the wrapper, as of the last replay"),
    )


def _was_written(wrapped: torch.Tensor) -> bool:
    functions: Any = torch
    return bool(
        functions._functionalize_has_data_mutation(wrapped) or functions._functionalize_has_metadata_mutation(wrapped)
    )


KINDS = (Kind("functional", _is_functional, _describe, printable=False),)
