"""The verdicts on a layout, word for word, on layouts that torch's own tensors have."""

from __future__ import annotations

import pytest
import torch

from tensormagic.collectors.geometry.layout import layout
from tensormagic.views.panels.tensor import verdicts

MATRIX = torch.arange(24.0).reshape(4, 6)
IMAGES = torch.zeros(2, 3, 5, 5)
CASES = {
    "contiguous": (
        MATRIX,
        {
            "format": "contiguous: `.contiguous()` returns the tensor itself, without a copy",
            "views": "every `.view(shape)` of 24 elements works, as does `.view(-1)`",
        },
    ),
    "transposed slice": (
        MATRIX.t()[1:5, ::2],
        {
            "order": "in memory j, i from slowest to fastest, read as i, j",
            "gaps": "8 of the 16 elements from 1 to 16 are skipped",
            "format": "not contiguous: j has stride 12, a contiguous tensor has 1 there; `.contiguous()` copies 32 B",
            "views": "i and j cannot merge: i has stride 1, but size·stride of j is 2·12 = 24; `.view(-1)` raises, "
            "`.reshape(-1)` copies 32 B",
        },
    ),
    "stepped, yet flat": (
        MATRIX[:, ::2],
        {
            "gaps": "11 of the 23 elements from 0 to 22 are skipped",
            "format": "not contiguous: j has stride 2, a contiguous tensor has 1 there; `.contiguous()` copies 48 B",
            "views": "every `.view(shape)` of 12 elements works, as does `.view(-1)`",
        },
    ),
    "expanded": (
        torch.arange(4.0).expand(6, 4),
        {
            "repeats": "i has stride 0: all 6 of its indices read the same",
            "format": "not contiguous: i has stride 0, a contiguous tensor has 4 there; `.contiguous()` copies 96 B",
            "views": "i and j cannot merge: i has stride 0, but size·stride of j is 4·1 = 4; `.view(-1)` raises, "
            "`.reshape(-1)` copies 96 B",
        },
    ),
    "windows": (
        torch.arange(12.0).unfold(0, 4, 2),
        {
            "repeats": "20 indices share 12 elements: writing to one changes several",
            "format": "not contiguous: i has stride 2, a contiguous tensor has 4 there; `.contiguous()` copies 80 B",
            "views": "i and j cannot merge: i has stride 2, but size·stride of j is 4·1 = 4; `.view(-1)` raises, "
            "`.reshape(-1)` copies 80 B",
        },
    ),
    "channels_last": (
        IMAGES.to(memory_format=torch.channels_last),
        {
            "order": "in memory i, k, l, j from slowest to fastest, read as i, j, k, l",
            "format": "channels_last, not contiguous: l has stride 3, a contiguous tensor has 1 there; `.contiguous()` "
            "copies 600 B, `.contiguous(memory_format=torch.channels_last)` nothing",
            "views": "k·l merge: `.view(2, 3, 25)` works; i and j cannot merge: i has stride 75, but size·stride of j "
            "is 3·1 = 3; j and k cannot merge: j has stride 1, but size·stride of k is 5·15 = 75; `.view(-1)` raises, "
            "`.reshape(-1)` copies 600 B",
        },
    ),
    "some channels": (
        IMAGES[:, 1:],
        {
            "gaps": "25 of the 125 elements from 25 to 149 are skipped",
            "format": "neither contiguous nor channels_last: i has stride 75, a contiguous tensor has 50 there; "
            "`.contiguous()` copies 400 B",
            "views": "j·k·l merge: `.view(2, 50)` works; i and j cannot merge: i has stride 75, but size·stride of j "
            "is 2·25 = 50; `.view(-1)` raises, `.reshape(-1)` copies 400 B",
        },
    ),
    "empty": (MATRIX[:0], {"format": "contiguous: `.contiguous()` returns the tensor itself, without a copy"}),
}


@pytest.mark.parametrize("case", CASES)
def test_verdicts(case: str) -> None:
    """Each verdict that has something to say says exactly this; the storage of each tensor is that of its base."""
    x, expected = CASES[case]
    size = x.element_size()
    sizes = {"storage_elements": x.untyped_storage().nbytes() // size, "element_size": size}
    assert dict(verdicts(layout(x.shape, x.stride(), x.storage_offset(), **sizes))) == expected
