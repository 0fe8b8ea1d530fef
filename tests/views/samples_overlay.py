"""Overlay reports for renderers: one size of element, mixed sizes, too many to draw one by one, and what is apart."""

from __future__ import annotations

import torch

from tensormagic.collectors.aliasing.overlay import overlay
from tensormagic.reports import OverlayReport
from tests.reports.samples import overlay_report

MATRIX = torch.zeros(4, 6)
FLOATS = torch.zeros(6)
LARGE = torch.zeros(1000, 1000)

BYTES = torch.zeros(60, dtype=torch.int8).untyped_storage()

SAMPLES: dict[str, OverlayReport] = {
    "views": overlay(
        {
            "a": MATRIX,
            "x": MATRIX.t()[1:5, ::2],
            "y": MATRIX.t()[1:5, 1::2],
            "e": MATRIX[2].expand(3, 6),
            "n": MATRIX.numpy()[::-1],
            "c": MATRIX.clone(),
        }
    ),
    "bytes": overlay({"f": FLOATS, "b": FLOATS.view(torch.int8)[3:9], "h": FLOATS.view(torch.float16)[1::2]}),
    "large": overlay({"even": LARGE[:, ::2], "odd": LARGE[:, 1::2], "row": LARGE[500]}),
    "apart": overlay({"f": FLOATS, "m": MATRIX}),
    "eight": overlay({f"a_long_name_of_a_tensor_{at}": LARGE[at::2, at:] for at in range(8)}),
    "eight_small": overlay(
        {f"a_long_name_of_a_tensor_{at}": torch.zeros(60, dtype=torch.int8).set_(BYTES, 0, (60,)) for at in range(8)}
    ),
    "no_memory": overlay({"s": MATRIX.to_sparse(), "m": MATRIX}),
    "hostile": overlay_report(),
}
