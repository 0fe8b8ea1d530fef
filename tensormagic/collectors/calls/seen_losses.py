"""Losses and what they were given: normalised twice or never, no logarithms, other dimensions, unfit targets."""

from __future__ import annotations

import math
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
from tensormagic.collectors.objects.children import has_history
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.where.source import is_ours, is_own_frame, outwards

_LIKELIHOODS = ("nll_loss_nd", "nll_loss", "ctc_loss")
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
        watch.note("normalised", call, operands=(scores,), made=watch.line_of(node), detail=detail, of=_given(call))
    elif call.name in _LIKELIHOODS and (node := past(scores.grad_fn)) is not None:
        if node.name() == "AddBackward0" and hasattr(inputs_of(node)[1], "variable"):
            node = past(first_input(node))  # of what does not lie in one piece, a product to which the bias is added
        if node is not None and node.name() in _LAYERS:
            made = watch.line_of(node)
            watch.note("normalised", call, operands=(scores,), made=made, detail="layer", of=_given(call))


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


_UNKNOWN = 1 << 10  # operands: no line has as many, so that none is named


def _given(call: Call) -> int:
    """Return how much the user's line gives to a loss: two tensors, and perhaps how to reduce.

    Of a line that calls a library's code, which calls the loss, it is not known what is what.
    """
    for frame in outwards(call.frame):
        if is_own_frame(frame):
            return len(operand_parts(frame) or ()) or 2
        if not is_ours(frame.f_code) and "/torch/" not in frame.f_code.co_filename.replace("\\", "/"):
            break
    return _UNKNOWN


def _is_read(x: torch.Tensor) -> bool:
    return _is_plain(x) and x.is_floating_point()


def _is_plain(x: torch.Tensor) -> bool:
    plain = type(x) is torch.Tensor and x.device.type == "cpu" and x.layout is torch.strided
    return plain and x.numel() > 0


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


