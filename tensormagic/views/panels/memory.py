"""Where the memory is (``%gpumem``): a bar and a map a device, what letting go would free, the largest storages.

Of what only outputs and the last error keep (``%gpumem --free``): a table, and what to run or what it brought.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from tensormagic.reports import (
    DeviceGain,
    DeviceMemory,
    FreeableMemory,
    FreeHistoryReport,
    Holder,
    LiveStorage,
    MemoryReport,
)
from tensormagic.views import nodes
from tensormagic.views.pictures.treemap import LEFT_OUT, Tile, TreemapPicture
from tensormagic.views.theme import CATEGORY_LETTERS, CATEGORY_WORDS
from tensormagic.words import DOT, capitalised, count, listed, number_of_bytes, percent, plural, shortened, tuple_text

NO_NAME = "no name"
MOST_HOLDERS, MOST_RELEASES, MOST_RELEASES_FOLDED = 3, 3, 32
HEIGHT, LOW_HEIGHT, SMALL_HEIGHT = 180.0, 110.0, 56.0  # of a map in a page
BY_HISTORY = "`%gpumem --free --yes` releases what only outputs and errors hold"
_ROOT = re.compile(r"[^.\[(:,]+")


def view(report: MemoryReport | FreeHistoryReport, *, below: bool = False) -> nodes.Panel:
    """Return the panel; of one that stands ``below`` another the map is low, and what could be freed is folded."""
    if isinstance(report, FreeHistoryReport):
        return _history(report)
    body: list[nodes.Node] = [nodes.Findings(report.findings, report.gaps)]
    ranked = sorted(report.devices, key=lambda device: -device.live)
    body += [device_section(report, each, LOW_HEIGHT if below else HEIGHT) for each in ranked[:1]]
    freed = freeable_sections(report.freeable, folded=below)
    body += [] if below else freed
    others = (each for each in report.devices if each in ranked[1:])
    body += [device_section(report, each, SMALL_HEIGHT, folded=True) for each in others]
    body += freed if below else []
    body.append(storages_section("Storages by size", report.storages, report.left_out))
    name, label = shortened(title(report), 120), f"Where the {title(report)} is"
    return nodes.Panel("memory", "memory", name, [summary(report)], body, label, sheets=("memory.css",))


def device_section(report: MemoryReport, device: DeviceMemory, height: float, *, folded: bool = False) -> nodes.Section:
    """Return a device as a bar and a map of what is alive on it."""
    notes = [device.name, f"{number_of_bytes(device.total)} in total" if device.total is not None else ""]
    if device.fragmentation is not None and device.reserved is not None and device.allocated is not None:
        unused, largest = map(number_of_bytes, (device.reserved - device.allocated, device.largest_free or 0))
        share = percent(device.fragmentation)
        notes.append(f"reserved and unused {unused}, its largest block {largest}: fragmentation {share}")
    if device.peak is not None:
        notes.append(f"peak {number_of_bytes(device.peak)} since the counters were reset")
    if device.others:
        sizes = ("of unknown size" if one.nbytes is None else number_of_bytes(one.nbytes) for one in device.others)
        others = [f"{one.name or 'process'} ({one.pid}) {size}" for one, size in zip(device.others, sizes, strict=True)]
        notes.append(f"other processes: {listed(others, most=3)}")
    about = f" {DOT} ".join(filter(None, notes))
    body: list[nodes.Node] = [device_bar(device, report.every())]
    if device.live:
        body.append(TreemapPicture(tiles(report, device.device), f"live memory on {device.device}", height))
    if folded:
        body.insert(0, nodes.Paragraph(about, "quiet"))
        of = f" of {number_of_bytes(device.total)}" if device.total is not None else ""
        about = f"{number_of_bytes(device.live)} of tensors{of}"
    return nodes.Section(f"`{device.device}`", body, about, folded=folded)


def freeable_sections(freeable: Sequence[FreeableMemory], *, folded: bool = False) -> list[nodes.Section]:
    """Return what letting go of each name would free, the most first; the smaller ones, or all, folded."""
    found = [one for one in freeable if one.nbytes > 0]
    found += [
        replace(part, name=f"{part.name}; {one.code or one.name} on its own frees nothing")
        for one in freeable if one.nbytes == 0 for part in one.parts
    ]  # fmt: skip
    every = sorted(found, key=lambda one: -one.nbytes)
    if not every:
        return []

    def notes(one: FreeableMemory) -> nodes.Cell:  # below why it frees less, what can be taken out of it instead
        inside = ", ".join(
            f"`{shortened(part.code or part.name, 80)}` " + number_of_bytes(part.nbytes).replace(" ", "\u00a0")
            for part in one.parts
        )
        why = freeable_notes(one)
        return nodes.Noted(f"{why};" if why and inside else why, [f"or inside: {inside}"] if inside else [])

    columns = (
        nodes.Column(cell=lambda one: f"`{shortened(one.code or one.name, 80)}`", look="name"),
        nodes.Column(cell=lambda one: nodes.Bar(one.nbytes / every[0].nbytes)),
        nodes.Column(cell=lambda one: number_of_bytes(one.nbytes), look="number"),
        nodes.Column(cell=lambda one: plural(one.storages, "storage"), look="number quiet"),
        nodes.Column(cell=notes, look="quiet wide"),
    )
    most = MOST_RELEASES + MOST_RELEASES_FOLDED
    body: list[nodes.Node] = [nodes.table_of(columns, every[:MOST_RELEASES])]
    if rest := every[MOST_RELEASES:most]:
        further = nodes.table_of(columns, rest, left_out=(len(every[most:]), sum(one.nbytes for one in every[most:])))
        more = f"{count(len(every) - MOST_RELEASES)} more that would free memory"
        body.append(nodes.Section(more, [further], folded=True))
    by_history = any(one.nbytes and one.kind in {"history", "traceback"} for one in every)
    note = "each on its own, with everything else kept" + (f"; {BY_HISTORY}" if by_history else "")
    return [nodes.Section("What you can free", body, note, folded=folded)]


_NO_OTHER = "nothing else", "nothing else of torch's"  # whether somebody besides torch is on the memory


def storages_section(name: str, storages: Sequence[LiveStorage], left_out: Sequence[LiveStorage] = ()) -> nodes.Section:
    """Return the largest storages with their holders, folded, and how many more there are."""

    def holders(one: LiveStorage) -> str:
        return held_by(one) or ("not found" if called(one) == NO_NAME else _NO_OTHER[one.shared])

    def line(one: LiveStorage) -> str:
        text = f" `{shortened(one.location.text, 36)}`" if one.location is not None and one.location.text else ""
        return line_label(one) + text

    columns = [
        nodes.Column("storage", lambda one: f"`{shortened(called(one), 90)}`", "name"),
        nodes.Column("bytes", lambda one: number_of_bytes(one.nbytes), "number"),
        nodes.Column("category", lambda one: one.category),
        nodes.Column("tensor", kind),
        nodes.Column("device", lambda one: one.device, in_terminal=len({one.device for one in storages}) > 1),
        nodes.Column("allocated by", line),
        nodes.Column("held by", holders, "quiet wide"),
    ]
    smaller = sum(one.tensors for one in left_out), sum(one.nbytes for one in left_out)
    table = nodes.table_of(columns, storages, most=(40, 12), more=("smaller", "smaller"), left_out=smaller,
                           nbytes=[one.nbytes for one in storages], label=name)  # fmt: skip
    nbytes = number_of_bytes(sum(one.nbytes for one in storages) + smaller[1])
    note = f"{plural(len(storages) + smaller[0], 'storage')}, {nbytes}, and what holds them"
    return nodes.Section(name, [nodes.filled(table)], note, folded=True)


def title(report: MemoryReport) -> str:
    """Return what was looked at."""
    return f"memory of {' '.join(report.title.split())}" if report.title else "memory"


def summary(report: MemoryReport) -> str:
    """Return how much is alive, on which devices."""
    described = []
    for one in report.devices:
        if one.live or one.storages:
            storages = plural(one.storages, "storage")
            storages += f" ({plural(one.tensors, 'tensor')})" if one.tensors > one.storages else ""
            described.append(f"{number_of_bytes(one.live)} in {storages} on {one.device}")
    return f" {DOT} ".join(described) or ("no tensor is there" if report.title else "no tensor is alive")


def tiles(report: MemoryReport, device: str) -> list[Tile]:
    """Return what a treemap of one device draws; of storages that are not listed, the sums."""
    found = [tile(one) for one in report.storages if one.device == device]
    return found + [left_out(one.tensors, one.nbytes, one.category) for one in report.left_out if one.device == device]


def left_out(number: int, nbytes: int, category: str = "other") -> Tile:
    """Return what a treemap draws in place of storages that are not listed."""
    words = f"{count(number)} smaller"
    return Tile(LEFT_OUT, words, category, nbytes, f"{words}, {CATEGORY_WORDS[category]}", number)


def tile(one: LiveStorage) -> Tile:
    """Return a storage as what a treemap draws: in the group of what its path begins with, called by the rest."""
    name, group, label = called(one), NO_NAME, str(one.category)
    if name != NO_NAME:  # ``net``, ``Out``, ``graph of loss``, and ``fc.weight``, ``[17]``
        found = _ROOT.match(name)
        root = found.group() if found else name
        group, label = root.strip(), name[len(root) :].lstrip(".:, ").removeprefix("<locals>.") or name
    return Tile(group, label, one.category, one.nbytes, "\n".join(storage_lines(one)))


def called(one: LiveStorage) -> str:
    """Return what a storage is called: its name, else the way of its first holder."""
    return one.name or (one.holders[0].path if one.holders else "") or NO_NAME


def storage_lines(one: LiveStorage) -> list[str]:
    """Return the tooltip of a storage, a line each."""
    held, text = held_by(one), one.location.text if one.location is not None else ""
    origin = f"allocated by {line_label(one)}{text and f': {shortened(text, 60)}'}" if one.location is not None else ""
    about = f"{number_of_bytes(one.nbytes)}, {one.category}, {kind(one)}".rstrip(", ")
    return [*filter(None, (called(one), about, held and f"held by {held}", origin))]


def line_label(one: LiveStorage) -> str:
    """Return which line allocated a storage: ``cell 5, line 12``, ``backward of cell 5, line 12``; empty if unseen."""
    if one.location is None:
        return ""
    return f"backward of {one.location.label}" if one.backward else one.location.label


def kind(one: LiveStorage) -> str:
    """Return what the tensor on a storage is: ``float32 (32, 32), 3 tensors, shared``."""
    what = f"{one.dtype} {tuple_text(one.shape)}" if one.dtype else ""
    more = plural(one.tensors, "tensor") if one.tensors > 1 else ""
    return ", ".join(filter(None, (what, more, "memory may be shared outside torch" if one.shared else "")))


def held_by(one: LiveStorage) -> str:
    """Return who holds a storage besides what it is called after."""

    def where(holder: Holder) -> str:  # of a variable of a function that failed, the line at which it failed, too
        function, mark, name = holder.path.partition(".<locals>.")
        if not mark or holder.kind != "traceback" or holder.location is None:
            return shortened(holder.path, 48)
        return f"{shortened(name, 32)} in {shortened(function, 32)}, line {holder.location.line}"

    paths = [where(holder) for holder in one.holders if holder.path != called(one)]
    return listed(paths, most=MOST_HOLDERS, found=len(paths) + max(one.found - len(one.holders), 0))


def freeable_notes(freeable: FreeableMemory) -> str:
    """Return why letting go of a name frees less than it leads to."""
    if freeable.kind == "item":
        return freeable.name.partition("; ")[2]
    if number_of_bytes(freeable.reaches) == number_of_bytes(freeable.nbytes):  # but for a few bytes
        return ""
    shared = f", shared with {listed(freeable.shared_with, most=3)}" if freeable.shared_with else ""
    return f"of {number_of_bytes(freeable.reaches)} that it reaches{shared}"


# -- what only outputs and the last error keep

_ENTRIES = (
    nodes.Column(cell=lambda entry: f"`{entry.name}`", look="name"),
    nodes.Column(cell=lambda entry: number_of_bytes(entry.nbytes), look="number"),
    nodes.Column(cell=freeable_notes, look="quiet"),
)


def _history(report: FreeHistoryReport) -> nodes.Panel:
    names = listed([entry.name for entry in report.entries], most=6)
    one, nbytes = len(report.entries) == 1, number_of_bytes(report.nbytes)
    if not report.entries:
        lead = "Neither the outputs nor the last error hold memory of their own."
    elif not report.dropped:
        lead = capitalised(f"{names} {'keeps' if one else 'keep'} {nbytes} that nothing else holds.")
    else:
        expected = f", of {nbytes} expected" if report.freed != report.nbytes else ""
        freed = f"{number_of_bytes(report.freed)} freed, in {plural(report.storages, 'storage')}"
        lead = f"Released {names}: {freed}{expected}."
    body: list[nodes.Node] = [nodes.Findings(report.findings, report.gaps), nodes.table_of(_ENTRIES, report.entries)]
    body += [nodes.Paragraph(words, "quiet") for words in map(gain_words, report.gains) if words]
    if report.entries and not report.dropped:
        how = f"`%gpumem --free --yes` releases {'it' if one else 'them'}. Your own variables keep what they hold."
        body.append(nodes.Paragraph(how, "quiet"))
    label = "Memory kept only by IPython's history"
    return nodes.Panel("memory", "memory", "memory", [lead], body, label, sheets=("memory.css",))


def gain_words(gain: DeviceGain) -> str:
    """Return what a device's own figures say: ``cuda:0: allocated 24 MiB less, reserved 32 MiB less``."""
    figures = (("allocated", gain.allocated), ("reserved", gain.reserved), ("this process takes", gain.process))
    described = [
        f"{name} {number_of_bytes(abs(less))} {'less' if less > 0 else 'more'}" if less else f"{name} as much as before"
        for name, less in figures
        if less is not None
    ]
    return f"{gain.device}: {', '.join(described)}" if described else ""


