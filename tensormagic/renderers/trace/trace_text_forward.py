"""What the forward made, as a table of text: a line for each box of the longest way, its gradient beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensormagic.renderers.graph.drawing import draw
from tensormagic.renderers.trace.forward_words import COLUMNS, birth_text, forward_frame, forward_numbers
from tensormagic.renderers.trace.trace_text_flow import main_path
from tensormagic.renderers.trace.trace_text_lines import filled
from tensormagic.renderers.trace.trace_values import value_of
from tensormagic.words import plural, shortened

if TYPE_CHECKING:
    from tensormagic.renderers.graph.drawing import Box
    from tensormagic.reports import Frame, TraceReport

_MOST_BOXES = 40
_NAME = 16
_NUMBER = 11
_GRADIENT = 10


def forward_values(report: TraceReport, width: int) -> list[str]:
    """Return the lines of the section; none where forward values were not asked for."""
    graph = report.graphs[0] if report.graphs else None
    frame = forward_frame(graph) if graph is not None else None
    if graph is None or frame is None or frame.forward is None:
        return []
    shown = max(min((width - _NAME - _GRADIENT) // _NUMBER, len(COLUMNS)), 1)
    boxes = main_path(draw(graph, max_boxes=_MOST_BOXES))[::-1]
    head = "".join(name.rjust(_NUMBER) for name in COLUMNS[:shown])
    rows = [row for box in boxes if (row := _row(box, frame, shown)) is not None]
    unseen = len(boxes) - len(rows)
    missing = f"{plural(unseen, 'box', 'boxes')} of this path without a recorded value" if unseen else ""
    birth = birth_text(report, graph, graph.forward_birth) if graph.forward_birth is not None else ""
    return [
        *filled("", f"forward values of pass {frame.pass_number}, input to loss, and the gradient received", width),
        f"{'':{_NAME}}{head}{'gradient':>{_GRADIENT}}",
        *rows,
        *(line for words in (missing, birth) if words for line in filled("", words, width)),
    ]


def _row(box: Box, frame: Frame, shown: int) -> str | None:
    """Return the line of a box, which has the value that it hands on: that of the first of its nodes seen."""
    assert frame.forward is not None
    found = (forward_numbers(frame.forward, node) for node in box.nodes)
    numbers = next((each for each in found if each is not None), None)
    if numbers is None:
        return None
    value = value_of(box.nodes, frame)
    gradient = value.text.removeprefix("gradient norm ").removeprefix("gradient ")
    name = f"{shortened(box.label, _NAME - 1):{_NAME}}"
    return f"{name}{''.join(f' {text:>{_NUMBER - 1}}' for text in numbers[:shown])} {gradient:>{_GRADIENT - 1}}"
