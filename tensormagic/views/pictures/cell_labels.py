"""What is written on a rectangle: as much of a name as has room, and the part that tells the most.

``blocks.0.mlp.up.weight.grad`` on an orange cell need not say that it is a gradient, nor that it is a weight: it may
be written ``blocks.0.mlp.up``, ``0.mlp.up`` or ``mlp.up``. Where not even that has room, the bytes stand alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tensormagic.renderers.basics.text_metrics import fitted, text_width
from tensormagic.views.pictures.treemap_layout import ELSEWHERE, LEFT_OUT, Cell, Group
from tensormagic.words import number_of_bytes, plural

SIZE = 12.0  # pixels of the letters
HEADER = 18.0  # pixels of the strip with a group's name
LINE = 15.0
PADDING = 10.0
_STATE = re.compile(r"(?:^|.*\.)state\[(?P<path>.+)\]\['(?P<key>\w+)'\]$")
_ENDING = re.compile(r"(?:\.weight)?(?:\.grad)?$|Backward\d*$")
_AFTER = re.compile(r"[:,]")
_SHORTEST = 3
_SURE = 0.9  # of the width that is counted with: a notebook's cell may be a little narrower
_NARROW = 48.0  # pixels of a name below which the bytes are left out


def has_header(group: Group) -> bool:
    """Say whether a group is worth a header, and has the room for one."""
    return len(group.cells) > 1 and group.label != ELSEWHERE and group.box.width >= 64 and group.box.height >= 44


def is_lowered(cell: Cell, group: Group) -> bool:
    """Say whether the header of its group lies over the top of a cell."""
    return has_header(group) and cell.box.y < group.box.y + HEADER


def cell_lines(cell: Cell, group: Group) -> list[str]:
    """Return what is written on a cell: its name, below it its bytes; one of both, or nothing, where room is short."""
    wide = cell.box.width * _SURE - PADDING
    rows = int((cell.box.height - (HEADER if is_lowered(cell, group) else 0) - 2) // LINE)
    words = (
        next((label for label in _labels(cell, group) if _fits(label, wide)), ""),
        number_of_bytes(cell.tile.nbytes),
    )
    return [word for word in words if word and _fits(word, wide)][: max(rows, 0)]


def header_words(group: Group) -> list[str]:
    """Return what stands in a header: the group's name (of a line of code, where room is short, its number), bytes."""
    nbytes = number_of_bytes(group.nbytes)
    short, room = group.label.partition("  ")[0], group.box.width * _SURE - PADDING
    beside = room - text_width(nbytes, SIZE, bold=True) - PADDING
    for label in (group.label, short, short.removeprefix("graph of ")):
        if text_width(label, SIZE, bold=True) <= beside:
            return [label, nbytes]
    short = short.removeprefix("graph of ")
    name = fitted(short, max(beside, _NARROW), SIZE, bold=True)
    return [name, nbytes] if beside >= _NARROW else [fitted(short, room, SIZE, bold=True)]


def _fits(text: str, room: float) -> bool:
    return text_width(text, SIZE) <= room


def _labels(cell: Cell, group: Group) -> Iterator[str]:
    """Return how a cell may be called, the longest first."""
    tile = cell.tile
    if tile.count > 1:
        without_larger = all(other.tile.count > 1 for other in group.cells) and group.label not in {ELSEWHERE, LEFT_OUT}
        words = plural(tile.count, "storage") if without_larger else tile.label
        yield from (words,) if has_header(group) or not group.label else (f"{group.label}: {words}", group.label, words)
        return
    if not has_header(group):
        yield tile.title.split("\n", maxsplit=1)[0] or tile.label
    yield from _shorter(tile.label)


def _shorter(name: str) -> Iterator[str]:
    """Return shorter and shorter forms of a path."""
    yield name
    found = _STATE.match(name)
    if found:
        tails = list(_shorter(found["path"]))
        yield from (f"{tail} {found['key']}" for tail in tails)
        yield from tails
        return
    path = _ENDING.sub("", _AFTER.split(name, maxsplit=1)[0])
    parts = path.split(".")
    yield from (
        ".".join(parts[at:]) for at in range(len(parts)) if len(".".join(parts[at:])) >= min(_SHORTEST, len(path))
    )
