"""What the pictures of memory say, for who hears them: the largest items of a treemap, the peak and its line."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tensormagic.renderers.memory.categories import PLURALS
from tensormagic.renderers.memory.timeline_stack import Layer, by_line
from tensormagic.renderers.memory.treemap import ELSEWHERE, LEFT_OUT, Tile
from tensormagic.reports import Timeline
from tensormagic.words import count, number_of_bytes, percent, shortened

NAME, MOST = 60, 4  # characters of a name, items that are named


def treemap_alternative(tiles: Sequence[Tile], what: str) -> str:
    """Return how much is drawn, what it is by category, and the largest items: ``net.fc.weight 4 MiB (47 %)``."""
    total = sum(tile.nbytes for tile in tiles)
    if not total:
        return f"Treemap of {what}: nothing"
    kinds = [
        f"{PLURALS[kind]} {percent(nbytes, total)}" for kind, nbytes in _largest(tiles, lambda tile: tile.category)
    ]
    items = _largest([tile for tile in tiles if tile.group != LEFT_OUT], _called)
    named = ", ".join(f"{name} {number_of_bytes(nbytes)} ({percent(nbytes, total)})" for name, nbytes in items)
    names = {name for name, _ in items}
    rest = sum(tile.count for tile in tiles if tile.group == LEFT_OUT or _called(tile) not in names)
    more = f"{' and ' if named else ''}{count(rest)} smaller" if rest else ""
    parts = f": {', '.join(kinds)}" if len(kinds) > 1 else ""
    return f"Treemap of {what}, {number_of_bytes(total)}{parts}. Largest: {named}{more}."


def _largest(tiles: Sequence[Tile], key: Callable[[Tile], str]) -> list[tuple[str, int]]:
    """Return what has the most bytes of all that ``key`` calls alike."""
    totals: dict[str, int] = {}
    for tile in tiles:
        totals[key(tile)] = totals.get(key(tile), 0) + tile.nbytes
    return sorted(((name, nbytes) for name, nbytes in totals.items() if nbytes), key=lambda pair: -pair[1])[:MOST]


def _called(tile: Tile) -> str:
    """Return a tile with the group it lies in, as the picture shows it: ``fc.weight in net``."""
    label, group = shortened(tile.label, NAME), shortened(tile.group, NAME)
    return f"{label} in {group}" if label and tile.group not in {ELSEWHERE, tile.label} else label or group


def timeline_alternative(
    timeline: Timeline, layers: Sequence[Layer], words: Callable[[Layer], str], *, unit: str = "operation"
) -> str:
    """Return how the live bytes went: from, to a peak where, what it is made of and by which line, and what stayed.

    Args:
        timeline: What is drawn.
        layers: Of it, as they are stacked.
        words: What a layer stands for.
        unit: What the axis counts.
    """
    at, (first, *_), last = timeline.peak, timeline.operation, timeline.operation[-1]
    span = f"{unit} {count(first)} to {count(last)}" if last > first else f"{unit} {count(first)}"
    peak = f"the peak of {number_of_bytes(timeline.live[at])} at {unit} {count(timeline.operation[at])}"
    ends = f"{number_of_bytes(timeline.live[0])} at the start, {peak}, {number_of_bytes(timeline.live[-1])} at the end"
    told = [f"Live memory on {shortened(timeline.device, NAME)}, {span}: {ends}."]
    of_peak = [part for layer in _at_peak(timeline, layers)[:MOST] if (part := _part(timeline, layer, words))]
    told += [f"Of the peak: {', '.join(of_peak)}."] if of_peak else []
    lines = [layer for layer in _at_peak(timeline, by_line(timeline)) if layer.key.isdigit()]
    if lines and not any(layer.key.isdigit() for layer in layers) and (line := _part(timeline, lines[0], words)):
        told.append(f"The line with the most of it: {line}.")
    return " ".join(told)


def _at_peak(timeline: Timeline, layers: Sequence[Layer]) -> list[Layer]:
    return sorted(layers, key=lambda layer: -layer.values[timeline.peak])


def _part(timeline: Timeline, layer: Layer, words: Callable[[Layer], str]) -> str:
    """Return a layer with what it has at the peak; nothing where it has nothing then."""
    nbytes = layer.values[timeline.peak]
    share = percent(nbytes, timeline.live[timeline.peak])
    return f"{words(layer)} {number_of_bytes(nbytes)} ({share})" if nbytes else ""
