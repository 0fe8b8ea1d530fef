"""What a small graph says in place of norms: values and gradients with their signs, local derivatives on the wires.

The gradient that goes along a wire is the one before it times the local derivative: ``grad 4``, ``×3``, ``grad 12``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tensormagic.reports.graph import is_small
from tensormagic.words import tidy_exponent

if TYPE_CHECKING:
    from tensormagic.reports import Graph
    from tensormagic.reports.graph import SmallValues

MOST_NODES = 40  # of a graph whose values were asked for: its leaves have boxes of their own up to here
# Each element of the result is made of one element of each input: what is sent, by what came, is the derivative.
_BY_ELEMENT = frozenset({
    "add", "sub", "rsub", "mul", "div", "neg", "pow", "exp", "log", "sqrt", "rsqrt", "sin", "cos", "tan", "tanh",
    "relu", "sigmoid", "leaky_relu", "elu", "gelu", "silu", "softplus", "abs", "square", "reciprocal", "clamp", "log1p",
    "expm1", "erf", "sinh", "cosh", "atan", "asin", "acos", "where", "maximum", "minimum", "hardtanh", "threshold",
})  # fmt: skip


def shows_values(graph: Graph) -> bool:
    """Return whether a graph is drawn with every node in a box of its own, and with its numbers where there are any."""
    few = len(graph.nodes) <= MOST_NODES
    return is_small(graph.nodes) or (few and any(frame.values is not None for frame in graph.frames))


def value_text(numbers: Sequence[float]) -> str:
    """Return ``6``, ``−1.41``, ``[1, 0, 2.5e−7]``; nothing where there are none."""
    texts = [_text(number) for number in numbers]
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]" if texts else ""


def _text(number: float) -> str:
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else "Inf" if number > 0 else "−Inf"
    return tidy_exponent(f"{number:.4g}" if 100 <= abs(number) < 1e4 else f"{number + 0.0:.3g}")


def gradient_text(numbers: Sequence[float]) -> str:
    """Return what stands over a box: ``grad 12``."""
    return f"grad {value_text(numbers)}" if numbers else ""


def wire_text(graph: Graph, values: SmallValues, edges: Sequence[int]) -> str:
    """Return the local derivatives along a wire: ``×3``; of a value that is used twice ``×3 + ×3``."""
    texts = [_derivative(graph, values, edge) for edge in edges]
    return " + ".join(texts) if all(texts) else ""


def _derivative(graph: Graph, values: SmallValues, edge: int) -> str:
    """Return the derivative of what a node made by one of its inputs; nothing where it does not follow."""
    source = graph.edges[edge].source
    came, sent = values.gradients[source], values.sent[edge]
    by_element = graph.nodes[source].op in _BY_ELEMENT and len(came) == len(sent)
    if not sent or not (len(came) == 1 or by_element) or not all(came) or not all(map(math.isfinite, (*came, *sent))):
        return ""
    ratios = [one / (came[at] if by_element else came[0]) for at, one in enumerate(sent)]
    texts = [_text(ratio) for ratio in ratios]
    return f"×{texts[0]}" if len(set(texts)) == 1 else f"×[{', '.join(texts)}]"
