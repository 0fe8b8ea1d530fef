"""Calls that torch refuses, from its own test tables: every operator and module with inputs that must raise.

Each is made as a user would write it: one line with a name for every argument, in a file that Python can show.
"""

from __future__ import annotations

import linecache
import traceback
import warnings
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

import tensormagic as tm
from tensormagic.reports import FailureReport


@dataclass(frozen=True)
class ErrorCase:
    """One call that torch refuses.

    Attributes:
        name: Operator or module, and which of its error inputs: ``"cat 3"``.
        function: What is called.
        args: What it is given, in order.
        kwargs: What it is given by keyword.
    """

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The tensors that are given, those in lists included."""
        return [leaf for leaf in tree_leaves((self.args, self.kwargs)) if isinstance(leaf, torch.Tensor)]

    def call(self) -> Any:
        """Make the call."""
        names = tuple(f"given_{at}" for at in range(len(self.args))), tuple(self.kwargs)
        return _written(*names)(self.function, *self.args, **self.kwargs)

    def mended(self, change: Callable[[torch.Tensor], Any]) -> ErrorCase:
        """Return the case with each tensor as ``change`` gives it."""
        swap = lambda leaf: change(leaf) if isinstance(leaf, torch.Tensor) else leaf  # noqa: E731
        return ErrorCase(self.name, self.function, tree_map(swap, self.args), tree_map(swap, self.kwargs))


@cache
def _written(names: tuple[str, ...], keywords: tuple[str, ...]) -> Callable[..., Any]:
    """Return a function whose one line makes the call with a name for every argument."""
    given = ", ".join([*names, *(f"{name}={name}" for name in keywords)])
    source = f"def call({', '.join(['function', *names, *keywords])}):\n    return function({given})\n"
    filename = f"<cell of an error case {len(linecache.cache)}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    space: dict[str, Any] = {}
    exec(compile(source, filename, "exec"), space)
    function: Callable[..., Any] = space["call"]
    return function


def operator_cases(names: Collection[str] = ()) -> Iterator[ErrorCase]:
    """Yield every error input of torch's table of operators, or those named, on the CPU; the import takes seconds."""
    from torch.testing._internal.common_methods_invocations import op_db

    wanted = {name.rpartition(" ")[0] for name in names}
    for op in op_db:
        if op.error_inputs_func is None or (names and full_name(op) not in wanted):
            continue
        for at, each in enumerate(op.error_inputs("cpu")):
            name, sample = f"{full_name(op)} {at}", each.sample_input
            if not names or name in names:
                yield ErrorCase(name, op.op, (sample.input, *sample.args), dict(sample.kwargs))


def full_name(op: Any) -> str:
    """Return the name of an operator with that of its variant."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


def module_cases() -> Iterator[ErrorCase]:
    """Yield every error input of torch's table of modules: those of the constructor, and those of the call."""
    from torch.testing._internal.common_modules import module_db

    for info in module_db:
        if info.module_error_inputs_func is None:
            continue
        given = {"device": "cpu", "dtype": torch.float32, "requires_grad": False, "training": True}
        for at, each in enumerate(info.module_error_inputs_func(info, **given)):
            built, called = each.module_error_input.constructor_input, each.module_error_input.forward_input
            name = f"{info.name} {at}"
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    module = info.module_cls(*built.args, **built.kwargs)
            except Exception:  # what is refused is the constructor's
                yield ErrorCase(name, info.module_cls, tuple(built.args), dict(built.kwargs))
            else:
                yield ErrorCase(name, module, tuple(called.args), dict(called.kwargs))


@dataclass(frozen=True)
class Told:
    """What one refused call was given, what it raised without us and with us, and how it was explained."""

    case: ErrorCase
    given: list[tuple[tuple[int, ...], str, str]]
    plain: tuple[Any, ...]
    covered: tuple[Any, ...]
    report: FailureReport | None


def tell(case: ErrorCase) -> Told | None:
    """Make the call twice, without and within ``tensormagic.explain()``; None where it does not raise."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = _raised(case.call)
        told = tm.explain(namespace={})
        covered = _raised(case.call, told)
    # As they are now: a refused call may have resized what it was to write to, and the report tells what is there.
    given = [(tuple(each.shape), str(each.dtype).removeprefix("torch."), str(each.device)) for each in case.tensors]
    return None if plain is None or covered is None else Told(case, given, plain, covered, told.report)


def _raised(call: Callable[[], Any], told: Any = None) -> tuple[Any, ...] | None:
    """Return the type, message and traceback lines of what a call raises; None where it raises nothing."""
    try:
        if told is None:
            call()
        else:
            with told:
                call()
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)[1:]
        return type(error), str(error), [(frame.filename, frame.lineno, frame.name) for frame in frames]
    return None
