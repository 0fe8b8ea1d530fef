"""Losses that normalise what they are given, and were given what is normalised already.

``cross_entropy`` takes scores and applies a softmax of its own. What it was given is told by the node that made it: a
softmax or a sigmoid, directly or through calls that only choose, turn or copy elements.
"""

from __future__ import annotations

from typing import Any

import torch

from tensormagic.collectors.calls.call_notes import Call, CallNotes

NAMES = (
    "cross_entropy_loss", "cross_entropy", "binary_cross_entropy_with_logits", "nll_loss_nd", "nll_loss",
    "binary_cross_entropy",
)  # fmt: skip
MOST_STEPS = 16

_NORMALISING = {
    "SoftmaxBackward0": "softmax", "LogSoftmaxBackward0": "log_softmax",
    "SigmoidBackward0": "sigmoid", "LogSigmoidBackward0": "logsigmoid",
}  # fmt: skip
_PASSING = frozenset({
    "ViewBackward0", "UnsafeViewBackward0", "ReshapeAliasBackward0", "SqueezeBackward0", "SqueezeBackward1",
    "UnsqueezeBackward0", "SliceBackward0", "SelectBackward0", "IndexBackward0", "TransposeBackward0",
    "PermuteBackward0", "TBackward0", "CloneBackward0", "ToCopyBackward0", "ExpandBackward0", "AliasBackward0",
    "SplitBackward0", "UnbindBackward0", "IndexSelectBackward0", "CopySlicesBackward0", "SqueezeBackward2",
})  # fmt: skip


def normalised(watch: CallNotes, call: Call) -> None:
    """Note what normalised the first operand of a loss, where something did; twice, for a loss of probabilities."""
    scores = call.args[0] if call.args else None
    if not isinstance(scores, torch.Tensor) or scores.grad_fn is None:
        return
    node = _normalising(scores.grad_fn)
    if node is not None and call.name == "binary_cross_entropy":
        node = _normalising(_before(node))  # the last one is asked for: is there one before it?
    if node is not None:
        made = watch.line_of_node(node._sequence_nr())
        watch.note("normalised", call, operands=(scores,), made=made, detail=_NORMALISING[node.name()], of=2)


def _normalising(node: Any) -> Any:
    """Return the node of the softmax or sigmoid that made a value, if one did."""
    for _ in range(MOST_STEPS):
        if node is None or node.name() in _NORMALISING:
            return node
        if node.name() not in _PASSING:
            return None
        node = _before(node)
    return None


def _before(node: Any) -> Any:
    return node.next_functions[0][0] if node.next_functions else None
