"""What the check before training means: questions and answers, in the order of a training."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tensormagic.diagnoses.backward_failures import LINEAR
from tensormagic.diagnoses.lines import as_code
from tensormagic.diagnoses.rule import is_floating, scientific
from tensormagic.reports import Extent, FunctionCheck, Probe, ProbeState, StartReport
from tensormagic.words import count, listed, part_of, plural, tuple_text

WIDE, FAR = 10.0, 10.0  # the spread of inputs, and how far their mean lies from 0, from which they are to be scaled
HIGH, EXCESS = 1.5, 0.5  # the initial loss: so many times the expected one, and so much above it
LEARNED, FELL, FALLS = 0.1, 0.7, 0.9  # what is left of the loss of a few samples
GREAT_RATE, GREAT_DECAY, SHRINKS = 100.0, 1.0, 0.1  # of an optimizer; what decay takes off a weight in one step
EXPLODES = 10.0  # how many times as high the loss is after one step
FEWEST, ENOUGH = 20, 50  # steps that have to be made before it is said that nothing was learned; while the loss falls


def probes_of(report: StartReport) -> tuple[Probe, ...]:
    """Return the questions that could be asked of a model, an optimizer and a batch, with their answers."""
    if report.function is not None:
        return tuple(_function(report, report.function))
    asked = (
        _mode, _optimizer, _inputs, _labels, _forward, _loss, _mixing, _initial_loss, _gradients, _step, _overfit,
    )  # fmt: skip
    return tuple(probe for ask in asked for probe in ask(report))


def _function(report: StartReport, found: FunctionCheck) -> Iterator[Probe]:
    """Yield the answers about one call of a custom Function."""
    if report.error:
        yield _failed_call(report.error)
    growth, when = found.doubled, "when the gradient that arrives is doubled"
    if growth is not None and abs(growth - 2) < LINEAR:
        yield Probe("what arrives", "fine", f"doubles {when}")
    elif growth is not None:
        does = "stays the same" if abs(growth - 1) < LINEAR else f"grows {scientific(growth)} times"
        yield Probe("what arrives", "wrong", f"{does} {when}", "Multiply by it: `grad_output * …`")
    for one in found.arguments:
        measured = "no gradient" if one.by_backward is None else scientific(one.by_backward)
        text = f"{measured} by backward, {scientific(one.by_differences)} by differences, in one direction"
        if one.kink:
            text += "; forward has a kink here, and beside it they agree"
        if one.agrees:
            yield Probe(f"gradient of {one.name}", "fine", text)
        else:
            yield Probe(f"gradient of {one.name}", "wrong", text, "Fine if it is an estimate, or reversed, on purpose")


def _failed_call(error: str) -> Probe:
    if "incorrect number of gradients" in error:
        return Probe("call", "wrong", error, "One gradient for each argument of forward: None for what has none")
    if error.startswith("backward raised"):
        return Probe("call", "unknown", error, "Let backward work with what forward has saved")
    if error.startswith("forward raised"):
        remedy = "Differences need float64: let forward take it, or test a copy that does"
        return Probe("call", "unknown", error, remedy)
    if error.startswith("forward gives another"):
        return Probe("call", "unknown", error, "Draw from torch's, NumPy's or Python's global generator")
    return Probe("call", "unknown", error, "Give finite arguments with which it works in float64")


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
    first = report.first_input
    scales = report.normalises or (first is not None and not _is_raw(first))
    for number, x in enumerate(report.inputs, 1):
        yield _input("inputs" if len(report.inputs) == 1 else f"input {number}", x, scales=scales)


def _is_raw(x: Extent) -> bool:
    return x.std > WIDE or abs(x.mean) > FAR


def _input(what: str, x: Extent, *, scales: bool) -> Probe:
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
        if _is_raw(x) and not scales:
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
        if unfit := _unfit_numbers(report, y):
            yield Probe("targets", unfit[0], f"{text}: {unfit[1]}", unfit[2])
        elif out is None or _is_comparable(report.loss, out, y.shape):
            yield Probe("targets", "fine", text)
        else:
            text = f"{text}, against outputs of {tuple_text(out)}"
            if report.loss.lower().startswith(("binary", "bce")):
                text += f": {report.loss} takes equal shapes only"
            elif not report.error:
                text += ": the loss broadcasts them against each other"
            yield Probe("targets", "look", text, f"Give both one shape{_reshaped(y.shape, out)}")
    else:
        yield _classes(report, y, shape)


_BY_ELEMENT = ("mse", "l1", "smooth", "huber", "binary", "bce", "poisson", "gaussian")  # losses that compare so


def _is_comparable(loss: str, outputs: tuple[int, ...], targets: tuple[int, ...]) -> bool:
    """Return whether targets have the form that a loss compares with outputs; of one's own nobody knows."""
    same = math.prod(outputs) == math.prod(targets) and len(outputs) == len(targets)
    return same or not loss.lower().startswith(_BY_ELEMENT)


