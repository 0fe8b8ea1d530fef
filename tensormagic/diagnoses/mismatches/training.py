"""What a training step calls: gradients that are asked for, optimizers, schedulers and scalers, and transforms."""

from __future__ import annotations

import ast
from ast import unparse

from tensormagic.diagnoses.graph_cuts import call_words
from tensormagic.diagnoses.lines import expression_of, instead_of_write
from tensormagic.diagnoses.mismatches.call import Call, Given, mismatch, needed
from tensormagic.diagnoses.mismatches.table import Messages
from tensormagic.diagnoses.modules import contents, registering
from tensormagic.diagnoses.rule import is_differentiable
from tensormagic.reports import Mismatch
from tensormagic.reports.failure import NothingToTrain, SavedWrite
from tensormagic.words import article, count, listed

says = Messages(globals())


@says(r"One of the differentiated Tensors does not require grad")
def _no_way_recorded(call: Call) -> Mismatch:
    wrong = needed(call.every(lambda one: one.role == "inputs" and not one.operand.requires_grad) or None)
    which = f"which {'do' if wrong[1:] else 'does'} not require a gradient"
    if cut := next(iter(call.report.cuts), None):
        place = call.report.locations[cut.location] if cut.location is not None else None
        which = f"which {call_words(cut, place)} cut off from what it was made of"
    rule = f"Nothing was recorded that leads back to {listed([one.name for one in wrong])}, {which}."
    asks = [f"{one.code}.requires_grad_()  # before it is used" for one in wrong if is_differentiable(one.dtype)]
    return mismatch("argument", rule, *(one.whole() for one in wrong), maybe=[] if cut else asks)


@says(r"optimizer got an empty parameter list")
def _nothing_to_train(call: Call) -> Mismatch:
    model, given = call.report.nothing_to_train, [one.whole() for one in call.given[:1]]
    registered = [registering(each)[0] for each in model.hidden] if model is not None else []
    return mismatch("argument", f"There is no parameter to train: {_why_none(model)}", *given, maybe=registered)


def _why_none(model: NothingToTrain | None) -> str:
    if model is None:
        return (
            "a generator such as net.parameters() is empty after its first use, and a module does not register layers "
            "in a plain list."
        )
    if model.hidden:
        held = [f"{each.name} is {contents(each)}" for each in model.hidden]
        return f"{listed(held)}, which {model.name} does not register."
    if not model.parameters:
        return f"{model.name}, {article(model.kind)}, has none."
    none = "requires a gradient" if model.frozen == model.parameters else "was chosen"
    return f"{model.name} has {count(model.parameters)}, and none of them {none}."


