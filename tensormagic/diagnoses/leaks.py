"""TM503 and TM504 inside a run: memory that stays, a like amount after each iteration.

What stays because of a graph is hardly ever meant. What a container collects often is: a warning is said only where a
training loop collects much of it, step by step; elsewhere it is worth knowing, or nothing at all.
"""

from __future__ import annotations

from collections.abc import Iterator

from tensormagic.diagnoses.keepers import LARGE, LARGE_GROWTH, MANY_GRAPHS, without_graph
from tensormagic.diagnoses.words import rebound
from tensormagic.reports import Finding, Leak, MemoryRunReport, RelatedLine
from tensormagic.reports.finding import Severity
from tensormagic.words import number_of_bytes, plural


def graphs_that_stay(report: MemoryRunReport) -> Iterator[Finding]:
    """TM503: stored results whose graphs keep the activations of every iteration."""
    for leak in report.leaks:
        if leak.graph and (leak.kept >= LARGE or leak.iterations >= MANY_GRAPHS):
            yield _finding(leak, "TM503", "warning" if leak.kept >= LARGE else "note")


def grows_in_a_run(report: MemoryRunReport) -> Iterator[Finding]:
    """TM504: what holds more after each iteration; a warning where a training loop collects much, else a note."""
    for leak in report.leaks:
        least = LARGE if leak.training and not leak.ended else LARGE_GROWTH
        if not leak.graph and leak.kept >= least:
            large = leak.training and not leak.ended and leak.kept >= LARGE_GROWTH
            yield _finding(leak, "TM504", "warning" if large else "note")


def _finding(leak: Leak, code: str, severity: Severity) -> Finding:
    stored, made = leak.holder_location, leak.location
    apart = stored is not None and (stored.filename, stored.line) != (made.filename, made.line)
    return Finding(
        code=code,
        severity=severity,
        message=f"{number_of_bytes(leak.each)} more after each of {plural(leak.iterations, 'iteration')}, "
        f"{number_of_bytes(leak.kept)} {'at the peak' if leak.ended else 'in all'}: {_why(leak)}.",
        location=stored or made,
        evidence={"bytes an iteration": leak.each, "iterations": leak.iterations, "bytes": leak.kept},
        remedy=_remedy(leak),
        subject=leak.holder,
        related=(RelatedLine("the most of it was allocated here", made),) if apart else (),
    )


def _why(leak: Leak) -> str:
    name = leak.holder
    if leak.graph and leak.form == "sum":
        return f"{name} is added up from results with their graphs, which keep the activations of each"
    if leak.form == "carried":
        return f"the graph of {name} goes back over all of them and keeps the activations of each"
    if leak.graph:
        return f"{name} stores tensors with their graphs, which keep the activations of each"
    if leak.form == "joined":
        return f"{name} is made anew each time from all that it held before and something more"
    if leak.ended:
        return "what this line makes stayed until then, and was freed all at once"
    return f"{name} keeps what each of them made" if name else "what this line makes stays alive"


def _remedy(leak: Leak) -> str:
    if leak.form == "carried":
        return f"Cut off what is carried over into the next iteration: `{rebound(leak.holder, 'detach()')}`"
    if leak.graph:
        return without_graph(scalars=leak.scalars)
    if leak.form == "joined":
        return (
            f"Allocate {leak.holder} once in its full size and write each part to its place, or keep only its last part"
        )
    if leak.ended:
        return "Keep numbers instead of tensors: what a function collects is freed only when it returns"
    elsewhere = "" if leak.device == "cpu" else ", move what is to stay to the CPU (`.cpu()`)"
    if not leak.holder:
        return f"Keep numbers instead of tensors{elsewhere or ', or only the last ones'}"
    return (
        f"Keep numbers instead of tensors{elsewhere}, give {leak.holder} an end (`collections.deque(maxlen=100)`), or "
        "empty it when it was used"
    )


__all__ = ["graphs_that_stay", "grows_in_a_run"]
