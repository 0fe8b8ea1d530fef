"""Which calls the tracer looks at, in one table, and what it notes of those in loops."""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from types import FrameType
from typing import Any, Final, NamedTuple

import torch
from torch import nn

from tensormagic.collectors.autograd_errors.untracked_writes import NOTED
from tensormagic.collectors.calls import call_notes, seen_calls, seen_losses, seen_made
from tensormagic.collectors.calls.call_notes import ALONE, CLOSELY, MODULE_CALL, Call, CallNotes, Place
from tensormagic.collectors.detachment.detachment_facts import ROLES, named
from tensormagic.collectors.graphs.live_nodes import grad_fn_of, next_nodes, reaches
from tensormagic.collectors.graphs.saved_tensors import saved_tensor
from tensormagic.collectors.objects.children import updated_by
from tensormagic.collectors.objects.identity import Marks, name_of
from tensormagic.collectors.quiet import TensorRef, quiet
from tensormagic.collectors.where.source import frame_of, is_own_code, outwards
from tensormagic.reports import RunningSum, UntrainedNorm

# What single calls show of the training loop.
#
# A sum that each step adds an attached loss to (``total += loss``) keeps the graphs of all steps alive. Of the last sum
# that a line made, only the number of its node is kept: one that was made after a later backward, and has that node in
# its history, goes on from step to step. Batch normalisations in train mode where gradients are off are an evaluation
# that moves running statistics. And torch tells the profiler, and so us, when ``optimizer.zero_grad()`` begins.

PROFILED: Final[Any] = torch.ops.profiler._record_function_enter_new

_SCALE, _SCALED_STEP = torch.amp.GradScaler.scale.__code__, torch.amp.GradScaler.step.__code__
_MEASURES = 1e6  # a limit from which on nobody wants to clip, but to know the norm

MOST_REDUCED, MOST_OPTIMIZERS = 256, 64
HABIT = 3  # times that an optimizer clears: once may be tidying up


