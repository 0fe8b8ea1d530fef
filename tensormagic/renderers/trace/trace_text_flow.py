"""The way of the gradient as text: the longest chain of boxes from the loss to an input, with a bar for every norm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tensormagic.renderers.graph.drawing import Box, Drawing, draw
from tensormagic.renderers.graph.words import gradient_text, value_text
from tensormagic.renderers.terminal.text_canvas import bar
from tensormagic.renderers.trace.trace_phrases import norm_text
from tensormagic.renderers.trace.trace_text_lines import filled
from tensormagic.renderers.trace.trace_values import Value, births_by_box, run_scale, shown_frame, value_of
from tensormagic.reports import FirstNonfinite, Frame, TraceReport
from tensormagic.words import plural, shortened

_MOST_BOXES = 24
_CELL = 24
_DRAWN = ("the gradient's path, loss to input, with the output shape of each op",)


def flow(report: TraceReport, width: int) -> list[str]:
    """Return the lines of the section; none where nothing was recorded."""
    if not report.graphs or not report.graphs[0].nodes:
        return []
    graph = report.graphs[0]
    frame, scale, drawing = shown_frame(graph), run_scale(report), draw(graph, max_boxes=_MOST_BOXES, inside=False)
    path = main_path(drawing)
    first_nonfinite = births_by_box(drawing, graph)
    drawn = report.state == "drawn"
    cells = [
        _step(box, number) if drawn else _cell(box, value_of(box.nodes, frame, scale), number, frame)
        for number, box in enumerate(path)
    ]
    return [
        *(line for words in (_DRAWN if drawn else _heading(frame, scale, width)) for line in filled("", words, width)),
        *_rows(cells, width),
        *(_birth(drawing.boxes[number], birth) for number, birth in first_nonfinite.items()),
        *(line for words in _left_out(drawing, path, frame) for line in filled("  ", words, width)),
    ]


def main_path(drawing: Drawing) -> list[Box]:
    """Return the longest chain of boxes, from where the gradient starts to where it ends."""
    targets: dict[int, list[int]] = {}
    for wire in drawing.wires:
        targets.setdefault(wire.source, []).append(wire.target)
    length: dict[int, int] = {}
    following: dict[int, int] = {}
    for box in drawing.boxes:  # forward order: what a box sends its gradient to was made before it
        reached = [target for target in targets.get(box.id, ()) if target in length]
        best = max(reached, key=length.__getitem__, default=-1)
        length[box.id], following[box.id] = length.get(best, 0) + 1, best
    at = max(length, key=lambda number: (length[number], number), default=-1)
    path = []
    while at >= 0:
        path.append(drawing.boxes[at])
        at = following[at]
    return path


def _heading(frame: Frame | None, scale: tuple[int, int], width: int) -> Iterator[str]:
    low, high = (norm_text(10.0**exponent) for exponent in scale)
    if frame is None:
        yield "gradient flow, loss to input (no pass was kept)"
        return
    words = f"gradient flow, loss to input, the norm in pass {frame.pass_number}"
    bars = f"bars from {low} to {high}"
    yield words if len(words) + len(bars) + 3 > width else f"{words}   {bars}"


def _step(box: Box, number: int) -> tuple[str, str]:
    """Return the two lines of a box that no gradient has come to: its name, and what it makes."""
    return ("→ " if number else "  ") + shortened(box.label, _CELL), f"  {shortened(box.detail, _CELL)}"


def _cell(box: Box, value: Value, number: int, frame: Frame | None) -> tuple[str, str]:
    """Return the two lines of one box: its name, and its bar with the number."""
    name = shortened(box.label, _CELL)
    lead = "  " if not number else "→ "
    small = frame.values if frame is not None else None
    if small is not None and (came := gradient_text(small.gradients[box.nodes[0]])):
        made = value_text(small.made[box.nodes[0]])
        return lead + (f"{name}: {made}" if made else name), f"  {bar(value.norm, value.scale)} {came}"
    if value.bad:
        return lead + name, f"  ! {value.text}"
    return lead + name, f"  {bar(value.norm, value.scale)} {norm_text(value.norm)}"


def _rows(cells: Sequence[tuple[str, str]], width: int) -> Iterator[str]:
    upper, lower = "", ""
    for name, number in cells:
        wide = max(len(name), len(number)) + 1
        if upper and len(upper) + wide > width:
            yield upper.rstrip()
            yield lower.rstrip()
            upper = lower = ""
        upper, lower = upper + name.ljust(wide), lower + number.ljust(wide)
    yield upper.rstrip()
    yield lower.rstrip()


def _birth(box: Box, birth: FirstNonfinite) -> str:
    sure = "" if birth.certain else " or beside it"
    return f"  {'NaN' if birth.nan else 'Inf'} born in {box.label}{sure}, pass {birth.pass_number}"


def _left_out(drawing: Drawing, path: Sequence[Box], frame: Frame | None) -> Iterator[str]:
    on_path = {box.id for box in path}
    others = [box for box in drawing.boxes if box.id not in on_path]
    bad = sum(value_of(box.nodes, frame).bad for box in others)
    if others:
        names = ", ".join(box.label for box in others[:3]) + (", …" if len(others) > 3 else "")
        marked = f", {bad} of them not finite" if bad else ""
        yield f"beside this path: {plural(len(others), 'box', 'boxes')} ({shortened(names, 40)}){marked}"
    if drawing.note:
        yield drawing.note
    elif drawing.folded:
        yield f"{plural(drawing.node_count, 'node')}; leaves and chains of views are drawn with the op beside them"
