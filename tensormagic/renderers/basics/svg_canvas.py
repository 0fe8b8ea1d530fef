"""Collects shapes and texts by their style, so that a picture of hundreds of boxes stays a small file.

Shapes of one style become one path, texts of one style one group. Within a canvas nothing may lie on anything of
another style that is not its own ground; what must lie above goes onto a canvas of its own.
"""

from __future__ import annotations

from tensormagic.renderers.basics.markup import escape
from tensormagic.renderers.basics.svg_paths import number


class Canvas:
    """Paths and texts, each by style: a class of the picture's style sheet."""

    def __init__(self) -> None:
        """Start empty."""
        self._paths: dict[str, list[str]] = {}
        self._texts: dict[str, list[str]] = {}

    def path(self, style: str, data: str) -> None:
        """Add path data to the path of that style."""
        self._paths.setdefault(style, []).append(data)

    def text(self, style: str, x: float, y: float, words: str, *, title: str = "") -> None:
        """Add a text; ``title`` is its tooltip."""
        tip = f"<title>{escape(title)}</title>" if title else ""
        place = f'x="{round(x)}" y="{number(y)}"'
        self._texts.setdefault(style, []).append(f"<text {place}>{tip}{escape(words)}</text>")

    def svg(self) -> str:
        """Return everything: the paths in the order their styles first came, then the texts."""
        paths = (f'<path class="{style}" d="{"".join(data)}"/>' for style, data in self._paths.items())
        texts = (f'<g class="{style}">{"".join(items)}</g>' for style, items in self._texts.items())
        return "".join([*paths, *texts])
