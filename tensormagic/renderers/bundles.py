"""A report for hosts that choose for themselves: one mimebundle, from which each front end takes the best it can show.

HTML is what notebooks show; the text is for terminals and for hosts that trust no HTML; as LaTeX it is for PDF.
There is no widget in it and no ``image/svg+xml``: a widget would be dead in a saved notebook, and an SVG beside it
makes an export to LaTeX fail where Inkscape is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tensormagic import renderers
from tensormagic.gc_pause import gc_paused
from tensormagic.renderers.basics.once import made_once
from tensormagic.renderers.latex import listing
from tensormagic.renderers.sanitised import with_text
from tensormagic.reports import Report


def bundle(report: Report, *, folded: bool = False, slide: bool = False) -> dict[str, str]:
    """Return a report as static HTML, as text, and as this text for LaTeX; what cannot be drawn becomes a line."""
    slides = partial(renderers.render, form="html", slide=True)
    with gc_paused(), made_once():
        html = _or_reason(report, "html", slides if slide else renderers.folded if folded else None)
        text = _or_reason(report, "txt")
    return {"text/html": with_text(html, text), "text/latex": listing(text), "text/plain": text}


def _or_reason(report: Report, form: str, render: Callable[[Report], str] | None = None) -> str:
    try:
        return render(report) if render else renderers.render(report, form)
    except Exception as error:  # noqa: BLE001  (showing never raises)
        reason = f"tensormagic could not draw this report as {form}: {type(error).__name__}: {error}"
        return renderers.sentence(reason, form)
