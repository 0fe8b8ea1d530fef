"""Following what runs: a traced run, and a run whose in-place writes are watched."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Mapping
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar, get_args

from tensormagic.api.diagnosing import AnyReport, diagnosed
from tensormagic.collectors.requirements import names_here, require_torch
from tensormagic.collectors.where.source import cell_of
from tensormagic.errors import TraceError
from tensormagic.reports import Cell, FailureReport, Level, LiveFrame, Schedule, TraceReport, WritesReport
from tensormagic.reports.base import gc_paused, given_path
from tensormagic.reports.run import scalars, sender

if TYPE_CHECKING:
    from tensormagic.collectors.runs.run import Run
    from tensormagic.collectors.runs.trace import Tracer
    from tensormagic.views.page.live import LivePanel


# Which steps of a run are to be traced: from what a user says to a `Schedule`, or to an error that helps.

Stop = Literal["nan"]
Steps = tuple["int | None", "int | None"]


def schedule_of(budget: float | None, every: int | None, steps: Steps | None) -> Schedule | None:
    """Return which steps are to be traced; None where all are.

    Args:
        budget: The share of the untraced run's time that tracing may take: 0.05 for 5 %.
        every: Trace one step in so many.
        steps: ``(start, stop)``, from 1, as in a slice: ``(10, 21)`` are the steps 10 to 20; None is an open end.

    Raises:
        TraceError: where one of them is not what it may be, or where two contradict each other.
    """
    if budget is not None and (every is not None or steps is not None):
        other = "every" if every is not None else "steps"
        raise TraceError(f"a budget and {other} were given: a budget chooses the steps to trace; leave one of them out")
    if budget is not None:
        if isinstance(budget, bool) or not isinstance(budget, int | float) or not 0 < budget <= 1:
            raise TraceError(
                f"the budget is {budget!r}: expected a share of the run's time, above 0 and at most 1; "
                "write 0.05 (in a notebook 5%) to let tracing take one twentieth of it"
            )
        return Schedule(budget=float(budget))
    start, stop = (None, None) if steps is None else _steps(steps)
    if every is not None and (isinstance(every, bool) or not isinstance(every, int) or every < 1):
        raise TraceError(f"every is {every!r}: expected a whole number from 1; every=10 traces the steps 1, 11, 21, …")
    schedule = Schedule(every=1 if every is None else every, start=start or 1, stop=stop)
    return None if schedule == Schedule() else schedule


def _steps(steps: object) -> Steps:
    ends = steps if isinstance(steps, tuple) and len(steps) == 2 else (0, 0)
    if not all(end is None or (isinstance(end, int) and not isinstance(end, bool) and end >= 1) for end in ends):
        raise TraceError(
            f"steps is {steps!r}: expected (start, stop), numbers from 1 or None, as in a slice; "
            "(10, 21) traces the steps 10 to 20, (10, None) all from the tenth"
        )
    start, stop = ends
    if stop is not None and stop <= (start or 1):
        raise TraceError(f"steps is {steps!r}: it contains no step; the stop, which is not traced, must be larger")
    return start, stop


def _check_options(level: Level, stop: Stop | None, schedule: Schedule | None) -> None:
    if level not in get_args(Level):
        raise TraceError(f"level is one of {', '.join(map(repr, get_args(Level)))}, not {level!r}")
    if stop not in (None, *get_args(Stop)):
        raise TraceError(f"stop is {stop!r}: expected 'nan', or None to let the run go on")
    if stop is not None and schedule is not None:
        raise TraceError("stop looks at every step, but only some are traced: leave out budget, every and steps")


AnyRun = TypeVar("AnyRun", bound="_Run[Any]")
CellNumber = Callable[[str], "int | None"]


_last: list[weakref.ref[Trace]] = []  # the run that ended last
_met: list[tuple[Cell, list[weakref.ref[Any]]]] = []  # of the run that ended last: its cell, and its leaves


class _Run(Generic[AnyReport]):
    """Something that is followed while a ``with`` block runs; an exception in the block goes on unchanged."""

    _question: ClassVar[str]  # which of the listeners answers
    _follower: Run
    _unended: weakref.finalize[Any, Any] | None = None  # ends the run where `__exit__` was interrupted in its call

    def __init__(
        self, namespace: Mapping[str, Any], cell: Cell, *, cell_number: CellNumber | None = None, **options: Any
    ) -> None:
        from tensormagic.collectors.runs.run import Run, listener

        self._listener = listener(self._question, namespace, cell, cell_number=cell_number, **options)
        self._follower = Run(**{self._question: self._listener})

    def __enter__(self: AnyRun) -> AnyRun:
        """Start.

        Raises:
            TraceError: if this was used before.
        """
        if self._unended is None:
            self._unended = weakref.finalize(self, self._follower.abandon)
            self._unended.atexit = False
        try:
            self._follower.start()
        except TraceError:
            raise
        except BaseException:
            self._follower.abandon()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop; an exception goes on."""
        self._stop(error, sys._getframe(1))  # noqa: SLF001  (the variables of the block's function)

    def __repr__(self) -> str:
        """Say where the report is."""
        return f"<{type(self).__name__}: what it saw is its .report>"

    def _stop(self, error: BaseException | None, frame: FrameType) -> None:
        try:
            self._follower.stop(error, frame)
        except BaseException:
            self._follower.abandon()
            raise
        if self._unended is not None:
            self._unended.detach()

    @property
    def report(self) -> AnyReport:
        """What has happened so far: a consistent snapshot, also while the block is running."""
        with gc_paused():
            found: AnyReport = self._follower.report()
            return diagnosed(found)


