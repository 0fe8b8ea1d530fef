"""The drawing of an autograd graph in one pass, as SVG: boxes, wires along the gradient's way, marks, legend."""

from __future__ import annotations

from typing import NamedTuple

from tensormagic.renderers.graph_drawing import (
    BADGE_HEIGHT,
    BADGE_SIZE,
    DETAIL_SIZE,
    HEAD_HEIGHT,
    LABEL_SIZE,
    Badge,
    Box,
    Drawing,
    Wire,
    badge_rows,
)
from tensormagic.renderers.markup import escape
from tensormagic.renderers.phrases import plural
from tensormagic.renderers.svg_paths import arrowhead, foot, hatching, line, number
from tensormagic.renderers.text_metrics import fitted, text_width
from tensormagic.renderers.theme import NORM_EXPONENTS, NORM_SCALE_LIGHT
from tensormagic.renderers.trace_phrases import log_text
from tensormagic.renderers.trace_values import Value, births_by_box, value_of
from tensormagic.reports.trace import Birth, Frame, Graph

_FOOT = 7.0
_CROWDED = 60  # from this many boxes on, wires carry no numbers
_TITLES = 220  # from this many boxes on, boxes carry no tooltip
_THICKNESS = (1.4, 1.9, 2.4, 3.0, 3.7, 4.5)

_LEVELS = "".join(
    f".tms .s{level}{{stroke:{colour}}}.tms .f{level}{{fill:{colour}}}"
    f".tms .w{level}{{stroke:{colour};stroke-width:{wide}}}"
    for level, (colour, wide) in enumerate(zip(NORM_SCALE_LIGHT, _THICKNESS, strict=True))
)
STYLE = (
    ".tms text{font-family:system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;fill:#1b1f24;font-size:10.5px}"
    ".tms .l{font-weight:600;font-size:12px}.tms .q{fill:#545d68}.tms .c{text-anchor:middle}.tms .e{text-anchor:end}"
    ".tms .b{fill:#fff;stroke-width:1.5}.tms .w{fill:none}.tms .k{font-size:10px}"
    ".tms .sbad{stroke:#b3261e}.tms .fbad{fill:#b3261e}.tms .wbad{stroke:#b3261e;stroke-width:4}"
    ".tms .wbad+.i{stroke:#fff;stroke-width:2.2;stroke-dasharray:3 3;fill:none}"
    ".tms .snone{stroke:#868f99;stroke-dasharray:4 3}.tms .fnone{fill:#868f99}"
    ".tms .wnone{stroke:#868f99;stroke-width:1.2;stroke-dasharray:4 3}"
    ".tms .h{stroke:#b3261e;stroke-width:1.8;fill:none}.tms .r{fill:#b3261e}.tms .m{font-weight:600;fill:#b3261e}"
    ".tms .o{paint-order:stroke;stroke:#fff;stroke-width:3px;stroke-linejoin:round}" + _LEVELS
)


class Scene(NamedTuple):
    """What is drawn: a drawing, its graph, and the pass that colours it."""

    drawing: Drawing
    graph: Graph
    frame: Frame | None


def graph_svg(scene: Scene) -> str:
    """Return the drawing as SVG content, its top left corner at the origin."""
    drawing = scene.drawing
    values = {box.id: value_of(box.nodes, scene.frame) for box in drawing.boxes}
    births = births_by_box(drawing, scene.graph)
    wires = "".join(_wire(wire, values) for wire in drawing.wires)
    boxes = "".join(_box(box, scene, values[box.id]) for box in drawing.boxes)
    marks = "".join(_birth(drawing.boxes[number], birth, scene.frame) for number, birth in births.items())
    return wires + boxes + _numbers(scene, values) + marks


def _level(value: Value) -> str:
    return value.style.removeprefix("n") if value.style != "none" else "none"


def _wire(wire: Wire, values: dict[int, Value]) -> str:
    """Return a line from source to target, as thick as the gradient that the target received."""
    value = values[wire.target] if not values[wire.source].untouched else Value()
    level = _level(value)
    thick = _THICKNESS[int(level)] if level.isdigit() else 4.0 if value.bad else 1.2
    tip, length = wire.points[-1], 5.0 + thick
    path = line([*wire.points[:-1], (tip[0] + min(length, wire.points[-2][0] - tip[0]), tip[1])])
    inner = f'<path class="i" d="{path}"/>' if value.bad else ""
    head = arrowhead(tip, length, 2.5 + thick)
    return f'<path class="w w{level}" d="{path}"/>{inner}<path class="f{level}" d="{head}"/>'


