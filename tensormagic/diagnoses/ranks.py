"""TM900 to TM916: what several ranks hold, reduce, and do."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import median

from tensormagic.diagnoses.rule import training_of
from tensormagic.reports import EVERYTHING, UNTOUCHED, Difference, Finding, RankReport, TraceReport, UnshardedParameters
from tensormagic.words import (
    capitalised,
    count,
    listed,
    number_of_bytes,
    percent,
    plural,
    ranks_text,
    seconds_text,
    short_number,
    shortened,
)

# TM900 to TM908: what parts ranks that should go together, and on which of them it began.

_SHARED = ("DDP", "FSDP1", "FSDP2")


def _those(report: RankReport, *what: str) -> Iterator[Difference]:
    return (one for one in report.differences if one.what in what)


def missing(report: RankReport) -> Iterator[Finding]:
    """TM900: ranks that left nothing, and ranks that others outlived."""
    there = {one.rank for one in report.ranks}
    absent = [rank for rank in range(report.world_size) if rank not in there]
    if absent:
        yield Finding(
            code="TM900", severity="warning",
            message=f"{capitalised(ranks_text(absent))} of {report.world_size} left no report: the others are compared "
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
            message=f"Rank {one.rank} stopped reporting{last}{others}, while other ranks continued: it was killed, "
            "could write no more, or is still running.",
            evidence={"silent": len(silent)},
            remedy="A signal or an error in C++ leaves no traceback: look at the launcher's output for its exit code.",
        )  # fmt: skip


def parameters_differ(report: RankReport) -> Iterator[Finding]:
    """TM901: ranks that should hold the same parameters do not."""
    for one in _those(report, *_DRIFT):
        when, remedy = _DRIFT[one.what]
        made = f", after {listed(_by_rank(one, ' steps'), most=_MOST_LISTED)}" if one.values else ""
        yield Finding(
            code="TM901", severity="error",
            message=f"{when.format(count(one.step))} {_of(one, 'parameters')} differ between ranks{made}: "
            f"{'they are' if one.names[0] == EVERYTHING else f'{one.names[0]} is'} different on "
            f"{ranks_text(one.ranks)}.",
            evidence={"parameters": one.count, "step": one.step},
            remedy=remedy,
            subject=one.names[0],
        )  # fmt: skip


_BROADCAST = (
    "`DistributedDataParallel(net)` broadcasts parameters once: change them before that, or alike on all ranks. "
    "Without it, call `torch.distributed.broadcast(parameter.data, src=0)` for each of them."
)
_DRIFT = {
    "start": ("Before the first step", _BROADCAST),
    "parameters": (
        "After step {}, with equal gradients,",
        "Give the optimizer the same settings and loaded state on all ranks; change parameters alike on all of them.",
    ),
    "end": (
        "At the end",
        "Call the optimizer's step equally often on all ranks, not inside an `if` that only some ranks enter.",
    ),
}


def _wait(report: RankReport) -> str:
    """Return the parameters to which the losses of some ranks do not lead, or what else they may be."""
    width = len(report.names)
    rows = [(one.rank, report.pass_norms[at * width : (at + 1) * width]) for at, one in enumerate(report.ranks)]
    for at, name in enumerate(report.names):
        if without := [rank for rank, row in rows if row and row[at] == UNTOUCHED]:
            return f": {name} gets none on {ranks_text(without)}"
    return ", or that were replaced after wrapping"


_THROUGH = (
    "Run the forward and backward of the last pass before a step outside no_sync(), and through the wrapped model, not "
    "`model.module`."
)
_WHOLE_MODEL = (
    "Wrap all of the model, after its last change: `DistributedDataParallel(net)` reduces what `net` held, and what "
    "required a gradient, when it was made, and `fully_shard(net)` what is in `net`."
)
_BY = "ran inside no_sync() or bypassed the wrapper, or the parameters were converted after wrapping"
_WHY = {
    "none": (
        f"no pass since the previous step reduced them: each pass, or its forward, {_BY}",
        f"{_THROUGH} Convert a model (`.double()`) before it is wrapped.",
    ),
    "some": ("some passes reduced them, and later passes added to them on each rank separately", _THROUGH),
    "all": (
        "they were reduced, and then changed on each rank separately, for example by clipping",
        "Change gradients after the backward identically on all ranks: by the same limit, under the same condition.",
    ),
    "kept": ("that pass reduced other gradients, and each rank used its own of these", _WHOLE_MODEL),
    "apart": (
        "they are of different passes, because some ranks skipped a step that others made",
        "Skip a step on all ranks or on none: reduce the condition with `torch.distributed.all_reduce` first.",
    ),
    "unused": (
        "not all were reduced, as DistributedDataParallel waits for gradients of parameters that the loss did not use",
        "`find_unused_parameters=True`, or `requires_grad_(False)` before wrapping for what no loss uses.",
    ),
    "whole": (
        "tensor parallelism leaves them whole, and they would be the same after the same inputs and random numbers",
        "Choose data and seed by the place in the data-parallel group: ranks of a tensor-parallel group share them.",
    ),
    "": ("whether they were reduced is not known", _THROUGH),
}


def gradients_not_reduced(report: RankReport) -> Iterator[Finding]:
    """TM902: a step used gradients that are not the same on ranks that hold the same parameters."""
    for one in _those(report, "gradients"):
        step = f"Step {count(one.step)}" if one.step else f"The step after pass {count(one.after_pass)}"
        why, remedy = _WHY[one.reduced]
        yield Finding(
            code="TM902", severity="error",
            message=f"{step} used gradients that differ between ranks, of {_of(one, 'the parameters')}: the norm "
            f"of {f'{one.names[0]}.grad' if one.names[0] != EVERYTHING else 'all of them'} is {_values(one)}; "
            f"{why}{_wait(report) if one.reduced == 'unused' else ''}.",
            evidence={"parameters": one.count, "step": one.step},
            remedy=remedy,
            subject=one.names[0],
        )  # fmt: skip
    kept = [one for one in report.ranks if one.kinds == ("FSDP2",) and one.steps > 1 and one.passes and not one.reduced]
    if report.step_norms and len(kept) == len(report.ranks) and set(report.step_norms) == {UNTOUCHED}:
        yield Finding(
            code="TM902", severity="error",
            message=f"{plural(kept[0].steps, 'step')} changed nothing: no pass reduced gradients, and until one does "
            "FSDP2 keeps them back from the optimizer.",
            evidence={"parameters": len(report.names), "step": 1},
            remedy="`net.set_requires_gradient_sync(True)` before the backward of the last pass before a step.",
        )  # fmt: skip


def rates_differ(report: RankReport) -> Iterator[Finding]:
    """TM903: ranks step with different learning rates."""
    for one in _those(report, "rates"):
        yield Finding(
            code="TM903", severity="error",
            message=f"The learning rates differ between ranks from step {count(one.step)} on: {_values(one)}.",
            evidence={"step": one.step},
            remedy="Give optimizers the same rate on all ranks, and schedulers the same input: the number of steps, "
            "or a reduced metric.",
        )  # fmt: skip


def not_finite_on_some(report: RankReport) -> Iterator[Finding]:
    """TM907: NaN or infinity began on some ranks alone, before gradients were reduced."""
    if report.bad_pass:
        where = f" ({report.bad_line})" if report.bad_line else ""
        after = "the last pass is finite again" if report.bad_passed else "from the next step on, all ranks have it"
        yield Finding(
            code="TM907", severity="warning" if report.bad_passed else "error",
            message=f"NaN or infinity began only on {ranks_text(report.bad_ranks)}, in pass {count(report.bad_pass)}"
            f"{where}, before gradients were reduced: {after}.",
            evidence={"pass": report.bad_pass, "ranks": len(report.bad_ranks)},
            remedy=f"Look at the full report of {ranks_text(report.bad_ranks[:1])}: it names the input or the "
            "operation in which it began.",
        )  # fmt: skip


def passes_differ(report: RankReport) -> Iterator[Finding]:
    """TM908: ranks that reduce together made different numbers of passes."""
    ended = [one for one in report.ranks if one.state != "running" and set(one.kinds) & set(_SHARED)]
    numbers = sorted({one.passes for one in ended})
    is_whole = all(one.state == "finished" for one in ended)
    if len(numbers) < 2 or (is_whole and len({one.reduced for one in ended}) > 1):  # else they had waited: a join()
        return
    fewest = [one.rank for one in ended if one.passes == numbers[0]]
    if any(one.error for one in ended if one.rank in fewest):
        return  # that error is why, or it follows from another rank's
    most = [one.rank for one in ended if one.passes == numbers[-1]]
    yield Finding(
        code="TM908", severity="error" if any(one.state == "failed" for one in ended) else "warning",
        message=f"The ranks made different numbers of backward passes: {ranks_text(fewest)} made {count(numbers[0])}, "
        f"{ranks_text(most)} {count(numbers[-1])}.",
        evidence={"fewest": numbers[0], "most": numbers[-1]},
        remedy="Give all ranks the same number of batches (`drop_last=True`), or train inside `model.join()`: the "
        "others wait for a collective that a rank does not reach.",
    )  # fmt: skip


def _of(one: Difference, everything: str) -> str:
    return everything if one.names[0] == EVERYTHING else f"{count(one.count)} of {plural(one.of, 'parameter')}"


_MOST_LISTED = 4


def _by_rank(one: Difference, of: str = "") -> list[str]:
    return [f"{'none' if value == UNTOUCHED else short_number(value)}{of} on rank {rank}" for rank, value in one.values]


def _values(one: Difference) -> str:
    described = _by_rank(one)
    usual = [value for rank, value in one.values if rank not in one.ranks]
    if len(described) > _MOST_LISTED and 2 * len(usual) > len(described):
        odd = [words for words, (rank, _) in zip(described, one.values, strict=True) if rank in one.ranks]
        described = [f"{short_number(usual[0])} on most ranks", *odd]
    return listed(described, most=_MOST_LISTED)


# TM904 to TM916: data, generators, buffers, collectives, clipping and placements of ranks that belong together.

_PEAK, _MORE = 1.3, 256 * 2**20  # TM914: times, and bytes, more than the others
_WHOLE = 0.25  # TM912: of the elements


def buffers_differ(report: RankReport) -> Iterator[Finding]:
    """TM904: buffers that nobody sends around are not the same."""
    for one in _those(report, "buffers"):
        yield Finding(
            code="TM904", severity="warning",
            message=f"{count(one.count)} of {plural(one.of, 'buffer')} differ between ranks after step "
            f"{count(one.step)}: {one.names[0]} is different on {ranks_text(one.ranks)}.",
            evidence={"buffers": one.count},
            remedy="With `broadcast_buffers=False` each rank keeps its own, and a checkpoint holds those of one: "
            "`nn.SyncBatchNorm.convert_sync_batchnorm(net)` computes them over all.",
            subject=one.names[0],
        )  # fmt: skip


def same_inputs(report: RankReport) -> Iterator[Finding]:
    """TM905: ranks that should share the data are given the same."""
    for one in _those(report, "inputs"):
        yield Finding(
            code="TM905", severity="warning",
            message=f"{capitalised(ranks_text(one.ranks))} were given the same input in all "
            f"{plural(one.of, 'forward')}: {'they compute the same gradients, so ' if one.count else ''}the other "
            f"ranks add {'nothing' if one.count else 'no data of their own'}.",
            evidence={"forwards": one.of, "ranks": len(one.ranks)},
            remedy="`DistributedSampler(data)` gives each rank its share; call its `set_epoch` in each epoch.",
        )  # fmt: skip


def collectives_part(report: RankReport) -> Iterator[Finding]:
    """TM906: ranks of a group begin other collectives, or one does not come."""
    for one in _those(report, "collectives"):
        described = [f"rank {rank} {what}" for rank, what in _both(one)]
        yield Finding(
            code="TM906", severity="error",
            message=f"The ranks diverge at collective {count(one.step)} of {_group(one)}: {listed(described)}.",
            evidence={"collective": one.step, "ranks": len(one.ranks)},
            remedy="All ranks of a group must start the same collectives in the same order. Common causes: a "
            "collective inside an `if` that only some ranks enter, and fewer batches on a rank.",
        )  # fmt: skip
    for one in _those(report, "absence"):
        message, remedy = _absence(report, one)
        yield Finding(
            code="TM906", severity="error", message=message,
            evidence={"collective": one.step, "ranks": len(one.ranks)}, remedy=remedy,
        )  # fmt: skip


def _absence(report: RankReport, one: Difference) -> tuple[str, str]:
    """Return what to say of a collective that some ranks gave up, and what to do."""
    (waits, what), ranks = one.described[0], ranks_text(one.ranks)
    collective = f"collective {count(one.step)} of {_group(one)}"
    if not one.ranks:
        return (
            f"All ranks began {collective} and gave it up: {what}. They waited for different ranks.",
            "Give all ranks the same `src` or `dst`: the number of one rank, not each rank's own.",
        )
    if one.values:
        late = seconds_text(max(seconds for _, seconds in one.values))
        return (
            f"{capitalised(ranks)} came to {collective} {late} after rank {waits}: {what}. It had timed out by then.",
            f"Look at what {ranks} did before it. If that takes so long, raise the `timeout` of `init_process_group`.",
        )
    waiting = {rank for each in _those(report, "absence") for rank, _ in each.described}
    message = (
        f"{capitalised(ranks)} never reached {collective}: {what}, where {ranks_text(dict(one.described))} waited and "
        "failed."
    )
    if elsewhere := waiting & {*one.ranks}:
        return (
            f"{message} {capitalised(ranks_text(sorted(elsewhere)))} waited in another group meanwhile.",
            "Let all ranks reach the collectives of their groups in the same order, or they wait for one another.",
        )
    for ended in report.ranks:
        if ended.rank in one.ranks and ended.error:
            return (
                f"{message} Rank {ended.rank} ended with {shortened(ended.error, 200)}.",
                f"Fix that error on rank {ended.rank} first: the others failed because of it.",
            )
    return message, f"Find out why {ranks} skipped that call: fewer batches, or an `if`."


def same_order(report: TraceReport) -> Iterator[Finding]:
    """TM905: a DistributedSampler that was not given the epoch gives the same order again."""
    for one in training_of(report).same_order:
        yield Finding(
            code="TM905", severity="warning",
            message=f"{one.loader} gave its data in the same order in two rounds of the loop over {one.epoch}: its "
            "DistributedSampler shuffles by the epoch number, and set_epoch was never called.",
            location=report.location(one.location),
            remedy=f"`{one.loader}.sampler.set_epoch({one.epoch})` before this loop.",
            subject=one.loader,
        )  # fmt: skip


def same_generators(report: RankReport) -> Iterator[Finding]:
    """TM909: ranks draw the same numbers in their forwards."""
    for one in _those(report, "generators"):
        yield Finding(
            code="TM909", severity="note",
            message=f"The generators were in the same state on {ranks_text(one.ranks)} at each of "
            f"{plural(one.of, 'forward')}, and {count(one.count)} of them drew: dropout masks are the same on all of "
            "them.",
            evidence={"forwards": one.of, "drew": one.count},
            remedy="`torch.manual_seed(seed + rank)` after the model was made gives each rank its own numbers.",
        )  # fmt: skip


def uneven_batches(report: RankReport) -> Iterator[Finding]:
    """TM910: batches are of different sizes, and the mean of means weighs their samples differently."""
    for one in _those(report, "batches"):
        where = f" ({one.line})" if one.line else ""
        yield Finding(
            code="TM910", severity="note",
            message=f"Batches were of different sizes in {count(one.count)} of {plural(one.of, 'forward')}, first in "
            f"pass {count(one.after_pass)}{where}: {listed(_by_rank(one), most=_MOST_LISTED)}.",
            evidence={"forwards": one.count},
            remedy="The mean over ranks weights the samples of a small batch more: `drop_last=True`, or "
            "scale each loss by its share of the samples.",
        )  # fmt: skip


def placements_differ(report: RankReport) -> Iterator[Finding]:
    """TM912: ranks hold a parameter in other placements, or much of a model that is sharded whole on all of them."""
    for one in _those(report, "placements"):
        described = [f"{how} on rank {rank}" for rank, how in _both(one)]
        yield Finding(
            code="TM912", severity="error",
            message=f"{count(one.count)} of {plural(one.of, 'parameter')} have different placements on some ranks: "
            f"{one.names[0]} is {listed(described)}.",
            evidence={"parameters": one.count},
            remedy="Shard the model with the same plan on all ranks.",
            subject=one.names[0],
        )  # fmt: skip
    several = [one for one in report.spread if len(one.mesh_ranks) > 1]
    whole = [one for one in several if set(one.placements) == {"R"}]
    if whole and len(whole) < len(several):
        sizes = [(math.prod(one.shape), one.name) for one in whole]
        every = sum(math.prod(one.shape) for one in several)
        yield from _whole(
            UnshardedParameters(max(sizes)[1], len(whole), len(several), sum(size for size, _ in sizes), every)
        )


def unexpected_placements(report: TraceReport) -> Iterator[Finding]:
    """TM912: large parameters that are whole on each rank where others are cut; a part of a sum taken for all of it."""
    if report.parallel is None:
        return
    if report.parallel.unsharded is not None:
        yield from _whole(report.parallel.unsharded)
    for one in report.parallel.partial_sums[:1]:
        several = len(report.parallel.partial_sums)
        part = "this rank's part" if several == 1 else f"this rank's part, in {count(several)} places,"
        yield Finding(
            code="TM912", severity="warning",
            message=f"The loss was computed from {part} of a sum over {one.over}: "
            f"to_local() of a DTensor whose placements are {' '.join(one.placements)} returns what this rank adds "
            "to it.",
            evidence={"results": len(report.parallel.partial_sums)},
            location=report.location(one.location),
            remedy="`full_tensor()` instead of `to_local()` adds the parts up; so does "
            "`redistribute(placements=[Replicate()])` before it.",
        )  # fmt: skip


def _whole(one: UnshardedParameters) -> Iterator[Finding]:
    if one.elements > _WHOLE * one.of_elements:
        yield Finding(
            code="TM912", severity="note",
            message=f"Each rank holds {count(one.count)} of {plural(one.of, 'DTensor')} whole, with "
            f"{percent(one.elements, one.of_elements)} of the elements: {one.largest} is the largest.",
            evidence={"parameters": one.count},
            remedy=f"If that is not intended, add {one.largest} to the sharding plan: `Shard(0)`, like the others.",
            subject=one.largest,
        )  # fmt: skip


def clipped_by_shard(report: RankReport) -> Iterator[Finding]:
    """TM913: each rank scaled its shards by a factor of its own."""
    flat = any("FSDP1" in one.kinds for one in report.ranks)
    clip = "net.clip_grad_norm_(most)" if flat else "torch.nn.utils.clip_grad_norm_(net.parameters(), most)"
    for one in _those(report, "clipping"):
        yield Finding(
            code="TM913", severity="error",
            message=f"Before step {count(one.step)} the ranks scaled the shards of their gradients by different "
            f"factors: {listed(_by_rank(one), most=_MOST_LISTED)}. Each clipped by the norm of its own shard.",
            evidence={"step": one.step},
            remedy=f"`{clip}` computes the norm over all shards.",
        )  # fmt: skip


def memory_uneven(report: RankReport) -> Iterator[Finding]:
    """TM914: a rank needs much more memory than the others that hold as much."""
    alike = [one for one in report.ranks if one.peak and one.shares]
    if len(alike) < 2:
        return
    most = max(alike, key=lambda one: one.peak)
    others = [one.peak for one in alike if one is not most and one.shares == most.shares]
    if others and most.peak > _PEAK * max(others) and most.peak - max(others) > _MORE:
        usual = median(others)
        times = short_number(round(2 * most.peak / usual) / 2)
        yield Finding(
            code="TM914", severity="note",
            message=f"Rank {most.rank} took about {times} times as much memory at its "
            f"peak as {'the other rank' if len(others) == 1 else f'the {len(others)} other ranks'}.",
            evidence={"peak": number_of_bytes(most.peak), "others": number_of_bytes(int(usual))},
            remedy=f"Look at what only rank {most.rank} does: checkpoints, metrics, tensors of other ranks placed on "
            "its device (`map_location`).",
        )  # fmt: skip


def straggler(report: RankReport) -> Iterator[Finding]:
    """TM915: the others wait for one rank in nearly every step."""
    for one in _those(report, "waits"):
        rank = one.ranks[0]
        times = dict(one.values)
        others = "The other rank waits" if len(report.ranks) == 2 else "The other ranks wait"
        where = f" at {one.line}" if one.line else ""
        yield Finding(
            code="TM915", severity="warning",
            message=f"{others} for rank {rank}: it was last in {count(one.count)} of {plural(one.of, 'step')}, to "
            f"{one.names[0]}{where}.",
            evidence={"waited": seconds_text(times[rank]), "step": seconds_text(times[-1])},
            remedy=f"Look at what only rank {rank} does between collectives: a slower loader or device, logging.",
        )  # fmt: skip


def mesh_across_hosts(report: RankReport) -> Iterator[Finding]:
    """TM916: tensor parallelism speaks between machines, and what speaks less does not."""
    for one in _those(report, "hosts"):
        crosses, inside = one.names
        yield Finding(
            code="TM916", severity="warning",
            message=f"The mesh dimension {crosses} spans several machines, and {inside} stays on one: "
            f"{listed([f'rank {rank} is on {host}' for rank, host in one.described], most=4)}.",
            evidence={"machines": len({host for _, host in one.described})},
            remedy=f"Tensor parallelism communicates in every layer: name {crosses} last in `init_device_mesh`, so "
            "that its ranks are neighbours.",
        )  # fmt: skip


def _both(one: Difference) -> list[tuple[int, str]]:
    """Return what a rank that is like most says, and the first that is not."""
    usual = [each for each in one.described if each[0] not in one.ranks][:1]
    return [*usual, *[each for each in one.described if each[0] in one.ranks][:1]]


def _group(one: Difference) -> str:
    return f"group {one.names[0]}" if one.names else "their group"
