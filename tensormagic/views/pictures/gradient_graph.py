"""The graph of a run's gradients: drawn, as the longest way through it in a terminal, as a table, and in words.

In words it says not how many boxes there are, but what one sees in them: where it broke and since when, the largest and
the smallest gradient with their lines, what got none, and what was found. The static picture, the saved SVG and the
live graph share these sentences.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tensormagic.reports import Frame, Graph, Node, TraceReport
from tensormagic.views import to_html
from tensormagic.views.graph import marks
from tensormagic.views.graph.drawing import Box, Drawing, draw
from tensormagic.views.graph.words import gradient_text, value_text, whole_shape
from tensormagic.views.markup import escape, svg_image, tag
from tensormagic.views.nodes import Column, Picture, Section, Table
from tensormagic.views.panels.trace_words import measured, norm_text, run_text, touched
from tensormagic.views.pictures.graph_svg import SOLID, Scene, graph_svg, legend_svg, styled
from tensormagic.views.svg_paths import document, moved, number, within
from tensormagic.views.text_canvas import bar, columns_of, printable, wrapped
from tensormagic.views.theme import EITHER_SIDE
from tensormagic.words import DOT, count, listed, plural, shortened

_MOST_BOXES, _TEXT_BOXES, _ENDED_BOXES = 64, 24, 32  # a picture cannot be zoomed into: it shows less than the panel
_MOST_NODES = 16  # of the table
_PAD = 14.0


@dataclass(frozen=True, slots=True)
class GradientGraph(Picture):
    """The first graph of a run, coloured by the pass that is shown first (a traced run)."""

    report: TraceReport  # The run, as `with_crash` returned it.
    crash: marks.Crash | None = None  # Where it ended.
    drawing: Drawing | None = None  # Its drawing, where there is one already.
    tips: bool = True  # Whether boxes carry tooltips, and the whole its words: what an ``<img>`` never shows.

    @property
    def sentence(self) -> str:
        """Where it broke, the largest and the smallest gradient, what got none, and what was found."""
        return trace_alternative(self.report)

    @property
    def _others(self) -> str:
        """How many graphs with passes are not shown."""
        others = sum(graph.passes_seen > 0 for graph in self.report.graphs[1:])
        return f"{plural(others, 'graph')} with another structure not shown" if others else ""

    @property
    def _is_drawn_only(self) -> bool:
        """Whether no backward ran through the graph: it was asked for as a picture, or the forward ended in it."""
        return self.report.state == "drawn" or not any(graph.passes_seen for graph in self.report.graphs)

    def html(self) -> str:
        """Return its nodes as a table: those where NaN or Inf was born and went first, then the others in order."""
        if not self.report.graphs:
            return ""
        graph = self.report.graphs[0]
        frame, shown = next(reversed(graph.frames), None), list(graph.nodes)
        if len(shown) > _MOST_NODES:
            born = {node for first in graph.first_nonfinite for node in (first.node, first.receiver)}
            rest = [node.index for node in graph.nodes if node.index not in born]
            shown = [graph.nodes[index] for index in sorted([*born, *rest[: _MOST_NODES - len(born)]])]
        rows, quoted = [], set[int | None]()
        for node in shown:
            place = self.report.location(node.location)
            line = place.label if place is not None else ""  # with its text where it is named first
            line += f": {place.text}" if place is not None and node.location not in quoted else ""
            quoted.add(node.location)
            norm = norm_text(frame.norms[node.index]) if frame and node.index < len(frame.norms) else ""
            shapes = ", ".join(map(whole_shape, node.shapes))
            rows.append((str(node.index), node.op, node.variable, node.module, shapes, norm, line))
        number = plural(len(graph.nodes), "node")
        title = f"{number if len(rows) == len(graph.nodes) else f'{len(rows)} of {number}'} of graph {graph.number}"
        names = ("node", "op", "result or leaf", "module", "shape", "norm", "line")
        when = f", norms of pass {frame.pass_number}" if frame else ""
        return to_html.html(Section(title + when, [Table([*map(Column, names)], rows)], self._others))

    def text(self, width: int) -> Iterator[str]:
        """Yield the longest chain of boxes from the loss to an input, with a bar for every norm."""
        graph = self.report.graphs[0] if self.report.graphs else None
        if graph is not None and graph.nodes and (self.report.state == "drawn" or not self._is_drawn_only):
            yield from _flow(self.report, graph, width)
            yield from wrapped(self._others, width, "  ", "  ") if self._others else ()

    def svg(self, width: float) -> tuple[str, float]:
        """Return caption, drawing and legend, smaller where it is too wide; nothing where there is no graph."""
        if not self.report.graphs:
            return "", 0.0
        graph = self.report.graphs[0]
        drawing = self.drawing or draw(graph, max_boxes=_MOST_BOXES, inside=False)
        frame = marks.shown_frame(graph)
        shown_marks = [*marks.born_marks(drawing, graph, frame), *marks.marks_of(self.report, graph)]
        placed = marks.placed_marks(drawing, shown_marks)
        scene = Scene(drawing, graph, frame, self.tips, marks.run_scale(self.report), placed)
        crash = self.crash if self.crash is not None and self.crash.graph == 0 else None
        mark = marks.mark_svg(drawing, crash.node, crash.words) if crash is not None else marks.Mark()
        over = max((-8 - place[1] for _, _, place in placed if place is not None), default=0.0)  # 8: free without it
        before, above = max(0.0, -mark.left), max(mark.above, over)
        wide = before + max(drawing.width, mark.right)
        scale = min(1.0, width / wide) if wide else 1.0
        left, top = max(0.0, (width - wide * scale) / 2) + before * scale, 40 + above * scale
        place = f"translate({number(left)},{number(top)})" + (f" scale({scale:.3f})" if scale != 1 else "")
        title, said = self._title(scene)
        said = f" {DOT} ".join(filter(None, (said, drawing.note, self._others)))
        rest_of_line = f'<tspan class="q" font-weight="400">{escape(said)}</tspan>'
        content = f'<text class="v" x="0" y="15">{title} {rest_of_line}</text>'
        content += f'<g transform="{place}">{graph_svg(scene)}{mark.svg}</g>'
        high = top + drawing.height * scale + (18 if placed else 12)
        if not self._is_drawn_only:
            content += moved(0, high, legend_svg(scene))
            high += 18
        words, solid = self.sentence if self.tips else "", SOLID if self._is_drawn_only else ""
        return styled(content, solid, label=words), high

    def _title(self, scene: Scene) -> tuple[str, str]:
        """Return what the picture is, and which pass is shown."""
        graph, frame, is_drawn = scene.graph, scene.frame, self.report.state == "drawn"
        if not is_drawn and not graph.passes_seen:
            return "Graph so far", "what autograd had recorded when the forward stopped"
        if frame is None:
            return "Backward graph", "" if is_drawn else "no pass was kept"
        step = next((each.step for each in self.report.passes if each.number == frame.pass_number), None)
        which = f"pass {frame.pass_number}" + (f", step {step}" if step is not None else "")
        return "Backward graph", f"colours show {which}" if graph.passes_seen > 1 else which


@dataclass(frozen=True, slots=True)
class EndedGraph(Picture):
    """A graph with a cross and words at the box that holds a node (refused call)."""

    graph: Graph
    node: int
    words: str

    @property
    def sentence(self) -> str:
        """How large the graph is, what happened, and at which node."""
        last = self.graph.nodes[self.node]
        return f"Graph of {_size(self.graph)}; {self.words}: {shortened(last.variable, NAME) or last.op}."

    def html(self) -> str:
        """Return it as an ``<img>``."""
        drawing = draw(self.graph, max_boxes=_ENDED_BOXES, inside=False)
        note = tag("p", drawing.note, class_="quiet") if drawing.note else ""
        image = svg_image(self._drawn(EITHER_SIDE), self.sentence)
        return tag("div", tag("div", image), note, class_="tm-graph")

    def text(self, width: int) -> Iterable[str]:
        """Return what is to be seen."""
        return wrapped(self.sentence, width, "  ", "  ")

    def svg(self, width: float) -> tuple[str, float]:
        """Return it, smaller where it is too wide."""
        return within(self._drawn(""), width)

    def _drawn(self, style: str) -> str:
        """Return the picture with further rules of style."""
        drawing = draw(self.graph, max_boxes=_ENDED_BOXES, inside=False)
        mark = marks.mark_svg(drawing, self.node, self.words)
        left, right = max(_PAD, _PAD - mark.left), max(drawing.width, mark.right)
        width, height = left + right + _PAD, drawing.height + mark.above + 2 * _PAD
        placed = marks.placed_marks(drawing, marks.born_marks(drawing, self.graph, None))
        scene = Scene(drawing, self.graph, None, marks=placed)
        content = moved(left, mark.above + _PAD, graph_svg(scene), mark.svg)
        drawn = (tag("style", style) if style else "") + styled(content, SOLID)
        return f"{document(drawn, width, height)}\n"


_CELL = 24


def _flow(report: TraceReport, graph: Graph, width: int) -> Iterator[str]:
    drawing = draw(graph, max_boxes=_TEXT_BOXES, inside=False)
    frame, scale = marks.shown_frame(graph), marks.run_scale(report)
    path, drawn = main_path(drawing), report.state == "drawn"
    head = "gradient flow, loss to input (no pass was kept)"
    if drawn:
        head = "the gradient's path, loss to input, with the output shape of each op"
    elif frame is not None:
        head = f"gradient flow, loss to input, the norm in pass {frame.pass_number}"
        bars = "bars from {} to {}".format(*(norm_text(10.0**exponent) for exponent in scale))
        head += "" if len(head) + len(bars) + 3 > width else f"   {bars}"
    yield from wrapped(head, width)
    yield from _rows([_cell(box, frame, None if drawn else scale, first=not at) for at, box in enumerate(path)], width)
    for at, nonfinite in marks.nonfinite_by_box(drawing, graph).items():
        sure = "" if nonfinite.certain else " or beside it"
        what = f"{'NaN' if nonfinite.nan else 'Inf'} born in {drawing.boxes[at].label}{sure}"
        yield f"  {what}, pass {nonfinite.pass_number}"
    on_path = {box.id for box in path}
    if others := [box for box in drawing.boxes if box.id not in on_path]:
        bad = sum(marks.value_of(box.nodes, frame).bad for box in others)
        names = shortened(", ".join(box.label for box in others[:3]) + (", …" if len(others) > 3 else ""), 40)
        marked = f", {bad} of them not finite" if bad else ""
        words = f"beside this path: {plural(len(others), 'box', 'boxes')} ({names}){marked}"
        yield from wrapped(words, width, "  ", "  ")
    folded = f"{plural(len(graph.nodes), 'node')}; leaves and chains of views are drawn with the op beside them"
    if words := drawing.note or (folded if len(drawing.boxes) < len(graph.nodes) else ""):
        yield from wrapped(words, width, "  ", "  ")


def _cell(box: Box, frame: Frame | None, scale: tuple[int, int] | None, *, first: bool) -> tuple[str, str]:
    """Return the two lines of a box: its name, and its bar with the number; without a scale what it makes."""
    name, detail = shortened(box.label, _CELL), shortened(box.detail, _CELL)
    if scale is not None:
        value, small = marks.value_of(box.nodes, frame, scale), frame.values if frame is not None else None
        bar_ = bar(value.norm, value.scale)
        detail = f"! {value.text}" if value.bad else f"{bar_} {norm_text(value.norm)}"
        if small is not None and (came := gradient_text(small.gradients[box.nodes[0]])):
            made, detail = value_text(small.made[box.nodes[0]]), f"{bar_} {came}"
            name = f"{name}: {made}" if made else name
    return ("  " if first else "→ ") + name, f"  {detail}"


def main_path(drawing: Drawing) -> list[Box]:
    """Return the longest chain of boxes, from where the gradient starts to where it ends."""
    targets: dict[int, list[int]] = {}
    for wire in drawing.wires:
        targets.setdefault(wire.source, []).append(wire.target)
    paths: dict[int, tuple[int, int]] = {-1: (0, -1)}  # box → how long its chain is, and what comes next
    for box in drawing.boxes:  # forward order: what a box sends its gradient to was made before it
        reached = [target for target in targets.get(box.id, ()) if target in paths]
        best = max(reached, key=lambda number: paths[number][0], default=-1)
        paths[box.id] = paths[best][0] + 1, best
    at, path = max(paths, key=lambda number: (paths[number][0], number)), []
    while at >= 0:
        path.append(drawing.boxes[at])
        at = paths[at][1]
    return path


def _rows(cells: Sequence[tuple[str, str]], width: int) -> Iterator[str]:
    upper, lower = "", ""
    for name, norm in (map(printable, cell) for cell in cells):
        wide = max(columns_of(name), columns_of(norm)) + 1
        if upper and columns_of(upper) + wide > width:
            yield from (upper.rstrip(), lower.rstrip())
            upper = lower = ""
        upper += name + " " * (wide - columns_of(name))
        lower += norm + " " * (wide - columns_of(norm))
    yield from (upper.rstrip(), lower.rstrip())


NAME, MESSAGE, MOST_NAMES = 48, 160, 2  # characters of a name and of a finding, names of a list


def trace_alternative(report: TraceReport, *, graph: int = 0) -> str:
    """Return what the picture shows, in sentences; ``graph`` says of which of the report's graphs, by place."""
    name, sentences = shortened(report.title, NAME) or "this run", []
    if not report.graphs:
        sentences.append(f"{name}: no backward graph, {run_text(report)}")
    else:
        shown = report.graphs[graph]
        frame, seen = next(reversed(shown.frames), None), shown.passes_seen
        which = "; no pass was kept" if seen and frame is None else ""
        if frame is not None and seen > 1:
            which = f"; gradients of pass {frame.pass_number} of {count(report.passes_seen)}"  # of the run's
        sentences += [f"Backward graph of {name}: {_size(shown)}{which}", *_bad(report, shown, frame)]
        sentences += _gradients(report, shown, frame) if frame is not None else ()
        if cuts := [cut for cut in shown.cuts if cut.detachment]:
            names = (f"{cut.op} of {shortened(cut.source_name, NAME)}" if cut.source_name else cut.op for cut in cuts)
            sentences.append(f"The gradient is cut at {listed(names, most=MOST_NAMES)}")
    if report.error:
        sentences.append(f"The run {report.state}: {shortened(report.error, MESSAGE).rstrip('.')}")
    if report.findings:
        first, more = report.findings[0], len(report.findings) - 1
        rest = f"; {plural(more, 'more finding')}" if more else ""
        where = f", {first.location.label}" if first.location is not None else ""
        message = shortened(first.message.replace("`", ""), MESSAGE).rstrip(".")
        sentences.append(f"{first.severity} {shortened(first.code, NAME)}{where}: {message}{rest}")
    return " ".join(f"{sentence}." for sentence in sentences)


