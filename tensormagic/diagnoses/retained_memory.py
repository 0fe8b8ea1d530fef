"""TM501 to TM504: retained memory, alive and of no use to anybody: history, the last error, stored graphs, growth."""

from __future__ import annotations

from collections.abc import Iterator

from tensormagic.diagnoses.lines import rebound
from tensormagic.diagnoses.rule import related_lines
from tensormagic.reports import (
    Finding,
    Leak,
    MemoryReport,
    MemoryRunReport,
    RetainedMemory,
    WatchReport,
)
from tensormagic.reports.base import Severity
from tensormagic.words import listed, number_of_bytes, plural

LARGE = 16 * 2**20  # bytes; below that nobody misses them
LARGE_GROWTH = 64 * 2**20  # bytes over the runs that are compared
MANY_GRAPHS = 10  # stored without memory of their own: worth a word

_ERROR = "`%gpumem --free --yes` releases it; so does a cell that contains only `1/0`, whose error takes its place"


def kept_by_history(report: WatchReport | MemoryReport) -> Iterator[Finding]:
    """TM501: large storages that only ``Out`` and the names that IPython makes of it keep alive."""
    kept = [one for one in report.retained if one.kind == "history" and one.nbytes >= LARGE]
    if not kept:
        return
    nbytes, places = sum(one.nbytes for one in kept), [_out(one.holders) for one in kept]
    verb = "keeps" if len(kept) == 1 else "keep"
    yield Finding(
        code="TM501",
        severity="warning",
        message=f"{listed(places)} {verb} {number_of_bytes(nbytes)} alive that none of your variables refers to: "
        "IPython's output history stores the values of last expressions.",
        evidence={"bytes": nbytes, "storages": len(kept), **{_out(one.holders): one.nbytes for one in kept[:6]}},
        remedy=f"Delete it from every place where IPython keeps it: {_deletes(kept)}. A cell that ends with a "
        "semicolon stores nothing there",
        subject=places[0],
    )


def _deletes(kept: list[RetainedMemory]) -> str:
    """Return the magics that delete outputs: of ``Out[5]``, and all that is the same object, by its name ``_5``."""
    places = (place for one in kept for place in one.holders if not place.startswith("the last error"))
    names = (place.replace("Out[", "_").partition("]")[0].partition("[")[0].partition(".")[0] for place in places)
    return listed([f"`%xdel {name}`" for name in dict.fromkeys(names)])


def _out(holders: tuple[str, ...]) -> str:
    """Return the place in ``Out``, which gives the cell; another name where it is in none."""
    path = next((path for path in holders if path.startswith("Out[")), "")
    return path.partition("]")[0] + "]" if path else holders[0]


def kept_by_traceback(report: WatchReport | MemoryReport) -> Iterator[Finding]:
    """TM502: large storages that only the frames of the last error keep alive."""
    kept = [one for one in report.retained if one.kind != "history" and one.nbytes >= LARGE]
    if not kept:
        return
    nbytes, first = sum(one.nbytes for one in kept), kept[0]
    outputs = [one for one in kept if one.kind == "both"]
    yield Finding(
        code="TM502",
        severity="warning",
        message=f"The last error keeps {number_of_bytes(nbytes)} alive that none of your variables refers to: "
        f"its traceback holds {listed([_local(one) for one in kept])}.",
        location=first.location,
        evidence={"bytes": nbytes, "storages": len(kept)},
        remedy=_ERROR + (f"; then {_deletes(outputs)}" if outputs else ""),
        subject=_local(first),
    )


def _local(kept: RetainedMemory) -> str:
    """Return which variable of which function it is, where the frame shows it, else the place as it is."""
    path = next((path for path in kept.holders if path.startswith("the last error")), kept.holders[0])
    place = path.partition(", ")[2]
    if not place.startswith("local"):
        return place or path
    return f"the variable {place.removeprefix('local ')}" if not place.startswith("local of") else f"a {place}"