class Trace(_Run[TraceReport]):
    """A traced run: ``with tensormagic.trace() as trace: …``, then ``trace.report``; its options are those of `trace`.

    While the block runs, one function mode is on torch's stack, and at level ``"ops"`` one dispatch mode; hooks on
    autograd nodes exist only during a backward call.
    """

    def __init__(  # noqa: PLR0913  (two parameters; the rest are options, by name)
        self,
        namespace: Mapping[str, Any],
        cell: Cell,
        *,
        cell_number: CellNumber | None = None,
        title: str = "",
        level: Level = "grad",
        forward: bool = False,
        values: bool = False,
        stop: Stop | None = None,
        progress: bool = False,
        schedule: Schedule | None = None,
        ranks: str | os.PathLike[str] | None = None,
        memory: bool = False,
        writes: bool = False,
        draws: bool = False,
    ) -> None:
        from tensormagic.collectors.runs.run import Run, listener

        _check_options(level, stop, schedule)
        made = {"cell_number": cell_number, "title": title}
        self._tracer: Tracer = (
            listener("trace", namespace, cell, **made) if schedule is None else
            listener("sampled", schedule, namespace, cell, **made)
        )  # fmt: skip
        for part, is_asked in (("ops", level == "ops"), ("forward", forward)):
            if is_asked:
                self._tracer.ask(part)
        if values:
            self._tracer.keeps_values = True
        if stop is not None:
            self._tracer.stop_at_non_finite()
        if ranks is not None:
            self._keep_report = self._tracer.ask("ranks", given_path(ranks, "trace(ranks=…)")).keep_report
        asked = {"writes": writes, "draws": draws, "memory": memory}
        besides = {name: listener(name, namespace, cell, cell_number=cell_number) for name in asked if asked[name]}
        self._follower = Run(trace=self._tracer, **besides)
        if draws:
            self.passed = besides["draws"].passed
        self._cell, self._progress = cell, progress
        self._panel: LivePanel | None = None
        # By the identity of a writer: the writer, and the pass that it had last.
        self._logged: dict[int, tuple[Any, int]] = {}

    _keep_report: Callable[[Callable[[], TraceReport]], None] | None = None  # of a rank: saves it where it is wanted
    passed: Callable[[str, int, int], None] | None = None
    """Where draws are asked for: what to call after each statement of a cell, with its file, first and last line."""

    @property
    def live(self) -> TraceReport:
        """The trace so far: the report, or the part ``trace`` of a report of which more was asked."""
        with gc_paused():
            return diagnosed(self._tracer.report())

    def __enter__(self) -> Trace:
        """Start.

        Raises:
            TraceError: if this was used before.
        """
        super().__enter__()
        if self._progress:
            self._show_progress()
        return self

    def _show_progress(self) -> None:
        """Show the run at the bottom of the terminal, where there is one."""
        from tensormagic.views.text_canvas import is_terminal

        if not (is_terminal(sys.stderr) or is_terminal(sys.stdout)):
            return
        from tensormagic.views.page.terminal import INTERVAL, terminal_sender

        if (sender := terminal_sender()) is not None:
            from tensormagic.views.page.live import LivePanel

            self._panel = LivePanel(self.frame, lambda: self.live, sender=sender, interval=INTERVAL)
            self._panel.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop; an exception goes on."""
        self._stop(error, sys._getframe(1))  # noqa: SLF001  (of the block's function)
        if self._keep_report is not None:
            self._keep_report(lambda: self.live)
        _last[:] = [weakref.ref(self)]
        _met[:] = [(self._cell, self._tracer.leaves_met())]
        if self._panel is not None:
            self._panel.close()

    def log_to(self, writer: Any, *, prefix: str = "") -> None:
        """Give loss, gradient norms and updates of each pass, with their names and steps, to an experiment tracker.

        Call it after the block, or in the loop as often as you like: a pass is sent to a writer once.

        Args:
            writer: TensorBoard's ``SummaryWriter``, a run of Weights & Biases, the module ``mlflow``, a logger of
                Lightning, or a function of ``(numbers, step)``.
            prefix: Comes before each name: ``"train/"`` gives ``train/gradients/net.0.weight``.

        Raises:
            SettingError: for a writer that has none of the methods that are known.
        """
        send = sender(writer)
        with gc_paused():
            report = self._tracer.report()
        _, sent = self._logged.get(id(writer), (writer, 0))
        for each, step, numbers in scalars(report, after=sent):
            send({f"{prefix}{name}": number for name, number in numbers.items()}, step)
            self._logged[id(writer)] = writer, each.number

    def frame(self) -> LiveFrame:
        """Return what changes quickly, cheaply: for a live view."""
        return self._tracer.frame()


def trace(  # noqa: PLR0913  (all of them options, by name)
    *,
    title: str = "",
    level: Level = "grad",
    forward: bool = False,
    values: bool = False,
    stop: Stop | None = None,
    namespace: Mapping[str, Any] | None = None,
    progress: bool = False,
    budget: float | None = None,
    every: int | None = None,
    steps: Steps | None = None,
    ranks: str | os.PathLike[str] | None = None,
    memory: bool = False,
    writes: bool = False,
    draws: bool = False,
) -> Trace:
    """Return a context manager that records the forward and every backward inside it.

    Args:
        title: A name for the run; by default the model's.
        level: ``"ops"`` also records every operation, forward and backward: time, memory and writes.
        forward: Whether to measure what the forward makes, too: each operation's output, in every pass that is kept.
        values: Whether to keep the numbers themselves of tensors that have at most 4 elements; of a graph of at most 20
            such nodes they are kept anyway.
        stop: ``"nan"`` ends the run with a `NonFiniteError` at the first NaN or Inf that a call or a backward makes.
        namespace: Where names of models and tensors are looked up; by default the caller's globals.
        progress: Whether to show the run at the bottom of the terminal while it goes on; into pipes and files nothing
            is written.
        budget: The share of the untraced run's time that tracing may take: with 0.05 as many steps are traced as cost
            one twentieth of it, the first one always.
        every: Trace one step in so many, the first one first.
        steps: ``(start, stop)``: trace the steps from ``start``, counted from 1, up to and without ``stop``; None is an
            open end.
        ranks: A folder for the ranks of a run of several processes: each appends what it does to a file of its own, and
            waits for no other. `tensormagic.ranks` compares them, even where one was killed.
        memory: Whether to follow the memory of the same run, too. With this, ``writes`` or ``draws`` the report is a
            `RunReport`, which holds what each would report alone: ``report.trace``, ``report.memory`` and so on.
        writes: Whether to watch its in-place writes.
        draws: Whether to watch its random numbers.

    Raises:
        RequirementError: where torch is missing or too old.
        TraceError: for an unknown level; where budget, every or steps cannot be followed, or contradict each
            other.
    """
    require_torch()
    schedule = schedule_of(budget, every, steps)
    return Trace(
        names_here(namespace, "trace"),
        cell_of(sys._getframe(1)),  # noqa: SLF001  (what runs is the caller's)
        title=str(title or ""),
        level=level,
        forward=forward,
        values=values,
        stop=stop,
        progress=progress,
        schedule=schedule,
        ranks=ranks,
        memory=memory,
        writes=writes,
        draws=draws,
    )


def last_trace() -> Trace | None:
    """Return the trace that ended last, as long as somebody holds it."""
    return _last[0]() if _last else None


def was_met(report: TraceReport | None, x: Any) -> bool | None:
    """Return whether a run met this very leaf; None where that is unknown: it is not a leaf, or an older run."""
    return met_in(report)(x)


def met_in(report: TraceReport | None) -> Callable[[Any], bool | None]:
    """Return what answers `was_met` for any number of tensors; it holds the leaves that the run met."""
    from tensormagic.collectors.objects.children import has_history

    cell, references = _met[0] if _met else (None, [])
    if report is None or report.cell is not cell:
        return lambda _: None
    leaves = {id(leaf): leaf for reference in references if (leaf := reference()) is not None}
    return lambda x: None if has_history(x) else id(x) in leaves


class WriteWatch(_Run[WritesReport]):
    """A run whose in-place writes are watched: ``with tensormagic.watch_writes() as watch: …``, then ``watch.report``.

    While the block runs, one dispatch mode is on torch's stack.
    """

    _question = "writes"


def watch_writes(*, namespace: Mapping[str, Any] | None = None) -> WriteWatch:
    """Return a context manager that reports every in-place write inside it, and whose elements it changes besides.

    Args:
        namespace: Where names are looked up, besides the functions that are running; by default the caller's globals.

    Raises:
        RequirementError: where torch is missing or too old.
    """
    require_torch()
    return WriteWatch(names_here(namespace, "watch_writes"), cell_of(sys._getframe(1)))  # noqa: SLF001


class Explanation(_Run[Any]):
    """What a ``with`` block ran into: ``with tensormagic.explain() as explained: …``, then ``explained.report``.

    The exception goes on unchanged. While the block runs, one function mode that only passes calls on is on torch's
    stack.
    """

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        from tensormagic.collectors.runs.run import FailureListener, Run

        self._follower = Run(failure=FailureListener(namespace))

    @property
    def report(self) -> FailureReport | None:
        """The call that torch refused, with what is wrong with it; None where none was refused."""
        found = self._follower.report()
        return None if found is None else diagnosed(found)


def explain(*, namespace: Mapping[str, Any] | None = None) -> Explanation:
    """Return a context manager that explains the PyTorch error that ends its block.

    Args:
        namespace: Where names are looked up, besides the functions that were running; by default the caller's globals.

    Raises:
        RequirementError: where torch is missing or too old.

    >>> import torch, tensormagic
    >>> try:
    ...     with tensormagic.explain() as explained:
    ...         torch.ones(2, 3) @ torch.ones(4, 5)
    ... except RuntimeError:
    ...     [operand.shape for operand in explained.report.operands]
    [(2, 3), (4, 5)]
    """
    require_torch()
    return Explanation(names_here(namespace, "explain"))