# -- the bar of a device ---------------------------------------------------------------------------------------------

# Tensors by category, then what else takes memory, then what is free. The parts of a device that has room to spare
# would be too thin to see: then the free part is drawn as long as the rest, and is said not to be to scale.


def device_bar(device: DeviceMemory, storages: Iterable[LiveStorage]) -> nodes.Parts:
    """Return the bar of a device; ``storages`` are those of the report, sums included, on whatever device."""
    totals = Counter[str]()
    for one in storages:
        totals[one.category] += one.nbytes if one.device == device.device else 0
    amounts = [(CATEGORY_WORDS[name], f"tm-c{CATEGORY_LETTERS[name]}", nbytes) for name, nbytes in totals.most_common()]
    amounts = [amount for amount in (*amounts, *_beyond_tensors(device)) if amount[-1] > 0]
    taken, free = sum(nbytes for _, _, nbytes in amounts), device.free or 0
    cut = free > taken > 0
    amounts += [("free", "tm-df tm-cut" if cut else "tm-df", free)] if free else []
    drawn, whole = 2 * taken if cut else taken + free, device.total or taken + free
    parts = []
    for words, ground, nbytes in amounts:
        share = 0.5 if cut and words == "free" else nbytes / drawn
        parts.append(nodes.Part(words, number_of_bytes(nbytes), share, ground, percent(nbytes, whole)))
    return nodes.Parts(parts, "(free part not to scale)" if cut else "")


def _beyond_tensors(device: DeviceMemory) -> Iterator[tuple[str, str, int]]:
    """Yield what is taken besides tensors that were found, as far as it is known: words, style class and bytes."""
    own = device.live
    whole = device.process if device.context is None else None
    for words, ground, nbytes in (
        ("in use, no tensor found", "tm-du", device.allocated), ("reserved, unused", "tm-dr", device.reserved),
        ("this process besides tensors", "tm-dk", whole),
    ):  # fmt: skip
        if nbytes is not None:
            yield words, ground, nbytes - own
            own = max(own, nbytes)
    yield "context and libraries", "tm-dk", device.context or 0
    others = sum(other.nbytes or 0 for other in device.others)
    yield "other processes", "tm-dt", others
    if device.total is not None and device.free is not None:
        rest = device.total - device.free - own - (device.context or 0) - others
        yield "not accounted for" if others else "other programs", "tm-dt", rest
