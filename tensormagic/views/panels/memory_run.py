"""Memory over a run (``%%gpumem``): the peak, the timeline, what each line took, what stayed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import islice

from tensormagic.reports import (
    AllocatedBlock,
    AllocatorRun,
    Cell as CellSource,
    FunctionMemory,
    Leak,
    MemoryRunReport,
    OutOfMemory,
)
from tensormagic.views import nodes
from tensormagic.views.panels.memory import called, freeable_sections, kind, storage_lines, storages_section, tile
from tensormagic.views.pictures.timeline import OTHER_LINES, Layer, TimelinePicture, line_ranks, main_timeline
from tensormagic.views.pictures.treemap import LEFT_OUT, Tile, TreemapPicture
from tensormagic.views.theme import BEFORE, CATEGORY_WORDS
from tensormagic.words import DOT, count, number_of_bytes, plural, seconds_text, shortened

NO_LINE = "none of your lines"
COLUMNS = ("at peak", "allocated", "freed", "kept")
MOST_BLOCKS, MOST_LEAKS, MOST_TIMELINES, MOST_ALLOCATOR_LINES = 24, 12, 4, 12
MAP_HEIGHT, MOST_CELLS = 220.0, 160
WHOLE = 40  # a cell of at most so many lines is listed whole
MOST = 160
_NO_USER_LINE = "none of your lines: backward, libraries"
_ABOUT_LINES = "bytes: alive at the peak, allocated in total, freed while it ran, kept after the run"


def view(report: MemoryRunReport) -> nodes.Panel:
    """Return the panel."""
    drawn = [timeline for timeline in report.timelines if timeline.live]
    main = main_timeline(report)
    ranked = sorted(drawn, key=lambda timeline: timeline is not main)[:MOST_TIMELINES]
    ranks = line_ranks(main) if main is not None else {}
    died = report.out_of_memory is not None and bool(report.at_end)
    body: list[nodes.Node] = []
    if (failed := report.out_of_memory) is not None:
        body.append(nodes.Paragraph(out_of_memory_words(failed), "error"))
        body += [f"{failed.location.label}: `{failed.location.text}`"] if failed.location is not None else []
        body += [nodes.Paragraph(shortened(failed.message, 400), "quiet")] if failed.message else []
    body.append(nodes.Findings(report.findings, report.gaps))
    if died:
        dead = TreemapPicture([*map(tile, report.at_end)], "what was alive when it failed", MAP_HEIGHT, MOST_CELLS)
        body += [nodes.Section("Alive when it failed", [dead], "by name"), *freeable_sections(report.freeable)]
    for at, timeline in enumerate(ranked):
        folded = died or at > 0
        note = f"peak {number_of_bytes(max(timeline.live))}" if folded else ""
        drawing = TimelinePicture(timeline, partial(layer_words, report))
        body.append(nodes.Section(f"Alive on `{timeline.device}`", [drawing], note, folded=folded))
    asked = {index for function in report.functions for index in function.lines}
    found: dict[tuple[str, int], int] = {}
    for index, line in enumerate(report.lines):
        found.setdefault((line.location.filename, line.location.line), index)
    shown = {key: index for key, index in found.items() if key[0] == report.cell.filename or index not in asked}
    lines = source(report, _rows(report, report.cell, shown), ranks)
    place = len(body) if died or not ranked else len(body) - len(ranked) + 1  # what is folded stands together
    body[place:place] = [nodes.Section("Line by line", [lines], _ABOUT_LINES, folded=died)] if lines.lines else []
    body += [] if drawn or report.gaps else ["no operation allocated anything"]
    body += [_function(report, function, ranks) for function in report.functions]
    body += [_leaks(report.leaks), *([] if died else _peak(report))]
    body.append(storages_section("Alive when it failed" if report.error else "Alive after the run", report.at_end))
    body.append(_blocks("Allocated here and still alive", report.kept, report.kept_left_out, report))
    body += [] if died else freeable_sections(report.freeable, folded=True)
    body += map(_allocator, report.allocator)
    sentence = report.state if report.out_of_memory is not None else state(report)  # what ran out is named right below
    ended = nodes.Words(shortened(sentence, 200), "error" if report.error else "quiet")
    facts: list[nodes.Cell] = [nodes.Words(peak(report), "strong") if peak(report) else None, summary(report), ended]
    name = shortened(f"gpumem {' '.join(report.title.split())}".rstrip(), 80)
    return nodes.Panel("memory", "memory", name, facts, body, "Memory of a run", sheets=("memory.css",))


def _function(report: MemoryRunReport, function: FunctionMemory, ranks: dict[int, int]) -> nodes.Section:
    indices = [index for index in function.lines if index < len(report.lines)]
    places = [report.lines[index].location for index in indices]
    found = {(place.filename, place.line): index for place, index in zip(places, indices, strict=True)}
    cell = CellSource(places[0].filename if places else "", None, function.source)
    rows = _rows(report, cell, found, function.first)
    lines = source(report, rows, ranks)
    body = lines if lines.lines else nodes.Paragraph("no line of it allocated anything", "quiet")
    return nodes.Section(f"In `{shortened(function.name, 80)}`", [body], folded=True)


def _leaks(leaks: Sequence[Leak]) -> nodes.Section:
    """Return what stays, after how many iterations, and what keeps it."""
    rows: list[tuple[nodes.Cell, ...]] = []
    for leak in leaks:
        stored = leak.holder_location or leak.location
        each = f"{number_of_bytes(leak.each)} more after each of {plural(leak.iterations, 'iteration')}"
        total = f"{number_of_bytes(leak.kept)} {'at the peak, freed later' if leak.ended else 'in total'}"
        what = " in autograd graphs" if leak.graph else ""
        keeps = f", kept by {' '.join(leak.holder.split())}" if leak.holder else ""
        rows.append((f"`{stored.text or leak.location.text}`", stored.label, f"{each}, {total}{what}{keeps}"))
    columns = [nodes.Column(look=look) for look in ("name", "quiet", "wide")]
    table = nodes.Table(columns, rows, most=(MOST_LEAKS, MOST_LEAKS))
    return nodes.Section("What grows with every iteration", [table], plural(len(leaks), "line"), folded=True)


def _peak(report: MemoryRunReport) -> list[nodes.Section]:
    """Return what was alive at the peak, as a map and as a table."""
    tiles = peak_tiles(report)
    if not tiles:
        return []
    number = len(report.peak_blocks) + report.peak_left_out[0]
    words = f"{plural(number, 'storage')}, by the line that allocated them"
    drawn = TreemapPicture(tiles, "what was alive at the peak", MAP_HEIGHT, MOST_CELLS)
    table = _blocks("What was alive at the peak", report.peak_blocks, report.peak_left_out, report)
    return [nodes.Section("Alive at the peak", [drawn, table], words, folded=True)]


def _blocks(
    name: str, blocks: Sequence[AllocatedBlock], left_out: tuple[int, int], report: MemoryRunReport
) -> nodes.Section:
    """Return blocks as a table, folded, and how many more there are."""
    columns = (
        nodes.Column("storage", lambda block: nodes.Noted(f"`{shortened(called(block.storage), 80)}`",
                                              [kind(block.storage)]), "name"),
        nodes.Column("bytes", lambda block: number_of_bytes(block.storage.nbytes), "number"),
        nodes.Column("category", lambda block: block.storage.category),
        nodes.Column("allocated by", lambda block: nodes.Words(operation(block.op), "code") if block.op else ""),
        nodes.Column("line", lambda block: nodes.Words(origin(report, block, width=32), "code")),
        nodes.Column("life", life, "quiet", in_terminal=False),
    )  # fmt: skip
    sizes = [block.storage.nbytes for block in blocks]
    table = nodes.table_of(columns, blocks, most=(MOST_BLOCKS, 10), more=("smaller", "smaller"), left_out=left_out,
                     nbytes=sizes, label=name)  # fmt: skip
    total = number_of_bytes(sum(sizes) + left_out[1])
    return nodes.Section(name, [table], f"{plural(len(blocks) + left_out[0], 'storage')}, {total}", folded=True)


def _allocator(run: AllocatorRun) -> nodes.Section:
    """Return what a GPU's allocator recorded beside the operations: the lines that used memory inside of them."""
    columns = (
        nodes.Column(
            "line",
            lambda line: f"`{f'{line.location.label}: {line.location.text}' if line.location else _NO_USER_LINE}`",
            "name",
        ),
        nodes.Column("workspace", lambda line: number_of_bytes(line.workspace), "number"),
        nodes.Column("served", lambda line: number_of_bytes(line.served), "number"),
        nodes.Column("times", lambda line: count(line.calls), "number"),
    )
    used = sorted((line for line in run.lines if line.workspace), key=lambda line: -line.workspace)
    table = nodes.table_of(columns, used[:MOST_ALLOCATOR_LINES])
    parts = [f"{plural(run.events, 'event')} of the allocator of {run.device}"]
    if run.peak is not None:
        tensors = f"tensors by themselves at most {number_of_bytes(run.seen_peak)}"
        parts.append(f"at most {number_of_bytes(run.peak)} in use, {tensors}")
    if run.reserved is not None:
        parts.append(f"at most {number_of_bytes(run.reserved)} reserved")
    if run.unnamed:
        number, nbytes = sum(each[1] for each in run.unnamed), sum(each[2] for each in run.unnamed)
        parts.append(f"{plural(number, 'block')} without a tensor at the end, {number_of_bytes(nbytes)}")
    if not run.complete:
        parts.append("its history does not reach back to the start of the run")
    return nodes.Section(f"What the allocator of `{run.device}` recorded", ["; ".join(parts), table], folded=True)


