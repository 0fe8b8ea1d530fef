"""A panel on paper: light whatever the screen is, everything open and unrolled, no controls, nothing cut.

The rules travel with each panel: a page that holds panels, a notebook above all, knows nothing of them.
"""

from __future__ import annotations

from tensormagic.renderers.assets import static
from tensormagic.renderers.basics.markup import tag

_END = "</section>"


def print_styles(html: str) -> str:
    """Return a panel that can be printed; unchanged where the fragment is no section."""
    if not html.endswith(_END):
        return html
    return f"{html.removesuffix(_END)}{tag('style', static('print.css'))}{_END}"
