"""Does tracing change anything? Each call of torch's operator and module tables, run without the tracer and with it.

Two runs are the same where outputs, gradients and the state of the random numbers agree bit for bit, and where an
exception has the same type, message and traceback lines. A call that does not agree with itself, run twice without
the tracer, says nothing: it is counted apart. So is one whose traced result comes without the tracer too, once memory
lies otherwise: LAPACK's ``gelsy`` gives one of two results, after what its scratch memory held before.
"""

from __future__ import annotations

import copy
import traceback
import warnings
from collections.abc import Callable, Iterator
from ctypes import string_at
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db
from torch.utils._pytree import tree_flatten, tree_map

import tensormagic as tm

SEED = 20260101
LEVELS = ("grad", "ops", "memory")  # of a trace; "memory": its memory is followed instead
DTYPES = (torch.float32, torch.float64, torch.complex64)
TRIES = 2000  # of a call whose result was another under the tracer
# Their results are whatever lay in memory before.
UNINITIALISED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}


@dataclass(frozen=True)
class Call:
    """One call to make: ``make()`` returns fresh inputs, which ``run`` takes."""

    name: str
    make: Callable[[], Any]
    run: Callable[[Any], Any]


@dataclass
class WriteTotal:
    """What a sweep at one level found."""

    level: str = "grad"
    same: int = 0
    restless: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)

    def add(self, call: Call) -> None:
        """Make a call three times: twice without the tracer, once with it."""
        first, second = outcome(call), outcome(call)
        if first != second:
            self.restless.append(call.name)
            return
        traced = outcome(call, level=self.level)
        if traced == first:
            self.same += 1
        elif _comes_without_tracer_too(call, traced):
            self.restless.append(call.name)
        else:
            self.different.append(f"{call.name}: {_difference(first, traced)}")

    def __str__(self) -> str:
        """Return passed/total, and what did not pass."""
        total = self.same + len(self.different)
        lines = [f"{self.same}/{total} calls are bit for bit the same ({len(self.restless)} differ from themselves)"]
        return "\n    ".join([*lines, *self.different[:20]])


def outcome(call: Call, *, level: str = "") -> tuple[Any, ...]:
    """Make a call, with backward from everything it returns, and return all that can be seen of it.

    Args:
        call: What to do.
        level: One of `LEVELS`; without one, it is not traced.
    """
    given = call.make()
    torch.manual_seed(SEED)
    error: tuple[Any, ...] = ()
    seen: Any = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if level:
                with _followed(level):
                    seen = _forward_and_backward(call, given)
            else:
                seen = _forward_and_backward(call, given)
        except Exception as raised:
            error = _told(raised)
    return error, _bits(seen), _bits([tensor.grad for tensor in _leaves(given)]), bytes(torch.get_rng_state())


def _comes_without_tracer_too(call: Call, traced: tuple[Any, ...]) -> bool:
    """Make a call again and again without the tracer, each time in other memory, until its result is the traced one."""
    kept = []
    for at in range(TRIES):
        kept.append(torch.full((1 + 13 * (at % 37),), float(at)))
        if at % 50 == 0:
            kept.clear()
        if outcome(call) == traced:
            return True
    return False


def _followed(level: str) -> Any:
    return tm.track_memory(namespace={}) if level == "memory" else tm.trace(namespace={}, level=level)


def _forward_and_backward(call: Call, given: Any) -> Any:
    result = call.run(given)
    outputs = [x for x in _tensors(result) if x.requires_grad]
    if outputs:
        torch.autograd.backward(outputs, [_gradient(x) for x in outputs])
    return result


def _gradient(x: torch.Tensor) -> torch.Tensor:
    """Return a gradient of both signs: zero is not the same as minus zero."""
    if x.layout is not torch.strided or x.is_nested:
        return torch.ones_like(x)
    return torch.arange(x.numel(), dtype=torch.float64).cos().reshape(x.shape).to(x.dtype)


def _told(error: Exception) -> tuple[Any, ...]:
    """Return an exception as a user sees it, from the frame on that both runs have in common."""
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    return type(error), str(error), frames[2:]


def _tensors(value: Any) -> list[torch.Tensor]:
    return [x for x in tree_flatten(value)[0] if isinstance(x, torch.Tensor)]


def _leaves(given: Any) -> list[torch.Tensor]:
    if isinstance(given, tuple) and given and isinstance(given[0], torch.nn.Module):
        return [*given[0].parameters(), *(x for x in _tensors(given[1:]) if x.is_leaf)]
    return [x for x in _tensors(given) if x.is_leaf]


def _bits(value: Any) -> list[Any]:
    return [_bits_of(x) if isinstance(x, torch.Tensor) else repr(x) for x in tree_flatten(value)[0]]


def _bits_of(x: torch.Tensor) -> Any:
    x = x.detach()
    if x.layout is not torch.strided or x.is_nested:
        return str(x.layout), repr(x)
    raw = x.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format).reshape(-1)
    return str(x.dtype), tuple(x.shape), x.stride(), string_at(raw.data_ptr(), raw.nbytes)