Rows = list[tuple[int, str, int]]  # of each line number and text, see `listing`; which of the report's it is, or -1


def source(report: MemoryRunReport, rows: Rows, ranks: dict[int, int]) -> nodes.Source:
    """Return a listing with the bytes of each line; ``ranks`` are the lines that have a colour in the timeline."""
    memories = [report.lines[index] for _, _, index in rows if index >= 0]
    if not memories:
        return nodes.Source([])
    alive = max(max(one.at_peak, one.kept) for one in memories) or 1
    moved = max(max(one.allocated, one.freed) for one in memories) or 1
    counted = any(one.executions for one in memories)
    lines = []
    for number, text, index in rows:
        amounts: list[nodes.Cell] = []
        if index >= 0:
            one = report.lines[index]
            for nbytes, top, letter in (
                (one.at_peak, alive, "p"), (one.allocated, moved, "a"), (one.freed, moved, "a"), (one.kept, alive, "k"),
            ):  # fmt: skip
                bar = nodes.Bar(nbytes / top, number_of_bytes(nbytes), f"tm-b{letter}") if nbytes else None
                amounts.append(bar)
            times = one.executions if counted else one.calls
            backward = f", {number_of_bytes(one.backward)} of it in its backward" if one.backward else ""
            most = f"most of it {operation(one.op)}, at most {number_of_bytes(one.largest)} at once"
            sentence = f"{plural(one.calls, 'operation')} allocated, {most}{backward}"
            amounts.append(nodes.Words(count(times) if times else "", "quiet", sentence))
        ground = f"tm-l{ranks[index]}" if index in ranks else ""
        lines.append(nodes.Line(number, text, amounts=amounts, ground=ground))
    return nodes.Source(lines, ("source", ""), (*COLUMNS, "times" if counted else "operations"))