def _box(box: Box, scene: Scene, value: Value) -> str:
    level, middle = _level(value), number(box.x + box.width / 2)
    width = number(box.width)
    behind = "" if box.kind not in {"module", "repeat"} else _plate(box.x - 3, box.y - 3, width, level)
    plate = _plate(box.x, box.y, width, level)
    label = fitted(box.label, box.width - 8, LABEL_SIZE, bold=True)
    ink, height = "l c q" if value.untouched else "l c", number(box.y + (16 if box.detail else 21))
    texts = f'<text class="{ink}" x="{middle}" y="{height}">{escape(label)}</text>'
    if box.detail:
        detail = escape(fitted(box.detail, box.width - 6, DETAIL_SIZE))
        texts += f'<text class="q c" x="{middle}" y="{number(box.y + 28.5)}">{detail}</text>'
    title = f"<title>{escape(_title(box, value))}</title>" if len(scene.drawing.boxes) < _TITLES else ""
    return f"<g>{title}{behind}{plate}{_foot(box, value)}{texts}{_badges(box, scene)}</g>"


def _plate(x: float, y: float, width: str, level: str) -> str:
    where = f'x="{number(x)}" y="{number(y)}" width="{width}" height="{number(HEAD_HEIGHT)}"'
    return f'<rect class="b s{level}" {where} rx="5"/>'


def _foot(box: Box, value: Value) -> str:
    bottom = box.y + HEAD_HEIGHT
    if value.untouched:
        return ""
    if value.bad:
        return f'<path class="h" d="{hatching(box.x + 2, bottom - _FOOT - 1, box.width - 4, _FOOT)}"/>'
    return f'<path class="f{_level(value)}" d="{foot(box.x, bottom, box.width, _FOOT)}"/>'


def _title(box: Box, value: Value) -> str:
    several = f" ({len(box.nodes)} nodes)" if len(box.nodes) > 1 else ""
    return f"{box.label} {box.detail}{several}: {value.text}"


def _badges(box: Box, scene: Scene) -> str:
    shown, more = badge_rows(box)
    parts = [_badge(box, badge, row, value_of((badge.node,), scene.frame)) for row, badge in enumerate(shown)]
    if more:
        y = box.y + HEAD_HEIGHT + 3 + len(shown) * BADGE_HEIGHT + BADGE_SIZE
        parts.append(_more(box, scene, number_of=more, y=y))
    return "".join(parts)


def _more(box: Box, scene: Scene, *, number_of: int, y: float) -> str:
    """Say how many leaves are not written out, and how many of these have a bad gradient."""
    hidden = [value_of((badge.node,), scene.frame) for badge in box.badges[len(box.badges) - number_of :]]
    bad = sum(value.bad for value in hidden)
    words = f"+ {number_of} more" if number_of < len(box.badges) else plural(number_of, "leaf", "leaves")
    words += f", {bad} not finite" if bad else ""
    return f'<text class="k {"r" if bad else "q"}" x="{number(box.x + 4)}" y="{number(y)}">{words}</text>'


def _badge(box: Box, badge: Badge, row: int, value: Value) -> str:
    y, level = box.y + HEAD_HEIGHT + 3 + row * BADGE_HEIGHT, _level(value)
    square = f'x="{number(box.x + 3)}" y="{number(y + 2.5)}" width="8" height="8"'
    mark = f'<rect class="f{level}" {square} rx="1"/>'
    if value.bad:
        mark = f'<rect class="b sbad" {square} rx="1"/><path class="h" d="{hatching(box.x + 4, y + 3.5, 6, 6)}"/>'
    elif value.untouched:
        mark = f'<rect class="b snone" {square} rx="1"/>'
    label = escape(fitted(badge.label, box.width - 16, BADGE_SIZE))
    return f'{mark}<text class="k" x="{number(box.x + 15)}" y="{number(y + 10)}">{label}</text>'