def _bad(report: TraceReport, graph: Graph, frame: Frame | None) -> Iterator[str]:
    """Yield where a number that is none came from, and what holds one in the pass that is shown."""
    older = marks.forward_mark(graph)
    nonfinite = older or next(iter(graph.first_nonfinite), None)
    if nonfinite is not None:
        doubt = "" if nonfinite.certain else ", or beside it"
        born = f"{'NaN' if nonfinite.nan else 'Inf'} was born in {_called(report, graph.nodes[nonfinite.node])}{doubt}"
        yield f"{born}, in pass {nonfinite.pass_number}{', in the forward already' if older else ''}"
    pairs = zip(graph.nodes, frame.norms, strict=False) if frame is not None else ()
    bad = [node for node, norm in pairs if not math.isfinite(norm) or (frame and str(node.index) in frame.bad)]
    held = f"{count(len(bad))} of {plural(len(graph.nodes), 'node')}"
    if bad and nonfinite is not None:
        leaves = [shortened(node.variable, NAME) for node in bad if node.kind == "accumulate" and node.variable]
        hit = f", {listed(leaves, most=MOST_NAMES)} among them" if leaves else ""
        yield f"In this pass {held} hold NaN or Inf{hit}"
    elif bad:
        yield f"NaN or Inf in {held}: {listed((_called(report, node) for node in bad), most=MOST_NAMES)}"