class LoopNotes:
    """What single calls show of the training loop."""

    def __init__(self) -> None:
        self.cleared: int | None = None  # the line that called ``optimizer.zero_grad()`` since the last backward
        self.cleared_last: int | None = None  # the same, also before that
        self.clears = Marks(MOST_OPTIMIZERS)  # optimizers whose gradients were cleared: how often, at which line last
        # Those that make a habit of it, by name and line, and what they hold: they go with the function that made them.
        self.habits: list[tuple[weakref.ref[Any], str, int | None, list[weakref.ref[Any]]]] = []
        self.passes = 0  # how many backward passes there were
        self.froze: int | None = None  # the line that switched a leaf's gradient off last
        self.steps_to_look = 0  # at how many more steps it is asked what that line has frozen
        self.region: Callable[[], int | None] = lambda: None  # gives the line that has switched gradients off
        # Normalisations that learn nothing, by whether gradients were on (then their weights are frozen), module and
        # line: after how many passes the last batch was, batches, how many in a row now, the most.
        self.norms: dict[tuple[bool, str, int | None], tuple[int, int, int, int]] = {}
        self.weights: dict[str, tuple[weakref.ref[Any], torch.Tensor]] = {}  # of the frozen ones, and what they were
        self.stepped: dict[int, weakref.ref[Any]] = {}  # optimizers, since the last backward
        self.clips: dict[int | None, Counter[str]] = {}  # calls of `clip_grad_norm_`, by line: as in `Clipping`
        self.scalers = Marks(MOST_OPTIMIZERS)  # optimizers, each with the ``GradScaler`` that steps it, held weakly
        # The ``GradScaler`` that scaled a loss since the last backward, and the number of the node that did.
        self.scaled: tuple[weakref.ref[Any], int] | None = None
        self.scaler: weakref.ref[Any] | None = None  # that whose factor the last backward began with
        # By line that made a sum: the number of its last node, after how many passes that was, steps that it went on
        # for, and the most that one did: it may begin anew in each epoch.
        self.lines: dict[int, tuple[int, int, int, int]] = {}

    def sums(self) -> tuple[RunningSum, ...]:
        """Return the sums that went on over steps."""
        lines = list(self.lines.items())
        return tuple(RunningSum(location=site, steps=longest) for site, (_, _, _, longest) in lines if longest > 1)

    def untrained(self, *, graded: bool) -> tuple[UntrainedNorm, ...]:
        """Return these normalisations: those with gradients on whose weights have stayed, or those with them off."""
        return tuple(
            UntrainedNorm(module=path, location=site, batches=batches, longest=longest)
            for (on, path, site), (_, batches, _, longest) in list(self.norms.items())
            if on is graded and not (on and self._is_moved(path))
        )

    def _is_moved(self, path: str) -> bool:
        """Return whether a frozen weight is no longer what it was: it follows another, as a teacher does."""
        reference, before = self.weights[path]
        weight = reference()
        with quiet():
            return weight is not None and not torch.equal(weight.detach(), before)

    def cleared_by(self, optimizer: Any) -> int | None:
        """Return the line that makes a habit of clearing the gradients of an optimizer; None where none does."""
        times, site = self.clears.of(optimizer) or (0, None)
        return site if times >= HABIT else None

    def stepped_by(self, optimizer: Any, frame: FrameType | None) -> None:
        """Note the ``GradScaler`` that makes a step, if one does: clipping has to wait for its `unscale_`."""
        if (frame := frame_of(_SCALED_STEP, frame)) is not None:
            self.scalers.put(optimizer, weakref.ref(frame.f_locals["self"]))

    def before_pass(self, nodes: Iterable[Any]) -> None:
        """Note the ``GradScaler`` whose factor is in what a backward begins with; ``nodes`` are all of its graph.

        The loss that it scaled is in there, and not divided by the factor again: a mean over batches divides, too, by
        far less. The factor itself may be on a device, for which nobody waits.
        """
        (reference, number), self.scaled, self.scaler = self.scaled or (None, -1), None, None
        if reference is None or (scaler := reference()) is None:
            return
        later = {node._sequence_nr(): node for node in nodes if node._sequence_nr() >= number}
        below, left = {id(target): node for node in later.values() for target in next_nodes(node)}, 1.0
        at = later.get(number)
        if at is None:
            return
        with quiet():
            while (at := below.get(id(at))) is not None:
                by = saved_tensor(at, "other") if at.name() in {"DivBackward0", "MulBackward0"} else None
                if by is not None and by.numel() == 1 and by.device.type == "cpu" and by != 0:
                    left = left / float(by) if at.name() == "DivBackward0" else left * float(by)
        self.scaler = reference if abs(left) * math.sqrt(scaler._init_scale) > 1 else None

    def scaler_of_step(self, optimizer: Any, frame: FrameType | None) -> Any:
        """Return the ``GradScaler`` whose factor is in the gradients of a step that it does not make; else None."""
        is_left = is_scaled(optimizer, self.scaler) and frame_of(_SCALED_STEP, frame) is None
        return self.scaler() if is_left and self.scaler is not None else None


def references_to(optimizer: Any) -> list[weakref.ref[Any]]:
    """Return weak references to what an optimizer updates."""
    return [TensorRef(one) for one in updated_by(optimizer)]


def added(watch: CallWatch, call: Call) -> None:
    """Look at a sum of two numbers."""
    result, loop = call.result, watch.loop
    if not isinstance(result, torch.Tensor) or result.numel() != 1 or (node := grad_fn_of(result)) is None:
        return
    if (site := watch.site(call)) is None:
        return
    number, passes, steps, longest = loop.lines.get(site, (-1, loop.passes, 1, 1))
    if passes != loop.passes:
        steps = steps + loop.passes - passes if reaches(node, number) else 1
    loop.lines[site] = node._sequence_nr(), loop.passes, steps, max(longest, steps)


def scaled(watch: CallWatch, call: Call) -> None:
    """Note the ``GradScaler`` that scales a loss."""
    if call.frame.f_code is _SCALE and getattr(call.result, "grad_fn", None) is not None:
        watch.loop.scaled = weakref.ref(call.frame.f_locals["self"]), call.result.grad_fn._sequence_nr()