def _numbers(scene: Scene, values: dict[int, Value]) -> str:
    """Write the logarithm of the norm over every level wire, where there is room."""
    if len(scene.drawing.boxes) >= _CROWDED or scene.frame is None:
        return ""
    return "".join(_wire_number(wire, values) for wire in scene.drawing.wires)


def _wire_number(wire: Wire, values: dict[int, Value]) -> str:
    (x, y), (tip, height), value = wire.points[0], wire.points[-1], values[wire.target]
    text = f"{value.nan + value.inf}" if value.nan or value.inf else log_text(value.norm)
    room = x - tip - 4
    if y != height or len(wire.points) > 2 or value.untouched or text_width(text, BADGE_SIZE) > room:
        return ""
    ink = "k c o r" if value.bad else "k c o q"
    return f'<text class="{ink}" x="{number((x + tip) / 2)}" y="{number(y - 9)}">{text}</text>'


def _birth(box: Box, birth: Birth, frame: Frame | None) -> str:
    """Mark the box in which a NaN or Inf was born, and say in which pass if it is not the one shown."""
    what = "NaN" if birth.nan else "Inf"
    when = "" if frame is None or frame.pass_number == birth.pass_number else f", pass {birth.pass_number}"
    where = f'x="{number(box.x - 3.5)}" y="{number(box.y - 3.5)}" width="{number(box.width + 7)}"'
    ring = f'<rect class="w sbad" stroke-width="2" {where} height="{number(HEAD_HEIGHT + 7)}" rx="8"/>'
    x, y, words = box.x + box.width / 2, box.y - 8, f"{what} born {_where(birth, box)}{when}"
    left = x - text_width(words, DETAIL_SIZE, bold=True) / 2 - 9
    sign = f'<path class="fbad" d="M{number(left)},{number(y - 9.5)}l5.5,5.5l-5.5,5.5l-5.5,-5.5z"/>'
    return f'{ring}{sign}<text class="m c o" x="{number(x + 3)}" y="{number(y)}">{words}</text>'


def _where(birth: Birth, box: Box) -> str:
    place = "in here" if box.kind in {"module", "repeat"} else "here"
    return place if birth.certain else f"{place}, or beside it"


def legend_svg(scene: Scene) -> str:
    """Return the key to colours and marks, one line high, its baseline at 11 px."""
    low, high = NORM_EXPONENTS
    swatches = "".join(
        f'<rect class="f{level}" x="{number(148 + 20 * level)}" y="{number(9 - 1.1 * level)}" width="19"'
        f' height="{number(3 + 1.1 * level)}"/>'
        for level in range(6)
    )
    scale = (
        f'<text class="q" x="0" y="11">log₁₀ gradient norm</text>'
        f'<text class="q e" x="142" y="11">{log_label(low)}</text>'
        f'{swatches}<text class="q" x="273" y="11">{log_label(high)}</text>'
    )
    parts, x = [scale], 306.0
    for mark, words in _marks(scene):
        parts.append(f'<g transform="translate({number(x)})">{mark}<text class="q" x="27" y="11">{words}</text></g>')
        x += 27 + text_width(words, DETAIL_SIZE) + 16
    return "".join(parts)


def log_label(exponent: float) -> str:
    """Return an exponent for the legend: ``−5``."""
    return f"{exponent:.0f}".replace("-", "−")


def _marks(scene: Scene) -> list[tuple[str, str]]:
    folded = any(box.kind in {"module", "repeat"} for box in scene.drawing.boxes)
    stacked = f"{_small(3, 0, 's3')}{_small(0, 3, 's3')}"
    marks = [
        (f'{_small(0, 1, "sbad")}<path class="h" d="{hatching(1, 3, 20, 7, 5)}"/>', "NaN or Inf, count"),
        (_small(0, 1, "snone"), "no gradient"),
        (f'<path class="w w3" d="M8,6H22"/><path class="f3" d="{arrowhead((0, 6), 8, 5)}"/>', "gradient flow"),
    ]
    return [*marks, (stacked, "several steps in one box")] if folded else marks


def _small(x: float, y: float, style: str) -> str:
    return f'<rect class="b {style}" x="{number(x)}" y="{number(y)}" width="20" height="10" rx="2"/>'