def _unfit_numbers(report: StartReport, y: Extent) -> tuple[ProbeState, str, str] | None:
    """Return what is odd about targets that are no integers, whatever their shape: state, reason, remedy."""
    loss, out = report.loss.lower().replace("_", ""), report.outputs
    assert y.low is not None
    assert y.high is not None
    if loss.startswith(("crossentropy", "nllloss")) and out is not None and y.shape == (out[0], *out[2:]):
        return "wrong", f"{report.loss} takes numbers of classes as int64", "`y.long()`"
    if loss.startswith(("bce", "binary")) and (y.low < 0 or y.high > 1):
        counted = (y.low, y.high) == (1, 2)
        return "wrong", f"{report.loss} takes 0 to 1", "`y - 1`" if counted else "Scale them to 0 to 1"
    if loss.startswith(_BY_ELEMENT[:4]) and y.low == y.high != 1 and math.prod(y.shape) > 1:
        return "look", "all the same in this batch", "Look at the targets of other batches"
    return None


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
        if report.out_of_range:
            counted = y.low == 1 and y.high == of
            first = "`y - 1`, as classes are counted from 0" if counted else "As many outputs as classes"
            return Probe("targets", "wrong", f"{text}, and the model has outputs for 0 to {of - 1}", first)
        text += f" of {of}"
    if y.different == 1 and math.prod(y.shape) > 1:
        remedy = "Count them: constant, or is one class far more frequent?" if report.shuffled else "`shuffle=True`"
        return Probe("targets", "look", f"{text}: all the same in this batch", remedy)
    return Probe("targets", "fine", text)


_TELL = "Tell it with a loss: `check(net, optimizer, loader, lambda model, batch: …)`"


def _forward(report: StartReport) -> Iterator[Probe]:
    if not report.error:
        return
    remedy = "Run the batch by itself: `%tensormagic explain on` explains the error"
    if not report.fits:
        text = f"check cannot tell how to call {report.model} with this batch: {report.error}"
        yield Probe("forward", "unknown", text, _TELL)
    elif report.loss_has_gradient is not None:
        yield Probe("backward", "wrong", report.error, remedy)
    elif report.guessed and report.outputs is not None:
        text = f"check cannot tell what {report.loss} takes of what {report.model} returns: {report.error}"
        yield Probe("loss", "unknown", text, _TELL)
    elif report.outputs is not None:
        numbers = report.target is not None and is_floating(report.target.dtype)
        unfit = _unfit_numbers(report, report.target) if numbers and report.target and not report.target.bad else None
        yield Probe("loss", "wrong", report.error, unfit[2] if unfit else remedy)
    else:
        yield Probe("forward", "wrong", report.error, remedy)


def _loss(report: StartReport) -> Iterator[Probe]:
    """Yield what hinders a backward, where a batch was run: there is no loss, or it has no gradient."""
    ran = report.batch and not any(gap.section in {"batch", "copy"} for gap in report.gaps)
    if not ran or report.error or report.out_of_range:
        return
    several = f"{report.loss} gives numbers of shape {tuple_text(report.loss_shape)}, and backward takes one"
    if not report.loss:
        what = "" if report.outputs is None else f" of {tuple_text(report.outputs)}"
        against = "" if report.target is None else f" and targets of {tuple_text(report.target.shape)}"
        text = f"none is given, and none is usual for outputs{what}{against}"
        yield Probe("loss", "unknown", text, f"Give it: `check({report.model}, optimizer, loader, loss)`")
    elif report.loss_has_gradient is None:
        yield Probe("loss", "wrong", f"{report.loss} gives no tensor", "Return the tensor itself, without `.item()`")
    elif not report.loss_has_gradient:
        yield Probe("loss", "wrong", *_without_gradient(report))
    elif math.prod(report.loss_shape) != 1:
        yield Probe("loss", "look", f"{several}; here it is their mean", "`.mean()` before `backward()`")


