"""Colours and tokens: told apart by everybody, defined in one place; `test_contrast` holds them against grounds."""

from __future__ import annotations

import math
import re
from itertools import combinations, pairwise
from pathlib import Path

import pytest

from tensormagic.views import theme

STATIC = Path(theme.__file__).parent / "static"
# How red, green and blue (linear) are seen with one kind of cones missing: Machado, Oliveira and Fernandes (2009,
# doi:10.1109/TVCG.2009.113), severity 1.
SIGHTS = {
    "full": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.3039)),
}
each_sight = pytest.mark.parametrize("sight", SIGHTS)


def linear(colour):
    """A colour ``#rgb`` or ``#rrggbb`` as linear red, green and blue, 0 to 1."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    channels = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]


def lab(colour, sight="full"):
    """A colour as CIE L*a*b* (D65), as it is seen with such sight."""
    given = linear(colour)
    red, green, blue = (min(max(sum(a * b for a, b in zip(row, given, strict=True)), 0), 1) for row in SIGHTS[sight])
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089
    fx, fy, fz = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


@each_sight
@pytest.mark.parametrize(
    ("colours", "least"),
    [(theme.KIND_COLOURS, 7), (theme.RUN_COLOURS, 40), (theme.DIVERGING[:3], 15), (theme.DIVERGING[4:], 15)],
    ids=["kinds", "runs", "below", "above"],
)
def test_colours_of_kinds_stay_apart_for_everybody(sight, colours, least):
    """Any two of a set differ by at least so much (CIE76; 2.3 is just noticed), whichever cones are missing."""
    distances = [math.dist(lab(one, sight), lab(other, sight)) for one, other in combinations(colours, 2)]
    assert min(distances) >= least


@each_sight
@pytest.mark.parametrize(
    "scale",
    [
        [theme.offset_colour(at / 9) for at in range(10)],
        *(
            getattr(theme, f"{name}_SCALE_{side}")[:: 1 if side == "DARK" else -1]
            for name in ("NORM", "TIME", "BYTES")
            for side in ("LIGHT", "DARK")
        ),
    ],
    ids=lambda scale: f"{scale[0]}-{scale[-1]}",
)
def test_sequential_scales_get_lighter_step_by_step(sight, scale):
    """Each step is lighter than the one before: the order survives grey printing and every colour blindness."""
    lightness = [lab(colour, sight)[0] for colour in scale]
    assert min(after - before for before, after in pairwise(lightness)) > 2


@each_sight
def test_the_sides_of_the_diverging_scale_are_not_confused(sight):
    """Colours as far from the middle, below and above, differ; the middle is the lightest of all."""
    for step in range(3):
        assert math.dist(lab(theme.DIVERGING[step], sight), lab(theme.DIVERGING[-1 - step], sight)) > 20
    assert max(theme.DIVERGING, key=lambda colour: lab(colour, sight)[0]) == theme.DIVERGING[3]


# slide.css sets a type scale of its own, for the last row.
@pytest.mark.parametrize("name", sorted({path.name for path in STATIC.glob("*.css")} - {"tokens.css", "slide.css"}))
def test_style_sheets_take_colours_and_type_from_the_tokens(name):
    """No rule outside ``tokens.css`` names a colour or a size of type by itself."""
    rules = re.sub(r"/\*.*?\*/", "", (STATIC / name).read_text(encoding="utf-8"), flags=re.DOTALL)
    assert re.findall(r"#[0-9a-fA-F]{3,8}\b", rules) == []
    assert re.findall(r"font(?:-size)?:[^;}]*?\b[1-9][\d.]*px(?![^;}]*var)", rules) == []


def test_a_token_that_is_asked_for_is_there():
    """Every ``var(--x)`` without a fallback in a style sheet is a token, a token of a scale, or set by the rules."""
    sheets = "".join(path.read_text(encoding="utf-8") for path in STATIC.glob("*.css")) + theme.scale_style()
    asked = set(re.findall(r"var\((--[\w-]+)\)", sheets))
    # What the markup and the viewer's scripts set themselves.
    given = {"--w", "--part", "--icon", "--hatch-fill", "--room"}
    assert asked - set(re.findall(r"(--[\w-]+):", sheets)) <= given
