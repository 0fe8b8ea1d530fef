"""A treemap as HTML: boxes placed in per cent, so that it fits any width, takes the theme, and needs no script.

Where a host strips styles, the same markup reads as a list of names with their bytes.
"""

from __future__ import annotations

from tensormagic.renderers.basics.markup import escape, tag
from tensormagic.renderers.memory.categories import LETTERS
from tensormagic.renderers.memory.cell_labels import cell_lines, has_header, header_words, is_lowered
from tensormagic.renderers.memory.squarify import Box
from tensormagic.renderers.memory.treemap import Cell, Group, Treemap
from tensormagic.words import number_of_bytes, shortened

WIDTH = 932.0  # pixels inside of a panel of full width
_TITLE = 160


def treemap_html(map_: Treemap, alternative: str) -> str:
    """Return the treemap, for a container of whatever width; ``alternative`` says in a sentence what it shows."""
    inner = " ".join(_group(group, map_) for group in map_.groups)
    height = f"height:{map_.height:.0f}px"
    return tag("div", inner, class_="tm-map", style=height, role="img", aria_label=alternative)


def _group(group: Group, map_: Treemap) -> str:
    cells = " ".join(_cell(cell, group, map_) for cell in group.cells)
    if not has_header(group):
        return cells
    return cells + " " + tag("span", _header(group), class_="tm-mh", style=_place(group.box, map_, high=False))


def _header(group: Group) -> str:
    name, *nbytes = header_words(group)
    return " ".join([tag("b", escape(name)), *(tag("i", words) for words in nbytes)])


def _cell(cell: Cell, group: Group, map_: Treemap) -> str:
    classes = f"tm-c{LETTERS[cell.tile.category]}{' tm-low' if is_lowered(cell, group) else ''}"
    words = cell_lines(cell, group)
    text = " ".join(escape(word) if at == 0 else tag("i", escape(word)) for at, word in enumerate(words))
    return tag("span", text, class_=classes, style=_place(cell.box, map_), title=shortened_title(cell))


def shortened_title(cell: Cell) -> str:
    """Return what pointing at a cell shows, each line at most so long."""
    tile = cell.tile
    if not tile.title:
        return f"{tile.label}, {number_of_bytes(tile.nbytes)}, {tile.category}"
    return "\n".join(shortened(line, _TITLE) for line in tile.title.split("\n"))


def _place(box: Box, map_: Treemap, *, high: bool = True) -> str:
    numbers = [("left", box.x / map_.width), ("top", box.y / map_.height), ("width", box.width / map_.width)]
    numbers += [("height", box.height / map_.height)] if high else []
    return ";".join(f"{name}:{_per_cent(value)}" for name, value in numbers)


def _per_cent(share: float) -> str:
    return f"{100 * share:.2f}".rstrip("0").rstrip(".") + "%"
