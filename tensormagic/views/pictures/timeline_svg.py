"""The stacked areas of a timeline as a small picture without letters: what they mean stands beside it as text.

It is an image, so that hosts without scripts show it too; an image cannot see the theme of its page, so its colours
read on white and on near-black. It is stretched to the width of the panel.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from itertools import groupby

from tensormagic.renderers.basics import theme
from tensormagic.reports import Timeline
from tensormagic.views.pictures.categories import COLOURS, line_colour
from tensormagic.views.pictures.timeline_stack import Layer, columns, tops

COLUMNS, ROWS = 460, 400  # units of the picture: some two pixels across, half a pixel down
HEADROOM = 1.12
EDGE = 4  # units that the line along the top of an area is high: one and a half pixels in a panel


def layer_colour(layer: Layer) -> str:
    """Return the colour of a layer."""
    return COLOURS[layer.key] if layer.key in COLOURS else line_colour(layer.rank)


def scale_top(timeline: Timeline) -> int:
    """Return how many bytes the height of the picture is: the peak, and some air above it."""
    return max(int(timeline.live[timeline.peak] * HEADROOM), 1)


def areas_svg(timeline: Timeline, layers: Sequence[Layer]) -> str:
    """Return the picture of all layers, from nothing at the bottom to `scale_top` at the top."""
    wide, inner = areas(timeline, layers)
    size = f'viewBox="0 0 {wide} {ROWS}" width="{wide}" height="{ROWS}" preserveAspectRatio="none"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{inner}</svg>'


def areas(timeline: Timeline, layers: Sequence[Layer]) -> tuple[int, str]:
    """Return how many units wide the areas are, and the areas, `ROWS` units high, the highest first."""
    moments = columns(timeline, COLUMNS)
    top = scale_top(timeline)
    drawn = [
        _area(layer_colour(layer), _steps(edge, top)) for layer, edge in zip(layers, tops(layers, moments), strict=True)
    ]
    each_over_the_next = "".join(reversed(drawn))  # each lies on what is above it, down to the bottom
    return len(moments), f'<g xmlns:xlink="http://www.w3.org/1999/xlink">{each_over_the_next}</g>'


def _area(colour: str, steps: str) -> str:
    """Return an area whose top is a line that is seen on either side: the area, dark, and again, a little lower."""
    key = f"a{zlib.crc32(steps.encode()):x}"  # the same name is the same shape, wherever the picture is put
    dark = f'<g fill="{theme.edge_of(colour)}"><path id="{key}" d="{steps}"/></g>'
    return f'{dark}<use xlink:href="#{key}" y="{EDGE}" fill="{colour}"/>'


def _steps(edge: Sequence[int], top: int) -> str:
    """Return an area from the bottom up to ``edge``, a step a column; equal neighbours are one step."""
    heights = [round(nbytes / top * ROWS) for nbytes in edge]
    parts, at = [f"M0,{ROWS}"], 0
    for height, same in groupby(heights):
        number = len(list(same))
        parts.append(f"v{at - height}h{number}" if height != at else f"h{number}")
        at = height
    return "".join([*parts, f"V{ROWS}z"])
