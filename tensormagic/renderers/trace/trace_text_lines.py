"""Lines of text for a terminal: broken at a width, and without anything that could move the cursor."""

from __future__ import annotations

import textwrap

_NO_BREAK = {ord("\u00a0"): " "}


def filled(lead: str, text: str, width: int) -> list[str]:
    """Return ``text`` broken into lines of at most ``width``, the first behind ``lead``, the others as far in."""
    indent = " " * len(lead)
    lines = textwrap.wrap(text, width, initial_indent=lead, subsequent_indent=indent, break_on_hyphens=False)
    return lines or [lead.rstrip()]


def printable(text: str) -> str:
    """Return ``text`` with control and direction marks, line ends apart, replaced by the replacement character."""
    spaced = text.translate(_NO_BREAK)
    return "".join(letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in spaced)
