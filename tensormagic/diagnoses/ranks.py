"""TM900 to TM908: what parts ranks that should go together, and on which of them it began."""

from __future__ import annotations

from collections.abc import Iterator

from tensormagic.reports import Difference, Finding, RankReport
from tensormagic.words import count, listed, plural, ranks_text, short_number

_SHARED = ("DDP", "FSDP1", "FSDP2")


def missing(report: RankReport) -> Iterator[Finding]:
    """TM900: ranks that left nothing, and ranks that others outlived."""
    there = {one.rank for one in report.ranks}
    absent = [rank for rank in range(report.world_size) if rank not in there]
    if absent:
        yield Finding(
            code="TM900", severity="warning",
            message=f"{_first(ranks_text(absent))} of {report.world_size} left no report: the others are compared "
            "without it.",
            evidence={"missing": len(absent)},
            remedy="Trace on every rank, into one folder that all of them reach.",
        )  # fmt: skip
    silent = [one for one in report.ranks if one.state == "running"]
    if silent and len(silent) < len(report.ranks):
        one = silent[0]
        last = f" after pass {count(one.passes)} ({one.line})" if one.passes else " before its first backward pass"
        others = f", and {plural(len(silent) - 1, 'other rank')} as well" if len(silent) > 1 else ""
        yield Finding(
            code="TM900", severity="warning",
            message=f"Rank {one.rank} stopped reporting{last}{others}, while other ranks continued: it was killed, or "
            "is still running.",
            evidence={"silent": len(silent)},
            remedy="A signal or an error in C++ leaves no traceback: look at the launcher's output for its exit code.",
        )  # fmt: skip


def parameters_differ(report: RankReport) -> Iterator[Finding]:
    """TM901: ranks that should hold the same parameters do not."""
    for one in report.differences:
        if one.what not in {"start", "parameters"}:
            continue
        when = f"After step {count(one.step)}, with equal gradients," if one.step else "Before the first step"
        yield Finding(
            code="TM901", severity="error",
            message=f"{when} {count(one.count)} of {plural(one.of, 'parameter')} differ between ranks: {one.names[0]} "
            f"is different on {ranks_text(one.ranks)}.",
            evidence={"parameters": one.count, "step": one.step},
            remedy="DistributedDataParallel broadcasts parameters once, when it wraps the model: change them before "
            "that, or identically on all ranks.",
            subject=one.names[0],
        )  # fmt: skip


_WHY = {
    "none": "no pass since the previous step reduced them: each pass, or its forward, ran inside no_sync() or "
    "bypassed the wrapper",
    "some": "some passes reduced them, and later passes added to them on each rank separately",
    "all": "they were reduced, and then changed on each rank separately, for example by clipping",
    "": "whether they were reduced is not known",
}


def gradients_not_reduced(report: RankReport) -> Iterator[Finding]:
    """TM902: a step used gradients that are not the same on ranks that hold the same parameters."""
    for one in report.differences:
        if one.what == "gradients":
            yield Finding(
                code="TM902", severity="error",
                message=f"{_step(one)} used gradients that differ between ranks, of {count(one.count)} of "
                f"{plural(one.of, 'parameter')}: the norm of {one.names[0]}.grad is {_values(one)}; "
                f"{_WHY[one.reduced]}.",
                evidence={"parameters": one.count, "step": one.step},
                remedy="Run the forward and backward of the last pass before a step outside no_sync(), and through "
                "the wrapped model, not `model.module`.",
                subject=one.names[0],
            )  # fmt: skip


def rates_differ(report: RankReport) -> Iterator[Finding]:
    """TM903: ranks step with different learning rates."""
    for one in report.differences:
        if one.what == "rates":
            yield Finding(
                code="TM903", severity="error",
                message=f"The learning rates differ between ranks from step {count(one.step)} on: {_values(one)}.",
                evidence={"step": one.step},
                remedy="Give schedulers the same input on all ranks: the number of steps, or a reduced metric.",
            )  # fmt: skip


def not_finite_on_some(report: RankReport) -> Iterator[Finding]:
    """TM907: NaN or infinity began on some ranks alone, before gradients were reduced."""
    if report.bad_pass:
        where = f" ({report.bad_line})" if report.bad_line else ""
        yield Finding(
            code="TM907", severity="error",
            message=f"NaN or infinity began only on {ranks_text(report.bad_ranks)}, in pass {count(report.bad_pass)}"
            f"{where}, before gradients were reduced: from the next step on, all ranks have it.",
            evidence={"pass": report.bad_pass, "ranks": len(report.bad_ranks)},
            remedy=f"Look at the input of {ranks_text(report.bad_ranks)} in that pass.",
        )  # fmt: skip


def passes_differ(report: RankReport) -> Iterator[Finding]:
    """TM908: ranks that reduce together made different numbers of passes."""
    ended = [one for one in report.ranks if one.state != "running" and set(one.kinds) & set(_SHARED)]
    numbers = sorted({one.passes for one in ended})
    if len(numbers) < 2:
        return
    fewest = [one.rank for one in ended if one.passes == numbers[0]]
    most = [one.rank for one in ended if one.passes == numbers[-1]]
    yield Finding(
        code="TM908", severity="error" if any(one.state == "failed" for one in ended) else "warning",
        message=f"The ranks made different numbers of backward passes: {ranks_text(fewest)} made {count(numbers[0])}, "
        f"{ranks_text(most)} {count(numbers[-1])}.",
        evidence={"fewest": numbers[0], "most": numbers[-1]},
        remedy="Give all ranks the same number of batches (`drop_last=True`), or train inside `model.join()`: the "
        "others wait for a collective that a rank does not reach.",
    )  # fmt: skip


_MOST_TOLD = 4


def _values(one: Difference) -> str:
    told = [f"{short_number(value)} on rank {rank}" for rank, value in one.values]
    usual = [value for rank, value in one.values if rank not in one.ranks]
    if len(told) > _MOST_TOLD and 2 * len(usual) > len(told):
        odd = [words for words, (rank, _) in zip(told, one.values, strict=True) if rank in one.ranks]
        told = [f"{short_number(usual[0])} on most ranks", *odd]
    return listed(told, most=_MOST_TOLD)


def _step(one: Difference) -> str:
    return f"Step {count(one.step)}" if one.step else f"The step after pass {count(one.after_pass)}"


def _first(words: str) -> str:
    return words[:1].upper() + words[1:]
