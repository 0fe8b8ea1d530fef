"""Looks into the saved tensors of the few ops whose backward can make NaN or Inf out of a finite gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

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


def saved_facts(node: Any, slot: str) -> SavedFacts | None:
    """Count what makes a backward formula blow up in the saved tensor ``slot`` of a live node, or None.

    Nothing is unpacked that the person packed with hooks of their own (offloading, checkpointing).
    """
    raw = getattr(node, f"_raw_saved_{slot}", None)
    if raw is None or getattr(raw, "unpack_hook", None) is not None:
        return None
    saved = getattr(node, f"_saved_{slot}")
    if not isinstance(saved, torch.Tensor) or saved.numel() == 0 or saved.is_complex() or not saved.is_floating_point():
        return None
    low, high = (bound.item() for bound in torch.aminmax(saved))
    facts = SavedFacts(slot)
    if (not low > 0 and not high < 0) or math.isinf(low) or math.isinf(high):
        facts.zero = int((saved == 0).sum().item())
        facts.negative = int((saved < 0).sum().item())
        facts.bad = int((~saved.isfinite()).sum().item())
    elif low < 0:
        facts.negative = saved.numel()
    return facts
