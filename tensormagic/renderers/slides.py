"""A panel for a lecture: large type, everything open, one part at a time where scripts run, one long page where not.

The slides are the panel's own parts, in their order: findings first, then the picture, then each table. So a panel
needs nothing of its own to be shown on a wall.
"""

from __future__ import annotations

import re

from tensormagic.renderers.assets import static
from tensormagic.renderers.basics.markup import in_address, tag
from tensormagic.renderers.trace.trace_svg_graph import EITHER_SIDE

_END = "</section>"
_STYLE_END = in_address("</style>")  # as it stands in the address of a picture
_CLOSED = re.compile(r"<details(?![^>]*\sopen[\s=>])")


def with_slides(html: str) -> str:
    """Return a panel as slides; unchanged where the fragment is no section."""
    if not html.endswith(_END):
        return html
    opened = _CLOSED.sub('<details open=""', html).replace('class="tm ', 'class="tm tm-slides ', 1)
    opened = opened.replace(_STYLE_END, EITHER_SIDE + _STYLE_END)  # a run's picture is dark in the dark
    more = tag("style", static("slide.css")) + tag("script", static("slide.js"))
    return f"{opened.removesuffix(_END)}{more}{_END}"