def _without_gradient(report: StartReport) -> tuple[str, str]:
    """Return why a loss has no gradient, and what to do."""
    text, look = f"{report.loss} has no gradient", "Look for `detach()`, `no_grad`, `argmax` or a new tensor in "
    if not report.trainable:
        return f"{text}: no parameter requires one", f"`{report.model}.requires_grad_(True)`"
    if not report.connected:
        return f"{text}: the outputs of {report.model} have none", f"{look}forward"
    if report.outputs is None:
        return text, f"{look}forward or the loss"
    return f"{text}, although the outputs have one", f"{look}the loss"


def _mixing(report: StartReport) -> Iterator[Probe]:
    if report.mixes:
        text = "the result of one sample depends on others of the batch, in eval mode too"
        remedy = (
            "Look for a `view`, softmax or mean over the batch dimension (TM106, TM612), or a recurrent layer that "
        )
        remedy += "lacks `batch_first=True` (TM613)"
        yield Probe("samples", "look", text, remedy)
    elif report.mixes is not None:
        yield Probe("samples", "fine", "the result of one sample does not depend on the others")


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
        if report.cut_off:
            text = f"none reach {_names(report, report.cut_off)}, although forward calls what holds them"
            remedy = "Look in forward for `detach()`, `no_grad`, or a result that the loss leaves out"
            yield Probe("gradients", "look", text, remedy)
            return
        text = f"none reach {_names(report, report.without_gradient)}"
        yield Probe("gradients", "look", text, "Use them in forward, or freeze them: `requires_grad_(False)`")
    elif report.zero_gradient:
        first = as_code(f"{report.model}.{report.zero_gradient[0]}")
        text = f"exactly zero in {_names(report, report.zero_gradient)}"
        yield Probe("gradients", "look", text, f"`%why {first}` during training explains why")
    else:
        yield Probe("gradients", "fine", f"reach all {plural(report.trainable, 'parameter')}")


def _step(report: StartReport) -> Iterator[Probe]:
    """Yield what the settings of the optimizer, and one step of a copy of it, show."""
    if not report.settings or not report.trainable or len(report.missing or ()) == report.trainable:
        return
    text = remedy = ""
    if report.step is not None and math.isfinite(report.step[0]):
        before, after = report.step
        text = f"one of {report.optimizer} takes the loss of the batch from {scientific(before)} to {scientific(after)}"
        remedy = _bad_step(report, before, after)
    if odd := _odd_settings(report):
        yield Probe("step", "look", "; ".join(filter(None, (odd[0], text))), odd[1])
    elif text:
        yield Probe("step", "look" if remedy else "fine", text, remedy)


def _bad_step(report: StartReport, before: float, after: float) -> str:
    """Return what to do about what a step does to the loss; empty where it is nothing odd."""
    if any(one.maximizes for one in report.settings) and after > before:
        return "`maximize=False`, if the loss is to become small"
    if not math.isfinite(after) or after > EXPLODES * abs(before) + 1:
        return f"A smaller `lr` than {scientific(max(one.rate for one in report.settings))}"
    idle = len(report.zero_gradient) + len(report.without_gradient or ()) == report.trainable
    if after == before and not idle and not any(one.scheduled for one in report.settings):
        return f"A larger `lr` than {scientific(max(one.rate for one in report.settings))}: not a digit changes"
    return ""


def _odd_settings(report: StartReport) -> tuple[str, str] | None:
    """Return what is odd about the settings alone, and what to do."""
    still = [at for at, one in enumerate(report.settings) if not one.rate and one.parameters and not one.scheduled]
    if len(still) == len(report.settings):
        return f"lr is 0: {report.optimizer} changes nothing", "Set `lr`, unless your loop does before each step"
    if still:
        several = plural(sum(report.settings[at].parameters for at in still), "parameter")
        return f"lr is 0 for {several}, in group {still[0]}", "To train them: another `lr`; otherwise freeze them"
    for one in report.settings:
        if one.rate >= GREAT_RATE:
            return f"lr is {scientific(one.rate)}", "Usual are 1e-5 to 1"
        if one.decay >= GREAT_DECAY and (not one.decoupled or one.rate * one.decay >= SHRINKS):
            return f"weight_decay is {scientific(one.decay)}, which draws weights to zero", "Usual are 0 to 0.1"
    return None


def _overfit(report: StartReport) -> Iterator[Probe]:
    tried = report.overfit
    if tried is None or not math.isfinite(tried.first):
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
