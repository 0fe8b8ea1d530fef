"""What a person sees from ``%gpumem`` in a terminal: the treemap as bars, what letting go would free, the largest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tensormagic.renderers.memory.categories import PLURALS
from tensormagic.renderers.memory.device_bar import DeviceBar, device_bar
from tensormagic.renderers.memory.memory_words import (
    called,
    device_notes,
    freeing,
    frees_by_history,
    held_by,
    kind,
    line_label,
    release_notes,
    summary,
    tiles,
    title,
    what,
)
from tensormagic.renderers.memory.text_bars import barred
from tensormagic.renderers.memory.treemap import Tile
from tensormagic.renderers.tensor.tensor_text import finding_lines
from tensormagic.renderers.terminal.text_canvas import table
from tensormagic.renderers.trace.trace_text_lines import filled, printable
from tensormagic.reports import LiveStorage, MemoryReport, Release
from tensormagic.words import count, listed, number_of_bytes, percent, plural, shortened

NARROWEST = 40
MOST_NAMES, MOST_RELEASES, MOST_STORAGES = 12, 12, 12
MOST_PARTS = 2  # of one name


def render(report: MemoryReport, *, width: int = 100) -> str:
    """Return the report as text, no line wider than ``width`` (at least 40) columns."""
    width = max(width, NARROWEST)
    sections = [
        _head(report, width),
        *(_device(report, device_bar(device, report.every()), width) for device in report.devices),
        releases_text(report.releases, width),
        storages_text("LARGEST STORAGES", report.storages, width, report.left_out),
    ]
    return page(sections, width)


def page(sections: Iterable[Iterable[str]], width: int) -> str:
    """Return sections with an empty line between them, no line wider than ``width``."""
    blocks = [list(section) for section in sections]
    lines = "\n\n".join("\n".join(block) for block in blocks if block).split("\n")
    return printable("\n".join(line if len(line) <= width else line[: width - 1] + "…" for line in lines)) + "\n"


def _head(report: MemoryReport, width: int) -> Iterator[str]:
    yield from filled("gpumem  ", f"{title(report)}: {summary(report)}", width)
    yield "─" * width
    for finding in report.findings:
        yield from finding_lines(finding, width)
    for gap in report.gaps:
        yield from filled("not shown: ", f"{gap.section}: {gap.reason}", width)


def _device(report: MemoryReport, bar: DeviceBar, width: int) -> Iterator[str]:
    device = bar.device
    total = f"{number_of_bytes(device.total)} in all" if device.total is not None else ""
    yield from filled(f"{device.device}  ", ", ".join(filter(None, (device.name, total))), width)
    for note in device_notes(device):
        yield from filled("  ", note, width)
    whole = device.total or sum(part.nbytes for part in bar.parts)
    rows = [
        (part.words, part.nbytes, (number_of_bytes(part.nbytes), percent(part.nbytes, whole))) for part in bar.parts
    ]
    yield from barred(rows, width)
    groups = _by_name(tiles(report, device.device))
    if groups:
        yield f"  by name, of {number_of_bytes(device.live)}"
        yield from barred([_name_row(name, inner) for name, inner in groups[:MOST_NAMES]], width)
    if len(groups) > MOST_NAMES:
        rest = [tile for _, inner in groups[MOST_NAMES:] for tile in inner]
        yield f"  and {plural(len(groups) - MOST_NAMES, 'more name')}, {number_of_bytes(_bytes(rest))}"


def _by_name(every: Sequence[Tile]) -> list[tuple[str, list[Tile]]]:
    groups: dict[str, list[Tile]] = {}
    for tile in every:
        groups.setdefault(tile.group, []).append(tile)
    return sorted(groups.items(), key=lambda item: -_bytes(item[1]))


def _name_row(name: str, inner: Sequence[Tile]) -> tuple[str, int, tuple[str, ...]]:
    number = sum(tile.count for tile in inner)
    kinds = listed(
        dict.fromkeys(PLURALS[tile.category] for tile in sorted(inner, key=lambda tile: -tile.nbytes)), most=3
    )
    return name, _bytes(inner), (number_of_bytes(_bytes(inner)), plural(number, "storage"), kinds)


def _bytes(every: Iterable[Tile]) -> int:
    return sum(tile.nbytes for tile in every)


def releases_text(releases: Sequence[Release], width: int) -> Iterator[str]:
    """Return what letting go of each name would free, the most first."""
    every = freeing(releases)
    if not every:
        return
    yield "WHAT LETTING GO WOULD FREE (each by itself)"
    yield from barred([row for one in every[:MOST_RELEASES] for row in _release_rows(one)], width)
    if len(every) > MOST_RELEASES:
        yield f"  and {count(len(every) - MOST_RELEASES)} more"
    if frees_by_history(every):
        yield from filled("  ", "%gpumem --free --yes lets go of what only outputs and errors hold", width)


def _release_rows(release: Release) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """Yield a name, and indented below it the largest of what can be taken out of it instead."""
    yield what(release), release.nbytes, (number_of_bytes(release.nbytes), release_notes(release))
    for part in release.parts[:MOST_PARTS]:
        yield f"  {what(part)}", part.nbytes, (number_of_bytes(part.nbytes), "")


def storages_text(
    name: str, storages: Sequence[LiveStorage], width: int, left_out: Sequence[LiveStorage] = ()
) -> Iterator[str]:
    """Return the largest storages with who holds them."""
    if not storages:
        return
    yield name
    shown = storages[:MOST_STORAGES]
    has_lines = any(one.location is not None for one in shown)
    yield from table([_row(one, has_lines=has_lines) for one in shown], indent=2, gap=2, width=width)
    rest = (*storages[MOST_STORAGES:], *left_out)
    number = len(storages[MOST_STORAGES:]) + sum(one.tensors for one in left_out)
    if rest:
        yield f"  and {count(number)} smaller, {number_of_bytes(sum(one.nbytes for one in rest))}"


def _row(one: LiveStorage, *, has_lines: bool) -> tuple[str, ...]:
    held = held_by(one, most=2)
    return (
        shortened(called(one), 36),
        number_of_bytes(one.nbytes),
        one.category,
        *([line_label(one)] if has_lines else []),
        shortened(kind(one), 32),
        held and f"held by {held}",
    )
