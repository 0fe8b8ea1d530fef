"""How Sphinx builds the documentation: Markdown and executed notebooks, in one theme, with nothing from the network.

``tools/docs.py`` lays the sources out and starts Sphinx; ``TENSORMAGIC_DOCS_NOTEBOOKS=off`` in its environment leaves
the notebooks without outputs.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import toctree

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parents[1])]

project = "tensormagic"
author = "The tensormagic developers"
project_copyright = author
release = re.findall(r'^version = "(.*)"$', (_HERE.parents[1] / "pyproject.toml").read_text("utf-8"), re.MULTILINE)[0]

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "mathematics"]
html_theme = "furo"
html_title = "tensormagic"
html_static_path = [str(_HERE / "static")]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_show_sphinx = False
html_show_search_summary = False  # would be fetched, which a browser refuses for a site that is opened as files
html_copy_source = False
html_math_renderer = "mathml"
pygments_style = "friendly"
pygments_dark_style = "github-dark"
highlight_language = "none"  # usage lines, cells with magics, and what programs print

myst_enable_extensions = ["attrs_inline", "dollarmath"]
myst_heading_anchors = 4

nb_execution_mode = os.environ.get("TENSORMAGIC_DOCS_NOTEBOOKS", "force")
nb_execution_raise_on_error = True
nb_execution_timeout = 900
nb_merge_streams = True
nb_ipywidgets_js: dict[str, dict[str, str]] = {}  # would come from the network, and a live panel is static in the end

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
default_role = "py:obj"  # `name` in a docstring is code
napoleon_use_ivar = True
napoleon_use_rtype = False
toc_object_entries_show_parents = "hide"


def _without_signature(*given: Any) -> tuple[str, str] | None:
    """Leave out the signature of a report: its fields are listed below, each with what it means."""
    _, kind, name, *_ = given
    return ("", "") if kind == "class" and ".reports." in name else None


def _as_it_is(*given: Any) -> None:
    """Begin what a field means with an empty comment: napoleon would read what stands before a colon as its type."""
    _, kind, *_, lines = given
    if kind == "attribute":
        lines[:0] = ["..", ""]


def _shorten(app: Any, _page: str, _template: str, context: dict[str, Any], _doctree: Any) -> None:
    """Make the sidebar of titles alone: Sphinx copies every heading and field of every page for it, on every page."""
    whole: Callable[..., str] = context["toctree"]

    def titles(**options: Any) -> str:
        every, app.env.tocs = app.env.tocs, _titles(app.env.tocs)
        try:
            return whole(**options)
        finally:
            app.env.tocs = every

    context["toctree"] = titles


_KEPT: dict[str, Any] = {}  # by page: made once a process


def _titles(tocs: dict[str, Any]) -> dict[str, Any]:
    """Return what each page has in its table of contents without what leads to no other page."""
    for page in tocs.keys() - _KEPT.keys():
        _KEPT[page] = tocs[page].deepcopy()
        for entry in [each for top in _KEPT[page] for each in top.findall(nodes.list_item) if each is not top]:
            if entry.parent is not None and not any(entry.findall(toctree)):
                entry.parent.remove(entry)
    return _KEPT


def setup(app: Any) -> dict[str, bool]:
    """Connect what is ours, and say that pages can be read side by side."""
    app.connect("html-page-context", _shorten, priority=400)  # before furo, which asks for the sidebar
    app.connect("autodoc-process-signature", _without_signature)
    app.connect("autodoc-process-docstring", _as_it_is, priority=400)  # before napoleon
    return {"parallel_read_safe": True}