def _difference(first: tuple[Any, ...], traced: tuple[Any, ...]) -> str:
    what = ("exception", "outputs", "gradients", "random numbers")
    differing = [name for name, one, other in zip(what, first, traced, strict=True) if one != other]
    told = f" ({first[0]!r:.300} became {traced[0]!r:.300})" if "exception" in differing else ""
    return ", ".join(differing) + told


# -- the calls ----------------------------------------------------------------------------------------------------


def _fresh(value: Any) -> Any:
    def again(x: Any) -> Any:
        return x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x

    return tree_map(again, value)


def _by_name(function: Any) -> Callable[..., Any]:
    """Return what calls a function as users do: by what its name stands for when the call is made."""
    name = getattr(function, "__name__", "").removeprefix("linalg_")
    owner = next((each for each in (torch.linalg, torch) if getattr(each, name, None) is function), None)

    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(owner, name)(*args, **kwargs)

    return function if owner is None else call


def _of_sample(op: Any, name: str, sample: Any) -> Call:
    function = _by_name(op.op)

    def run(given: Any) -> Any:
        first, args, kwargs = given
        return sample.output_process_fn_grad(function(first, *args, **kwargs))

    return Call(name, lambda: _fresh((sample.input, sample.args, sample.kwargs)), run)


def operator_calls(op: Any, dtype: torch.dtype, *, samples: int, graded: bool = True) -> Iterator[Call]:
    """Yield the first few sample calls of an operator, and, once, those that it must refuse."""
    torch.manual_seed(SEED)
    for at, sample in enumerate(islice(op.sample_inputs("cpu", dtype, requires_grad=graded), samples)):
        yield _of_sample(op, f"{op.name} {op.variant_test_name} {dtype} sample {at}", sample)
    if dtype is torch.float32 and graded and op.error_inputs_func is not None:
        for at, wrong in enumerate(op.error_inputs("cpu")):
            yield _of_sample(op, f"{op.name} {op.variant_test_name} error {at}", wrong.sample_input)


def transform_calls(op: Any, dtype: torch.dtype) -> Iterator[Call]:
    """Yield ``jvp``, ``vmap`` and ``grad`` of an operator's first sample call, where that is of a strided tensor."""
    torch.manual_seed(SEED)
    for sample in islice(op.sample_inputs("cpu", dtype, requires_grad=False), 1):
        if not isinstance(sample.input, torch.Tensor) or sample.input.layout is not torch.strided:
            continue
        for transform in (_pushed_forward, _batched, _differentiated):
            run = partial(transform, _by_name(op.op))
            name = f"{transform.__name__} {op.name} {op.variant_test_name} {dtype}"
            yield Call(name, partial(_fresh, (sample.input, sample.args, sample.kwargs)), run)


def _pushed_forward(function: Any, given: Any) -> Any:
    x, args, kwargs = given

    def numbers(x: Any) -> Any:
        return [y for y in _tensors(function(x, *args, **kwargs)) if y.is_floating_point() or y.is_complex()]

    return torch.func.jvp(numbers, (x,), (torch.ones_like(x),))


def _batched(function: Any, given: Any) -> Any:
    x, args, kwargs = given
    return torch.func.vmap(lambda x: function(x, *args, **kwargs), randomness="same")(torch.stack([x, x * 2]))


def _differentiated(function: Any, given: Any) -> Any:
    x, args, kwargs = given
    return torch.func.grad(lambda x: sum(y.abs().sum() for y in _tensors(function(x, *args, **kwargs))))(x)


def every_operator() -> list[Any]:
    """Return the operators of torch's table whose results do not depend on what lay in memory before."""
    return [op for op in op_db if op.name not in UNINITIALISED]


def operators() -> list[Any]:
    """Return the differentiable ones."""
    return [op for op in every_operator() if op.supports_autograd]


def supports(op: Any, dtype: torch.dtype) -> bool:
    """Return whether an operator's gradient is defined for a dtype on the CPU."""
    return dtype in op.supported_backward_dtypes("cpu")


def module_calls(info: Any, dtype: torch.dtype, *, training: bool) -> Iterator[Call]:
    """Yield the sample calls of a module."""
    torch.manual_seed(SEED)
    inputs = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training)
    for at, one in enumerate(inputs):
        if one.forward_input is not None:
            yield _of_module(info, f"{info.name} {dtype} {training=} sample {at}", one, (dtype, training))


def _of_module(info: Any, name: str, one: Any, how: tuple[torch.dtype, bool]) -> Call:
    dtype, training = how
    built, given = one.constructor_input, one.forward_input

    def make() -> Any:
        torch.manual_seed(SEED)
        module = info.module_cls(*built.args, **built.kwargs).to(dtype).train(training)
        return module, _fresh(copy.copy(given.args)), _fresh(copy.copy(given.kwargs))

    def run(made: Any) -> Any:
        module, args, kwargs = made
        return [module(*args, **kwargs), *module.buffers()]

    return Call(name, make, run)


def modules() -> list[Any]:
    """Return torch's table of modules."""
    return list(module_db)
