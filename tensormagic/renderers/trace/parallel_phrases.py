"""What a rank's report says of the other processes: what its norms are of, which passes reduced, what steps used."""

from __future__ import annotations

from collections.abc import Iterator

from tensormagic.renderers.trace.pacing_words import pacing_lines
from tensormagic.renderers.trace.trace_phrases import measured, norm_text
from tensormagic.reports import UNTOUCHED, Parallel, ParameterSeries, TraceReport
from tensormagic.words import count, listed, plural

_MOST_TOLD = 3
_OF = {
    "DDP": "norms of this rank's gradients, before they are reduced",
    "FSDP1": "norms of this rank's full gradients, before they are reduced and sharded",
    "FSDP2": "norms of this rank's full gradients, before they are reduced and sharded",
    "DTensor": "the norm of a DTensor covers only this process's shard",
}


def run_lines(report: TraceReport) -> Iterator[str]:
    """Yield what is said of a run below its headline: which steps were traced, and which part of it a rank is."""
    yield from pacing_lines(report)
    if report.parallel is not None:
        yield _place(report.parallel)
        yield from _reduced(report)
        yield from _used(report)


def _place(parallel: Parallel) -> str:
    kinds = " and ".join(parallel.kinds)
    sentence = dict.fromkeys(_OF[kind] for kind in parallel.kinds)
    what = f", {kinds}: {'; '.join(sentence)}" if kinds else ""
    return f"rank {parallel.rank} of {parallel.world_size}{what}"


def _reduced(report: TraceReport) -> Iterator[str]:
    """Yield which of the kept passes reduced gradients over the ranks, where any could have."""
    known = [one for one in report.passes if one.reduced is not None]
    kept_back = [one.number for one in known if not one.reduced]
    if not known:
        return
    passes = plural(len(known), "pass", "passes")
    if len(known) == 1:
        yield f"the pass {'kept gradients back on each rank' if kept_back else 'reduced gradients over the ranks'}"
    elif not kept_back:
        yield f"all {passes} reduced gradients over the ranks"
    elif len(kept_back) == len(known):
        yield f"none of {passes} reduced gradients over the ranks: each rank has its own"
    else:
        shown = listed(map(count, kept_back), most=6)
        yield (
            f"{count(len(known) - len(kept_back))} of {passes} reduced gradients over the ranks; "
            f"{'pass' if len(kept_back) == 1 else 'passes'} {shown} kept them back"
        )


def last_used(series: ParameterSeries) -> tuple[float, float]:
    """Return the norm that a backward brought and that which the step after it used, last; `UNTOUCHED` without one."""
    pairs = zip(reversed(series.norms), reversed(series.stepped), strict=False)
    return next(((brought, used) for brought, used in pairs if measured(used)), (UNTOUCHED, UNTOUCHED))


def _used(report: TraceReport) -> Iterator[str]:
    """Yield what the optimizer's last measured step used, beside what the backward before it brought."""
    described = [(one.name, *last_used(one)) for one in report.parameters]
    described = [(name, brought, used) for name, brought, used in described if measured(used)]
    if not described:
        return
    parallel = report.parallel
    here = " of this process's shards" if parallel is not None and set(parallel.kinds) - {"DDP"} else ""
    shown = [f"{name} {norm_text(used)} ({norm_text(brought)})" for name, brought, used in described[:_MOST_TOLD]]
    more = f", and {plural(len(described) - _MOST_TOLD, 'parameter')} more" if len(described) > _MOST_TOLD else ""
    yield f"norms used at the optimizer's last step{here}, in brackets those before: {', '.join(shown)}{more}"
