"""What is wrong: with a report, less what is silenced; with a call that torch refused; with a whole session."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, overload

from tensormagic.collectors.requirements import require, require_names, require_torch
from tensormagic.diagnoses import RULES, diagnose
from tensormagic.diagnoses.mismatches import as_named, mismatch_of
from tensormagic.diagnoses.rule import codes_of, is_silenced, joined
from tensormagic.diagnoses.start import probes_of
from tensormagic.errors import SettingError, TensorMagicError
from tensormagic.reports import FailureReport, Gap, Report, RunReport, StartReport, TraceReport, WatchReport

AnyReport = TypeVar("AnyReport", bound=Report)

_SECTION = "findings"


def diagnosed(report: AnyReport) -> AnyReport:
    """Return the report with what was found in it, as every one is handed over; what the user silenced is a gap."""
    if isinstance(report, RunReport):
        every = {name: getattr(report, name) for name in ("trace", "memory", "writes", "draws")}
        done = {name: diagnosed(part) for name, part in every.items() if part is not None}
        report = dataclasses.replace(report, **done)
        return dataclasses.replace(report, findings=joined(report.parts))
    report = _with_mismatch(report)
    found = diagnose(report)
    described = tuple(finding for finding in found if not is_silenced(finding, _ignored))
    if isinstance(report, TraceReport) and report.failure is not None:  # beside the call that ended the run as well
        about = tuple(finding for finding in diagnose(report.failure) if finding in described)
        report = dataclasses.replace(report, failure=dataclasses.replace(report.failure, findings=about))
    report = dataclasses.replace(report, findings=described)
    if described == found:
        return report
    codes = [one.code for one in found if one not in described]
    gaps = [gap for gap in getattr(report, "gaps", ()) if gap.section != _SECTION]
    gap = Gap(_SECTION, f"{len(codes)} silenced by you: {', '.join(sorted(set(codes)))}")
    return dataclasses.replace(report, gaps=(*gaps, gap))  # type: ignore[call-arg]


def _with_mismatch(report: AnyReport) -> AnyReport:
    """Return the report with what did not fit in the call that torch refused, where there was one."""
    if isinstance(report, FailureReport) and report.mismatch is None and report.out_of_memory is None:
        mismatch = mismatch_of(report)
        if mismatch is not None and mismatch.works:  # only what really works is said to
            from tensormagic.collectors.failures.tried_ways import with_ways_tried

            works, maybe = with_ways_tried(report, mismatch)
            mismatch = dataclasses.replace(mismatch, works=works, maybe=maybe)
        if mismatch is not None:
            works, maybe = (tuple(as_named(report, way) for way in ways) for ways in (mismatch.works, mismatch.maybe))
            mismatch = dataclasses.replace(mismatch, works=works, maybe=maybe)
        return dataclasses.replace(report, mismatch=mismatch)
    if isinstance(report, TraceReport) and report.failure is not None:
        return dataclasses.replace(report, failure=_with_mismatch(report.failure))
    return report


_ignored: tuple[str, ...] = ()  # codes that the user wants silenced in this session: ``tm.ignore("TM105, TM7")``


def ignore(codes: str | Iterable[str]) -> tuple[str, ...]:
    """Set which codes are silenced from now on; returns those that were before.

    Args:
        codes: ``"TM105, TM7"`` or a list of such: whole codes, or the first digits for a family; empty for none.

    Raises:
        SettingError: for what is not a code.
    """
    global _ignored  # a setting of the session, as ``%config TensorMagic.ignore`` is
    several = codes if isinstance(codes, Iterable) and not isinstance(codes, str) else (codes,)
    try:
        found = codes_of(",".join(map(str, several)))
    except ValueError as error:
        raise SettingError(f"cannot ignore {codes!r}: {error}") from None
    if unknown := [code for code in found if not any(rule.code.startswith(code) for rule in RULES)]:
        raise SettingError(f"cannot ignore {codes!r}: there is no finding {unknown[0]}; `%tensormagic help` lists them")
    before, _ignored = _ignored, found
    return before


def is_out_of_memory(error: BaseException) -> bool:
    """Say whether an exception says that memory ran out: torch's of any device, NumPy's, Python's own."""
    from tensormagic.collectors.failures.failures import out_of_memory_of

    return out_of_memory_of(error) is not None


def explain_error(
    error: BaseException,
    *,
    namespace: Mapping[str, Any] | None = None,
    cell_number: Callable[[str], int | None] | None = None,
    source: str = "",
) -> FailureReport | None:
    """Return what is known of the call that torch refused, from the exception alone; None where it is not torch's.

    Nobody watched when it was raised: operands that were computed in the failing line itself are not known.

    Args:
        error: The exception, with its traceback; it is left as it is, and nothing of it is kept.
        namespace: Where names are looked up, besides the functions that were running.
        cell_number: Gives a cell's execution count from its file name.
        source: Of an expression that was evaluated from a string: Python does not keep it.
    """
    from tensormagic.collectors.failures.failures import Surroundings, failure_of

    found = failure_of(error, Surroundings(namespace or {}, cell_number, source))
    return None if found is None else diagnosed(found)


MOST_CODES = 64  # cells whose runs are remembered


@overload
def check(
    namespace: Mapping[str, Any] | None = None, *, earlier: Sequence[WatchReport] = (), quick: bool = False
) -> WatchReport: ...


@overload
def check(namespace: Any, *parts: Any) -> StartReport: ...