def _rows(report: MemoryRunReport, cell: CellSource, found: dict[tuple[str, int], int], first: int = 1) -> Rows:
    """Return a listing of source and of the lines ``found``: file and number → index in the report."""
    places = [report.lines[at].location for at in found.values()]
    return [
        (number, text.rstrip(), found.get((filename, number), -1))
        for filename, number, text in islice(nodes.listing(cell, places, WHOLE, first=first), MOST)
    ]


def state(report: MemoryRunReport) -> str:
    """Return how the run ended."""
    return f"{report.state}: {' '.join(report.error.split())}" if report.error else report.state


def peak(report: MemoryRunReport) -> str:
    """Return the peak of the device that had the most alive; empty where nothing was seen."""
    drawn = main_timeline(report)
    return f"peak {number_of_bytes(drawn.live[drawn.peak])}" if drawn is not None else ""


def summary(report: MemoryRunReport) -> str:
    """Return where the peak was, what stayed, and how long it took."""
    drawn = main_timeline(report)
    took = f"{plural(report.operations, 'operation')} in {seconds_text(report.seconds)}"
    if drawn is None:
        return took
    place = f"on {drawn.device} at operation {count(drawn.operation[drawn.peak])}"
    ends = f"{number_of_bytes(drawn.before[0])} before, {number_of_bytes(drawn.live[-1])} after"
    return f" {DOT} ".join((place, ends, took))


