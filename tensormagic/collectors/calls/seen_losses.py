"""Losses that normalise what they are given, and were given what is normalised already; logarithms; dimensions."""

from __future__ import annotations

from typing import Any

import torch

from tensormagic.collectors.calls.call_notes import Call, CallNotes, operand_parts
from tensormagic.collectors.graphs.live_nodes import (
    MOST_STEPS,
    NORMALISING,
    PASSING,
    first_input,
    inputs_of,
    next_nodes,
    normalising_node,
    past,
)
from tensormagic.collectors.graphs.saved_tensors import saved_argument
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.where.source import innermost_own

_LIKELIHOODS = ("nll_loss_nd", "nll_loss")
NAMES = ("cross_entropy_loss", "cross_entropy", "binary_cross_entropy_with_logits", "binary_cross_entropy",
         *_LIKELIHOODS)  # fmt: skip
_LINEAR = frozenset({"AddmmBackward0", "MmBackward0"})
_LAYERS = _LINEAR | {"ConvolutionBackward0", "ReluBackward0"}  # whose results are no logarithms of probabilities


def normalised(watch: CallNotes, call: Call) -> None:
    """Note what normalised the first operand of a loss, where something did; twice, for a loss of probabilities.

    Of a loss of log-probabilities also that nothing did, where a layer made the operand.
    """
    scores = call.args[0] if call.args else None
    if not isinstance(scores, torch.Tensor) or scores.grad_fn is None:
        return
    node = normalising_node(scores.grad_fn)
    if node is not None and call.name == "binary_cross_entropy":
        node = normalising_node(first_input(node))  # the last one is asked for: is there one before it?
    if node is not None:
        detail = NORMALISING[node.name()]
        watch.note("normalised", call, operands=(scores,), made=watch.line_of(node), detail=detail, of=2)
    elif call.name in _LIKELIHOODS and (node := past(scores.grad_fn)) is not None and node.name() in _LAYERS:
        watch.note("normalised", call, operands=(scores,), made=watch.line_of(node), detail="layer", of=2)


# `kl_div` takes logarithms of probabilities first, and probabilities second.

_ABOVE = 1e-4  # a logarithm of a probability is at most 0, but for rounding


def no_logarithms(watch: CallNotes, call: Call) -> None:
    """Note what `kl_div` was given where it is no logarithm, seen from what made it, on the CPU from its values too."""
    if len(call.args) < 2 or not all(isinstance(x, torch.Tensor) for x in call.args[:2]):
        return
    scores, target = call.args[:2]
    node = normalising_node(scores.grad_fn)
    made = NORMALISING[node.name()] if node is not None else ""
    detail = "probabilities" if made in {"softmax", "sigmoid"} else ""
    with quiet():
        if not made and _is_read(scores) and (highest := float(scores.max())) > _ABOVE:
            probable = bool(scores.min() >= 0) and highest <= 1 + _ABOVE
            detail = "probabilities" if probable else f"scores up to {highest:.3g}"
        of_probabilities = not call.kwargs.get("log_target", False)
        if not detail and of_probabilities and _is_read(target) and bool((target < -_ABOVE).any()):
            detail, node = "target", None
    if detail:
        given, line = _given(call), watch.line_of(node)
        watch.note("no logarithms", call, operands=(scores, target), of=given, made=line, detail=detail)


def _given(call: Call) -> int:
    """Return how much the user's line gives to a loss: two tensors, and perhaps how to reduce."""
    own = innermost_own(call.frame)
    return len((operand_parts(own) if own is not None else None) or ()) or 2


def _is_read(x: torch.Tensor) -> bool:
    plain = type(x) is torch.Tensor and x.device.type == "cpu" and x.layout is torch.strided
    return plain and x.numel() > 0 and x.is_floating_point()


# Over which dimension a softmax went is saved by the node that it made.


def _over(node: Any, x: torch.Tensor) -> int | None:
    """Return the dimension that a softmax went over, given its node and what has its shape; None of another node."""
    if node is None or node.name() not in {"SoftmaxBackward0", "LogSoftmaxBackward0"}:
        return None
    dim = int(saved_argument(node, "dim"))
    return (dim - (1 << 64) if dim >= 1 << 63 else dim) % x.dim()  # saved without a sign


