"""Where torch itself asks whether a dispatch mode is on, and then computes otherwise.

``isTensorSubclassLike`` of ATen says yes for every tensor while a dispatch mode is on. Most code that asks it then only
writes to a new tensor instead of in place, with the same result. What stands here does something else: it sums in
another order, multiplies by a mask where it would fill, or leaves out the check that a gradient is well defined (seen
by comparing the operations with and without a mode for all of torch's own operator and module tables). There the mode
steps off, and the call or the node is counted as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tensormagic.collectors.graphs.skeleton import Skeleton
from tensormagic.collectors.ops.op_costs import GraphCosts


def _smooths_with_weights(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    weights = args[2] if len(args) > 2 else kwargs.get("weight")
    return weights is not None and bool(args[5] if len(args) > 5 else kwargs.get("label_smoothing"))


def _is_complex(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    given = args[0] if args else kwargs.get("input", kwargs.get("A"))
    return isinstance(given, torch.Tensor) and given.is_complex()


def _always(_args: tuple[Any, ...], _kwargs: dict[str, Any]) -> bool:
    return True


ASKING_CALLS: dict[Any, Callable[[tuple[Any, ...], dict[str, Any]], bool]] = {
    torch._C._nn.cross_entropy_loss: _smooths_with_weights,
    torch.ctc_loss: _always,
    torch.pinverse: _is_complex,
    torch.Tensor.pinverse: _is_complex,
    torch.linalg.pinv: _is_complex,
    torch.linalg.lstsq: _always,
}
ASKING_NODES = frozenset({
    "CumprodBackward0", "ProdBackward0", "ProdBackward1", "MaskedFillBackward1",
    "MaxBackward1", "MinBackward1", "MedianBackward0", "NanmedianBackward0",
    "LinalgEigBackward0", "LinalgEighBackward0", "LinalgSvdBackward0", "LinalgLstsqBackward0",
    "LinalgHouseholderProductBackward0", "OrmqrBackward0",
})  # fmt: skip


def asking_places(costs: GraphCosts, skeleton: Skeleton) -> list[int]:
    """Return the traversal places of the nodes of a graph whose backward asks; looked up once a graph."""
    if costs.asking is None:
        costs.asking = [place for place, at in enumerate(skeleton.index) if costs.nodes[at].name in ASKING_NODES]
    return costs.asking
