"""Where the memory is (``%gpumem``): a bar and a map a device, what letting go would free, the largest storages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from tensormagic.reports import DeviceMemory, FreeableMemory, Holder, LiveStorage, MemoryReport
from tensormagic.views import nodes
from tensormagic.views.pictures.treemap import LEFT_OUT, Tile, TreemapPicture
from tensormagic.views.theme import CATEGORY_LETTERS, CATEGORY_WORDS
from tensormagic.words import DOT, count, listed, number_of_bytes, percent, plural, shortened, tuple_text

NO_NAME = "no name"
MOST_HOLDERS, MOST_RELEASES, MOST_RELEASES_FOLDED = 3, 3, 32
HEIGHT, LOW_HEIGHT, SMALL_HEIGHT = 180.0, 110.0, 56.0  # of a map in a page
BY_HISTORY = "`%gpumem --free --yes` releases what only outputs and errors hold"
_UNIT = re.compile(r"(?<=\d) (?=(?:[KMGTP]i)?B\b)")  # a number does not part from it
_ROOT = re.compile(r"[^.\[(:,]+")


def view(report: MemoryReport, *, below: bool = False) -> nodes.Panel:
    """Return the panel; of one that stands ``below`` another the map is low, and what could be freed is folded."""
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
    total = f"{number_of_bytes(device.total)} in total" if device.total is not None else ""
    notes = []
    share = device.fragmentation
    if share is not None and device.reserved is not None and device.allocated is not None:
        unused = number_of_bytes(device.reserved - device.allocated)
        largest = number_of_bytes(device.largest_free or 0)
        notes.append(f"reserved and unused {unused}, its largest block {largest}: fragmentation {percent(share)}")
    if device.peak is not None:
        notes.append(f"peak {number_of_bytes(device.peak)} since the counters were reset")
    if device.others:
        sizes = ("of unknown size" if one.nbytes is None else number_of_bytes(one.nbytes) for one in device.others)
        described = (
            f"{other.name or 'process'} ({other.pid}) {size}" for other, size in zip(device.others, sizes, strict=True)
        )
        notes.append(f"other processes: {listed(described, most=3)}")
    about = f" {DOT} ".join(filter(None, (device.name, total, *notes)))
    body: list[nodes.Node] = [device_bar(device, report.every())]
    if device.live:
        body.append(TreemapPicture(tiles(report, device.device), f"live memory on {device.device}", height))
    if not folded:
        return nodes.Section(f"`{device.device}`", body, about)
    of = f" of {number_of_bytes(device.total)}" if device.total is not None else ""
    taken = f"{number_of_bytes(device.live)} of tensors{of}"
    return nodes.Section(f"`{device.device}`", [nodes.Paragraph(about, "quiet"), *body], taken, folded=True)


def freeable_sections(freeable: Sequence[FreeableMemory], *, folded: bool = False) -> list[nodes.Section]:
    """Return what letting go of each name would free, the most first; the smaller ones, or all, folded."""
    found = [one for one in freeable if one.nbytes > 0]
    found += [
        replace(part, name=f"{part.name}; {what(one)} on its own frees nothing")
        for one in freeable if one.nbytes == 0 for part in one.parts
    ]  # fmt: skip
    every = sorted(found, key=lambda one: -one.nbytes)
    if not every:
        return []
    top = max(freeable.nbytes for freeable in every) or 1
    columns = (
        nodes.Column(cell=lambda one: f"`{shortened(what(one), 80)}`", look="name"),
        nodes.Column(cell=lambda one: nodes.Bar(one.nbytes / top)),
        nodes.Column(cell=lambda one: number_of_bytes(one.nbytes), look="number"),
        nodes.Column(cell=lambda one: plural(one.storages, "storage"), look="number quiet"),
        nodes.Column(cell=_freeable_notes, look="quiet wide"),
    )
    most = MOST_RELEASES + MOST_RELEASES_FOLDED
    body: list[nodes.Node] = [nodes.table_of(columns, every[:MOST_RELEASES])]
    if rest := every[MOST_RELEASES:most]:
        further = nodes.table_of(columns, rest, left_out=(len(every[most:]), sum(one.nbytes for one in every[most:])))
        body.append(
            nodes.Section(f"{count(len(every) - MOST_RELEASES)} more that would free memory", [further], folded=True)
        )
    by_history = any(one.nbytes and one.kind in {"history", "traceback"} for one in every)
    note = "each on its own, with everything else kept" + (f"; {BY_HISTORY}" if by_history else "")
    return [nodes.Section("What you can free", body, note, folded=folded)]


def _freeable_notes(freeable: FreeableMemory) -> nodes.Cell:
    """Return why a name frees less than it leads to, and below it what can be taken out of it instead."""
    inside = ", ".join(f"`{shortened(what(part), 80)}` {number_of_bytes(part.nbytes)}" for part in freeable.parts)
    inside = _UNIT.sub("\u00a0", inside)
    return nodes.Noted(freeable_notes(freeable), [f"or inside: {inside}"] if inside else [])


_NO_OTHER = "nothing else", "nothing else of torch's"  # whether somebody besides torch is on the memory


def storages_section(name: str, storages: Sequence[LiveStorage], left_out: Sequence[LiveStorage] = ()) -> nodes.Section:
    """Return the largest storages with their holders, folded, and how many more there are."""
    columns = [
        nodes.Column("storage", lambda one: f"`{shortened(called(one), 90)}`", "name"),
        nodes.Column("bytes", lambda one: number_of_bytes(one.nbytes), "number"),
        nodes.Column("category", lambda one: one.category),
        nodes.Column("tensor", kind),
        nodes.Column("device", lambda one: one.device, in_terminal=len({one.device for one in storages}) > 1),
    ]
    columns += [nodes.Column("allocated by", _line)] if any(one.location is not None for one in storages) else []
    columns.append(nodes.Column(
        "held by", lambda one: held_by(one) or ("not found" if called(one) == NO_NAME else _NO_OTHER[one.shared]),
        "quiet wide",
    ))  # fmt: skip
    smaller = sum(one.tensors for one in left_out), sum(one.nbytes for one in left_out)
    table = nodes.table_of(columns, storages, most=(40, 12), more=("smaller", "smaller"), left_out=smaller,
                     nbytes=[one.nbytes for one in storages], label=name)  # fmt: skip
    nbytes = number_of_bytes(sum(one.nbytes for one in storages) + smaller[1])
    note = f"{plural(len(storages) + smaller[0], 'storage')}, {nbytes}, and what holds them"
    return nodes.Section(name, [table], note, folded=True)


def _line(one: LiveStorage) -> nodes.Cell:
    text = f" `{shortened(one.location.text, 36)}`" if one.location is not None and one.location.text else ""
    return line_label(one) + text


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


def by_category(storages: Iterable[LiveStorage]) -> list[tuple[str, int]]:
    """Return the bytes of each category that has any, the largest first."""
    totals: dict[str, int] = {}
    for one in storages:
        totals[one.category] = totals.get(one.category, 0) + one.nbytes
    return sorted(((key, value) for key, value in totals.items() if value), key=lambda pair: -pair[1])


def root(name: str) -> str:
    """Return how a user would call what a path begins with: ``net``, ``Out``, ``graph of loss``."""
    found = _ROOT.match(name)
    return found.group().strip() if found else name


def inner(name: str) -> str:
    """Return the rest of a path behind its `root`: ``fc.weight``, ``[17]``; the root itself where there is no more."""
    rest = name[len(root(name)) :].lstrip(".:, ").removeprefix("<locals>.")
    return rest or name


def tiles(report: MemoryReport, device: str) -> list[Tile]:
    """Return what a treemap of one device draws; of storages that are not listed, the sums."""
    found = [tile(one) for one in report.storages if one.device == device]
    for one in report.left_out:
        if one.device == device:
            words = f"{count(one.tensors)} smaller"
            title = f"{words}, {CATEGORY_WORDS[one.category]}"
            found.append(Tile(LEFT_OUT, words, one.category, one.nbytes, title, one.tensors))
    return found


def tile(one: LiveStorage) -> Tile:
    """Return a storage as what a treemap draws."""
    name = called(one)
    group, label = (NO_NAME, one.category) if name == NO_NAME else (root(name), inner(name))
    return Tile(group, label, one.category, one.nbytes, "\n".join(storage_lines(one)))


def called(one: LiveStorage) -> str:
    """Return what a storage is called: its name, else the way of its first holder."""
    return one.name or (one.holders[0].path if one.holders else "") or NO_NAME


def storage_lines(one: LiveStorage) -> list[str]:
    """Return the tooltip of a storage, a line each."""
    held = held_by(one)
    return [
        called(one),
        f"{number_of_bytes(one.nbytes)}, {one.category}, {kind(one)}".rstrip(", "),
        *([f"held by {held}"] if held else []),
        *([origin(one)] if one.location is not None else []),
    ]


def origin(one: LiveStorage) -> str:
    """Return which line allocated a storage, with its text; nothing where nobody saw it."""
    text = f": {shortened(one.location.text, 60)}" if one.location is not None and one.location.text else ""
    return f"allocated by {line_label(one)}{text}" if one.location is not None else ""


def line_label(one: LiveStorage) -> str:
    """Return which line allocated a storage: ``cell 5, line 12``, ``backward of cell 5, line 12``; empty if unseen."""
    if one.location is None:
        return ""
    return f"backward of {one.location.label}" if one.backward else one.location.label


def kind(one: LiveStorage) -> str:
    """Return what the tensor on a storage is: ``float32 (32, 32), 3 tensors, shared``."""
    what = f"{one.dtype} {tuple_text(one.shape)}" if one.dtype else ""
    more = plural(one.tensors, "tensor") if one.tensors > 1 else ""
    return ", ".join(filter(None, (what, more, "memory shared with something outside torch" if one.shared else "")))


def held_by(one: LiveStorage) -> str:
    """Return who holds a storage besides what it is called after."""
    paths = [_holder(holder) for holder in one.holders if holder.path != called(one)]
    return listed(paths, most=MOST_HOLDERS, found=len(paths) + max(one.found - len(one.holders), 0))


def _holder(holder: Holder) -> str:
    """Return where a holder is; of a variable of a function that failed, the line at which it failed, too."""
    function, mark, name = holder.path.partition(".<locals>.")
    if not mark or holder.kind != "traceback" or holder.location is None:
        return shortened(holder.path, 48)
    return f"{shortened(name, 32)} in {shortened(function, 32)}, line {holder.location.line}"


def what(freeable: FreeableMemory) -> str:
    """Return what to let go of, as a user would write it."""
    return freeable.code or freeable.name


def freeable_notes(freeable: FreeableMemory) -> str:
    """Return why letting go of a name frees less than it leads to."""
    if freeable.kind == "item":
        return freeable.name.partition("; ")[2]
    if freeable.reaches <= freeable.nbytes:
        return ""
    shared = f", shared with {listed(freeable.shared_with, most=3)}" if freeable.shared_with else ""
    return f"of {number_of_bytes(freeable.reaches)} that it reaches{shared}"


# -- the bar of a device ---------------------------------------------------------------------------------------------

# Tensors by category, then what else takes memory, then what is free. The parts of a device that has room to spare
# would be too thin to see: then the free part is drawn as long as the rest, and is said not to be to scale.
FREE_AT_MOST = 0.5  # of the bar: a longer one is cut

# What takes memory besides tensors, and the letter of its style class.
_BEYOND = {
    "in use, no tensor found": "u",
    "reserved, unused": "r",
    "context and libraries": "k",
    "this process besides tensors": "k",
    "other processes": "t",
    "other programs": "t",
    "not accounted for": "t",
}


def device_bar(device: DeviceMemory, storages: Iterable[LiveStorage]) -> nodes.Parts:
    """Return the bar of a device; ``storages`` are those of the report, sums included, on whatever device."""
    here = [one for one in storages if one.device == device.device]
    amounts = [(CATEGORY_WORDS[name], f"tm-c{CATEGORY_LETTERS[name]}", nbytes) for name, nbytes in by_category(here)]
    amounts += [(words, f"tm-d{_BEYOND[words]}", nbytes) for words, nbytes in _beyond_tensors(device) if nbytes > 0]
    taken, free = sum(nbytes for _, _, nbytes in amounts), device.free or 0
    cut = free > taken
    drawn = 2 * taken if cut else taken + free
    shares = [(*one, one[-1] / drawn) for one in amounts if drawn]
    if free:
        ground = "tm-df tm-cut" if cut and taken else "tm-df"
        shares.append(("free", ground, free, FREE_AT_MOST if cut and taken else free / max(drawn, free)))
    whole = device.total or taken + free
    parts = [nodes.Part(words, number_of_bytes(nbytes), share, ground, percent(nbytes, whole))
             for words, ground, nbytes, share in shares]  # fmt: skip
    return nodes.Parts(parts, "(free part not to scale)" if cut and taken else "")


def _beyond_tensors(device: DeviceMemory) -> Iterator[tuple[str, int]]:
    """Yield what is taken besides tensors that were found; what is not known is not there."""
    own = device.live
    if device.allocated is not None:
        yield "in use, no tensor found", device.allocated - device.live
        own = max(own, device.allocated)
    if device.reserved is not None:
        yield "reserved, unused", device.reserved - own
        own = max(own, device.reserved)
    if device.context is not None:
        yield "context and libraries", device.context
        own += device.context
    elif device.process is not None:
        yield "this process besides tensors", device.process - own
        own = max(own, device.process)
    others = sum(other.nbytes or 0 for other in device.others)
    yield "other processes", others
    if device.total is not None and device.free is not None:
        yield "not accounted for" if others else "other programs", device.total - device.free - own - others