def check(
    namespace: Any = None, *parts: Any, earlier: Sequence[WatchReport] = (), quick: bool = False, **named: Any
) -> WatchReport | StartReport:
    """Return what is wrong with what a session holds: memory that nothing uses, and modules that miss parameters.

    Nothing is run, changed or kept. ``report.findings`` says what was found.

    ``check(net, optimizer, loader, loss)`` looks at a training before it begins, from one batch: modes, parameters that
    the optimizer lacks, ranges of inputs and labels, the initial loss, whether gradients reach every parameter, and
    whether a copy overfits eight samples. It runs copies of the model; nothing that is given is changed. What is
    not there can be left out, and a list of batches, or one batch, can replace the loader. ``report.probes`` says
    what was found.

    ``check(Scale, x, 2.0)`` makes one call of a custom ``autograd.Function`` on copies in float64, and compares its
    backward with differences of its forward (`torch.autograd.gradcheck`).

    Args:
        namespace: Names, and what they are bound to; by default the caller's globals. Or a model, or a Function.
        parts: With a model: its optimizer, its loader, its loss, in any order. With a Function: its arguments.
        earlier: What earlier checks returned, one after each run of the same code: what grew each time is found then.
        quick: Whether to stop after a twentieth of a second; what was left out is reported.
        named: Nothing: parts have no names.

    Raises:
        TensorMagicError: where ``namespace`` is not a mapping, ``earlier`` holds anything but such reports, or a part
            is given by name.
        RequirementError: where torch is missing or too old.

    >>> import torch, tensormagic
    >>> tensormagic.check({"x": torch.zeros(3)}).tensors
    1
    """
    require_torch()
    if named:
        raise TensorMagicError(f"check() takes its parts without names, in any order: check({', '.join(named)})")
    from tensormagic.collectors.objects.children import is_module
    from tensormagic.collectors.session.session_walk import QUICK, THOROUGH
    from tensormagic.collectors.session.watching import look

    given: Any = namespace
    caller = sys._getframe(1)  # noqa: SLF001  (documented default)
    if parts or is_module(given) or isinstance(given, type):
        return start((given, *parts), {**caller.f_globals, **caller.f_locals})
    if given is not None:
        require_names(given, "check")
    require(earlier, Sequence, "check(earlier=…)", "the reports of earlier checks, the oldest first")
    for report in earlier:
        require(report, WatchReport, "check(earlier=…)", "the reports of earlier checks, the oldest first")
    seen = caller.f_globals if namespace is None else namespace
    budget = QUICK if quick else THOROUGH
    return diagnosed(look(seen, filename=caller.f_code.co_filename, earlier=earlier, budget=budget))


def start(parts: Sequence[Any], namespace: Mapping[str, Any]) -> StartReport:
    """Return what one batch shows about a training that is about to begin; see `check`.

    Args:
        parts: The model, and its optimizer, its loader and its loss in any order; or a Function and its arguments.
        namespace: Where the model may have a name.

    Raises:
        TensorMagicError: where there is no model among them, or two of a kind.
    """
    from tensormagic.collectors.session.first_look import look as look_first, sorted_out
    from tensormagic.collectors.session.function_check import check as check_function, function_of
    from tensormagic.collectors.session.unregistered import TiedWeights, modules_report

    if (kind := function_of(parts[0])) is not None:
        checked = check_function(kind, parts[1:])
        return diagnosed(dataclasses.replace(checked, probes=probes_of(checked)))

    net, optimizer, source, loss = sorted_out(parts)
    name = next((name for name, value in list(namespace.items()) if value is net and not name.startswith("_")), "net")
    report = look_first(net, optimizer, source, loss, name=name)
    modules = WatchReport(modules=modules_report([(name, net)], namespace, TiedWeights()))
    report = dataclasses.replace(report, probes=probes_of(report))
    found = diagnosed(modules)
    return dataclasses.replace(report, findings=found.findings, gaps=(*report.gaps, *found.gaps))


class Watch:
    """Looks at a session again and again, and remembers what earlier looks have shown of weights, sizes and steps.

    Holds modules, parameters and optimizers weakly, and nothing else of the user's.

    Args:
        cell_number: Gives the number of a cell from its file name.
    """

    def __init__(self, cell_number: Callable[[str], int | None]) -> None:
        require_torch()
        from tensormagic.collectors.session.watching import Memory

        self._memory, self._cell_number = Memory(), cell_number
        self._earlier: dict[str, list[WatchReport]] = {}

    def look(self, namespace: Mapping[str, Any]) -> WatchReport:
        """Return the current state."""
        from tensormagic.collectors.session.watching import look

        return diagnosed(look(namespace, memory=self._memory, cell_number=self._cell_number))

    def look_after(self, code: str, namespace: Mapping[str, Any]) -> WatchReport:
        """Return the state after ``code`` has run, as far as a quick look shows it; what each run adds is reported."""
        from tensormagic.collectors.session.session_walk import QUICK
        from tensormagic.collectors.session.watching import LOOKS, look

        earlier = self._earlier.pop(code, [])[-(LOOKS - 1) :]
        found = look(namespace, earlier=earlier, budget=QUICK, memory=self._memory, cell_number=self._cell_number)
        self._earlier[code] = [*earlier, found]  # the latest one last
        while len(self._earlier) > MOST_CODES:
            del self._earlier[next(iter(self._earlier))]
        return diagnosed(found)
