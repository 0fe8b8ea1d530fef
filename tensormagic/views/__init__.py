"""Panels, written once: a panel is a tree of nodes, and HTML, text and SVG are drawn from it.

`nodes` holds what a panel can be made of, ``panels`` a file for each panel (its sentences, and one ``view(report)``),
and ``to_html``, ``to_text`` and ``to_svg`` each draw every node in one form. To add a panel, write a module with a
``view(report)`` and add a line here: it then has all three forms. ``page`` holds what is more than a panel: the viewer
of a traced run, live panels, files, figures. Modules are imported when first used.
"""

from __future__ import annotations

import json
import re
from importlib import import_module
from typing import Any

from tensormagic.errors import TensorMagicError
from tensormagic.reports import Report, RunReport, TensorReport, TraceReport
from tensormagic.reports.base import gc_paused
from tensormagic.views.markup import in_address, made_once, packed, plain_report, tag
from tensormagic.views.svg_paths import stacked
from tensormagic.views.theme import EITHER_SIDE, code_of, loader, once_each, script, static

PANELS: dict[str, str] = {
    # report's kind_name → module with a view(report) -> Panel
    "aliases": "tensormagic.views.panels.aliases",
    "comparison": "tensormagic.views.panels.comparison",
    "failure": "tensormagic.views.panels.refused_call",
    "freeing": "tensormagic.views.panels.memory",
    "memory": "tensormagic.views.panels.memory",
    "memory run": "tensormagic.views.panels.memory_run",
    "memory snapshot": "tensormagic.views.panels.snapshot",
    "model": "tensormagic.views.panels.model",
    "overlay": "tensormagic.views.panels.overlay",
    "ranks": "tensormagic.views.panels.ranks",
    "rng": "tensormagic.views.panels.rng",
    "rng comparison": "tensormagic.views.panels.rng",
    "rng run": "tensormagic.views.panels.rng",
    "run": "tensormagic.views.panels.run",
    "start": "tensormagic.views.panels.start",
    "tensor": "tensormagic.views.panels.tensor",
    "tensors": "tensormagic.views.panels.tensors",
    "trace": "tensormagic.views.panels.trace",
    "watch": "tensormagic.views.panels.watch",
    "why": "tensormagic.views.panels.why",
    "writes": "tensormagic.views.panels.writes",
}
FORMS = {
    # form → module with a render(panel) -> str
    "html": "tensormagic.views.to_html",
    "svg": "tensormagic.views.to_svg",
    "txt": "tensormagic.views.to_text",
}

# The line "Export" below a panel: its picture, its page and its report, taken from the output itself.
#
# Everything is done in the page, by code that all outputs share; where scripts do not run there is no such line. The
# report travels packed in its output as long as it is small: an output stays small before it can do everything.

MOST_CARRIED = 10_000  # characters of a packed report that an output in a notebook carries
# Bytes of an output in a notebook, by kind, without its plain text (some 4,000 more): where more is taken, the report
# stays out.
ROOM = {"tensor": 76_000}
MOST_IN_FILE = 2_000_000  # and that a page of its own does
_LEAST_NODE = 60  # characters of a packed report for a node of a graph, at least
_END = "</section>"
_MAGICS = {
    "trace": "tracegrad", "comparison": "compare", "failure": "explain", "memory": "gpumem", "memory run": "gpumem-run",
    "memory snapshot": "gpumem-snapshot", "freeing": "gpumem-free", "writes": "aliases-cell", "watch": "watch",
    "rng run": "rng-run", "run": "tracegrad-run", "rng comparison": "rng-compare",
}  # fmt: skip


def render(report: Report, form: str, *, in_file: bool = False, slide: bool = False, **options: Any) -> str:
    """Return ``report`` in one form: ``"html"``, ``"svg"`` or ``"txt"``.

    Args:
        report: What is shown.
        form: How.
        in_file: Whether it becomes a file of its own, which may be larger than an output in a notebook.
        slide: Whether HTML is for a wall: large type, one part at a time.
        **options: Of ``"txt"`` the ``width`` in columns, and whether it is ``brief``: what is folded is only named.

    Raises:
        TensorMagicError: where this kind of report has no such form; the message lists those there are.
    """
    if form not in forms_of(type(report)):
        forms = ", ".join([*forms_of(type(report)), "json"])
        raise TensorMagicError(f"a {report.kind_name} report has no form {form!r}; there are: {forms}")
    with gc_paused(), made_once():
        if form == "html" and isinstance(report, TraceReport):
            text: str = import_module(PANELS["trace"]).render(plain_report(report), wall=slide, **options)
        else:
            text = draw(plain_report(report), form, **options)
        if form == "html":
            # For paper: the rules travel with each panel, because a page that holds panels knows nothing of them.
            text = _with(text, tag("style", static("print.css")))
            most = MOST_IN_FILE if in_file else MOST_CARRIED
            text = with_slides(text) if slide else with_export(report, text, most=most)
        if not isinstance(report, RunReport):
            return text
        every = [text, *(render(part, form, in_file=in_file, slide=slide, **options) for part in report.parts)]
        if form == "html":
            return once_each("".join(every))
        return stacked(every) if form == "svg" else "\n".join(every)


