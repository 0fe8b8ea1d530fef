"""Why a gradient is what it is (``%why``): the answer, the way to the loss with its end, what to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tensormagic.reports import BEYOND, Path, PathNode, PathStep, WhyReport
from tensormagic.views import nodes
from tensormagic.views.graph.layout import Spacing, lay_out
from tensormagic.views.markup import escape, fitted, svg_image, tag, text_width
from tensormagic.views.svg_paths import arrowhead, document, line, moved, number, rect, within
from tensormagic.views.text_canvas import cut, table
from tensormagic.views.theme import inked, role
from tensormagic.views.to_svg import text_svg
from tensormagic.words import DOT, TIMES, count, listed, plural, short_number, shortened, tuple_text

# The way from a tensor to its leaves as a small picture: leaves at the left, the tensor at the right.
#
# An opaque card, dark where the element that shows the image is. Arrows run the way the gradient does. In a terminal
# it is a tree.

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
class PathPicture(nodes.Picture):
    """The way from a tensor to its leaves (tensor); ``name`` is what the tensor is called."""

    path: Path
    name: str

    def html(self) -> str:
        """Return it as an ``<img>``, and how it is to be read."""
        image = svg_image(path_svg(self.path, self.name), "\n".join(tree(self.path, self.name)))
        legend = "; ".join(filter(None, ("arrows: direction of the gradient; blue: leaves", path_note(self.path))))
        return tag("div", image, tag("p", escape(legend), class_="quiet"), class_="tm-path")

    def text(self, width: int) -> Iterator[str]:
        """Return the tree."""
        for words in (*tree(self.path, self.name), path_note(self.path)):
            yield from [cut(f"    {words}", width)] if words else []

    def svg(self, width: float) -> tuple[str, float]:
        """Return it as it is in a page, smaller where it is too wide."""
        return within(path_svg(self.path, self.name), width)


class _Box(NamedTuple):
    """One box: what is in it, and the class by which it is drawn."""

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
    own, far = len(path.nodes), len(path.nodes) + 1
    boxes = [*map(_box, path.nodes), _Box(shortened(name, 20), "", "self")]
    if any(BEYOND in node.inputs for node in path.nodes):
        left = count(path.walked - len(path.nodes))
        boxes.append(_Box("\u2026", f"{left} more" if path.complete else f"over {left} more", "far"))
    edges = [(0, own)]  # in forward direction: what was made first stands at the left
    for place, node in enumerate(path.nodes):
        edges += [(far if made == BEYOND else made, place) for made in node.inputs if made >= 0 or made == BEYOND]
    spacing = Spacing(column_gap=26.0, wrap_width=WIDTH - 2 * PAD)
    layout = lay_out([box.size for box in boxes], list(dict.fromkeys(edges)), spacing)
    drawn = [f'<style>{STYLE}</style><rect class="g" width="100%" height="100%"/>']
    inside = []
    for (x, y), *rest in layout.routes:  # from right to left, its head at the left end
        inside.append(tag("path", class_="w", d=line([(x + _HEAD, y), *rest])))
        inside.append(tag("path", class_="h", d=arrowhead((x, y), _HEAD, 3)))
    for box, (x, y) in zip(boxes, layout.positions, strict=True):
        wide, high = box.size
        label, detail = fitted(box.label, wide - 8, LABEL, bold=True), fitted(box.detail, wide - 6, DETAIL)
        middle = number(x + wide / 2)
        inside.append(rect(x, y, wide, high, class_=box.style, rx=4))
        inside.append(tag("text", escape(label), class_="l", x=middle, y=number(y + (15 if detail else 22))))
        inside += [tag("text", escape(detail), class_="d", x=middle, y=number(y + 29))] if detail else []
    drawn.append(moved(PAD, PAD, *inside))
    return document("".join(drawn), layout.width + 2 * PAD, layout.height + 2 * PAD, ' class="a"')


def _box(node: PathNode) -> _Box:
    shape = TIMES.join(map(str, node.shape)) or "scalar"
    if node.is_leaf:
        return _Box(shortened(node.name, 24) or "leaf", f"{shape}, grad there" if node.has_grad else shape, "leaf")
    if node.saved:
        style = "bad" if node.saved == "changed in place" else "freed"  # freed is what every graph is after backward
        return _Box(shortened(node.op, 24), f"saved: {node.saved}", style)
    return _Box(shortened(node.op, 24), f"{shortened(node.name, 16)} {shape}".strip(), "op")


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


# The way from a tensor to the loss as a row of boxes: where the gradient flows, and where it ends.

_ENDS = {"cut", "nothing"}
DETACHED = "//"
ARROW = "\u2190"
_LABEL = 40  # characters
_HIGH, _ROW, _BETWEEN = 46.0, 62.0, 30.0  # pixels of a box, from row to row, between boxes


@dataclass(frozen=True, slots=True)
class WayPicture(nodes.Picture):
    """The way of a gradient (why)."""

    report: WhyReport

    def _stops(self) -> Iterator[tuple[PathStep, str, tuple[str, str, str]]]:
        """Yield each stop, what it is called, and what stands below: what it is, its line, the gradient that came."""
        path = self.report.path
        several = len({step.location.filename for step in path if step.location is not None}) > 1
        for step in path:
            place, came = step.location, ""
            if step.norm is not None:
                came = "zero" if step.norm == 0 else f"norm {short_number(step.norm)}"
            line = "" if place is None else place.label if several else f"line {place.line}"
            yield step, shortened(step.label, _LABEL), (step.detail, line, came)

    def html(self) -> str:
        """Return a row of boxes that wraps; there is no script and no picture to load."""
        path, drawn = self.report.path, []
        last = max((at for at, step in enumerate(path) if step.kind in _ENDS), default=-1)  # it comes no further
        for at, (step, label, (detail, where, came)) in enumerate(self._stops()):
            if at:
                ended = step.kind in _ENDS or path[at - 1].kind in _ENDS
                kind = "tm-ended" if ended else "tm-some" if at - 1 > last else "tm-none"
                drawn.append(tag("span", DETACHED if ended else ARROW, class_=f"tm-arrow {kind}"))
            words = [tag("code", escape(label), class_="tm-label")]
            words += [tag("span", escape(text), class_="tm-small") for text in (detail, where) if text]
            words += [tag("span", escape(came), class_="tm-small tm-norm")] if came else []
            kind = f"tm-stop tm-{step.kind}" + ("" if at > last or step.kind == "cut" else " tm-none")
            kind += " tm-bad" if step.bad else ""
            hint = step.location.text if step.location is not None else ""
            drawn.append(tag("span", " ".join(words), class_=kind, title=hint or None))
        return tag("div", " ".join(drawn), class_="tm-way") + tag("p", self._legend(), class_="quiet")

    def _legend(self) -> str:
        told = "; below each stop, the norm of the gradient that reached it in the last pass"
        told = told if any(step.norm is not None for step in self.report.path) else ""
        told = ", and stops at the cut" if any(step.kind == "cut" for step in self.report.path) else told
        return f"the gradient flows from right to left{told}"

    def text(self, width: int) -> Iterator[str]:
        """Return a line a stop."""
        rows = []
        for at, (step, label, below) in enumerate(self._stops()):
            sign = " " if not at else DETACHED if step.kind in _ENDS else ARROW
            rows.append((f"{sign} {label}", *below, "!" if step.bad else ""))
        yield "from the tensor to the loss; the gradient flows upwards"
        yield from table([("", "", "line", "gradient", ""), *rows], width, gap=3)

    def svg(self, width: float) -> tuple[str, float]:
        """Return the boxes in rows."""
        path, x, y, parts = self.report.path, 0.0, 0.0, list[str]()
        for at, (step, label, below) in enumerate(self._stops()):
            described = f" {DOT} ".join(filter(None, below))
            room = max(text_width(label, 13, bold=True), text_width(described, 11)) + 20
            wide = min(max(room, 52.0), width - _BETWEEN)
            if x and x + _BETWEEN + wide > width:
                x, y = 0.0, y + _ROW
            if at:
                ended = step.kind in _ENDS or path[at - 1].kind in _ENDS
                sign, ink = (DETACHED, role("error")) if ended else (ARROW, role("ink"))
                parts.append(text_svg(x + _BETWEEN / 2, y + 28, sign, size=16, anchor="middle", ink=ink, bold=ended))
                x += _BETWEEN
            edge = role("error" if step.bad else "accent" if step.kind == "tensor" else "line-2")
            parts.append(rect(x, y, wide, _HIGH, rx=4, fill=role("error-bg" if step.bad else "bg"), stroke=edge))
            for down, words, size in ((19, label, 13), (36, described, 11)):
                ink = role("error" if step.bad and size == 13 else "ink" if size == 13 else "ink-2")
                shown = fitted(words, wide - 8, size, bold=size == 13)
                parts.append(text_svg(x + wide / 2, y + down, shown, size=size, anchor="middle", bold=size == 13,
                                      ink=ink))  # fmt: skip
            x += wide
        parts.append(text_svg(0, y + _ROW + 8, self._legend(), size=12, quiet=True))
        return "".join(parts), y + _ROW + 14


MOST_NAMES = 12


def view(report: WhyReport) -> nodes.Panel:
    """Return the panel."""
    # Sentences, or what is code as a whole as code.
    remedies = [text if "`" in text or text.endswith(".") else nodes.Words(text, "code") for text in report.remedy]
    rests: list[nodes.Node] = [*report.evidence]
    if report.location is not None and report.location.text:
        rests.append(f"{report.location.label}: `{report.location.text}`")
    rests.append(nodes.Paragraph(f"from {report.source}" if report.source else "", "quiet"))
    body: list[nodes.Node] = [
        nodes.Findings(report.findings, report.gaps), *([WayPicture(report)] if len(report.path) > 1 else []),
        nodes.Section("What to do", [nodes.Items(remedies, len(remedies))] if remedies else []),
        nodes.Section("", rests), nodes.table_of(GROUPS, report.groups),
    ]  # fmt: skip
    name, facts = report.name, ""
    if (known := report.facts) is not None:
        name = f"{name}.grad"
        kind = "parameter" if known.is_parameter else "leaf" if known.is_leaf else "not a leaf"
        asked = f"shown for {known.expression}" if known.expression else ""
        norm = f"grad of norm {short_number(known.norm)}" if known.norm is not None else "grad not read"
        grad = {"none": "grad None", "unreadable": "grad unreadable"}.get(known.grad, norm)
        shape = f"{known.dtype} {tuple_text(known.shape)}"
        parts = (asked, kind, shape, f"requires_grad={known.requires_grad}", grad)
        facts = " \u00b7 ".join(filter(None, parts))
    return nodes.Panel("why", "graph", f"why {name}", [nodes.Words(facts, "quiet")], body, f"Why {name} is what it is",
                       lead=report.answer, sheets=("why.css",))  # fmt: skip


GROUPS = (
    nodes.Column("reason", lambda group: group.reason if group.fine else nodes.Words(group.reason, "error"), "name"),
    nodes.Column("how many", lambda group: plural(group.count, "parameter"), "silent"),
    nodes.Column("which", lambda group: nodes.Words(listed(group.names, most=MOST_NAMES), "code"), "wide"),
    nodes.Column("the first of them", lambda group: group.answer),
)
