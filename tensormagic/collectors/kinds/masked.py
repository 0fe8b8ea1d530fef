"""MaskedTensor: data and a mask that says which of its elements count."""

from __future__ import annotations

from typing import Any

import torch

from tensormagic.collectors.kinds.kind import Description, Kind, Part, copied, has_class
from tensormagic.reports import Fact
from tensormagic.words import count, percent, plural


def _is_masked(x: Any) -> bool:
    return has_class(x, "torch.masked", "MaskedTensor")


def _describe(x: Any) -> Description:
    attributes: dict[str, Any] = object.__getattribute__(x, "__dict__")
    data, mask = attributes["_masked_data"], attributes["_masked_mask"]
    parts = (
        Part(".get_data()", "the values of all elements, masked ones included", data),
        Part(".get_mask()", "True where an element counts", mask),
    )
    if data.layout != torch.strided:
        return Description("masked tensor", "Data and mask, both sparse.", parts=parts)
    valid = int(mask.expand_as(data).sum())
    return Description(
        label="masked tensor",
        summary=f"{count(valid)} of {plural(data.numel(), 'element')} count; the others are ignored.",
        facts=(
            Fact("valid", count(valid), percent(valid, data.numel())),
            Fact("masked out", count(data.numel() - valid), "printed as --, left out by its reductions"),
        ),
        parts=parts,
        values=copied(data, lambda every: every[mask.expand_as(every)], f"the {plural(valid, 'element')} that count"),
    )


KINDS = (Kind("masked", _is_masked, _describe, printable=False),)  # its detach() warns each time
