"""Looks into the saved tensors of the few ops whose backward can make NaN or Inf out of a finite gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tensormagic.collectors.gradients.measures import count_where
from tensormagic.collectors.graphs.saved_tensors import is_packed

# Backward formulas that divide by (a function of) a saved tensor, or take its logarithm: op → the slot to look at
# when NaN or Inf comes out. From torch's derivatives.yaml.
SINGULAR_SLOTS = {
    "LogBackward0": "self", "Log2Backward0": "self", "Log10Backward0": "self", "Log1PBackward0": "self",
    "SqrtBackward0": "result", "RsqrtBackward0": "result", "ReciprocalBackward0": "result",
    "DivBackward0": "other", "DivBackward1": "other", "PowBackward0": "self", "PowBackward1": "self",
    "NormBackward0": "self", "LinalgVectorNormBackward0": "self", "AcosBackward0": "self", "AsinBackward0": "self",
    "AcoshBackward0": "self", "AtanhBackward0": "self", "XlogyBackward0": "other",
    "StdBackward0": "result", "CdistBackward0": "cdist", "BinaryCrossEntropyBackward0": "self",
}  # fmt: skip


@dataclass(slots=True)
class SavedFacts:
    """What a suspicious saved tensor holds: counts of zeros, negatives, and NaN or Inf."""

    name: str
    zero: int = 0
    negative: int = 0
    bad: int = 0


REGULAR: set[type] = set()  # types of nodes that have no such slot, among those met


def singular_slot(node: Any) -> str | None:
    """Return the saved tensor at which the backward of ``node`` may not be finite, or None where there is none."""
    if type(node) in REGULAR:
        return None
    slot = SINGULAR_SLOTS.get(node.name())
    if slot is None and type(node).__name__ == node.name().rpartition("::")[2]:  # a type of its own: asked once
        REGULAR.add(type(node))
    if slot is None or slot != "self" or not node.name().startswith("PowBackward0"):
        return slot
    exponent = getattr(node, "_saved_exponent", 0)
    return None if isinstance(exponent, int | float) and exponent >= 1 else slot  # a whole slope everywhere


def suspicious(node: Any, slot: str) -> torch.Tensor | None:
    """Return the saved tensor ``slot`` of a live node where its real numbers can be looked at, else None.

    It cannot where it was changed in place, where the graph was freed, and where the person packed it with hooks of
    their own (offloading, checkpointing).
    """
    try:
        raw = getattr(node, f"_raw_saved_{slot}", None)
        saved = None if raw is None or is_packed(raw) else getattr(node, f"_saved_{slot}")
    except RuntimeError:
        return None
    return saved if isinstance(saved, torch.Tensor) and saved.numel() and saved.is_floating_point() else None


def saved_facts(slot: str, saved: torch.Tensor) -> SavedFacts:
    """Count what makes a backward formula blow up, on a CPU: two reductions where there is nothing to count."""
    low, high = (bound.item() for bound in torch.aminmax(saved))
    finite = math.isfinite(low) and math.isfinite(high)
    if finite and (low > 0 or high < 0):
        return SavedFacts(slot, negative=saved.numel() if high < 0 else 0)
    bad = 0 if finite else saved.numel() - count_where(np.isfinite, saved)
    return SavedFacts(slot, count_where(np.equal, saved, 0), count_where(np.less, saved, 0), bad)


def saved_counts(saved: torch.Tensor) -> torch.Tensor:
    """Return the counts of zeros, negatives, and NaN or Inf as one tensor on the device, without a sync."""
    counts = ((saved == 0).sum(), (saved < 0).sum(), (~saved.isfinite()).sum())
    return torch.stack([count.to(torch.float32) for count in counts])
