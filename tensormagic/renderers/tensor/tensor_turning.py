"""What the viewer needs to turn a tensor of three dimensions or more: the colours, and the values that are at hand.

The static page shows one slice. Offsets of the others follow from the stride; their values are carried only where that
is little: the viewer says of all others that they are not in this output.
"""

from __future__ import annotations

from typing import Any

from tensormagic.renderers.basics import theme
from tensormagic.renderers.tensor.tensor_picture import Picture, is_slice
from tensormagic.reports import Statistics
from tensormagic.words import short_number, shortened

MOST_CHARACTERS = 30_000  # of values of other slices; a panel stays under 100 KB
STOPS = 10  # colours between which the viewer draws the scale
VALUE_WIDTH = 24


def turns(picture: Picture) -> bool:
    """Return whether there are other slices to turn to: a third dimension of more than one index."""
    grid = picture.grid
    return grid.row_dim is not None and grid.column_dim is not None and is_slice(picture.layout)


def turning(picture: Picture, statistics: Statistics | None) -> dict[str, Any]:
    """Return what the viewer adds to its data: letters, colours, and every element where these are few.

    The values of every slice are drawn on one scale, that of the whole tensor, so that slices can be compared.
    """
    elements = [shortened(text, VALUE_WIDTH) for text in picture.layout.elements]
    return {
        "scale": [theme.offset_colour(at / (STOPS - 1)) for at in range(STOPS)],
        "range": _range(statistics),
        "elements": elements if elements and sum(map(len, elements)) <= MOST_CHARACTERS else None,
    }


def _range(statistics: Statistics | None) -> tuple[float, float, str, str] | None:
    """Return the values with the darkest and the lightest colour, outliers cut at 3 std, and how they are written."""
    if statistics is None or statistics.minimum is None or statistics.maximum is None:
        return None
    low, high = float(statistics.minimum), float(statistics.maximum)
    cut_low, cut_high = low, high
    if statistics.mean is not None and statistics.std and statistics.of_what == "values":
        reach = 3 * statistics.std
        cut_low, cut_high = max(low, statistics.mean - reach), min(high, statistics.mean + reach)
    below, above = ("\u2264 " if cut_low > low else ""), ("\u2265 " if cut_high < high else "")
    return cut_low, cut_high, below + short_number(cut_low), above + short_number(cut_high)
