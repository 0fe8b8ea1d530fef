"""From reports to output: one table says which function makes which form of which report.

Panels are written once, as a tree of nodes, and drawn in each form by `tensormagic.views`; the page of a traced run
with its viewer has a module with a ``render(report)`` and a line here. Modules are imported when first used.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from tensormagic import views
from tensormagic.errors import TensorMagicError
from tensormagic.gc_pause import gc_paused
from tensormagic.renderers.assets import once_each
from tensormagic.renderers.basics.markup import escape, made_once, plain, plain_report
from tensormagic.renderers.export import MOST_CARRIED, MOST_IN_FILE, print_styles, with_export, with_slides
from tensormagic.reports import Report, RunReport, TraceReport

RENDERERS: dict[tuple[str, str], str] = {
    # (report's kind_name, form) → module with a render(report) -> str
    ("trace", "html"): "tensormagic.renderers.document.page",
}


_SIZE = re.compile(
    r'<svg\b[^>]*?\swidth="([\d.]+)"[^>]*?\sheight="([\d.]+)"|<svg\b[^>]*?\sviewBox="0 0 ([\d.]+) ([\d.]+)"'
)
_GAP = 12.0


def render(report: Report, form: str, *, in_file: bool = False, slide: bool = False, **options: Any) -> str:
    """Return ``report`` in one form: ``"html"``, ``"svg"`` or ``"txt"``.

    Args:
        report: What is shown.
        form: How.
        in_file: Whether it becomes a file of its own, which may be larger than an output in a notebook.
        slide: Whether HTML is for a wall: large type, one part at a time.
        **options: What this kind of panel takes.

    Raises:
        TensorMagicError: where this kind of report has no such form; the message lists those there are.
    """
    if form not in forms_of(type(report)):
        forms = ", ".join([*forms_of(type(report)), "json"])
        raise TensorMagicError(f"a {report.kind_name} report has no form {form!r}; there are: {forms}")
    if isinstance(report, RunReport):
        with gc_paused(), made_once():
            return _render_parts(plain_report(report), form, in_file=in_file, slide=slide, **options)
    if slide and isinstance(report, TraceReport):
        options["wall"] = True
    with gc_paused(), made_once():
        text = _drawn(plain_report(report), form, **options)
        if form != "html":
            return text
        text = print_styles(text)
        if slide:
            return with_slides(text)
        return with_export(report, text, most=MOST_IN_FILE if in_file else MOST_CARRIED)


def _drawn(report: Report, form: str, **options: Any) -> str:
    module = RENDERERS.get((report.kind_name, form))
    if module is None:
        return views.draw(report, form, **options)
    text: str = import_module(module).render(report, **options)
    return text


def _render_parts(report: RunReport, form: str, *, in_file: bool = False, slide: bool = False, **options: Any) -> str:
    """Return all of it in one form: ``"html"``, ``"svg"`` or ``"txt"``; the options are those of every panel."""
    top = views.draw(report, form, **options)
    if form == "html":
        top = print_styles(top)
        most = MOST_IN_FILE if in_file else MOST_CARRIED
        top = with_slides(top) if slide else with_export(report, top, most=most)
        parts = [render(part, form, in_file=in_file, slide=slide) for part in report.parts]
        return once_each("".join([top, *parts]))
    parts = [render(part, form, **options) for part in report.parts]
    return _stacked([top, *parts]) if form == "svg" else "\n".join([top, *parts])


def _stacked(pictures: list[str]) -> str:
    """Return pictures below one another as one."""
    high, wide, placed = 0.0, 0.0, []
    for picture in pictures:
        width, height = _size(picture)
        placed.append(picture.replace("<svg ", f'<svg y="{high:.0f}" ', 1))
        wide, high = max(wide, width), high + height + _GAP
    size = f'width="{wide:.0f}" height="{high - _GAP:.0f}" viewBox="0 0 {wide:.0f} {high - _GAP:.0f}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">{"".join(placed)}</svg>'


def _size(picture: str) -> tuple[float, float]:
    found = _SIZE.search(picture)
    if found is None:
        return 0.0, 0.0
    width, height = (float(number) for number in found.groups() if number is not None)
    return width, height


def forms_of(report: type[Report]) -> list[str]:
    """Return the forms in which a kind of report can be drawn."""
    if report.kind_name in views.PANELS:
        return [*views.FORMS]
    return [form for kind, form in RENDERERS if kind == report.kind_name]


def folded(report: Report) -> str:
    """Return a tensor's panel as HTML that takes one line until it is opened: below a picture of several."""
    inside = import_module("tensormagic.views.panels.tensors").folded(plain_report(report))
    return f'<section class="tm tm-folded">{inside}</section>'


def sentence(text: str, form: str) -> str:
    """Return one sentence that stands in the place of a report, in the same form."""
    return escape(plain(text)) if form in {"html", "svg"} else plain(text)


def figure(report: Report, kind: str) -> Any:
    """Return a plotly figure of ``report``; see `tensormagic.renderers.figures`."""
    return import_module("tensormagic.renderers.figures").figure(plain_report(report), kind)
