"""The page that a panel is drawn on as SVG: a light card that grows downwards; its texts and legends."""

from __future__ import annotations

from collections.abc import Sequence

from tensormagic.renderers.basics.markup import escape, fitted, tag, text_width
from tensormagic.renderers.basics.svg_paths import number
from tensormagic.renderers.basics.theme import role
from tensormagic.renderers.terminal.text_canvas import printable
from tensormagic.views.pictures.timeline_stack import COLOURS, LETTERS, LINE_COLOURS
from tensormagic.views.pictures.timeline_stack import OTHER as OTHER_LINES

_MARGIN, _KEY_HEIGHT = 16.0, 22.0
_FONT = "system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif"
_INK, _QUIET, _PAPER, _CAP, _ON_CAP = map(role, ("ink", "ink-2", "bg", "cap", "on-cap"))


_GROUNDS = {f"tm-c{letter}": COLOURS[category] for category, letter in LETTERS.items()}
_GROUNDS |= {f"tm-l{at}": colour for at, colour in enumerate((*LINE_COLOURS, OTHER_LINES))}
_GROUNDS |= {"tm-df": _PAPER, "tm-dr": role("skip"), "tm-du": role("hatch"), "tm-sf": _PAPER}


class Page:
    """A card of a fixed width: things are put below one another."""

    def __init__(self, width: float) -> None:
        """Start empty, ``width`` pixels wide inside of its margins."""
        self._width, self._height, self._parts = width, _MARGIN, list[str]()

    def put(self, content: str, height: float) -> None:
        """Add SVG content of that height."""
        self._parts.append(f'<g transform="translate({_MARGIN:.0f},{number(self._height)})">{content}</g>')
        self._height += height + 8

    def heading(self, words: str) -> None:
        """Add a heading."""
        self.put(text_svg(0, 15, fitted(" ".join(words.split()), self._width, 16, bold=True), bold=True, size=16), 18)

    def text(self, words: str) -> None:
        """Add a line of text."""
        self.put(text_svg(0, 12, fitted(words, self._width, 13), size=13), 14)

    def legend(self, entries: Sequence[tuple[str, str]]) -> None:
        """Add a legend: colour and words each; in as many lines as it needs."""
        self.put(*legend_svg(entries, self._width))

    def svg(self, alternative: str) -> str:
        """Return the whole picture; ``alternative`` says what it shows."""
        wide, high = self._width + 2 * _MARGIN, self._height + _MARGIN / 2
        size = f'width="{wide:.0f}" height="{high:.0f}" viewBox="0 0 {wide:.0f} {high:.0f}"'
        ground = f'<rect width="{wide:.0f}" height="{high:.0f}" fill="{_PAPER}"/>'
        sentence = tag("title", escape(one_line(alternative)))
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-family="{_FONT}">{sentence}{ground}'
            f"{''.join(self._parts)}</svg>"
        )


def legend_svg(entries: Sequence[tuple[str, str]], width: float) -> tuple[str, float]:
    """Return a legend, and how high it is: colour and words each."""
    x, y, parts = 0.0, 0.0, list[str]()
    for colour, words in entries:
        described = fitted(words, width - 36, 13)
        wide = text_width(described, 13) + 36
        if x and x + wide > width:
            x, y = 0.0, y + _KEY_HEIGHT
        swatch = f'<rect x="{number(x)}" y="{number(y)}" width="12" height="12" rx="2" fill="{colour}"/>'
        parts.append(swatch + text_svg(x + 18, y + 11, described, size=13))
        x += wide
    return "".join(parts), y + _KEY_HEIGHT if parts else 0.0


def text_svg(x: float, y: float, words: str, *, size: float = 12, anchor: str = "start", **look: object) -> str:
    """Return a text; ``bold``, ``quiet`` and ``ink`` say how it looks."""
    ink = look.get("ink") or (_QUIET if look.get("quiet") else _INK)
    weight = "600" if look.get("bold") else None
    place = {"x": number(x), "y": number(y), "font_size": number(size), "fill": ink, "font_weight": weight}
    return tag("text", escape(one_line(words)), **place, text_anchor=anchor if anchor != "start" else None)


def one_line(words: str) -> str:
    """Return words on one line, with nothing in them that XML cannot hold."""
    return printable(words.replace("\n", " ").replace("\u00a0", " "))


def ground_colour(ground: str) -> str:
    """Return the colour of a style class of a legend: ``tm-cp`` (a category), ``tm-l0`` (a line), ``tm-df``."""
    return _GROUNDS.get(ground.split(maxsplit=1)[0], role("line-2"))
