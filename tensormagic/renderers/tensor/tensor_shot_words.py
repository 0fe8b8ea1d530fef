"""What is said beside a tensor's picture: how its dimensions were read, what is shown of what, and the scale."""

from __future__ import annotations

from tensormagic.renderers.tensor.tensor_words import name
from tensormagic.reports import TensorPicture, TensorReport
from tensormagic.words import TIMES, count, ordinal, plural, short_number


def heading(report: TensorReport, picture: TensorPicture) -> str:
    """Return ``4 of 32 images 28 × 28, read as (N, C, H, W)``."""
    drawn = len(picture.images or picture.lines)
    what = "signal" if picture.lines else "image"
    number = f"{drawn} of {plural(picture.of, what)}" if drawn < picture.of else plural(drawn, what)
    size = f" {TIMES} ".join(map(count, picture.size))
    length = f" of {size} values" if picture.lines else f", {size} pixels"
    return f"{number}{length}; {name(report)} is read as {picture.reading}"


def notes(picture: TensorPicture) -> tuple[str, ...]:
    """Return how values became colours or heights, what was left out, and what could not be drawn."""
    bad = _bad_clause(picture)
    parts = [
        _scale(picture),
        _left_out(picture),
        f"{bad} {'marked red' if picture.lines else 'hatched'}" if bad else "",
    ]
    return tuple(part for part in parts if part)


def _scale(picture: TensorPicture) -> str:
    low, high = short_number(picture.low), short_number(picture.high)
    if picture.lines:
        return f"from {low} to {high}, the same for all" if len(picture.lines) > 1 else f"from {low} to {high}"
    ends = "darkest {low}, brightest {high}" if picture.channels == 3 else "black {low}, white {high}"
    why = {
        "bytes": "bytes as they are",
        "truth": "False and True",
        "unit": "values as they are",
        "shown": "the smallest and largest shown" + (", one scale for all" if len(picture.images) > 1 else ""),
    }
    return f"{ends.format(low=low, high=high)}: {why[picture.scale]}"


def _left_out(picture: TensorPicture) -> str:
    if picture.step == 1:
        return ""
    if picture.lines:
        return f"a column stands for {count(picture.step)} values: from their smallest to their largest"
    return f"every {ordinal(picture.step)} pixel across and down"


def _bad_clause(picture: TensorPicture) -> str:
    """Return ``3 pixels that are NaN or infinite are``, to go on with how they are drawn; nothing without any."""
    if not picture.bad:
        return ""
    verb = "is" if picture.bad == 1 else "are"
    return f"{plural(picture.bad, 'value' if picture.lines else 'pixel')} that {verb} NaN or infinite {verb}"
