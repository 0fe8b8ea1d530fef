"""Layouts that torch keeps for a library: the numbers lie in an order that only the library knows."""

from __future__ import annotations

from typing import Any

import torch

from tensormagic.collectors.kinds.kind import Description, Kind, copied
from tensormagic.reports import Fact
from tensormagic.words import count, number_of_bytes, plural


def _describe(x: Any) -> Description:
    return Description(
        label="oneDNN (mkldnn)",
        summary="Stored in oneDNN's own layout: there is no storage and no stride to show.",
        facts=(
            Fact("elements", count(x.numel()), f"{number_of_bytes(x.numel() * x.element_size())} as a strided tensor"),
            Fact("to get strides", "x.to_dense()", "makes a strided copy"),
        ),
        values=copied(x, torch.Tensor.to_dense, f"the {plural(x.numel(), 'value')} of a strided copy"),
    )


KINDS = (Kind("mkldnn", lambda x: bool(x.is_mkldnn), _describe),)
