"""What is in a drawn graph: short names of ops, shapes and leaves; numbers of a small graph; its cuts; formulas."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tensormagic.reports.graph import is_small
from tensormagic.views.markup import once
from tensormagic.views.nodes import clipped
from tensormagic.words import tidy_exponent

if TYPE_CHECKING:
    from tensormagic.reports import Graph, Node
    from tensormagic.reports.graph import SmallValues


# -- names ------------------------------------------------------------------------------------------------------------

_LONGEST_LABEL = 18
_LONGEST_SHAPE = 16

# ATen's names where people know a shorter one. Everything else keeps its name.
_SHORTER = {
    "+": "add",
    "attention": "fused_sdp_choice scaled_dot_product_attention_math scaled_dot_product_cudnn_attention "
    "scaled_dot_product_efficient_attention scaled_dot_product_flash_attention "
    "scaled_dot_product_flash_attention_for_cpu",
    "batch_norm": "cudnn_batch_norm miopen_batch_norm native_batch_norm",
    "cast": "to_copy",
    "conv": "convolution convolution_overrideable cudnn_convolution mkldnn_convolution slow_conv2d",
    "dropout": "native_dropout",
    "group_norm": "native_group_norm",
    "layer_norm": "native_layer_norm",
    "max_pool2d": "max_pool2d_with_indices",
    "max_pool3d": "max_pool3d_with_indices",
    "upsample": "upsample_bilinear2d upsample_nearest2d",
}
_SHORT = {name: shorter for shorter, names in _SHORTER.items() for name in names.split()}
_VIEW_OPS = frozenset({
    "alias", "as_strided", "broadcast_to", "detach", "diagonal", "expand", "expand_as", "flatten", "movedim", "narrow",
    "permute", "reshape", "reshape_alias", "select", "slice", "split", "split_with_sizes", "squeeze", "swapaxes", "t",
    "transpose", "unbind", "unflatten", "unfold", "unsafe_split", "unsafe_view", "unsqueeze", "view", "view_as",
    "to_copy", "clone", "to",
})  # fmt: skip


def is_view(node: Node) -> bool:
    """Say whether a node only looks at the same elements in another way (or casts them)."""
    return node.kind == "op" and node.op.lstrip("_") in _VIEW_OPS


def op_label(node: Node, hanging: Sequence[Node] = ()) -> str:
    """Return the short name of an op; ``hanging`` are the leaves, and views of leaves, folded into it."""
    if node.kind == "accumulate":
        return clipped(leaf_label(node), _LONGEST_LABEL)
    op = node.op.lstrip("_") or node.name
    is_linear = op in {"addmm", "mm"} and any(other.op == "t" for other in hanging)
    return "linear" if is_linear else clipped(_SHORT.get(op, op), _LONGEST_LABEL)


def leaf_label(node: Node) -> str:
    """Return the name of a leaf, its last two parts: ``conv1.weight``."""
    if not node.variable:
        return f"leaf {shape_label(node)}"
    return ".".join(node.variable.rsplit(".", 2)[-2:])


def leaf_labels(graph: Graph) -> dict[int, str]:
    """Return the names of all leaves, by node: of a module that is but a number and not the only one, three parts.

    ``G.0.weight`` and ``D.0.weight`` are two.
    """
    labels = {node.index: leaf_label(node) for node in graph.nodes if node.kind == "accumulate"}
    names = Counter(labels.values())
    for index, label in labels.items():
        if names[label] > 1 and label.partition(".")[0].isdecimal():
            labels[index] = ".".join(graph.nodes[index].variable.rsplit(".", 3)[-3:])
    return labels


def shape_label(node: Node) -> str:
    """Return the shape of what a node made: ``32×4×4``, ``scalar``, nothing where it is not known."""
    return shape_text(node.shapes[0]) if node.shapes else ""


def whole_shape(shape: Iterable[int]) -> str:
    """Return a shape as tables write it, with all its sizes: ``32×10``, and ``()`` for a scalar."""
    return "×".join(map(str, shape)) or "()"


def shape_text(shape: Iterable[int]) -> str:
    """Return a shape with its sizes joined by ``×``; long ones keep their last sizes."""
    sizes = list(map(str, shape))
    text = "×".join(sizes)
    while len(text) > _LONGEST_SHAPE and len(sizes) > 2:
        sizes.pop(0)
        text = "…×" + "×".join(sizes)
    return {"": "scalar", "1": "(1,)"}.get(text, text)  # a lone 1 reads as the value


# -- values of a small graph ------------------------------------------------------------------------------------------

MOST_NODES = 40  # of a graph whose values were asked for: its leaves have boxes of their own up to here
# Each element of the result is made of one element of each input: what is sent, by what came, is the derivative.
_BY_ELEMENT = frozenset({
    "add", "sub", "rsub", "mul", "div", "neg", "pow", "exp", "log", "sqrt", "rsqrt", "sin", "cos", "tan", "tanh",
    "relu", "sigmoid", "leaky_relu", "elu", "gelu", "silu", "softplus", "abs", "square", "reciprocal", "clamp", "log1p",
    "expm1", "erf", "sinh", "cosh", "atan", "asin", "acos", "where", "maximum", "minimum", "hardtanh", "threshold",
})  # fmt: skip


@once
def shows_values(graph: Graph) -> bool:
    """Return whether a graph is drawn with every node in a box of its own, and with its numbers where there are any."""
    few = len(graph.nodes) <= MOST_NODES
    return is_small(graph.nodes) or (few and any(frame.values is not None for frame in graph.frames))


def value_text(numbers: Sequence[float]) -> str:
    """Return ``6``, ``−1.41``, ``[1, 0, 2.5e−7]``; nothing where there are none."""
    texts = [_number_text(number) for number in numbers]
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]" if texts else ""


def _number_text(number: float) -> str:
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else "Inf" if number > 0 else "−Inf"
    return tidy_exponent(f"{number:.4g}" if 100 <= abs(number) < 1e4 else f"{number + 0.0:.3g}")


def gradient_text(numbers: Sequence[float]) -> str:
    """Return what is over a box: ``grad 12``."""
    return f"grad {value_text(numbers)}" if numbers else ""


def wire_text(graph: Graph, values: SmallValues, edges: Sequence[int]) -> str:
    """Return the local derivatives along a wire: ``×3``; of a value that is used twice ``×3 + ×3``.

    Nothing where one does not follow: what a node made, by one of its inputs.
    """
    texts = []
    for edge in edges:
        source = graph.edges[edge].source
        came, sent = values.gradients[source], values.sent[edge]
        by_element = graph.nodes[source].op in _BY_ELEMENT and len(came) == len(sent)
        finite = all(came) and all(map(math.isfinite, (*came, *sent)))
        if not sent or not finite or not (len(came) == 1 or by_element):
            return ""
        ratios = [_number_text(one / (came[at] if by_element else came[0])) for at, one in enumerate(sent)]
        texts.append(f"×{ratios[0]}" if len(set(ratios)) == 1 else f"×[{', '.join(ratios)}]")
    return " + ".join(texts)


# -- formulas ---------------------------------------------------------------------------------------------------------

_RESHAPING = ("ReshapeAlias", "Squeeze", "UnsafeView", "Unsqueeze", "View")

FORMULAS: dict[str, tuple[str, ...]] = {
    # op → one formula for each input that can require grad, in the order of ``grad_fn.next_functions``
    **{f"{name}Backward0": ("grad, reshaped back",) for name in _RESHAPING},
    **{f"{name}Backward0": ("grad",) for name in ("Alias", "Clone")},
    "AbsBackward0": ("grad \u00b7 self.sign()",),
    "AddBackward0": ("grad", "alpha \u00b7 grad"),
    "AddmmBackward0": ("beta \u00b7 grad", "alpha \u00b7 grad @ mat2.T", "alpha \u00b7 mat1.T @ grad"),
    "BmmBackward0": ("grad @ mat2.mT", "self.mT @ grad"),
    "CosBackward0": ("\u2212grad \u00b7 self.sin()",),
    "DivBackward0": ("grad / other", "\u2212grad \u00b7 self / other\u00b2"),
    "DotBackward0": ("grad \u00b7 tensor", "grad \u00b7 self"),
    "ExpBackward0": ("grad \u00b7 result",),
    "ExpandBackward0": ("grad, summed over the expanded dimensions",),
    "LogBackward0": ("grad / self",),
    "LogSoftmaxBackward0": ("grad \u2212 exp(result) \u00b7 grad.sum(dim)",),
    "MeanBackward0": ("grad / numel, to every element",),
    "MmBackward0": ("grad @ mat2.T", "self.T @ grad"),
    "MulBackward0": ("grad \u00b7 other", "grad \u00b7 self"),
    "NegBackward0": ("\u2212grad",),
    "PermuteBackward0": ("grad, permuted back",),
    "PowBackward0": ("grad \u00b7 exponent \u00b7 self ** (exponent \u2212 1)",),
    "ReluBackward0": ("grad where result > 0, else 0",),
    "SelectBackward0": ("grad at the selected elements, else 0",),
    "SigmoidBackward0": ("grad \u00b7 result \u00b7 (1 \u2212 result)",),
    "SinBackward0": ("grad \u00b7 self.cos()",),
    "SliceBackward0": ("grad in the slice, else 0",),
    "SoftmaxBackward0": ("result \u00b7 (grad \u2212 (grad \u00b7 result).sum(dim))",),
    "SqrtBackward0": ("grad / (2 \u00b7 result)",),
    "SubBackward0": ("grad", "\u2212alpha \u00b7 grad"),
    "SumBackward0": ("grad, to every element",),
    "SumBackward1": ("grad, to every element of the summed dimensions",),
    "TBackward0": ("grad.T",),
    "TanhBackward0": ("grad \u00b7 (1 \u2212 result\u00b2)",),
    "TransposeBackward0": ("grad, transposed back",),
}


def formulas(node: str, inputs: int) -> tuple[str, ...]:
    """Return a formula for each of ``inputs``; empty ones where the op is not known or has others."""
    known = FORMULAS.get(node, ())
    return known if len(known) == inputs else ("",) * inputs