def _gradients(report: TraceReport, graph: Graph, frame: Frame) -> Iterator[str]:
    """Yield the largest and the smallest finite gradient, where they are, and how much got none, or exactly zero."""
    norms = frame.norms[: len(graph.nodes)]
    pairs = zip(norms, graph.nodes, strict=False)
    finite = [(norm, node) for norm, node in pairs if measured(norm) and 0 < norm < math.inf]
    if len(finite) > 1:
        (most, largest), (least, smallest) = (pick(finite, key=lambda pair: pair[0]) for pick in (max, min))
        kind = "Largest finite" if len(finite) < len(graph.nodes) else "Largest"
        ends = f"{kind} gradient norm {norm_text(most)} in {_called(report, largest, text=False)}"
        yield f"{ends}, smallest {norm_text(least)} in {_called(report, smallest, text=False)}"
    none, zero = sum(not touched(norm) for norm in norms), sum(norm == 0 for norm in norms)
    parts = [f"no gradient in {plural(none, 'node')}"] if none else []
    parts += [f"exactly zero in {plural(zero, 'node')}"] if zero else []
    if described := ", ".join(parts):
        yield described[0].upper() + described[1:]


def _size(graph: Graph) -> str:
    leaves = [node for node in graph.nodes if node.kind == "accumulate"]
    names = listed((shortened(one.variable, NAME) or "a leaf" for one in leaves), most=MOST_NAMES)
    ops = plural(len(graph.nodes) - len(leaves), "operation")
    return f"{ops} back to {plural(len(leaves), 'leaf', 'leaves')}, {names}" if leaves else ops


def _called(report: TraceReport, node: Node, *, text: bool = True) -> str:
    """Return what a node is called and where it is: ``log, cell 5, line 6: logp = p.log()``."""
    name = shortened(node.variable if node.kind == "accumulate" and node.variable else node.op, NAME)
    module = f" of {shortened(node.module, NAME)}" if node.module and node.kind != "accumulate" else ""
    if node.location is None or node.location >= len(report.locations):
        return f"{name}{module}"
    where = report.locations[node.location]
    return f"{name}{module} ({where.label}{f': {shortened(where.text, NAME)}' if where.text and text else ''})"