def draw(report: Report, form: str, **options: Any) -> str:
    """Return the panel of a report as ``"html"``, ``"svg"``, or ``"txt"`` of some ``width``, which may be ``brief``."""
    given = {"brief": True} if options.get("brief") and isinstance(report, TensorReport) else {}
    panel = import_module(PANELS[report.kind_name]).view(report, **given)
    drawn: str = import_module(FORMS[form]).render(panel, **options)
    return drawn


def forms_of(report: type[Report]) -> list[str]:
    """Return the forms in which a kind of report can be drawn."""
    return [*FORMS] if report.kind_name in PANELS else []


def folded(report: Report) -> str:
    """Return a tensor's panel as HTML that takes one line until it is opened: below a picture of several."""
    inside = import_module("tensormagic.views.panels.tensors").folded(plain_report(report))
    return f'<section class="tm tm-folded">{inside}</section>'


def with_export(report: Report, html: str, *, most: int = MOST_CARRIED) -> str:
    """Return a panel with what offers to export it; it may carry ``most`` characters of packed report."""
    html = html.replace(loader(), "")  # one at the end is enough for all within it
    words = json.dumps(_EXPORT_WORDS | {"look": static("export.css")})

    def holding(text: str) -> str:
        carrier = tag("script", text, type="text/plain", class_="tm-report", data_name=stem(report))
        return _with(html, code_of("export", "export/menu.js", mount="offerExport", words=words), carrier, loader())

    if most <= MOST_CARRIED and report.kind_name in ROOM:
        most = min(most, ROOM[report.kind_name] - len(holding("").encode()))
    return holding(carried(report, most))


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
    small = packed(json.dumps(report.to_dict(), allow_nan=False, separators=(",", ":")))
    return small if len(small) <= most else ""


# What the line below a panel says.
_EXPORT_WORDS = {
    "title": "Export",
    "all": "all of it",
    "all_tip": "SVG and PNG: include what is folded or scrolled out of view",
    "copy_svg": "Copy SVG",
    "film": "Moving PNG",
    "copy_json": "Copy JSON",
    "no_json": "JSON: --save FILE.json",
    "of": "of",
    "saved": "saved ",
    "copied": "copied",
    "failed": "not done: ",
    "cannot_copy": "this page cannot copy",
    "no_graph": "open the graph of a run first",
}


# A panel for a lecture: large type, everything open, one part at a time where scripts run, one long page where not.
#
# The slides are the panel's own parts, in their order: findings first, then the picture, then each table. So a panel
# needs nothing of its own to be shown on a wall.

_STYLE_END = in_address("</style>")  # as it is in the address of a picture
_PICTURE = re.compile(r'src="data:image/svg\+xml,(?![^"]*prefers-color-scheme)[^"]*"')  # that is light on either side
_CLOSED = re.compile(r"<details(?![^>]*\sopen[\s=>])")
_SLIDE_WORDS = {
    "slides": "slides",
    "goes": "continues below \u2193",
    # what a button says, and what it does
    "back": ["\u2039", "back (arrow left, Page Up)"],
    "next": ["\u203a", "on (arrow right, Page Down)"],
    "full": ["full screen", "full screen (F)"],
}


def with_slides(html: str) -> str:
    """Return a panel as slides."""
    opened = _CLOSED.sub('<details open=""', html).replace('class="tm ', 'class="tm tm-slides ', 1)
    # A run's picture is dark in the dark.
    opened = _PICTURE.sub(lambda picture: picture[0].replace(_STYLE_END, EITHER_SIDE + _STYLE_END), opened)
    mount = f"mountSlides(document.currentScript?.parentElement, {json.dumps(_SLIDE_WORDS)})"
    code = tag("script", f"(() => {{{script('slide.js')}\n{mount}}})()")
    return _with(opened, tag("style", static("slide.css")), code)


def _with(html: str, *more: str) -> str:
    """Return a panel with more at its end."""
    return "".join([html.removesuffix(_END), *more, _END])