def layer_words(report: MemoryRunReport, layer: Layer, *, width: int = 40) -> str:
    """Return what a layer of the timeline stands for."""
    if layer.key == OTHER_LINES:
        return OTHER_LINES
    return CATEGORY_WORDS[layer.key] if layer.key in CATEGORY_WORDS else line_words(report, int(layer.key), width=width)


def line_words(report: MemoryRunReport, index: int, *, width: int = 40) -> str:
    """Return a line of the user's: ``7  losses.append(loss)``; of another file, with its name."""
    if not 0 <= index < len(report.lines):
        return NO_LINE
    place = report.lines[index].location
    name = f"line {place.line}" if place.filename == report.cell.filename else place.label
    return f"{name}  {shortened(place.text, width)}".rstrip()


def peak_tiles(report: MemoryRunReport) -> list[Tile]:
    """Return what was alive at the peak, by line; what is not listed is shown separately, so that it is the peak."""
    tiles = []
    for block in report.peak_blocks:  # in the group of its line, by its name or what allocated it
        one = block.storage
        label = one.name or operation(block.op) or one.category
        lines = [label, *storage_lines(one)[1:], life(block)]
        tiles.append(Tile(origin(report, block), label, one.category, one.nbytes, "\n".join(lines)))
    number, nbytes = report.peak_left_out
    if nbytes:
        tiles.append(Tile(LEFT_OUT, f"{count(number)} smaller", "other", nbytes, f"{count(number)} smaller", number))
    drawn = main_timeline(report)
    before = drawn.live[drawn.peak] - sum(tile.nbytes for tile in tiles) if drawn is not None else 0
    if before > 0:
        tiles.append(Tile(BEFORE, BEFORE, BEFORE, before, f"{BEFORE}\n{number_of_bytes(before)}, alive all the time"))
    return tiles


def was_before(block: AllocatedBlock) -> bool:
    """Say whether a block had been there before the run."""
    return not block.op and not block.allocated_at and block.line < 0


def origin(report: MemoryRunReport, block: AllocatedBlock, *, width: int = 40) -> str:
    """Return where a block came from: a line, or that it had been there before the run."""
    return BEFORE if was_before(block) else line_words(report, block.line, width=width)


def operation(op: str) -> str:
    """Return an operation as people call it: ``mm`` for ``aten.mm.default``."""
    parts = op.split(".")
    return parts[1] if len(parts) > 1 else op


def life(block: AllocatedBlock) -> str:
    """Return from which operation to which a block lived, and which one allocated it."""
    end = "alive after the run" if block.freed_at is None else f"freed at {count(block.freed_at)}"
    return end if was_before(block) else f"operation {count(block.allocated_at)} ({block.phase}), {end}"


def out_of_memory_words(failed: OutOfMemory) -> str:
    """Return the moment in a few sentences, code between backticks."""
    asked = number_of_bytes(failed.asked) if failed.asked is not None else "memory"
    who = f"`{failed.op}`" if failed.op else "an operation"
    total = f" of {number_of_bytes(failed.total)}" if failed.total is not None else ""
    free = f", {number_of_bytes(failed.free)}{total} was free" if failed.free is not None else ""
    sentences = [f"{failed.device} ran out of memory: {who} asked for {asked}{free}."]
    if failed.allocated is not None:
        beyond = "" if failed.reserved is None else f", and {number_of_bytes(failed.reserved)} reserved beyond that"
        sentences.append(f"Torch had {number_of_bytes(failed.allocated)} in use there{beyond}.")
        if failed.reserved is not None and failed.asked is not None and failed.reserved >= failed.asked:
            sentences.append(
                "The reserved memory is large enough, but fragmented: let segments grow with "
                "`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`, set before Python starts."
            )
    if failed.only_error:
        held = number_of_bytes(failed.only_error)
        sentences.append(
            f"The functions that failed hold {held} that nothing else holds: it is freed when the error is released, "
            "`%gpumem --free --yes`."
        )
    return " ".join(sentences)