def _weights(x: Any) -> Any:
    """Return the node of the softmax that made weights, also where a dropout follows; None where none did."""
    node = x.grad_fn if isinstance(x, torch.Tensor) and x.dim() > 1 else None
    if node is not None and node.name() in {"MulBackward0", "NativeDropoutBackward0"}:  # by a mask
        node = first_input(node) if _is_alone(node) else None
    return node if node is not None and node.name() == "SoftmaxBackward0" else None


def likelihood_over(watch: CallNotes, call: Call) -> None:
    """Note log-probabilities that were normalised over another dimension than that of the classes."""
    x = call.args[0] if call.args else None
    if not isinstance(x, torch.Tensor) or x.dim() < 2:
        return
    node: Any = x.grad_fn
    node = first_input(node) if node is not None and node.name() == "LogBackward0" else node
    if (dim := _over(node, x)) is not None and dim != 1 and x.shape[dim] > 1:
        watch.note("normalised over", call, operands=(x,), of=2, made=watch.line_of(node), detail=f"classes {dim}")


def weights_over(watch: CallNotes, call: Call) -> None:
    """Note weights of a matrix product that were normalised over another dimension than the one that is summed."""
    for at, x in enumerate(call.args[:2]):
        node = _weights(x)
        if (dim := _over(node, x)) is not None and min(x.shape[-2:]) > 1:
            summed = x.dim() - 1 - at
            if dim != summed and x.shape[dim] > 1:
                watch.note("normalised over", call, operands=call.args[:2], about=at, made=watch.line_of(node),
                           detail=f"{'batch' if dim == 0 and x.dim() > 2 else 'product'} {dim} {summed}")  # fmt: skip
                return


def einsum_over(watch: CallNotes, call: Call) -> None:
    """Note attention weights that an ``einsum`` sums over another index than the one that was normalised.

    Only where the scores are products of two tensors, as those of queries and keys are: assignments to clusters, which
    a layer makes, are normalised over what is kept.
    """
    equation, *given = call.args
    given = list(given[0]) if len(given) == 1 and isinstance(given[0], tuple | list) else given
    if not isinstance(equation, str) or "->" not in equation or "." in equation:
        return
    terms, out = (side.strip() for side in equation.replace(" ", "").split("->"))
    for at, (term, x) in enumerate(zip(terms.split(","), given, strict=True)):
        node = _weights(x)
        summed = [place for place, index in enumerate(term) if index not in out and x.shape[place] > 1]
        if (dim := _over(node, x)) is None or not summed:
            continue
        scores = past(first_input(node), _SCALED)
        if term[dim] in out and x.shape[dim] > 1 and scores is not None and scores.name() == "BmmBackward0":
            watch.note("normalised over", call, operands=given, about=at, detail=f"product {dim} {summed[0]}",
                       made=watch.line_of(node))  # fmt: skip
            return


def alone(watch: CallNotes, call: Call) -> None:
    """Note a softmax over the one score of a linear layer, and a likelihood of one class: 1 whatever is learned.

    With one score for each sample the gradients of the whole model are zero, which TM405 tells.
    """
    x = call.args[0] if call.args else None
    if not isinstance(x, torch.Tensor) or x.dim() < 3 or x.grad_fn is None:
        return
    node = getattr(call.result, "grad_fn", None)
    if call.name in {"cross_entropy_loss", "cross_entropy"}:
        if x.shape[1] == 1:
            watch.note("normalised over", call, operands=(x,), detail="alone 1", of=2)
    elif (dim := _over(node, x)) is not None and x.shape[dim] == 1:
        weight = _weight(past(x.grad_fn, {"AddBackward0"})) if dim == x.dim() - 1 else None  # before a bias
        if weight is not None and 1 in weight.shape:
            watch.note("normalised over", call, operands=(x,), detail=f"alone {dim}")


def samples_over(watch: CallNotes, call: Call) -> None:
    """Note a softmax over the first dimension of what a linear layer made: that of the samples."""
    x = call.args[0] if call.args else None
    if not isinstance(x, torch.Tensor) or x.dim() != 2 or _weight(x.grad_fn) is None:
        return  # similarities of two batches are normalised both ways
    if min(x.shape) > 1 and _over(getattr(call.result, "grad_fn", None), x) == 0:
        watch.note("normalised over", call, operands=(x,), detail="samples 0")