def normalised(watch: CallWatch, call: Call) -> None:
    """Look at a normalisation in train mode: with gradients off, amid a training; or of a weight that is frozen."""
    graded, given = torch.is_grad_enabled(), call.kwargs
    if call.function is torch.nn.functional.batch_norm:  # seen as a whole, beside a mode of the user's
        mean, weight, training = call.args[1], given.get("weight"), given.get("training", False)
    elif len(call.args) > 5:
        _, weight, _, mean, _, training = call.args[:6]
    else:
        return
    learns = weight is None or mean is None or weight.requires_grad is graded
    if not training or learns or not (graded or watch.loop.passes):
        return
    frame = frame_of(MODULE_CALL, call.frame)
    module = frame.f_locals["self"] if frame is not None else None
    if getattr(module, "momentum", None) is not None:  # None: all anew, on purpose
        loop = watch.loop
        key = graded, watch.module_path(call.frame), None if graded else loop.region()
        if graded and weight is not None and key[1] not in loop.weights:
            loop.weights[key[1]] = TensorRef(weight), weight.detach().clone()
        last, batches, in_a_row, longest = loop.norms.get(key, (loop.passes, 0, 0, 0))
        in_a_row = in_a_row + 1 if last == loop.passes else 1
        loop.norms[key] = loop.passes, batches + 1, in_a_row, max(longest, in_a_row)


def cleared(watch: CallWatch, call: Call) -> None:
    """Note the line, where it is that which begins."""
    if str(call.args[0]).startswith("Optimizer.zero_grad"):
        loop = watch.loop
        loop.cleared = loop.cleared_last = site = watch.site(call)
        frame = next((each for each in outwards(call.frame) if each.f_code.co_name == "zero_grad"), None)
        if frame is not None and (optimizer := frame.f_locals.get("self")) is not None:
            times, _ = loop.clears.of(optimizer) or (0, None)
            loop.clears.put(optimizer, (times + 1, site))
            if times + 1 == HABIT and len(loop.habits) < MOST_OPTIMIZERS:
                held = references_to(optimizer)
                loop.habits.append((weakref.ref(optimizer), name_of(optimizer, (), frame), site, held))


def froze(watch: CallWatch, call: Call) -> None:
    """Note the line, where the gradient of a leaf is switched off; `zero_grad` does so to gradients themselves."""
    if False in (*call.args[1:2], *call.kwargs.values()) and call.frame.f_code.co_name != "zero_grad":
        watch.loop.froze, watch.loop.steps_to_look = watch.site(call), CLOSELY


def reduced(watch: CallWatch, call: Call) -> None:
    """Note of what node a result is that ranks add up where it lies: autograd does not know of it."""
    x = call.args[0] if call.args else call.kwargs.get("tensor")
    if len(watch.reduced) < MOST_REDUCED and isinstance(x, torch.Tensor) and (node := grad_fn_of(x)) is not None:
        watch.reduced.add(node._sequence_nr())


def clipped(watch: CallWatch, call: Call) -> None:
    """Look at a call of `clip_grad_norm_`, from inside: at what it is given, and whether a step has used it already."""
    if not call.filename.endswith("torch/nn/utils/clip_grad.py"):
        return
    frame = next((each for each in outwards(call.frame) if each.f_code.co_name == "clip_grad_norm_"), None)
    if frame is None or not float(frame.f_locals.get("max_norm", 0)) < _MEASURES:
        return
    parameters = frame.f_locals.get("parameters")
    counts = watch.loop.clips.setdefault(watch.site(call), Counter())
    counts["calls"] += 1
    if not isinstance(parameters, list) or not parameters:
        counts["exhausted"] += 1
    elif call.name == "tensor":
        counts["empty"] += 1
    else:
        wanted = next((id(one) for one in parameters if one.grad is not None), 0)
        counts["late"] += any(_holds(reference(), wanted) for reference in watch.loop.stepped.values())
        known = [(mark(), mark.note) for mark in list(watch.loop.scalers.values())]  # each from its first step on
        pairs = [pair for pair in known if _holds(pair[0], wanted)] if known else [(None, watch.loop.scaler)]
        counts["scaled"] += any(is_scaled(*pair) for pair in pairs)


def _holds(optimizer: Any, wanted: int) -> bool:
    groups = optimizer.param_groups if optimizer is not None else ()
    return any(id(one) == wanted for group in groups for one in group["params"])


def is_scaled(optimizer: Any, scaler: weakref.ref[Any] | None) -> bool:
    """Return whether an optimizer's (None: any's) gradients have the scaler's factor: `unscale_` was not called yet."""
    scales = scaler() if scaler is not None else None
    if scales is None or not scales.is_enabled():
        return False
    asked = scales._per_optimizer_states.items()
    return all(one["stage"].name == "READY" for key, one in asked if optimizer is None or key == id(optimizer))


