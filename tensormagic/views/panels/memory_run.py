"""Memory over a run (``%%gpumem``): the peak, the timeline, what each line took, what stayed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import islice

from tensormagic import reports
from tensormagic.reports import AllocatedBlock, MemoryRunReport
from tensormagic.views import nodes
from tensormagic.views.panels import memory
from tensormagic.views.panels.memory import called, freeable_sections, kind, storages_section
from tensormagic.views.pictures.timeline import OTHER_LINES, Layer, TimelinePicture, line_ranks, main_timeline
from tensormagic.views.pictures.treemap import Tile, TreemapPicture
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
    main, failed = main_timeline(report), report.out_of_memory
    drawn = [timeline for timeline in report.timelines if timeline.live]
    ranks = line_ranks(main) if main is not None else {}
    died = failed is not None and bool(report.at_end)
    body: list[nodes.Node] = []
    if failed is not None:
        body.append(nodes.Paragraph(out_of_memory_words(failed), "error"))
        body += [f"{failed.location.label}: `{failed.location.text}`"] if failed.location is not None else []
        body += [nodes.Paragraph(shortened(failed.message, 400), "quiet")] if failed.message else []
    body.append(nodes.Findings(report.findings, report.gaps))
    if died:
        tiles = [*map(memory.tile, report.at_end)]
        dead = TreemapPicture(tiles, "what was alive when it failed", MAP_HEIGHT, MOST_CELLS)
        body += [nodes.Section("Alive when it failed", [dead], "by name"), *freeable_sections(report.freeable)]
    timelines = []
    for timeline in sorted(drawn, key=lambda timeline: timeline is not main)[:MOST_TIMELINES]:
        folded = died or timeline is not main
        note = f"peak {number_of_bytes(max(timeline.live))}" if folded else ""
        drawing = TimelinePicture(timeline, partial(layer_words, report))
        timelines.append(nodes.Section(f"Alive on `{timeline.device}`", [drawing], note, folded=folded))
    asked = {index for function in report.functions for index in function.lines}
    places = [(line.location.filename, line.location.line) for line in report.lines]
    found = Found()
    for at, place in enumerate(places):
        found.setdefault(place, at)
    found = {place: at for place, at in found.items() if place[0] == report.cell.filename or at not in asked}
    lines = _source(report, report.cell, found, ranks)
    together = len(timelines) if died else 1  # what is folded stands together
    body += [*timelines[:together], nodes.Section("Line by line", [lines], _ABOUT_LINES, folded=died)]
    body += timelines[together:]
    body += [] if drawn or report.gaps else ["no operation allocated anything"]
    for function in report.functions:
        found = {places[at]: at for at in function.lines if at < len(places)}
        cell = reports.Cell(next(iter(found), ("", 0))[0], None, function.source)
        lines = _source(report, cell, found, ranks, function.first)
        inside = lines if lines.lines else nodes.Paragraph("no line of it allocated anything", "quiet")
        body.append(nodes.Section(f"In `{shortened(function.name, 80)}`", [inside], folded=True))
    body += [_leaks(report.leaks), *([] if died else _peak(report))]
    body.append(storages_section("Alive when it failed" if report.error else "Alive after the run", report.at_end))
    body.append(_blocks("Allocated here and still alive", report.kept, report.kept_left_out, report))
    body += [] if died else freeable_sections(report.freeable, folded=True)
    body += map(_allocator, report.allocator)
    error = " ".join(report.error.split()) if failed is None else ""  # what ran out is named right below
    ended = shortened(f"{report.state}: {error}" if error else report.state, 200)
    how = nodes.Words(ended, "error" if report.error else "quiet")
    facts: list[nodes.Cell] = [nodes.Words(peak(report), "strong"), summary(report), how]
    name = shortened(f"gpumem {' '.join(report.title.split())}".rstrip(), 80)
    return nodes.Panel("memory", "memory", name, facts, body, "Memory of a run", sheets=("memory.css",))


def _leaks(leaks: Sequence[reports.Leak]) -> nodes.Section:
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
    if not (tiles := peak_tiles(report)):
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

    def storage(block: AllocatedBlock) -> nodes.Cell:
        return nodes.Noted(f"`{shortened(called(block.storage), 80)}`", [kind(block.storage)])

    columns = (
        nodes.Column("storage", storage, "name"),
        nodes.Column("bytes", lambda block: number_of_bytes(block.storage.nbytes), "number"),
        nodes.Column("category", lambda block: block.storage.category),
        nodes.Column("allocated by", lambda block: operation(block.op), "code"),
        nodes.Column("line", lambda block: origin(report, block, width=32), "code"),
        nodes.Column("life", life, "quiet", in_terminal=False),
    )
    sizes = [block.storage.nbytes for block in blocks]
    table = nodes.table_of(columns, blocks, most=(MOST_BLOCKS, 10), more=("smaller", "smaller"), left_out=left_out,
                     nbytes=sizes, label=name)  # fmt: skip
    total = number_of_bytes(sum(sizes) + left_out[1])
    return nodes.Section(name, [table], f"{plural(len(blocks) + left_out[0], 'storage')}, {total}", folded=True)


def _allocator(run: reports.AllocatorRun) -> nodes.Section:
    """Return what a GPU's allocator recorded beside the operations: the lines that used memory inside of them."""

    def place(line: reports.AllocatorLine) -> str:
        return f"`{f'{line.location.label}: {line.location.text}' if line.location else _NO_USER_LINE}`"

    columns = (
        nodes.Column("line", place, "name"),
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


Found = dict[tuple[str, int], int]  # file and number of a line → which of the report's it is


def _source(
    report: MemoryRunReport, cell: reports.Cell, found: Found, ranks: dict[int, int], first: int = 1
) -> nodes.Source:
    """Return a listing of ``cell`` and of the lines ``found``, with the bytes of each line.

    ``ranks`` are the lines that have a colour in the timeline; ``first`` is the number of the first line of the cell.
    """
    places = [report.lines[at].location for at in found.values()]
    rows = [*islice(nodes.listing(cell, places, WHOLE, first=first), MOST)]
    memories = [report.lines[found[row[:2]]] for row in rows if row[:2] in found]
    if not memories:
        return nodes.Source([])
    alive = max(max(one.at_peak, one.kept) for one in memories) or 1
    moved = max(max(one.allocated, one.freed) for one in memories) or 1
    counted = any(one.executions for one in memories)
    lines = []
    for filename, number, text in rows:
        index, amounts = found.get((filename, number), -1), list[nodes.Cell]()
        if index >= 0:
            one = report.lines[index]
            for nbytes, top, letter in (
                (one.at_peak, alive, "p"), (one.allocated, moved, "a"), (one.freed, moved, "a"), (one.kept, alive, "k"),
            ):  # fmt: skip
                amounts.append(nodes.Bar(nbytes / top, number_of_bytes(nbytes), f"tm-b{letter}") if nbytes else None)
            times = one.executions if counted else one.calls
            backward = f", {number_of_bytes(one.backward)} of it in its backward" if one.backward else ""
            most = f"most of it {operation(one.op)}, at most {number_of_bytes(one.largest)} at once"
            sentence = f"{plural(one.calls, 'operation')} allocated, {most}{backward}"
            amounts.append(nodes.Words(count(times) if times else "", "quiet", sentence))
        ground = f"tm-l{ranks[index]}" if index in ranks else ""
        lines.append(nodes.Line(number, text.rstrip(), amounts=amounts, ground=ground))
    return nodes.Source(lines, ("source", ""), (*COLUMNS, "times" if counted else "allocating ops"))


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
        lines = [label, *memory.storage_lines(one)[1:], life(block)]
        tiles.append(Tile(origin(report, block), label, one.category, one.nbytes, "\n".join(lines)))
    tiles += [memory.left_out(*report.peak_left_out)] if report.peak_left_out[1] else []
    drawn = main_timeline(report)
    before = drawn.live[drawn.peak] - sum(tile.nbytes for tile in tiles) if drawn is not None else 0
    if before > 0:
        tiles.append(Tile(BEFORE, BEFORE, BEFORE, before, f"{BEFORE}\n{number_of_bytes(before)}, alive all the time"))
    return tiles


def _was_before(block: AllocatedBlock) -> bool:
    return not block.op and not block.allocated_at and block.line < 0


def origin(report: MemoryRunReport, block: AllocatedBlock, *, width: int = 40) -> str:
    """Return where a block came from: a line, or that it had been there before the run."""
    return BEFORE if _was_before(block) else line_words(report, block.line, width=width)


def operation(op: str) -> str:
    """Return an operation as people call it: ``mm`` for ``aten.mm.default``."""
    parts = op.split(".")
    return parts[1] if len(parts) > 1 else op


def life(block: AllocatedBlock) -> str:
    """Return from which operation to which a block lived, and which one allocated it."""
    end = "alive after the run" if block.freed_at is None else f"freed at {count(block.freed_at)}"
    return end if _was_before(block) else f"operation {count(block.allocated_at)} ({block.phase}), {end}"


def out_of_memory_words(failed: reports.OutOfMemory) -> str:
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
