"""What stands around a panel: its export, its slides, and its style on paper."""

from __future__ import annotations

import json
import re
from functools import cache

from tensormagic.renderers.assets import code, module, static, with_loader
from tensormagic.renderers.basics.markup import in_address, packed, tag
from tensormagic.reports import Report, TraceReport
from tensormagic.views.pictures.graph_svg import EITHER_SIDE

# The line "Export" below a panel: its picture, its page and its report, taken from the output itself.
#
# Everything is done in the page, by code that all outputs share; where scripts do not run there is no such line. The
# report travels packed in its output as long as it is small: an output stays small before it can do everything.

MOST_CARRIED = 10_000  # characters of a packed report that an output in a notebook carries
# Bytes of an output in a notebook, by kind, without its plain text (some 4,000 more): where more is taken, the report
# stays out.
ROOM = {"tensor": 76_000}
MOST_IN_FILE = 2_000_000  # and that a page of its own does
_TIMES_SMALLER = 30  # at best, packed
_LEAST_NODE = 60  # characters of a packed report for a node of a graph, at least
_END = "</section>"
_MAGICS = {
    "trace": "tracegrad", "comparison": "compare", "failure": "explain", "memory": "gpumem", "memory run": "gpumem-run",
    "memory snapshot": "gpumem-snapshot", "freeing": "gpumem-free", "writes": "aliases-cell", "watch": "watch",
    "rng run": "rng-run", "run": "tracegrad-run", "rng comparison": "rng-compare",
}  # fmt: skip


def with_export(report: Report, html: str, *, most: int = MOST_CARRIED) -> str:
    """Return a panel with what offers to export it; unchanged where the fragment is no section.

    Args:
        report: What the panel shows.
        html: The panel.
        most: Characters of packed report that it may carry.
    """
    if not html.endswith(_END):
        return html
    whole = with_loader(html.removesuffix(_END) + _code() + _held(report, "") + _END)
    if most <= MOST_CARRIED and report.kind_name in ROOM:
        most = min(most, ROOM[report.kind_name] - len(whole.encode()))
    return whole.replace(_held(report, ""), _held(report, carried(report, most)))


def _held(report: Report, text: str) -> str:
    return tag("script", text, type="text/plain", class_="tm-report", data_name=stem(report))


def stem(report: Report) -> str:
    """Return what the files of a report are called, without their ending: ``tracegrad-net-loss``."""
    magic = _MAGICS.get(report.kind_name, report.kind_name)
    name = getattr(report, "name", "") or getattr(report, "title", "") or getattr(report, "expression", "")
    words = re.sub(r"[\W_]+", "-", f"{magic} {name}".lower())
    return words[:60].strip("-")


def carried(report: Report, most: int) -> str:
    """Return the report as packed JSON that `tensormagic.load` reads; nothing where that is longer than ``most``."""
    nodes = sum(len(graph.nodes) for graph in report.graphs) if isinstance(report, TraceReport) else 0
    if _LEAST_NODE * nodes > most:
        return ""  # writing it down to learn that would take longer than drawing the panel
    text = json.dumps(report.to_dict(), allow_nan=False, separators=(",", ":"))
    if len(text) > most * _TIMES_SMALLER:
        return ""
    small = packed(text)
    return small if len(small) <= most else ""


@cache
def _code() -> str:
    return code("export", module("export", "menu.js").replace("export function", "function"), "offerExport")


# A panel for a lecture: large type, everything open, one part at a time where scripts run, one long page where not.
#
# The slides are the panel's own parts, in their order: findings first, then the picture, then each table. So a panel
# needs nothing of its own to be shown on a wall.

_STYLE_END = in_address("</style>")  # as it stands in the address of a picture
_CLOSED = re.compile(r"<details(?![^>]*\sopen[\s=>])")


def with_slides(html: str) -> str:
    """Return a panel as slides; unchanged where the fragment is no section."""
    if not html.endswith(_END):
        return html
    opened = _CLOSED.sub('<details open=""', html).replace('class="tm ', 'class="tm tm-slides ', 1)
    opened = opened.replace(_STYLE_END, EITHER_SIDE + _STYLE_END)  # a run's picture is dark in the dark
    more = tag("style", static("slide.css")) + tag("script", static("slide.js"))
    return f"{opened.removesuffix(_END)}{more}{_END}"


# A panel on paper: light whatever the screen is, everything open and unrolled, no controls, nothing cut.
#
# The rules travel with each panel: a page that holds panels, a notebook above all, knows nothing of them.


def print_styles(html: str) -> str:
    """Return a panel that can be printed; unchanged where the fragment is no section."""
    if not html.endswith(_END):
        return html
    return f"{html.removesuffix(_END)}{tag('style', static('print.css'))}{_END}"