# A line of the user's that runs a thousand times is looked at closely in its first calls and at exponentially rarer
# ones after that; the rest are counted. A call from library code is always looked at: there one place serves many
# lines of the user's.

Look = Callable[["CallWatch", Call], None]


class CallWatch(CallNotes):
    """Looks at the calls of one run; the arguments are those of `CallNotes`."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._places: dict[tuple[object, int], Place] = {}
        self.reduced: set[int] = set()  # numbers of nodes whose results ranks have added up in place
        self.loop = LoopNotes()

    def place(self, line: object, frame: FrameType) -> Place | None:
        """Count a call that ``frame`` has made, and return its place; None where that is all (0.35 µs).

        ``line`` stands for the line, and is one object for all of its calls.
        """
        key = (line, frame.f_lasti)
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = Place(sparing=is_own_code(frame.f_code.co_filename))
        place.calls = number = place.calls + 1
        return None if place.sparing and number > CLOSELY and number & (number - 1) else place

    def look(self, looks: Sequence[Look], call: Call, place: Place) -> None:
        """Look at a call. Never raises."""
        place.looked += 1
        if not _is_hidden():
            self._place = place
            self.guarded(self._look, looks, call)

    def _look(self, looks: Sequence[Look], call: Call) -> None:
        for look in looks:
            look(self, call)

    def before(self, function: Any, args: tuple[Any, ...]) -> None:
        """Look at what a call is about to write, while memory is followed that nobody wrote. Never raises."""
        if args and not _is_hidden() and str(getattr(function, "__name__", "")).endswith("_"):
            self.guarded(seen_made.about_to_write, self, args[0])

    def follow(self, call: Call) -> None:
        """Look at a call while something is followed: results that grew, memory that nobody wrote. Never raises."""
        if not _is_hidden():
            self._place = ALONE
            self.guarded(self._look, (seen_calls.follow_wide, seen_made.follow_fresh), call)


_current_node, _transforms = torch._C._current_autograd_node, torch._C._functorch.peek_interpreter_stack


def _is_hidden() -> bool:
    """Say whether the engine runs, and calls, or a transform of ``torch.func``, whose tensors stand for others."""
    return _current_node() is not None or _transforms() is not None


# Which calls the tracer cares about: one table, so that every other call costs one look-up in it and no more. To watch
# another call, write a look (``look(watch, call)``) in a file of its own, and a line in `_LOOKS`.


class Watched(NamedTuple):
    """What a call is to the tracer."""

    role: str | None  # where it ends the gradient's way; see `collectors.detachment.detachment_facts`
    looks: tuple[Look, ...]  # that are taken once it has been made, ever more rarely
    noted: str  # as what `untracked_writes` notes it (a write in place above all), each time
    anywhere: tuple[Look, ...]  # of the looks, those at calls from library code, too


# The last two are seen as wholes where a mode of the user's is on beside ours, as with ``torch.set_default_device``.
_OWNERS: tuple[Any, ...] = (torch.Tensor, torch, torch._C._nn, torch._C._VariableFunctions, nn.functional, nn.init)

_LOOKS: tuple[tuple[Look, tuple[str, ...]], ...] = (
    (seen_calls.copied, ("reshape", "flatten", "ravel", "reshape_as")),
    (added, ("__add__", "__radd__", "__iadd__", "add", "add_")),
    (seen_calls.both_grew, seen_calls.BROADCASTS),
    (seen_calls.grew_in_a_loss, seen_calls.JOINED),
    (seen_calls.grew_in_a_whole_loss, call_notes.LOSSES),
    (call_notes.promoted, (*call_notes.ELEMENTWISE, *call_notes.LOSSES, *call_notes.JOINING)),
    (call_notes.mixed, (*call_notes.ELEMENTWISE, *call_notes.JOINING, *call_notes.CONVOLUTIONS)),
    (call_notes.made_double, ("from_numpy", "tensor", "as_tensor", "asarray", "linspace")),
    (seen_losses.normalised, seen_losses.NAMES),
    (seen_calls.regrouped, ("view", "reshape")),
    (seen_calls.same_memory, ("stack", "cat", "concat")),
    (call_notes.wrapped, ("add", "sub", "mul", "__radd__", "__rsub__", "__rmul__", "rsub", "neg", "__neg__")),
    (seen_losses.no_logarithms, ("kl_div",)),
    (seen_losses.unfit_target, seen_losses.TARGETED),
    (seen_losses.many_labels, ("log_sigmoid",)),
    (seen_losses.likelihood_over, ("nll_loss_nd", "nll_loss")),
    (seen_losses.weights_over, ("matmul", "__matmul__", "bmm")),
    (seen_losses.einsum_over, ("einsum",)),
    (seen_losses.samples_over, ("softmax", "log_softmax")),
    (seen_losses.alone, ("softmax", "log_softmax", "cross_entropy_loss", "cross_entropy")),
    (seen_losses.normalised_alone, ("layer_norm", "group_norm")),
    (seen_calls.recurred, ("lstm", "gru", "rnn_tanh", "rnn_relu")),
    (seen_calls.attended, ("softmax", "scaled_dot_product_attention")),
    (seen_calls.one_of_the_batch, ("__getitem__",)),
    (seen_calls.summed_by_index, ("__setitem__",)),
    (seen_losses.not_detached, ("mul", "__mul__", "__rmul__")),
    (seen_losses.bootstrapped, ("mse_loss", "smooth_l1_loss", "huber_loss", "l1_loss")),
    (seen_made.loaded, ("random_",)),
    (seen_made.dropped, seen_made.DROPPING),
    (seen_made.drew, seen_made.DRAWS),
    (seen_made.asked_for, ("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided")),
    (seen_calls.waited, seen_calls.WAITS),
    (seen_made.updated, ("add", "sub")),
    (seen_made.thrown_away, seen_made.CHANGES),
    (normalised, ("batch_norm",)),
    (clipped, ("stack", "tensor")),  # what `clip_grad_norm_` calls once, with gradients and without
    (scaled, ("mul", "__mul__")),  # what `GradScaler.scale` calls
)


# Of two tensors of the same shape and the same dtype, few need be asked: no table, no promotion, no sum of numbers.
_OF_UNLIKE = frozenset({added, seen_calls.both_grew, call_notes.promoted, call_notes.mixed, call_notes.wrapped})


_OF_OWN_LINES = frozenset({
    seen_calls.regrouped, seen_calls.one_of_the_batch, seen_calls.summed_by_index, seen_made.thrown_away
})  # fmt: skip


def _of_unlike(looks: tuple[Look, ...]) -> tuple[Look, ...]:
    """Return one look in place of those at two tensors that differ; the others stay as they are."""
    some = tuple(one for one in looks if one in _OF_UNLIKE)

    def unlike(watch: CallWatch, call: Call) -> None:
        x, y = call.args[:2] if len(call.args) > 1 else (None, None)
        plain = type(x) is torch.Tensor and type(y) is torch.Tensor and x.dtype is y.dtype is torch.float32
        if not (plain and x.dim() in {2, 3} and x.shape == y.shape and x.numel() > 1):
            for look in some:
                look(watch, call)

    return (unlike, *(one for one in looks if one not in _OF_UNLIKE)) if len(some) > 1 else looks


def _watched() -> dict[Any, Watched]:
    asks: Any = torch.Tensor.requires_grad
    looks: dict[Any, tuple[Look, ...]]
    looks = {PROFILED: (cleared,), asks.__set__: (froze,), torch.Tensor.requires_grad_: (froze,)}
    if torch.distributed.is_available():
        looks[torch.distributed.all_reduce] = (reduced,)
    for look, names in _LOOKS:
        for function in dict.fromkeys(function for _, function in named(names, _OWNERS)):
            looks[function] = (*looks.get(function, ()), look)
    watched = {}
    for function in {**ROLES, **looks, **NOTED}:
        every = _of_unlike(looks.get(function, ()))
        # What shapes and indices mean is asked of the user's own lines alone: a library's are right by themselves.
        anywhere = tuple(look for look in every if look not in _OF_OWN_LINES)
        watched[function] = Watched(ROLES.get(function), every, NOTED.get(function, ""), anywhere)
    return watched


WATCHED: Final[dict[Any, Watched]] = _watched()
