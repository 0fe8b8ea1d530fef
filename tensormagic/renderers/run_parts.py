"""Several questions asked of one run: what all of them found, then the panel of each, as it stands alone."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from tensormagic import renderers
from tensormagic.renderers.assets import once_each
from tensormagic.renderers.export import MOST_CARRIED, MOST_IN_FILE, print_styles, with_export, with_slides
from tensormagic.reports import RunReport
from tensormagic.views import FORMS
from tensormagic.views.panels import run

_SIZE = re.compile(
    r'<svg\b[^>]*?\swidth="([\d.]+)"[^>]*?\sheight="([\d.]+)"|<svg\b[^>]*?\sviewBox="0 0 ([\d.]+) ([\d.]+)"'
)
_GAP = 12.0


def render(report: RunReport, form: str, *, in_file: bool = False, slide: bool = False, **options: Any) -> str:
    """Return all of it in one form: ``"html"``, ``"svg"`` or ``"txt"``; the options are those of every panel."""
    top: str = import_module(FORMS[form]).render(run.view(report), **options)
    if form == "html":
        top = print_styles(top)
        most = MOST_IN_FILE if in_file else MOST_CARRIED
        top = with_slides(top) if slide else with_export(report, top, most=most)
        parts = [renderers.render(part, form, in_file=in_file, slide=slide) for part in report.parts]
        return once_each("".join([top, *parts]))
    parts = [renderers.render(part, form, **options) for part in report.parts]
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
