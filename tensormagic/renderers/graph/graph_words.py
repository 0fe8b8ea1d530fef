"""The short names that stand in the boxes: of ops, shapes and leaves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from tensormagic.words import ELLIPSIS

if TYPE_CHECKING:
    from tensormagic.reports import Node

_LONGEST_LABEL = 18
_LONGEST_SHAPE = 16

# ATen's names where people know a shorter one. Everything else keeps its name.
_SHORT = {
    "add": "+",
    "convolution": "conv",
    "convolution_overrideable": "conv",
    "cudnn_batch_norm": "batch_norm",
    "cudnn_convolution": "conv",
    "fused_sdp_choice": "attention",
    "max_pool2d_with_indices": "max_pool2d",
    "max_pool3d_with_indices": "max_pool3d",
    "miopen_batch_norm": "batch_norm",
    "mkldnn_convolution": "conv",
    "native_batch_norm": "batch_norm",
    "native_dropout": "dropout",
    "native_group_norm": "group_norm",
    "native_layer_norm": "layer_norm",
    "scaled_dot_product_attention_math": "attention",
    "scaled_dot_product_cudnn_attention": "attention",
    "scaled_dot_product_efficient_attention": "attention",
    "scaled_dot_product_flash_attention": "attention",
    "scaled_dot_product_flash_attention_for_cpu": "attention",
    "slow_conv2d": "conv",
    "to_copy": "cast",
    "upsample_bilinear2d": "upsample",
    "upsample_nearest2d": "upsample",
}


def op_label(node: Node, hanging: Sequence[Node] = ()) -> str:
    """Return the short name of an op; ``hanging`` are the leaves, and views of leaves, folded into it."""
    if node.kind == "accumulate":
        return _shortened(leaf_label(node))
    op = node.op.lstrip("_") or node.name
    if op in {"addmm", "mm"} and any(other.op == "t" for other in hanging):
        return "linear"
    return _short_name(op)


@lru_cache(maxsize=1024)
def _short_name(op: str) -> str:
    return _shortened(_SHORT.get(op, op))


def _shortened(label: str) -> str:
    """Return a label that fits a box: of a long one the two ends, which tell it from its relatives."""
    line = " ".join(label.split())
    if len(line) <= _LONGEST_LABEL:
        return line
    half = _LONGEST_LABEL // 2
    return f"{line[:half]}{ELLIPSIS}{line[half - _LONGEST_LABEL + 1 :]}"


def leaf_label(node: Node) -> str:
    """Return the name of a leaf, its last two parts: ``conv1.weight``."""
    if not node.variable:
        return f"leaf {shape_label(node)}"
    return ".".join(node.variable.rsplit(".", 2)[-2:])


def shape_label(node: Node) -> str:
    """Return the shape of what a node made: ``32×4×4``, ``scalar``, nothing where it is not known."""
    return _shape_text(node.shapes[0]) if node.shapes else ""


def shape_text(shape: Iterable[int]) -> str:
    """Return a shape with its sizes joined by ``×``; long ones keep their last sizes."""
    return _shape_text(tuple(shape))


@lru_cache(maxsize=4096)
def _shape_text(shape: tuple[int, ...]) -> str:
    sizes = [str(size) for size in shape]
    text = "×".join(sizes)
    while len(text) > _LONGEST_SHAPE and len(sizes) > 2:
        sizes.pop(0)
        text = "…×" + "×".join(sizes)
    return text or "scalar"
