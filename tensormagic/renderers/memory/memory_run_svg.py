"""The timeline and what was alive at the peak as one SVG file, on a light card: for papers and slides."""

from __future__ import annotations

from functools import partial

from tensormagic.renderers.alternatives.memory_alternative import timeline_alternative, treemap_alternative
from tensormagic.renderers.basics.svg_paths import number
from tensormagic.renderers.basics.theme import role
from tensormagic.renderers.memory.categories import PLURALS
from tensormagic.renderers.memory.memory_run_words import layer_words, peak, peak_tiles, summary, title
from tensormagic.renderers.memory.picture_svg import Page, map_svg, text_svg
from tensormagic.renderers.memory.timeline_stack import by_category, column_of, main_timeline, ticks
from tensormagic.renderers.memory.timeline_svg import COLUMNS, ROWS, areas, layer_colour, scale_top
from tensormagic.renderers.memory.treemap import treemap
from tensormagic.reports import MemoryRunReport, Timeline
from tensormagic.words import number_of_bytes

WIDTH, CHART_HEIGHT, MAP_HEIGHT, LEFT = 1000.0, 260.0, 280.0, 76.0


def render(report: MemoryRunReport) -> str:
    """Return the picture: the timeline by category with its peak, then the treemap of the peak by line."""
    page = Page(WIDTH)
    drawn = main_timeline(report)
    page.heading(f"{title(report)} {peak(report)}")
    page.text(summary(report))
    if drawn is None:
        page.text("no operation allocated anything")
        return page.svg(summary(report))
    page.put(_chart(drawn), CHART_HEIGHT)
    layers = by_category(drawn)
    said = timeline_alternative(drawn, layers, partial(layer_words, report))
    page.keys([(layer_colour(layer), PLURALS[layer.key], layer.values[drawn.peak]) for layer in reversed(layers)])
    tiles = peak_tiles(report)
    if tiles:
        page.text("Alive at the peak, by the line that allocated it")
        said += " " + treemap_alternative(tiles, "what was alive at the peak")
        page.put(map_svg(treemap(tiles, WIDTH, MAP_HEIGHT)), MAP_HEIGHT)
    return page.svg(said)


def _chart(drawn: Timeline) -> str:
    top, inner = scale_top(drawn), WIDTH - LEFT
    wide, paths = areas(drawn, by_category(drawn))
    place = f'x="{LEFT:.0f}" width="{number(inner)}" height="{CHART_HEIGHT:.0f}" viewBox="0 0 {wide} {ROWS}"'
    scaled = f'<svg {place} preserveAspectRatio="none">{paths}</svg>'
    marks = "".join(_tick(nbytes, top) for nbytes in ticks(top))
    nbytes, across = drawn.live[drawn.peak], LEFT + inner * column_of(drawn, drawn.peak, COLUMNS)
    high = CHART_HEIGHT * (1 - nbytes / top)
    line = (
        f'<path d="M{number(across)},{number(high)}V{CHART_HEIGHT:.0f}" stroke="{role("ink")}" stroke-dasharray="2 3"/>'
    )
    end = "end" if across > WIDTH * 0.6 else "start"
    label = text_svg(across + (-6 if end == "end" else 6), 13, f"peak {number_of_bytes(nbytes)}", bold=True, anchor=end)
    return f"{marks}{scaled}{line}{label}"


def _tick(nbytes: int, top: int) -> str:
    y = CHART_HEIGHT * (1 - nbytes / top)
    words = text_svg(LEFT - 8, y + 4, number_of_bytes(nbytes) if nbytes else "0", anchor="end", quiet=True)
    return f'<path d="M{LEFT:.0f},{number(y)}H{WIDTH:.0f}" stroke="{role("line")}"/>{words}'
