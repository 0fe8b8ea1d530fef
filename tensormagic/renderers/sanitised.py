"""An output for exports that let hardly a tag through and print the others: nbconvert with ``sanitize_html``.

Such an export reads on inside ``<style>`` and ``<script>``, where a browser reads no markup. The panel stands between
two marks that a browser takes for a style sheet and for a script of no known kind, both without effect; what the export
makes of the same marks is a comment around the panel, which it drops, and the text of the report after it. JupyterLab,
where a notebook is not trusted, and GitHub drop style and script with what they hold: they show the panel and no text.
"""

from __future__ import annotations

from tensormagic.renderers.basics.markup import escape, tag

MOST_TEXT = 2_400  # bytes, of which a drawn line takes three a character: what comes first is what matters
_BEFORE, _AFTER = "<style><!--</style>", '<script type="text/plain">-->{}</script>'
_ENDS = ("-->", "--!>")  # of a comment: with one of them in the panel, the rest of it would be printed
_ALL = (
    "This export removed the panel; to export the rest of its text:"
    " jupyter nbconvert --NbConvertBase.display_data_priority=\"['text/plain']\""
)


def with_text(html: str, text: str) -> str:
    """Return an output with the text that a sanitised export shows in its place.

    Args:
        html: The panel.
        text: The same report as text; of a long one the beginning is taken, and said how the rest is had.
    """
    if any(end in html for end in _ENDS):
        return html
    return tag("div", _BEFORE, html, _AFTER.format(tag("pre", tag("code", escape(_beginning(text))))))


def _beginning(text: str) -> str:
    written = text.encode()
    if len(written) <= MOST_TEXT:
        return text
    lines, _, cut = written[:MOST_TEXT].decode(errors="ignore").rpartition("\n")
    return f"{lines or cut}\n\n{_ALL}"