def normalised_alone(watch: CallNotes, call: Call) -> None:
    """Note a normalisation that goes over one value at a time: each is its own mean."""
    x, over = (*call.args, call.kwargs.get("normalized_shape", call.kwargs.get("num_groups")))[:2]
    if isinstance(x, torch.Tensor) and x.numel():
        groups = (x.numel() // (len(x) * over),) if isinstance(over, int) else over
        if math.prod(groups) == 1:
            watch.note("normalised alone", call, operands=(x,))


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
    if len(call.args) < 2 or not all(map(has_history, call.args[:2])):
        return
    for score, other in (call.args[:2], call.args[1::-1]):
        node = past(other.grad_fn, _SCALING)
        if node is not None and node.name() == "SubBackward0" and _is_score(score.grad_fn) and not _is_score(node):
            at, made = int(other is call.args[1]), watch.line_of(node)
            watch.note("advantage", call, operands=call.args[:2], about=at, made=made)
            return


def bootstrapped(watch: CallNotes, call: Call) -> None:
    """Note a target that is a reward plus what the network itself expects of the next state, with its gradient."""
    if len(call.args) < 2 or not all(map(has_history, call.args[:2])):
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


# A target that its loss does not take: labels as another loss has them, values of another kind, or the prediction.

_BINARY = ("binary_cross_entropy_with_logits", "binary_cross_entropy", "multilabel_soft_margin_loss")
_PAIRS = ("margin_ranking_loss", "cosine_embedding_loss")  # of two tensors, and the target is the third
_SIGNED = ("hinge_embedding_loss", "soft_margin_loss", *_PAIRS)
_EXCHANGEABLE = ("cross_entropy", "binary_cross_entropy_with_logits", "binary_cross_entropy")
TARGETED = (*_BINARY, *_SIGNED, "poisson_nll_loss", "cross_entropy_loss", "cross_entropy")
_BEYOND = 0.5  # labels with noise, and masks that were scaled smoothly, leave [0, 1] by less
_OF_COUNTS = 0.2  # of the highest: what is left of counts where a background was subtracted is above its negative
_FEWEST_LABELS = 8  # of one line: fewer may all be of one class, or not count
_MOST_LISTED, _MOST_SORTED = 4, 1 << 16


def unfit_target(watch: CallNotes, call: Call) -> None:
    """Note a target that its loss does not take, by its values, on the CPU, or by the gradient that it has."""
    at = 2 if call.name in _PAIRS else 1
    given = (*call.args[: at + 1], *([call.kwargs["target"]] if "target" in call.kwargs else []))
    if len(given) != at + 1 or not all(isinstance(x, torch.Tensor) for x in given):
        return
    with quiet():
        exchanged = call.name in _EXCHANGEABLE and _is_exchanged(call.name, *given)
        detail = "exchanged" if exchanged else _untaken(watch, call, given[at])
    if detail:
        watch.note("unfit target", call, operands=given, of=_given(call), detail=detail)


def many_labels(watch: CallNotes, call: Call) -> None:
    """Look at the target of `multilabel_soft_margin_loss`, which is seen by what it calls."""
    frame, function = call.frame, torch.nn.functional.multilabel_soft_margin_loss
    if frame.f_code is function.__code__ and call.args[0] is (given := frame.f_locals)["input"]:
        kwargs = {"weight": given["weight"], "reduction": given["reduction"]}
        unfit_target(watch, Call(function, (given["input"], given["target"]), kwargs, None, frame))


def _is_exchanged(name: str, scores: torch.Tensor, target: torch.Tensor) -> bool:
    """Return whether the target is what was predicted: it has a gradient, and the scores have none.

    That alone may be meant: a distribution that is trained to please a fixed network. So the target is no distribution,
    or what was given as scores are labels.
    """
    if scores.requires_grad or target.grad_fn is None:
        return False
    if not (_is_read(target) and _is_read(scores)):
        made = past(target.grad_fn)
        return made is not None and made.name() in {"AddmmBackward0", "ConvolutionBackward0"}
    labels = bool(((scores == 0) | (scores == 1)).all())
    constant = name != "binary_cross_entropy" and bool(scores.min() == scores.max())
    return bool(target.min() < -_ABOVE) or (labels and not constant)


def _untaken(watch: CallNotes, call: Call, target: torch.Tensor) -> str:
    """Return which values a target has, where its loss does not take them; nothing where it may be meant."""
    name = call.name
    # Zeros are where a target was picked by class: an advantage beside them may be negative.
    if not _is_plain(target) or (name == "cross_entropy" and not (_is_read(target) and bool(target.all()))):
        return ""
    if name in _SIGNED:
        return _labels(watch, call, target, (0.0, 1.0))
    reduced = call.result.dim() == 0 if call.result is not None else call.kwargs["reduction"] != "none"
    if not reduced:  # what is wrong may be left out of it afterwards
        return _labels(watch, call, target, (-1.0, 1.0)) if name in _BINARY else ""
    low, high = _extremes(target)
    weight = call.kwargs.get("weight", call.args[2] if len(call.args) > 2 else None)
    if isinstance(weight, torch.Tensor) and name in _BINARY and _is_beyond(name, low, high):
        target = target.masked_fill(weight == 0, 0)  # what counts
        low, high = _extremes(target)
    if not _is_beyond(name, low, high):
        return ""
    found = torch._unique2(target)[0].tolist() if target.numel() <= _MOST_SORTED else []
    listed = 0 < len(found) <= _MOST_LISTED  # each value, where they are few, else the lowest and the highest
    return " ".join(["values" if listed else "range", *(f"{one:.3g}" for one in (found if listed else (low, high)))])


def _is_beyond(name: str, low: float, high: float) -> bool:
    if name == "poisson_nll_loss":
        return -math.inf < low < -_OF_COUNTS * max(high, 1)
    high = 0 if name == "cross_entropy" else high  # more than 1 counts a class more often
    return (low < -_BEYOND or high > 1 + _BEYOND) and math.isfinite(low) and math.isfinite(high)


def _labels(watch: CallNotes, call: Call, target: torch.Tensor, wrong: tuple[float, float]) -> str:
    """Return the values of labels where a line's have been these two alone in every call, and not few."""
    key = call.name, watch.site(call)
    seen, number = watch.labels.get(key, (frozenset(), 0))
    if seen.issubset(wrong):
        seen |= frozenset(_extremes(target))
        if seen.issubset(wrong) and bool(((target != wrong[0]) & (target != wrong[1])).any()):
            seen |= {math.nan}  # something between
        number += target.numel()
        watch.labels[key] = seen, number
        if not seen.issubset(wrong):
            watch.forget("unfit target", call)
    return f"values {wrong[0]:g} {wrong[1]:g}" if seen == set(wrong) and number >= _FEWEST_LABELS else ""


def _extremes(x: torch.Tensor) -> tuple[float, float]:
    low, high = x.aminmax()
    return float(low), float(high)
