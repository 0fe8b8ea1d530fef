"""Panels, written once: a panel is a tree of nodes, and HTML, text and SVG are drawn from it.

`nodes` holds what a panel can be made of, ``panels`` a file for each panel (its sentences, and one ``view(report)``),
and ``to_html``, ``to_text`` and ``to_svg`` each draw every node in one form. To add a panel, write a module with a
``view(report)`` and add a line here: it then has all three forms. Modules are imported when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tensormagic.reports import Report

PANELS: dict[str, str] = {
    # report's kind_name → module with a view(report) -> Panel
    "aliases": "tensormagic.views.panels.aliases",
    "comparison": "tensormagic.views.panels.comparison",
    "failure": "tensormagic.views.panels.refused_call",
    "freeing": "tensormagic.views.panels.freeing",
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


def draw(report: Report, form: str, **options: Any) -> str:
    """Return the panel of a report as ``"html"``, ``"svg"`` or ``"txt"``, which may be given its ``width``."""
    view = import_module(PANELS[report.kind_name]).view(report)
    drawn: str = import_module(FORMS[form]).render(view, **options)
    return drawn
