"""What stands for a category of memory: its colour, the letter of its style class, its words.

The colours are Okabe and Ito's for the colour blind (see `basics.theme`), so that neighbours in a treemap or a stack
stay apart for everybody; vermilion is left out, because it would read as an error. Greys stand for what is no tensor of
a run: what was there before it, and small things put together.
"""

from __future__ import annotations

from typing import Final

from tensormagic.renderers.basics.theme import BEFORE_COLOUR, KIND_COLOURS, MIXED_COLOUR, OTHER_COLOUR, ink_on
from tensormagic.reports import CATEGORIES

BEFORE: Final = "before the run"
MIXED: Final = "of several kinds"

_SKY, _ORANGE, _GREEN, _PINK, _YELLOW, _BLUE, _VERMILION, _GREY = KIND_COLOURS

COLOURS: dict[str, str] = {
    "parameter": _BLUE, "gradient": _ORANGE, "optimizer state": _GREEN, "saved for backward": _SKY,
    "buffer": _YELLOW, "input": _PINK, "other": OTHER_COLOUR, BEFORE: BEFORE_COLOUR, MIXED: MIXED_COLOUR,
}  # fmt: skip
LETTERS: dict[str, str] = {
    "parameter": "p", "gradient": "g", "optimizer state": "o", "saved for backward": "s",
    "buffer": "b", "input": "i", "other": "x", BEFORE: "w", MIXED: "m",
}  # fmt: skip
PLURALS: dict[str, str] = {
    "parameter": "parameters", "gradient": "gradients", "optimizer state": "optimizer state",
    "saved for backward": "saved for backward", "buffer": "buffers", "input": "inputs", "other": "other",
    BEFORE: BEFORE, MIXED: MIXED,
}  # fmt: skip
# Lines of code have no colours of their own: the largest get these, in this order, all others the last.
LINE_COLOURS = (_BLUE, _ORANGE, _GREEN, _PINK, _SKY, _YELLOW)
OTHER_LINES = OTHER_COLOUR


def category_style() -> str:
    """Return the style rules of all categories and lines: ground and ink of each, as classes ``tm-cp``, ``tm-l0``."""
    named = [(f"tm-c{LETTERS[category]}", COLOURS[category]) for category in (*CATEGORIES, BEFORE, MIXED)]
    named += [(f"tm-l{at}", colour) for at, colour in enumerate((*LINE_COLOURS, OTHER_LINES))]
    return "".join(f".tm .{name}{{background:{colour};color:{ink_on(colour)}}}" for name, colour in named)


def line_colour(rank: int) -> str:
    """Return the colour of the line that has the ``rank``-th most bytes."""
    return LINE_COLOURS[rank] if rank < len(LINE_COLOURS) else OTHER_LINES
