"""What one call of a custom ``autograd.Function`` shows of its backward: against differences of its forward.

The call is made on copies in float64, and `torch.autograd.gradcheck` judges each argument by itself. What it cannot
say, it says as an error: a forward that computes in lower precision is too coarse for differences.
"""

from __future__ import annotations

import inspect
import math
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch.autograd.gradcheck import GradcheckError

from tensormagic.collectors.autograd_errors.backward_errors import return_lines
from tensormagic.collectors.session.restoring import kept
from tensormagic.collectors.where.source import location_of
from tensormagic.errors import TensorMagicError
from tensormagic.reports import ArgumentCheck, FunctionCheck, StartReport
from tensormagic.words import error_text, listed, plural

STEP = 1e-6  # of a difference
NEAR = 1e-3  # how far from a kink it is asked again
MOST_ELEMENTS = 256  # of an argument whose gradient is compared element by element, as a whole Jacobian
_SEED = 0  # of the directions: a second check says the same

Tensors = tuple[torch.Tensor, ...]


def function_of(value: object) -> type[torch.autograd.Function] | None:
    """Return the custom Function that a class or its ``apply`` is; None of anything else."""
    kind = getattr(value, "__self__", None) if getattr(value, "__name__", "") == "apply" else value
    return kind if isinstance(kind, type) and issubclass(kind, torch.autograd.Function) else None


def check(kind: type[torch.autograd.Function], given: Sequence[Any]) -> StartReport:
    """Return what one call of a custom Function shows of its backward; nothing that is given is changed.

    Raises:
        TensorMagicError: where there is no floating-point tensor among the arguments.
    """
    began = perf_counter()
    wide = [
        x.detach().to(torch.float64 if x.is_floating_point() else x.dtype, copy=True)
        if isinstance(x, torch.Tensor)
        else x
        for x in given
    ]
    chosen = [at for at, x in enumerate(wide) if isinstance(x, torch.Tensor) and x.is_floating_point() and x.numel()]
    asked = [at for at in chosen if given[at].requires_grad] or chosen
    if not asked:
        kinds = [f"{x.dtype} of {plural(x.numel(), 'element')}" if isinstance(x, torch.Tensor) else type(x).__name__
                 for x in given]  # fmt: skip
        raise TensorMagicError(
            f"check({kind.__name__}, …) takes arguments for one call of {kind.__name__}.apply, with a floating-point "
            f"tensor among them that is not empty; given: {listed(kinds) or 'nothing'}"
        )
    report = StartReport(model=kind.__name__, parameters=len(asked))
    code: Any = getattr(inspect.unwrap(kind.backward), "__code__", None)
    returns = return_lines(code) if code is not None else []
    place = location_of(code.co_filename, returns[-1], code.co_name) if returns else None
    with kept(kind), torch.enable_grad():
        torch.manual_seed(_SEED)
        try:
            doubled, checks = _Call(kind, wide, asked).judged()
            report = replace(report, function=FunctionCheck(arguments=tuple(checks), doubled=doubled, location=place))
        except Exception as error:  # whatever the user's code raises
            text = str(error) if isinstance(error, TensorMagicError) else error_text(error)
            report = replace(report, error=text.splitlines()[0], function=FunctionCheck(location=place))
    return replace(report, seconds=perf_counter() - began)


