"""The colours of everything that is drawn: roles (ink, ground, error …), and the scales that stand for numbers and kinds.

Roles stand in ``static/tokens.css``, a light and a dark value each; pictures, which cannot see a style sheet, read them
from there by `role`. Scales stand here and nowhere else: HTML, SVG, Plotly and the viewer all get them from this
module. Sequential scales are monotone in lightness, so that a picture survives greyscale printing and colour
blindness: offsets use cividis (Nuñez, Anderton and Renslow, 2018, doi:10.1371/journal.pone.0199239), gradient norms one
blue family, time one brown, bytes one violet. ``tests/renderers/test_theme.py`` simulates colour blindness on them.
"""

from __future__ import annotations

import math
import re
from functools import cache

from tensormagic.renderers.assets import static

# Ten control points of cividis, as published with Matplotlib (CC0), interpolated linearly between.
_CIVIDIS = (
    (0, 34, 78), (18, 53, 112), (59, 73, 108), (87, 93, 109), (112, 113, 115),
    (138, 134, 120), (165, 156, 116), (195, 179, 105), (225, 204, 85), (254, 232, 56),
)  # fmt: skip

# log10 of the gradient norm, low to high: each step a lighter-to-darker (light side) or darker-to-lighter (dark side).
NORM_SCALE_LIGHT = ("#b9d2de", "#8fb6c9", "#6498b4", "#3f789d", "#2a5484", "#1f2f63")
NORM_SCALE_DARK = ("#38566a", "#4a7188", "#6190a8", "#84b1c6", "#b0d2de", "#eef7f2")
NORM_EXPONENTS = (-5.0, 1.0)  # log10 of the norms at which the scale starts and ends

# Seconds and bytes of a node, as six steps like those of the norm.
TIME_SCALE_LIGHT = ("#f0d9b5", "#e0b67c", "#c98f49", "#a86c26", "#7e4a12", "#512b06")
TIME_SCALE_DARK = ("#5c4220", "#7d5a2a", "#a37639", "#c8985a", "#e5c08c", "#fbecd2")
BYTES_SCALE_LIGHT = ("#dcd3ea", "#c0aeda", "#9f86c4", "#7d60a8", "#5b3f86", "#3a2260")
BYTES_SCALE_DARK = ("#463a5e", "#5f4f80", "#7f6da6", "#a291c6", "#c6bae0", "#efe9fb")
# Below, at and above what is equal: two hues that nobody confuses, alike in lightness on either side of the middle.
DIVERGING = ("#1f4e79", "#3f8ac6", "#a9c9e3", "#ececec", "#f2c79b", "#d9791c", "#8a4508")

# Eight hues that stay apart in every kind of colour blindness: Okabe and Ito (2008, jfly.uni-koeln.de/color), with grey
# in place of black.
KIND_COLOURS = ("#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#f0e442", "#0072b2", "#d55e00", "#999999")


CHIP_COLOURS = ("#56b4e9", "#e69f00", "#2bb58c", "#f0e442", "#e08fb9", "#f08a4b", "#9ec9e8", "#c9b46c")  # under black
# Lines without a fill, on either ground: the same hues, neither so light nor so dark as to be lost on one of them.
LINE_COLOURS = ("#4c86c6", "#c98a2b", "#3f9e77", "#b0609a", "#8a8f3c", "#7b76c9", "#c4654c", "#4aa3b5")
RUN_COLOURS = (DIVERGING[1], DIVERGING[5])  # of two runs that are compared: the left, the right
OTHER_COLOUR, BEFORE_COLOUR, MIXED_COLOUR = "#a3abb4", "#68717c", "#868f99"  # what has no kind of its own

_ROLE = re.compile(r"--([\w-]+):[^;]*?light-dark\((#\w+),(#\w+)\)")


@cache
def _roles() -> dict[str, tuple[str, str]]:
    return {name: (light, dark) for name, light, dark in _ROLE.findall(static("tokens.css"))}


def role(name: str, *, dark: bool = False) -> str:
    """Return the colour that a role has where no host says otherwise: ``role("ink")``, ``role("error-bg")``."""
    return _roles()[name][dark]


def scale_style() -> str:
    """Return the tokens of the scales: ``--n0`` to ``--n5`` of the norm, ``--run-a`` and ``--run-b`` of two runs."""
    steps = _steps("n", NORM_SCALE_LIGHT, NORM_SCALE_DARK)
    return f".tm{{{steps};--run-a:{RUN_COLOURS[0]};--run-b:{RUN_COLOURS[1]};--kept:{KIND_COLOURS[1]}}}"


def heat_style() -> str:
    """Return the rules by which the graph of the viewer shows seconds or bytes in place of the norm."""
    time = _steps("n", TIME_SCALE_LIGHT, TIME_SCALE_DARK)
    nbytes = _steps("n", BYTES_SCALE_LIGHT, BYTES_SCALE_DARK)
    heats = (("[data-heat=time]", time), (":is([data-heat=bytes],[data-heat=saved])", nbytes))
    return "".join(f".tmv .stage{which}{{{steps}}}" for which, steps in heats)


def _steps(letter: str, light: tuple[str, ...], dark: tuple[str, ...]) -> str:
    both = enumerate(zip(light, dark, strict=True))
    return ";".join(f"--{letter}{at}:light-dark({one},{other})" for at, (one, other) in both)


def offset_colour(fraction: float) -> str:
    """Return the cividis colour at ``fraction`` in [0, 1] as ``#rrggbb``."""
    at = min(max(fraction, 0.0), 1.0) * (len(_CIVIDIS) - 1)
    low = min(int(at), len(_CIVIDIS) - 2)
    pairs = zip(_CIVIDIS[low], _CIVIDIS[low + 1], strict=True)
    return "#" + "".join(f"{round(a + (b - a) * (at - low)):02x}" for a, b in pairs)


def ink_on(colour: str) -> str:
    """Return the ink, ``#fff`` or ``#111``, that has the higher contrast on ``colour`` (WCAG 2 relative luminance)."""
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#fff" if 1.05 / (luminance + 0.05) >= (luminance + 0.05) / (0.0056 + 0.05) else "#111"


def norm_level(norm: float) -> int:
    """Return which of the six steps of the norm scale a finite, positive norm falls on: 0 (tiny) to 5 (large)."""
    low, high = NORM_EXPONENTS
    if norm <= 0:
        return 0
    fraction = (math.log10(norm) - low) / (high - low)
    return min(max(int(fraction * 6), 0), 5)
