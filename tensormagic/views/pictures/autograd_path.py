"""The way from a tensor to its leaves as a small picture: leaves at the left, the tensor at the right.

An opaque card, dark where the element that shows the image is. Arrows run the way the gradient does. In a terminal it
is a tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tensormagic.renderers.basics.markup import escape, svg_image, tag
from tensormagic.renderers.basics.plain_text import fitted, text_width
from tensormagic.renderers.basics.svg_paths import arrowhead, line, number
from tensormagic.renderers.basics.theme import inked
from tensormagic.renderers.graph.layout import Spacing, lay_out
from tensormagic.renderers.terminal.text_canvas import cut
from tensormagic.reports import BEYOND, Path, PathNode
from tensormagic.views.nodes import Picture
from tensormagic.words import count, shortened, tuple_text

WIDTH = 860.0
PAD = 10.0
MOST_LINES = 14  # of the tree
BOX_HEIGHT = 36.0
LABEL, DETAIL = 12.0, 10.5
_NARROWEST, _WIDEST = 44.0, 150.0
_HEAD = 7

_STYLE = (
    ".a{font:10.5px system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;fill:$ink}"
    ".a .l{font-weight:600;font-size:12px;text-anchor:middle}.a .d{fill:$ink-2;text-anchor:middle}"
    ".a rect{fill:$bg;stroke:$line-2}.a .leaf{fill:$leaf;stroke:$n4;stroke-width:1.5}"
    ".a .bad{fill:$error-bg;stroke:$error;stroke-width:2}.a .freed{stroke-dasharray:4 3}"
    ".a .self{fill:$self;stroke:$ink;stroke-width:1.5}.a .far{stroke-dasharray:3 3}"
    ".a .w{fill:none;stroke:$ink-2;stroke-width:1.2}.a .h{fill:$ink-2}.a .g{fill:$bg;stroke:none}"
)
STYLE = f"{inked(_STYLE)}@media (prefers-color-scheme:dark){{{inked(_STYLE, dark=True)}}}"


@dataclass(frozen=True, slots=True)
class PathPicture(Picture):
    """The way from a tensor to its leaves (tensor); ``name`` is what the tensor is called."""

    path: Path
    name: str

    @property
    def sentence(self) -> str:
        """The tree."""
        return "\n".join(tree(self.path, self.name))

    @property
    def legend(self) -> str:
        """How it is to be read."""
        return "; ".join(filter(None, ("arrows: direction of the gradient; blue: leaves", path_note(self.path))))

    def html(self) -> str:
        """Return it as an ``<img>``."""
        image = svg_image(path_svg(self.path, self.name), self.sentence)
        return tag("div", image, tag("p", escape(self.legend), class_="quiet"), class_="tm-path")

    def text(self, width: int) -> Iterator[str]:
        """Return the tree."""
        for words in (*tree(self.path, self.name), path_note(self.path)):
            yield from [cut(f"    {words}", width)] if words else []

    def svg(self, width: float) -> tuple[str, float]:
        """Return it as it stands in a page, smaller where it is too wide."""
        drawn = path_svg(self.path, self.name)
        wide, high = (float(size) for size in re.findall(r' (?:width|height)="([\d.]+)"', drawn)[:2])
        scale = min(width / wide, 1.0)
        return f'<g transform="scale({number(scale)})">{drawn}</g>', high * scale


@dataclass(frozen=True, slots=True)
class _Box:
    """One box: what stands in it, and how it is drawn."""

    label: str
    detail: str
    style: str

    @property
    def size(self) -> tuple[float, float]:
        """Width and height."""
        wanted = max(text_width(self.label, LABEL, bold=True), text_width(self.detail, DETAIL)) + 16
        return round(min(max(wanted, _NARROWEST), _WIDEST)), BOX_HEIGHT


def path_svg(path: Path, name: str) -> str:
    """Return the picture as a standalone SVG; ``name`` is what the tensor is called."""
    boxes, edges = _boxes(path, name), _edges(path)
    layout = lay_out([box.size for box in boxes], edges, Spacing(column_gap=26.0, wrap_width=WIDTH - 2 * PAD))
    wires = "".join(_wire(route) for route in layout.routes)
    drawn = "".join(_draw(box, *position) for box, position in zip(boxes, layout.positions, strict=True))
    width, height = number(layout.width + 2 * PAD), number(layout.height + 2 * PAD)
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    ground = '<rect class="g" width="100%" height="100%"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="a" {size}><style>{STYLE}</style>{ground}'
        f'<g transform="translate({number(PAD)},{number(PAD)})">{wires}{drawn}</g></svg>'
    )


def _boxes(path: Path, name: str) -> list[_Box]:
    boxes = [_box(node) for node in path.nodes]
    boxes.append(_Box(shortened(name, 20), "", "self"))
    if any(BEYOND in node.inputs for node in path.nodes):
        left = path.walked - len(path.nodes)
        boxes.append(_Box("\u2026", f"{count(left)} more" if path.complete else f"over {count(left)} more", "far"))
    return boxes


def _box(node: PathNode) -> _Box:
    shape = "\u00d7".join(map(str, node.shape)) or "scalar"
    if node.is_leaf:
        return _Box(shortened(node.name, 24) or "leaf", f"{shape}, grad there" if node.has_grad else shape, "leaf")
    if node.saved:
        style = "bad" if node.saved == "changed in place" else "freed"  # freed is what every graph is after backward
        return _Box(shortened(node.op, 24), f"saved: {node.saved}", style)
    return _Box(shortened(node.op, 24), f"{shortened(node.name, 16)} {shape}".strip(), "op")


def _edges(path: Path) -> list[tuple[int, int]]:
    """Return pairs of boxes in forward direction: what was made first stands at the left."""
    own, far = len(path.nodes), len(path.nodes) + 1
    edges = [(0, own)]
    for place, node in enumerate(path.nodes):
        edges += [(far if made == BEYOND else made, place) for made in node.inputs if made >= 0 or made == BEYOND]
    return list(dict.fromkeys(edges))


def _wire(route: tuple[tuple[float, float], ...]) -> str:
    """Draw a line from right to left, its head at the left end."""
    (x, y), *_ = route
    body = line([(x + _HEAD, y), *route[1:]])
    return f'<path class="w" d="{body}"/><path class="h" d="{arrowhead((x, y), _HEAD, 3)}"/>'


def _draw(box: _Box, x: float, y: float) -> str:
    width, middle = box.size[0], x + box.size[0] / 2
    label, detail = fitted(box.label, width - 8, LABEL, bold=True), fitted(box.detail, width - 6, DETAIL)
    down = 15 if detail else 22
    where = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(BOX_HEIGHT)}" rx="4"'
    text = f'<text class="l" x="{number(middle)}" y="{number(y + down)}">{escape(label)}</text>'
    below = f'<text class="d" x="{number(middle)}" y="{number(y + 29)}">{escape(detail)}</text>' if detail else ""
    return f'<rect class="{box.style}" {where}/>{text}{below}'


def tree(path: Path, title: str) -> list[str]:
    """Return the way to the leaves as an indented tree, each node once; iterative, and cut after a few lines."""
    found, seen = [shortened(title, 40)], set[int]()
    pending = [(0, "", True)]
    while pending and len(found) < MOST_LINES:
        place, stem, last = pending.pop()
        branch = "\u2514 " if last else "\u251c "
        found.append(f"{stem}{branch}{_words(path.nodes[place])}{' (as above)' if place in seen else ''}")
        if place in seen:
            continue
        seen.add(place)
        inner = stem + ("  " if last else "\u2502 ")
        following = [to for to in path.nodes[place].inputs if to >= 0]
        pending += [(to, inner, at == 0) for at, to in enumerate(reversed(following))]
    return found + (["\u2026"] if pending else [])


def _words(node: PathNode) -> str:
    shape = tuple_text(node.shape)
    if node.is_leaf:
        return f"{shortened(node.name, 40) or 'leaf'} {shape}, a leaf{', grad there' if node.has_grad else ''}"
    made = f" \u2192 {shortened(node.name, 24)}" if node.name else ""
    return f"{node.node} {shape}{made}" + (f"  ! saved tensor {node.saved}" if node.saved else "")


def path_note(path: Path) -> str:
    """Return what is not drawn of the graph; nothing where everything is."""
    left = path.walked - len(path.nodes)
    if path.complete:
        return f"the nearest {len(path.nodes)} of {count(path.walked)} nodes are drawn" if left else ""
    return f"the nearest {len(path.nodes)} nodes are drawn; there are more than {count(path.walked)}"