class _Call:
    """One call, of which the arguments at some places are varied."""

    def __init__(self, kind: Any, given: Sequence[Any], asked: Sequence[int]) -> None:
        self._apply: Callable[..., Any] = kind.apply
        self._given, self._asked = list(given), list(asked)
        names = [*inspect.signature(kind.forward).parameters]
        separate = kind.setup_context is not torch.autograd.Function.setup_context
        self._names = names if separate else names[1:]
        self._directions = torch.Generator().manual_seed(_SEED + 1)
        self._ends: list[int] = []  # places of the outputs that have a way back

    def judged(self) -> tuple[float | None, list[ArgumentCheck]]:
        """Return how its gradients grow with the one that arrives, and what is known of each argument."""
        inputs = tuple(self._given[at].clone().requires_grad_() for at in self._asked)
        try:
            outputs = self._outputs(inputs)
        except Exception as error:
            raise TensorMagicError(f"forward raised {error_text(error)} in float64") from error
        again = self._outputs([x.detach() for x in inputs])
        if not all(torch.equal(one, other) for one, other in zip(outputs, again, strict=True) if one.isfinite().all()):
            raise TensorMagicError("forward gives another result each time, so that differences say nothing")
        self._ends = [at for at, one in enumerate(outputs) if one.requires_grad]
        ends = [outputs[at] for at in self._ends]
        if not ends:
            raise TensorMagicError("nothing that it returns requires a gradient")
        if any(one.dtype is not torch.float64 for one in ends):
            raise TensorMagicError(f"it computes in {str(ends[0].dtype)[6:]}, too coarse for differences")
        if not all(bool(one.isfinite().all()) for one in (*inputs, *ends)):
            raise TensorMagicError("an argument or a result holds NaN or inf, of which differences say nothing")
        arriving = [self._drawn(one) for one in ends]
        scaled = ([factor * one for one in arriving] for factor in (1, 2))
        try:
            once, twice = (
                torch.autograd.grad(ends, inputs, each, retain_graph=True, allow_unused=True) for each in scaled
            )
        except Exception as error:
            raise TensorMagicError(f"backward raised {error_text(error)}") from error
        sizes = [math.hypot(*(float(one.norm()) for one in each if one is not None)) for each in (once, twice)]
        checks = [self._argument(place, inputs, arriving, gradient) for place, gradient in enumerate(once)]
        return sizes[1] / sizes[0] if sizes[0] else None, checks

    def _drawn(self, like: torch.Tensor) -> torch.Tensor:
        return torch.randn(like.shape, generator=self._directions, dtype=like.dtype).to(like.device)

    def _outputs(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        given = list(self._given)
        for at, x in zip(self._asked, inputs, strict=True):
            given[at] = x
        torch.manual_seed(_SEED)  # what forward draws is the same in each call
        random.seed(_SEED)
        np.random.seed(_SEED)  # noqa: NPY002
        result = self._apply(*(x.clone() if isinstance(x, torch.Tensor) else x for x in given))
        every = result if isinstance(result, tuple | list) else (result,)
        return [one for one in every if isinstance(one, torch.Tensor) and one.is_floating_point()]

    def _argument(
        self, place: int, inputs: Tensors, arriving: Sequence[torch.Tensor], gradient: torch.Tensor | None
    ) -> ArgumentCheck:
        fixed = [x.detach() for x in inputs]
        direction = self._drawn(fixed[place])

        def moved(by: float) -> float:
            varied = (*fixed[:place], fixed[place] + by * direction, *fixed[place + 1 :])
            outputs = self._outputs(varied)
            return sum(float((outputs[at] * each).sum()) for at, each in zip(self._ends, arriving, strict=True))

        def of_one(x: torch.Tensor) -> Tensors:
            return tuple(self._outputs((*fixed[:place], x, *fixed[place + 1 :])))

        one, slope = fixed[place].clone().requires_grad_(), (moved(STEP) - moved(-STEP)) / (2 * STEP)
        agrees, kink, fast = gradient is None and abs(slope) < STEP, False, one.numel() > MOST_ELEMENTS
        if gradient is not None:
            agrees = _agree(of_one, one, fast=fast)
            if not agrees and abs(moved(STEP) + moved(-STEP) - 2 * moved(0.0)) > STEP**1.5:  # it bends within a step
                beside = (one.detach() + NEAR * direction).requires_grad_()
                agrees = kink = _agree(of_one, beside, fast=fast)
        name = self._names[self._asked[place]] if self._asked[place] < len(self._names) else f"argument {place + 1}"
        by_backward = None if gradient is None else float((gradient * direction).sum())
        return ArgumentCheck(name, by_backward, slope, agrees, kink)


def _agree(of_one: Callable[[torch.Tensor], Tensors], x: torch.Tensor, *, fast: bool) -> bool:
    with suppress(GradcheckError):
        return torch.autograd.gradcheck(of_one, x, eps=STEP, fast_mode=fast, check_undefined_grad=False)
    return False