says.table(r"""
The differentiated Tensor at index (?P<at>\d+) appears to not|One of the differentiated Tensors appears to not
    with asked: [one for one in call.given if one.role == "inputs"]
    with unused: asked if at is None else [asked[int(at)]]
    with which: ("one of " if unused[1:] else "") + listed([one.name for one in unused])
    with made: "" if unused[0].operand.is_leaf else " What was computed from the same values in another way does not \
count."
    with places: [call.report.locations[cut.location] for cut in call.report.cuts if cut.location is not None]
    with ended: [f"{call_words(cut, at)} ({at.label})" for cut, at in zip(call.report.cuts, places)]
    with why: f"{ended[0]} cut it off" if ended else "it has no gradient, and allow_unused=True gives None for it"
    argument: Nothing that was differentiated was computed from {which}: {why}.{made}
    parts: one for one in unused; maybe: {call.with_keyword("torch.autograd.grad", "allow_unused", True)} when not ended

`inputs` argument to `\w+\(\)` cannot be empty|grad requires non-empty inputs
    argument: The list of tensors to differentiate by is empty: a generator such as net.parameters() is empty after its
        first use.
    parts: one for one in call.given when one.role == "inputs"

can't retain_grad on Tensor that has requires_grad=False
cannot register a hook on a tensor that doesn't require gradient
    with given: [one for one in call.tensors if one.role == "inputs"] or [first]
    with wrong: [one for one in given if not one.operand.requires_grad][0]
    argument: No gradient will come to {wrong.name}, which does not require one.
    parts: wrong; maybe: {wrong.code}.requires_grad_()  # before it is used

^'(?P<kind>float|int|NoneType|list|tuple)' object has no attribute 'backward'
    with takes: ": .item() and float() take a number out of its graph" if kind in ("float", "int") else ""
    with what: {"NoneType": "None (a function without return?)", "list": "a list"}.get(kind, article(kind))
    argument: Backward starts from a tensor, and {call.receiver or "this"} is {what}{takes}.
    maybe: sum({call.receiver}).backward() when kind in ("list", "tuple") and call.receiver

grad can be implicitly created only for real scalar outputs but got torch\.(?P<dtype>\w+)
    with loss: first one.dtype == dtype
    dtype: A loss is a real number, and {loss.name} is {dtype}: take its absolute value or its real part.
    parts: loss is {dtype} must be float32; maybe: {loss.code}.abs(); maybe: {loss.code}.real

Function '(?P<name>\w+?)(?:Backward\d*)?' returned nan values in its \d+th output
    argument: Anomaly detection stops at the first backward function that returns NaN: that of {name}. Its warning names
        the line that called it, and %%tracegrad shows what came there.

Expected to have finished reduction in the prior iteration before starting a new one
    argument: Parameters of the DistributedDataParallel model got no gradient in the step before: something that it
        returned, or a part of it, was not used in the loss.
    maybe: DistributedDataParallel(…, find_unused_parameters=True)

CUDA error: device-side assert triggered
    argument: A value on the GPU was out of range, as a rule a class or an index, in this call or in one before: on the
        CPU the same call says which. No call of this process can use the GPU any more.

you can only change requires_grad flags of leaf variables
    argument: Only a leaf can be told to require no gradient, and {first.name} was computed: a copy without its history
        requires none.
    parts: first; try: {first.code}.detach()

Only Tensors created explicitly by the user \(graph leaves\) support the deepcopy protocol
    argument: A deep copy has no place for the graph that {first.name} was computed in: copy its values alone.
    parts: first; maybe: {first.code}.detach().clone()

Inference tensors cannot be saved for backward
    with others: every not one.operand.requires_grad
    argument: A layer or operation that learns saves its operands for backward, and one of these was made under
        torch.inference_mode(), which forbids that: compute it under torch.no_grad(), or use a clone.
    parts: one for one in others when len(others) == 1; maybe: {one.code}.clone() for one in others

Inplace update to inference tensor outside InferenceMode
    argument: A tensor made under torch.inference_mode(), as {first.name} was, can only be changed there: use a clone.
    parts: first; maybe: {first.code}.clone()

# -- optimizers

'(?P<kind>\w+)' object is not iterable
    if: call.report.function.startswith(("torch.optim.", "torch.nn.utils.clip_grad"))
    with name: anything.operand.name
    with taker: "An optimizer" if "optim" in call.report.function else f"The function {call.short_title}"
    argument: {taker} takes parameters, and {name or "what it was given"} is {article(kind)}.
    parts: anything is {kind}; try: {anything.code}{"" if kind == "method" else ".parameters"}() when name

params argument given to the optimizer should be an iterable of Tensors or dicts, but got
    argument: An optimizer takes a list of parameters, and {anything.name} is one tensor.
    parts: anything; maybe: [{anything.code}]

some parameters appear in more than one parameter group
    argument: A parameter can be in only one group, and one of these is in two: leave it out of the others.

parameter group didn't specify a value of required optimization parameter (?P<name>\w+)
    argument: The optimizer also needs {name}.

LBFGS\.step\(\) missing 1 required positional argument: 'closure'
    argument: LBFGS computes the loss several times in a step: step takes a function that clears the gradients, computes
        the loss, calls backward on it and returns it.

(?P<name>\w+) does not support (?P<kind>dense|sparse) gradients, please consider (?P<other>\w+) instead
    argument: The optimizer {name} does not take {kind} gradients: {other} does.

loaded state dict (?:contains a parameter group that doesn't match|has a different number of parameter groups)
    argument: This state is from an optimizer with other parameters, or groups of them: create this one as
        that one was, from the whole model.

^'param_groups'$
    if: call.report.function.endswith(".load_state_dict")
    argument: An optimizer loads what its own state_dict() returned, and this has no param_groups.

# -- schedulers

param 'initial_lr' is not specified in param_groups\[\d+\] when resuming
    with at: call.value("last_epoch"); with name: call.given[0].operand.name or "optimizer"
    argument: A scheduler that goes on after last_epoch={at} needs the optimizer's state at that point: load that first,
        or leave out last_epoch.
    maybe: {name}.load_state_dict(…)

Tried to step \d+ times\. The specified number of total steps is {total}
    argument: This schedule was made for {plural(total, "step")}, and all are used up: with one step for each batch, a
        training has epochs * len(loader) of them.

You must define either total_steps OR \(epochs AND steps_per_epoch\)
    argument: The schedule has to know its length: give it total_steps, or epochs and steps_per_epoch.

(?P<name>\w+) is not an Optimizer
    argument: A scheduler takes the optimizer whose learning rate it changes, not {article(name)}.

# -- scalers

unscale_\(\) has already been called on this optimizer since the last update
    argument: These gradients are unscaled already: unscale_ is called once for each step, which
        {scaler(call)}.update() ends.

unscale_\(\) is being called after step
    argument: The step of {scaler(call)} has unscaled these gradients and used them: unscale_ comes before it, and
        {scaler(call)}.update() after it, which ends a step.

step\(\) has already been called since the last update
    argument: A step ends with {scaler(call)}.update(), and there was none since the last one.
    maybe: {scaler(call)}.update()

No inf checks were recorded for this optimizer
    argument: No parameter of this optimizer had a gradient that could be unscaled: no backward has run since they were
        cleared, or none reached them.

No inf checks were recorded prior to update
    argument: A call of {scaler(call)}.update() ends a step, and none was made since the last one.
    maybe: {scaler(call)}.step(optimizer)

Attempted \w+ but _scale is None
    argument: Nothing was scaled yet: backward has to be called on the loss that {scaler(call)}.scale returns.
    maybe: {scaler(call)}.scale(loss).backward()

Attempting to unscale FP16 gradients
    argument: A GradScaler is for parameters in float32, and these are float16: leave out .half(), autocast computes in
        float16 by itself.

# -- transforms and compilation

vmap: called random operation while in randomness error mode
    argument: Under torch.vmap a random number may be drawn anew for each sample or once for all: randomness= chooses.
    maybe: torch.vmap(…, randomness="different"); maybe: torch.vmap(…, randomness="same")

vmap: It looks like you're calling \.item\(\) on a Tensor
    argument: Inside torch.vmap a tensor stands for those of all samples, which have no one number: compute with the
        tensor itself.

vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow
    argument: Inside torch.vmap a condition may hold for some samples and not for others: choose between two results
        with torch.where.

Expected f\(\*args\) to return a scalar Tensor, got tensor with {got} dims
    argument: The function that torch.func.grad takes returns one number, and this one returns a tensor of
        {plural(got, "dimension")}: reduce it, or take all derivatives with torch.func.jacrev.

^Data-dependent branching
    argument: A compiled graph has no `if` on the values of a tensor, and fullgraph=True allows no break of the graph:
        choose with torch.where, or leave out fullgraph=True.

Could not guard on data-dependent expression
    argument: The graph would have to decide by the values of a tensor, which it does not know: choose between two
        results with torch.where or torch.cond, and say what a size can be with torch._check.

Expecting `args` to be a tuple of example positional inputs, got <class '(?P<kind>[\w.]+)'>
    with given: call.argument("args")
    argument: An example of the inputs is a tuple of them, and {given.name} is {article(kind.rpartition(".")[2])}.
    parts: given; maybe: ({given.code},)

a and b must have same reduction dim, but got \[{left:shape}\] X \[{right:shape}\]
    shape: The dimensions that are summed over must be equal: {sizes(left)} times {sizes(right)} sums {left[-1]} against
        {right[-2]}.

^[^\n]+\n +Explanation: (?P<why>[^\n]+)
    if: call.report.error_type == "Unsupported"
    argument: The graph may not break here (fullgraph=True, or an export), and torch.compile cannot follow. {why}

When use_reentrant=True, torch\.utils\.checkpoint is incompatible with
    argument: A checkpoint with use_reentrant=True only supports backward() without inputs: make it with
        use_reentrant=False.

Legacy autograd function with non-static forward method
    argument: The forward and backward of an autograd.Function are static methods: put @staticmethod above each, and
        call its apply.

attempting to assign a gradient with dtype '(?P<got>\w+)' to a tensor with \w+ '(?P<wanted>\w+)'
    dtype: A gradient must have the dtype of its tensor: this one is {dtype_of(got)} and not {dtype_of(wanted)}.
""")