# Two networks and one loss: an advantage or a target that still has its gradient trains the network that made it.

_SCALING = frozenset({"NegBackward0", "ExpBackward0", "SumBackward0", "SumBackward1", "DivBackward0"})
_SCALED = frozenset({"MulBackward0", "DivBackward0", "MaskedFillBackward0"})
# What `Normal.log_prob` makes of a choice and a mean: minus the square of what lies between them, over the variance.
_GAUSSIAN = {"DivBackward0"}, {"NegBackward0"}, {"PowBackward0"}, {"SubBackward0", "RsubBackward1"}
MOST_TERMS = 3  # that are subtracted from one logarithm: of a Normal the scale and a constant, and that of another time


def _is_score(node: Any) -> bool:
    """Return whether a value is the logarithm of the probability of what was chosen, or a ratio of two of these."""
    node = past(node, _SCALING)
    for _ in range(MOST_TERMS):  # minus the old one, which has no gradient, or the scale of a Normal and a constant
        if node is None or node.name() != "SubBackward0":
            break
        if not _is_alone(node) and not _ways(inputs_of(node)[1], {"LogBackward0"}):
            break
        if _ways(first_input(node), *_GAUSSIAN):
            return True
        node = past(first_input(node), _SCALING)
    return _ways(node, {"GatherBackward0"}, {"LogSoftmaxBackward0", "SubBackward0"})


def _ways(node: Any, *names: set[str]) -> bool:
    """Return whether a node has one of the first names, what it was made from one of the next, and so on."""
    for expected in names:
        node = past(node)
        if node is None or node.name() not in expected:
            return False
        node = first_input(node)
    return True


def _is_alone(node: Any) -> bool:
    return not any(each is not None for each in inputs_of(node)[1:2])


def not_detached(watch: CallNotes, call: Call) -> None:
    """Note a score that is multiplied by a difference which has a gradient of its own."""
    if len(call.args) < 2 or not all(isinstance(x, torch.Tensor) and x.grad_fn is not None for x in call.args[:2]):
        return
    for score, other in (call.args[:2], call.args[1::-1]):
        node = past(other.grad_fn, _SCALING)
        if node is not None and node.name() == "SubBackward0" and _is_score(score.grad_fn) and not _is_score(node):
            at, made = int(other is call.args[1]), watch.line_of(node)
            watch.note("advantage", call, operands=call.args[:2], about=at, made=made)
            return


def bootstrapped(watch: CallNotes, call: Call) -> None:
    """Note a target that is a reward plus what the network itself expects of the next state, with its gradient."""
    if len(call.args) < 2 or not all(isinstance(x, torch.Tensor) and x.grad_fn is not None for x in call.args[:2]):
        return
    value, target = call.args[:2]
    node, affine = target.grad_fn, set()
    for _ in range(MOST_STEPS):
        if node is None or node.name() not in PASSING | {"AddBackward0", "MulBackward0", "RsubBackward1"}:
            break
        affine.add(node.name())
        node = next(iter(next_nodes(node)), None)
    if node is None or not {"AddBackward0", "MulBackward0"} <= affine:
        return
    best = node.name() in {"MaxBackward0", "AmaxBackward0", "MaxBackward1"}
    weight = _weight(past(first_input(node) if best else node))
    if weight is not None and weight is _weight(past(value.grad_fn, {"GatherBackward0"})):
        detail, made = "best" if best else "value", watch.line_of(target.grad_fn)
        watch.note("target", call, operands=(value, target), of=_given(call), about=1, detail=detail, made=made)


def _weight(node: Any) -> Any:
    """Return the weight of the linear layer that a node is; None where it is none."""
    if node is None or node.name() not in _LINEAR or len(inputs_of(node)) < 2:
        return None
    turned = inputs_of(node)[-1]
    leaf = first_input(turned) if turned is not None and turned.name() == "TBackward0" else turned
    return getattr(leaf, "variable", None)
