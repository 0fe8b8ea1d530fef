"""What the check before training means: questions and answers, in the order of a training."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tensormagic.diagnoses.backward_failures import LINEAR
from tensormagic.diagnoses.lines import as_code
from tensormagic.diagnoses.rule import is_floating, scientific
from tensormagic.reports import Extent, FunctionCheck, Probe, StartReport
from tensormagic.words import count, listed, part_of, plural, tuple_text

WIDE, FAR = 10.0, 10.0  # the spread of inputs, and how far their mean lies from 0, from which they are to be scaled
HIGH, EXCESS = 1.5, 0.5  # the initial loss: so many times the expected one, and so much above it
LEARNED, FELL, FALLS = 0.1, 0.7, 0.9  # what is left of the loss of a few samples
FEWEST, ENOUGH = 20, 50  # steps that have to be made before it is said that nothing was learned; while the loss falls


def probes_of(report: StartReport) -> tuple[Probe, ...]:
    """Return the questions that could be asked of a model, an optimizer and a batch, with their answers."""
    if report.function is not None:
        return tuple(_function(report, report.function))
    asked = (_mode, _optimizer, _inputs, _labels, _forward, _mixing, _initial_loss, _gradients, _overfit)
    return tuple(probe for ask in asked for probe in ask(report))


def _function(report: StartReport, found: FunctionCheck) -> Iterator[Probe]:
    """Yield the answers about one call of a custom Function."""
    if report.error:
        yield Probe("call", "unknown", report.error, "Give finite arguments with which it works in float64")
    growth, when = found.doubled, "when the gradient that arrives is doubled"
    if growth is not None and abs(growth - 2) < LINEAR:
        yield Probe("what arrives", "fine", f"doubles {when}")
    elif growth is not None:
        does = "stays the same" if abs(growth - 1) < LINEAR else f"grows {scientific(growth)} times"
        yield Probe("what arrives", "wrong", f"{does} {when}", "Multiply by it: `grad_output * …`")
    for one in found.arguments:
        measured = "no gradient" if one.by_backward is None else scientific(one.by_backward)
        text = f"{measured} by backward, {scientific(one.by_differences)} by differences, in one direction"
        if one.agrees:
            yield Probe(f"gradient of {one.name}", "fine", text)
        else:
            yield Probe(f"gradient of {one.name}", "wrong", text, "Fine if it is an estimate, or reversed, on purpose")


def _names(report: StartReport, names: Sequence[str]) -> str:
    return listed([as_code(f"{report.model}.{name}") for name in names], most=3, found=len(names))


def _mode(report: StartReport) -> Iterator[Probe]:
    if not report.training:
        text = "in eval mode: dropout is off and batch normalisation uses its running statistics"
        yield Probe("mode", "look", text, f"`{report.model}.train()`")
    elif report.in_eval:
        text = f"in train mode, but {_names(report, report.in_eval)} in eval mode"
        yield Probe("mode", "look", text, f"If that is not intended: `{report.model}.train()`")
    else:
        yield Probe("mode", "fine", "in train mode")


def _optimizer(report: StartReport) -> Iterator[Probe]:
    what = "parameters" if report.missing is None else "optimizer"
    if report.missing and report.unknown_parameters and len(report.missing) == report.trainable:
        text = f"{report.optimizer} holds {plural(report.unknown_parameters, 'parameter')}, but none of {report.model}"
        yield Probe(what, "wrong", text, f"Make it from this model: `{_made(report)}`")
    elif report.missing:
        share = part_of(len(report.missing), report.trainable, "parameter")
        text = f"{report.optimizer} lacks {_names(report, report.missing)}: {share} that require a gradient"
        yield Probe(what, "look", text, f"To train them: `{_made(report)}`; otherwise freeze them")
    elif not report.trainable:
        yield Probe(what, "wrong", "no parameter requires a gradient", "`requires_grad_(True)`")
    elif report.missing is not None:
        frozen = report.parameters - report.trainable
        text = f"{report.optimizer} holds all {plural(report.trainable, 'parameter')} that require a gradient"
        yield Probe(what, "fine", text + (f"; {count(frozen)} are frozen" if frozen else ""))


def _made(report: StartReport) -> str:
    return f"torch.optim.{report.optimizer}({report.model}.parameters(), …)"


def _inputs(report: StartReport) -> Iterator[Probe]:
    for number, x in enumerate(report.inputs, 1):
        yield _input("inputs" if len(report.inputs) == 1 else f"input {number}", x)


def _input(what: str, x: Extent) -> Probe:
    shape = f"{tuple_text(x.shape)} {x.dtype}"
    if x.bad:
        return Probe(what, "wrong", f"{shape}: {plural(x.bad, 'value')} NaN or infinite", "Clean the data first")
    if x.low is None or x.high is None:
        return Probe(what, "unknown", shape)
    if is_floating(x.dtype):
        span = f"{shape}, from {scientific(x.low)} to {scientific(x.high)}, mean {scientific(x.mean)}, "
        span += f"standard deviation {scientific(x.std)}"
        if x.low == x.high:
            return Probe(what, "look", f"{shape}: all are {scientific(x.low)}", "Look at the batches of the loader")
        if x.std > WIDE or abs(x.mean) > FAR:
            return Probe(what, "look", span, "Standardise: `(x - mean) / std`, of the training data")
        return Probe(what, "fine", span)
    return Probe(what, "fine", f"{shape}, from {x.low:.0f} to {x.high:.0f}")


def _labels(report: StartReport) -> Iterator[Probe]:
    y, out = report.target, report.outputs
    if y is None:
        return
    shape = f"{tuple_text(y.shape)} {y.dtype}"
    if y.bad:
        yield Probe("targets", "wrong", f"{shape}: {plural(y.bad, 'value')} NaN or infinite", "Clean the data first")
    elif y.low is None or y.high is None:
        yield Probe("targets", "unknown", shape)
    elif is_floating(y.dtype):
        text = f"{shape}, from {scientific(y.low)} to {scientific(y.high)}"
        if out is None or (math.prod(out) == math.prod(y.shape) and len(out) == len(y.shape)):
            yield Probe("targets", "fine", text)
        else:
            text = f"{text}, against outputs of {tuple_text(out)}"
            if report.loss.startswith("binary_cross_entropy"):
                text += f": {report.loss} takes equal shapes only"
            elif not report.error:
                text += ": the loss broadcasts them against each other"
            yield Probe("targets", "look", text, f"Give both one shape{_reshaped(y.shape, out)}")
    else:
        yield _classes(report, y, shape)


def _reshaped(target: tuple[int, ...], outputs: tuple[int, ...]) -> str:
    if outputs == (*target, 1):
        return ": `y.unsqueeze(-1)`"
    if target == (*outputs, 1):
        return ": `y.squeeze(-1)`"
    return ": `y.view_as(outputs)`" if math.prod(target) == math.prod(outputs) else ""


def _classes(report: StartReport, y: Extent, shape: str) -> Probe:
    assert y.low is not None
    assert y.high is not None
    text = f"{shape}, classes {y.low:.0f} to {y.high:.0f}"
    of = report.outputs[1] if report.outputs is not None and len(report.outputs) > 1 else 0
    if report.loss.lower().replace("_", "").startswith(("crossentropy", "nll")) and of:
        if report.value is None and not report.error:
            counted = y.low == 1 and y.high == of
            first = "`y - 1`, as classes are counted from 0" if counted else "As many outputs as classes"
            return Probe("targets", "wrong", f"{text}, and the model has outputs for 0 to {of - 1}", first)
        text += f" of {of}"
    if y.different == 1 and math.prod(y.shape) > 1:
        return Probe("targets", "look", f"{text}: all the same in this batch", "Shuffle the data: `shuffle=True`")
    return Probe("targets", "fine", text)


def _forward(report: StartReport) -> Iterator[Probe]:
    if report.error:
        remedy = "Run the batch by itself: `%tensormagic explain on` explains the error"
        yield Probe("forward", "wrong", report.error, remedy)


def _mixing(report: StartReport) -> Iterator[Probe]:
    if report.mixes:
        text = "the result of the first sample depends on the others of the batch, in eval mode too"
        remedy = "Look for a `view`, softmax or mean over the batch dimension (TM106, TM612)"
        yield Probe("samples", "look", text, remedy)
    elif report.mixes is not None:
        yield Probe("samples", "fine", "the result of the first sample does not depend on the others")


_LOGITS = {"crossentropy": "softmax", "bcewithlogits": "sigmoid", "binarycrossentropywithlogits": "sigmoid"}


def _unfit(report: StartReport) -> tuple[str, str] | None:
    """Return why the loss does not fit what the model ends with, and what to do; None where it may."""
    loss = report.loss.lower().replace("_", "").removesuffix("loss")
    if report.last and _LOGITS.get(loss) == report.last:
        text = f"and applies {report.last} itself, with which the model ends already"
        return text, f"Leave the {report.last} out in training (TM608)"
    last = report.overfit.last if report.overfit is not None else 0.0
    classes = report.loss in {"NLLLoss", "nll_loss"} and report.target is not None and "int" in report.target.dtype
    if classes and (report.last in {"softmax", "sigmoid"} or min(report.value or 0.0, last) < 0):
        text = "and takes logarithms of probabilities, which the outputs are not"
        return text, "End the model with `log_softmax`, or take `F.cross_entropy`, which applies it"
    return None


def _initial_loss(report: StartReport) -> Iterator[Probe]:
    if report.value is None:
        return
    text = f"{report.loss} is {scientific(report.value)}"
    expected = report.expected
    if not math.isfinite(report.value):
        yield Probe("initial loss", "wrong", text, "`%%tracegrad` finds where it began")
    elif unfit := _unfit(report):
        yield Probe("initial loss", "look", f"{text}, {unfit[0]}", unfit[1])
    elif expected is None:
        yield Probe("initial loss", "fine", text)
    elif report.value > HIGH * expected and report.value > expected + EXCESS:
        text = f"{text}, and {scientific(expected)} for a model that knows nothing"
        remedy = "Start with smaller weights in the last layer, and scale inputs and targets"
        yield Probe("initial loss", "look", text, remedy)
    else:
        yield Probe("initial loss", "fine", f"{text}; a model that knows nothing has {scientific(expected)}")


def _gradients(report: StartReport) -> Iterator[Probe]:
    if report.without_gradient is None:
        return
    if report.bad_gradient:
        text = f"NaN or infinite in {_names(report, report.bad_gradient)}"
        yield Probe("gradients", "wrong", text, "`%%tracegrad` finds where it began")
    elif report.without_gradient:
        text = f"none reach {_names(report, report.without_gradient)}"
        yield Probe("gradients", "look", text, "Use them in forward, or freeze them: `requires_grad_(False)`")
    elif report.zero_gradient:
        first = as_code(f"{report.model}.{report.zero_gradient[0]}")
        text = f"exactly zero in {_names(report, report.zero_gradient)}"
        yield Probe("gradients", "look", text, f"`%why {first}` during training explains why")
    else:
        yield Probe("gradients", "fine", f"reach all {plural(report.trainable, 'parameter')}")


def _overfit(report: StartReport) -> Iterator[Probe]:
    tried = report.overfit
    if tried is None:
        return
    fell = f"loss from {scientific(tried.first)} to {scientific(tried.last)}"
    text = f"{plural(tried.samples, 'sample')} in {plural(tried.steps, 'step')} of Adam on a copy: {fell}"
    enough = tried.last <= LEARNED * abs(tried.first) or tried.last < tried.first - abs(tried.first) * (1 - LEARNED)
    if enough:
        yield Probe("overfits", "fine", text)
    elif tried.last <= FELL * tried.first:
        yield Probe("overfits", "fine", f"{text}, and still falls")
    elif tried.steps < FEWEST or (tried.steps < ENOUGH and tried.last < FALLS * tried.first):
        yield Probe("overfits", "unknown", f"{text}: too few steps to tell")
    else:
        remedy = "A model that cannot learn a few samples usually has a bug: run `%%tracegrad` on one step"
        yield Probe("overfits", "look", text, remedy)
