"""The autograd disclosure of the panel: sentences, the way to the leaves as a picture, what is sent and kept."""

from __future__ import annotations

from tensormagic.renderers.basics.finding_html import with_code
from tensormagic.renderers.basics.markup import corner, escape, svg_image, tag
from tensormagic.renderers.basics.panel import fold
from tensormagic.renderers.tensor.tensor_autograd_svg import path_svg
from tensormagic.renderers.tensor.tensor_autograd_text import tree
from tensormagic.renderers.tensor.tensor_autograd_words import (
    broken,
    details_of,
    lines,
    path_note,
    saved_rows,
    sent_heads,
    sent_rows,
    summary,
)
from tensormagic.renderers.tensor.tensor_words import name
from tensormagic.reports import AutogradDetails, Path, TensorReport


def autograd_html(report: TensorReport) -> str:
    """Return the disclosure, open where a backward can only fail; nothing where autograd could not be read."""
    if report.autograd is None:
        return ""
    sentences = "".join(tag("p", with_code(line)) for line in lines(report))
    details = details_of(report)
    more = _details(details, name(report), folded=broken(report)) if details is not None else ""
    return fold("Autograd", sentences, more, state=summary(report), is_open=broken(report))


def _details(details: AutogradDetails, title: str, *, folded: bool) -> str:
    """Return the way to the leaves, and what the node sends and keeps; ``folded`` leaves the latter for a click."""
    way, sent = "", ""
    if details.path is not None:
        way, sent = _picture(details.path, title), _table(sent_heads(details.path), sent_rows(details.path))
    kept = _table(("saved tensors", "what", "state", "version counter"), saved_rows(details)) if details.saved else ""
    return way + (fold("Next functions and saved tensors of its node", sent, kept) if folded else sent + kept)


def _picture(path: Path, title: str) -> str:
    image = svg_image(path_svg(path, title), "\n".join(tree(path, title)))
    note = path_note(path)
    words = "arrows: direction of the gradient; blue: leaves" + (f"; {note}" if note else "")
    return tag("div", image, tag("p", escape(words), class_="quiet"), class_="tm-path")


def _table(heads: tuple[str, ...], rows: tuple[tuple[str, ...], ...]) -> str:
    if not rows:
        return ""
    head = tag("tr", *(tag("th", escape(title)) if title else corner("formula") for title in heads))
    body = (
        tag("tr", tag("th", tag("code", escape(row[0]))), *(tag("td", _cell(cell)) for cell in row[1:])) for row in rows
    )
    return tag("table", tag("thead", head), tag("tbody", *body), class_="tm-list")


def _cell(text: str) -> str:
    return tag("b", escape(text)) if text.startswith("changed in place") else escape(text)
