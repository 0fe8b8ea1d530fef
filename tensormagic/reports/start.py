"""What a look before training has found, from one batch, on copies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from tensormagic.reports.base import Report
from tensormagic.reports.finding import Gap

ProbeState = Literal["fine", "look", "wrong", "unknown"]


@dataclass(frozen=True, slots=True)
class Probe:
    """One question, and its answer.

    Attributes:
        question: What was asked, in a few words: ``"initial loss"``.
        state: ``"fine"``, ``"look"`` (unusual), ``"wrong"``, or ``"unknown"`` where it could not be asked.
        answer: What was found, in a sentence without its full stop.
        remedy: What to do; empty where nothing is to be done.
    """

    question: str
    state: ProbeState
    answer: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The values of one tensor of the batch.

    Attributes:
        shape: Its shape.
        dtype: Without the ``torch.`` prefix.
        low: The smallest; None where there is none.
        high: The largest.
        mean: Their mean.
        std: Their standard deviation; 0 of one value.
        bad: How many are NaN or infinite; these are left out of the rest.
        different: How many different values there are, of integers; 0 of other dtypes.
    """

    shape: tuple[int, ...]
    dtype: str
    low: float | None = None
    high: float | None = None
    mean: float = 0.0
    std: float = 0.0
    bad: int = 0
    different: int = 0


@dataclass(frozen=True, slots=True)
class Overfit:
    """How far a copy of the model learned a handful of samples by heart.

    Attributes:
        samples: How many.
        steps: How many steps were made.
        first: The loss before the first.
        last: The loss before the last.
    """

    samples: int
    steps: int
    first: float
    last: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StartReport(Report):
    """What a look before training has found.

    Attributes:
        model: The model's name.
        optimizer: The optimizer's class; empty where none was given.
        parameters: How many parameters the model has.
        trainable: How many of them ask for a gradient.
        missing: Those that ask for one and are in no group of the optimizer; None without one.
        unknown_parameters: How many parameters the optimizer holds that are not the model's.
        training: Whether the model is in train mode.
        in_eval: Modules in it that are in eval mode, although it is in train mode, and to which that matters.
        inputs: What the model is given.
        target: What the loss compares with; None where there is nothing.
        outputs: The shape of what comes out; None where that is no tensor, or nothing came out.
        loss: What the loss is called; empty where there is none.
        value: The loss of the batch before training; None where there is none.
        expected: What it would be of a model that knows nothing; None where that is not known.
        without_gradient: Parameters that ask for a gradient and got none; None where no backward ran.
        zero_gradient: Parameters whose gradient is exactly zero.
        bad_gradient: Parameters whose gradient has NaN or infinities.
        mixes: Whether the result of one sample depends on the others, in eval mode; None where that was not asked.
        overfit: How far a copy learned a few samples; None where that was not tried.
        error: What the model or the loss raised; empty where nothing did.
        seconds: How long it took.
        probes: Questions and answers, in the order of a training.
        gaps: What could not be looked at, and why.
    """

    kind_name: ClassVar[str] = "start"

    model: str = ""
    optimizer: str = ""
    parameters: int = 0
    trainable: int = 0
    missing: tuple[str, ...] | None = None
    unknown_parameters: int = 0
    training: bool = True
    in_eval: tuple[str, ...] = ()
    inputs: tuple[Extent, ...] = ()
    target: Extent | None = None
    outputs: tuple[int, ...] | None = None
    loss: str = ""
    value: float | None = None
    expected: float | None = None
    without_gradient: tuple[str, ...] | None = None
    zero_gradient: tuple[str, ...] = ()
    bad_gradient: tuple[str, ...] = ()
    mixes: bool | None = None
    overfit: Overfit | None = None
    error: str = ""
    seconds: float = 0.0
    probes: tuple[Probe, ...] = ()
    gaps: tuple[Gap, ...] = ()
