"""The treemap as one SVG file, on a light card: for papers and slides. Names are in it as text."""

from __future__ import annotations

from tensormagic.renderers.alternatives.memory_alternative import treemap_alternative
from tensormagic.renderers.memory.memory_words import device_summary, summary, tiles, title
from tensormagic.renderers.memory.picture_svg import Page, keys, map_svg
from tensormagic.renderers.memory.treemap import treemap
from tensormagic.reports import MemoryReport

MAP_WIDTH, MAP_HEIGHT = 1000.0, 420.0


def render(report: MemoryReport) -> str:
    """Return the picture: a treemap a device, its categories below it."""
    page, said = Page(MAP_WIDTH), [summary(report)]
    page.heading(title(report))
    for device in report.devices:
        if device.live:
            found = tiles(report, device.device)
            said.append(treemap_alternative(found, f"what is alive on {device.device}"))
            page.text(device_summary(device))
            page.put(map_svg(treemap(found, MAP_WIDTH, MAP_HEIGHT)), MAP_HEIGHT)
            page.keys(keys((tile.category, tile.nbytes) for tile in found))
    if not any(device.live for device in report.devices):
        page.text("no tensor is alive")
    return page.svg(" ".join(said))