def scaler(call: Call) -> str:
    """Return the scaler as the line names it."""
    return call.receiver or "scaler"


@says(r"This view is the output of a function that returns multiple views")
def _one_of_several_views(call: Call, first: Given) -> Mismatch:
    write = SavedWrite(call=call.report.function.rpartition(".")[2], location=call.report.location)
    rule = (
        "Autograd cannot follow a write into one of several views that one call returned (unbind, split, chunk, a loop "
        f"over a tensor), and {first.name} is one. {instead_of_write(write)}"
    )
    return mismatch("argument", rule, first.whole())


@says(r"can't optimize a non-leaf Tensor")
def _no_leaf(call: Call) -> Mismatch:
    made = expression_of(call.report.call)
    listed_ones = made.args[0] if isinstance(made, ast.Call) and made.args else None
    only = listed_ones.elts if isinstance(listed_ones, ast.List) and len(listed_ones.elts) == 1 else []
    rule = (
        "An optimizer changes leaves in place, and one of these tensors was computed from another: it has a `grad_fn`. "
        "`.to(…)`, `.cuda()` or a factor after requires_grad=True make such a tensor."
    )
    names = [unparse(one) for one in only if isinstance(one, ast.Name | ast.Attribute)]
    return mismatch("argument", rule, works=[f"{name} = nn.Parameter({name}.detach())" for name in names])