def kept_by_graphs(report: WatchReport | MemoryReport) -> Iterator[Finding]:
    """TM503: stored results whose graphs keep activations; a note where a backward has freed these."""
    for graph in report.graphs:
        what = f"{graph.name} stores {plural(graph.items, 'tensor')} with their graphs"
        if graph.form == "sum":
            what = f"{graph.name} was added up from {plural(graph.graphs, 'result')} with their graphs"
        nodes, nbytes, large = plural(graph.nodes, "node"), number_of_bytes(graph.nbytes), graph.nbytes >= LARGE
        if large:
            least = "" if graph.complete else "at least "
            message = f"{what} ({nodes}), which keep {least}{nbytes} of saved tensors alive until backward runs."
        elif graph.graphs >= MANY_GRAPHS:
            least = "" if graph.complete else "more than "
            kept = "a backward has freed their activations" if graph.freed else f"with {nbytes} of activations"
            message = f"{what}: {least}{nodes} that are never used again; {kept}."
        else:
            continue
        yield Finding(
            code="TM503",
            severity="warning" if large else "note",
            message=message,
            location=graph.location,
            evidence={"graphs": graph.graphs, "nodes": graph.nodes, "bytes": graph.nbytes},
            remedy=without_graph(scalars=graph.scalars),
            subject=graph.name,
        )


def without_graph(*, scalars: bool) -> str:
    """Return how to store a result and not its graph."""
    if scalars:
        return "Store the number, not the graph: `.item()`; if nothing is trained, run under `torch.no_grad()`"
    return "Store the values, not the graph: `.detach()`; if nothing is trained, run under `torch.no_grad()`"


def grows(report: WatchReport) -> Iterator[Finding]:
    """TM504: what holds more by the same amount each time the same code runs; a note while it is small."""
    for growth in report.growing:
        step, more = growth.nbytes[-1] - growth.nbytes[-2], growth.tensors[-1] - growth.tensors[-2]
        by = f"by {plural(more, 'tensor')}, {number_of_bytes(step)}," if more else f"by {number_of_bytes(step)}"
        yield Finding(
            code="TM504",
            severity="warning" if growth.nbytes[-1] - growth.nbytes[0] >= LARGE_GROWTH else "note",
            message=f"{growth.name} grows {by} each time this runs: {number_of_bytes(growth.nbytes[0])} "
            f"{plural(len(growth.nbytes) - 1, 'run')} ago, {number_of_bytes(growth.nbytes[-1])} now.",
            location=growth.location,
            evidence={"bytes a run": step, "tensors": growth.tensors[-1], "runs": len(growth.nbytes)},
            remedy=f"Empty it before it is filled again (`{growth.name}.clear()`), or keep numbers instead of tensors"
            if more
            else f"Make {growth.name} again in each run, or keep only its last part",
            subject=growth.name,
        )


# TM503 and TM504 inside a run: memory that stays, a like amount after each iteration.
#
# What stays because of a graph is hardly ever meant. What a container collects often is: a warning is said only where
# a training loop collects much of it, step by step; elsewhere it is worth knowing, or nothing at all.


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
        f"{number_of_bytes(leak.kept)} {'at the peak' if leak.ended else 'in total'}: {_why(leak)}.",
        location=stored or made,
        evidence={"bytes an iteration": leak.each, "iterations": leak.iterations, "bytes": leak.kept},
        remedy=_remedy(leak),
        subject=leak.holder,
        related=related_lines(("the most of it was allocated here", made if apart else None)),
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
        return f"{name} is replaced each time by all that it held before and something new"
    if leak.ended:
        return "what this line makes stayed alive until then, and was freed all at once"
    return f"{name} keeps the results of each" if name else "what this line makes stays alive"


def _remedy(leak: Leak) -> str:
    if leak.form == "carried":
        return f"Detach what is carried into the next iteration: `{rebound(leak.holder, 'detach()')}`"
    if leak.graph:
        return without_graph(scalars=leak.scalars)
    if leak.form == "joined":
        return f"Allocate {leak.holder} once in its full size and write each part into it, or keep only its last part"
    if leak.ended:
        return "Keep numbers instead of tensors: what a function collects is freed only when it returns"
    elsewhere = "" if leak.device == "cpu" else ", move what is to stay to the CPU (`.cpu()`)"
    if not leak.holder:
        return f"Keep numbers instead of tensors{elsewhere or ', or only the last ones'}"
    return (
        f"Keep numbers instead of tensors{elsewhere}, give {leak.holder} an end (`collections.deque(maxlen=100)`), "
        "or empty it after use"
    )
