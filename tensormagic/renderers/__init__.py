"""From reports to output: one table says which function makes which form of which report.

To add an output, write a module with a ``render(report)`` and add a line. Modules are imported when first used:
the tables themselves cost nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tensormagic.errors import TensorMagicError
from tensormagic.reports import Report

RENDERERS: dict[tuple[str, str], str] = {
    # (report's kind_name, form) → module with a render(report) -> str
    ("aliases", "html"): "tensormagic.renderers.aliases_html",
    ("aliases", "txt"): "tensormagic.renderers.aliases_text",
    ("comparison", "html"): "tensormagic.renderers.comparison_html",
    ("comparison", "txt"): "tensormagic.renderers.comparison_text",
    ("failure", "html"): "tensormagic.renderers.failure_html",
    ("failure", "txt"): "tensormagic.renderers.failure_text",
    ("overlay", "html"): "tensormagic.renderers.overlay_html",
    ("overlay", "txt"): "tensormagic.renderers.overlay_text",
    ("tensor", "html"): "tensormagic.renderers.tensor_html",
    ("tensor", "svg"): "tensormagic.renderers.tensor_svg",
    ("tensor", "txt"): "tensormagic.renderers.tensor_text",
    ("tensors", "html"): "tensormagic.renderers.tensors_html",
    ("tensors", "txt"): "tensormagic.renderers.tensors_text",
    ("trace", "html"): "tensormagic.renderers.trace_html",
    ("trace", "svg"): "tensormagic.renderers.trace_svg",
    ("trace", "txt"): "tensormagic.renderers.trace_text",
    ("watch", "html"): "tensormagic.renderers.watch_html",
    ("watch", "txt"): "tensormagic.renderers.watch_text",
    ("why", "html"): "tensormagic.renderers.why_html",
    ("why", "txt"): "tensormagic.renderers.why_text",
    ("writes", "html"): "tensormagic.renderers.writes_html",
    ("writes", "txt"): "tensormagic.renderers.writes_text",
}


def render(report: Report, form: str, **options: Any) -> str:
    """Return ``report`` in one form: ``"html"``, ``"svg"`` or ``"txt"``.

    Raises:
        TensorMagicError: where this kind of report has no such form; the message lists those there are.
    """
    module = RENDERERS.get((report.kind_name, form))
    if module is None:
        forms = ", ".join(known for kind, known in RENDERERS if kind == report.kind_name)
        raise TensorMagicError(f"a {report.kind_name} report has no form {form!r}; there are: {forms}, json")
    text: str = import_module(module).render(report, **options)
    return text


def figure(report: Report, kind: str) -> Any:
    """Return a plotly figure of ``report``; see `tensormagic.renderers.figures`."""
    return import_module("tensormagic.renderers.figures").figure(report, kind)
