"""What every panel brings along: colours, type, icons, style sheets, and the code that the panels of a page share."""

from __future__ import annotations

import json
import math
import posixpath
import re
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from tensormagic.views.markup import packed, tag

# The colours of everything that is drawn: roles (ink, ground, error …), and the scales that stand for numbers and
# kinds.
#
# Roles stand in ``static/tokens.css``, a light and a dark value each; pictures, which cannot see a style sheet, read
# them from there by `role` and `inked`. Scales stand here and nowhere else: HTML, SVG, Plotly and the viewer all get
# them from this module. Sequential scales are monotone in lightness, so that a picture survives greyscale printing
# and colour blindness: offsets use cividis (Nuñez, Anderton and Renslow, 2018, doi:10.1371/journal.pone.0199239),
# gradient norms one blue family, time one brown, bytes one violet. The faintest step of the last three has three
# times the contrast of its ground (WCAG 2, 1.4.11): a line of it is seen. ``tests/views/test_theme.py`` simulates
# colour blindness on all of them, ``test_contrast.py`` holds every text and every mark against its ground.

# Ten control points of cividis, as published with Matplotlib (CC0), interpolated linearly between.
_CIVIDIS = (
    (0, 34, 78), (18, 53, 112), (59, 73, 108), (87, 93, 109), (112, 113, 115),
    (138, 134, 120), (165, 156, 116), (195, 179, 105), (225, 204, 85), (254, 232, 56),
)  # fmt: skip

# log10 of the gradient norm, low to high: each step darker than the one before (light side), or lighter (dark side).
NORM_SCALE_LIGHT: tuple[str, ...] = ("#4896b0", "#3680a3", "#2b6997", "#26538a", "#253d7b", "#232669")
NORM_SCALE_DARK = ("#497b9c", "#5f91a8", "#7aa8b6", "#9ac1c8", "#bedbdd", "#e6f8f7")
NORM_EXPONENTS: tuple[int, int] = (-5, 1)  # log10 of the norms at which the scale starts and ends where a run has none
_GAP = 4
_DECADES = (3, 15)  # so many at least, and at most: the same norms twice are no contrast, and one stray zero is no end

# Seconds and bytes of a node, as six steps like those of the norm.
TIME_SCALE_LIGHT = ("#b98234", "#a36d2b", "#8e5a24", "#79481c", "#653815", "#4e270b")
TIME_SCALE_DARK = ("#9a6b3f", "#aa8258", "#bb9972", "#ceb38f", "#e3d0af", "#fcefd2")
BYTES_SCALE_LIGHT = ("#a97cb8", "#9168a6", "#7a5697", "#644388", "#4e3278", "#381e66")
BYTES_SCALE_DARK = ("#7d68b7", "#937ec1", "#a995cd", "#c1afdb", "#dacaeb", "#f4e9fe")
# Below, at and above what is equal: two hues that nobody confuses, alike in lightness on either side of the middle.
DIVERGING = ("#1f4e79", "#3f8ac6", "#a9c9e3", "#ececec", "#f2c79b", "#d9791c", "#8a4508")

# Eight hues that stay apart in every kind of colour blindness: Okabe and Ito (2008, jfly.uni-koeln.de/color), with grey
# in place of black.
KIND_COLOURS = ("#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#f0e442", "#0072b2", "#d55e00", "#999999")
CHIP_COLOURS = ("#56b4e9", "#e69f00", "#2bb58c", "#f0e442", "#e08fb9", "#f08a4b", "#9ec9e8", "#c9b46c")  # under black
# Lines without a fill, on either ground: the same hues, neither so light nor so dark as to be lost on one of them.
LINE_COLOURS = ("#4c86c6", "#bd7f22", "#3f9e77", "#b0609a", "#8a8f3c", "#7b76c9", "#c4654c", "#3f99ab")
RUN_COLOURS = (DIVERGING[1], DIVERGING[5])  # of two runs that are compared: the left, the right
OTHER_COLOUR: str = "#a3abb4"  # what has no kind of its own
BEFORE_COLOUR: str = "#68717c"
MIXED_COLOUR: str = "#868f99"
# Marks of figures, which may lie on light paper or on dark: bars, what is not finite, what is zero, what has no group.
BAR_COLOUR, BAD_COLOUR, ZERO_COLOUR, ALONE_COLOUR = "#5f86ab", "#d64545", LINE_COLOURS[1], "#7d8793"
GROUP_COLOUR = "#4a525c"  # round what belongs together, under white
MEDIAN_COLOUR = "rgba(128,128,128,0.22)"  # of ranks, what is as usual: no brighter on dark paper than on light
OTHER_SLICE = "#aab1ba"  # of a tensor's storage: read, but not in the slice that is drawn
# Of a tensor's graph, light and dark: a leaf, the tensor itself.
LEAF_GROUND, SELF_GROUND = ("#e3eef6", "#1b2f42"), ("#fff4cf", "#3a3112")

# What represents a category of memory. The colours are Okabe and Ito's, so that neighbours in a treemap or a stack stay
# apart for everybody; vermilion is left out, because it would read as an error. Greys stand for what is no tensor of a
# run: what was there before it, and small things put together.
BEFORE, MIXED = "before the run", "of several kinds"
_SKY, _ORANGE, _GREEN, _PINK, _YELLOW, _BLUE, *_ = KIND_COLOURS
_CATEGORIES = {
    # category → its colour, the letter of its style class, its words
    "parameter": (_BLUE, "p", "parameters"),
    "gradient": (_ORANGE, "g", "gradients"),
    "optimizer state": (_GREEN, "o", "optimizer state"),
    "saved for backward": (_SKY, "s", "saved for backward"),
    "buffer": (_YELLOW, "b", "buffers"),
    "input": (_PINK, "i", "inputs"),
    "other": (OTHER_COLOUR, "x", "other"),
    BEFORE: (BEFORE_COLOUR, "w", BEFORE),
    MIXED: (MIXED_COLOUR, "m", MIXED),
}
CATEGORY_COLOURS = {name: colour for name, (colour, _, _) in _CATEGORIES.items()}
CATEGORY_LETTERS = {name: letter for name, (_, letter, _) in _CATEGORIES.items()}
CATEGORY_WORDS = {name: words for name, (_, _, words) in _CATEGORIES.items()}
# Lines of code have no colours of their own: the largest get these, in this order, all others the last.
STACK_COLOURS = (_BLUE, _ORANGE, _GREEN, _PINK, _SKY, _YELLOW, OTHER_COLOUR)
# The ground of each category and line, by style class: ``tm-cp``, ``tm-l0``.
GROUNDS = {f"tm-c{letter}": colour for colour, letter, _ in _CATEGORIES.values()} | {
    f"tm-l{at}": colour for at, colour in enumerate(STACK_COLOURS)
}

_ROLE = re.compile(r"--([\w-]+):[^;]*?light-dark\((#\w+),(#\w+)\)")
# An image is dark where the element that shows it is.
EITHER_SIDE: str = "@media (prefers-color-scheme:dark){svg{filter:invert(.91) hue-rotate(180deg)}}"
_COLOURED = re.compile(r"--([\w-]+):(#\w+)")
_ASKED = re.compile(r"\$([a-z]+(?:-\w+)?\d?)")


@cache
def _roles() -> dict[str, tuple[str, str]]:
    """Return every role with its light and its dark colour, ``n0`` to ``n5`` of the norm among them."""
    sheet, steps = static("tokens.css"), zip(NORM_SCALE_LIGHT, NORM_SCALE_DARK, strict=True)
    return {
        **{name: (colour, colour) for name, colour in _COLOURED.findall(sheet)},
        **{name: (light, dark) for name, light, dark in _ROLE.findall(sheet)},
        **{f"n{at}": both for at, both in enumerate(steps)}, "leaf": LEAF_GROUND, "self": SELF_GROUND,
    }  # fmt: skip


def role(name: str, *, dark: bool = False) -> str:
    """Return the colour that a role has where no host says otherwise: ``role("ink")``, ``role("error-bg")``."""
    return _roles()[name][dark]


def inked(style: str, *, dark: bool = False) -> str:
    """Return rules or attributes of a picture, on light paper or dark: ``$ink`` or ``$n3`` become that colour."""
    return _ASKED.sub(lambda asked: role(asked[1], dark=dark), style)


def scale_style() -> str:
    """Return the tokens of the scales: ``--n0`` to ``--n5`` of the norm, ``--run-a`` and ``--run-b`` of two runs."""
    norm = _steps(NORM_SCALE_LIGHT, NORM_SCALE_DARK)
    return f".tm{{{norm};--run-a:{RUN_COLOURS[0]};--run-b:{RUN_COLOURS[1]};--kept:{KIND_COLOURS[1]}}}"


def heat_style() -> str:
    """Return the rules by which the graph of the viewer shows seconds or bytes in place of the norm."""
    heats = {
        "[data-heat=time]": _steps(TIME_SCALE_LIGHT, TIME_SCALE_DARK),
        ":is([data-heat=bytes],[data-heat=saved])": _steps(BYTES_SCALE_LIGHT, BYTES_SCALE_DARK),
    }
    return "".join(f".tmv.tmv.tmv .stage{which}{{{steps}}}" for which, steps in heats.items())


def _steps(light: tuple[str, ...], dark: tuple[str, ...]) -> str:
    both = enumerate(zip(light, dark, strict=True))
    return ";".join(f"--n{at}:light-dark({one},{other})" for at, (one, other) in both)


def offset_colour(fraction: float) -> str:
    """Return the cividis colour at ``fraction`` in [0, 1] as ``#rrggbb``."""
    at = min(max(fraction, 0.0), 1.0) * (len(_CIVIDIS) - 1)
    low = min(int(at), len(_CIVIDIS) - 2)
    pairs = zip(_CIVIDIS[low], _CIVIDIS[low + 1], strict=True)
    return "#" + "".join(f"{round(a + (b - a) * (at - low)):02x}" for a, b in pairs)


def ink_on(colour: str) -> str:
    """Return the ink, ``#fff`` or ``#000``, that has the higher contrast on ``colour``: 4.58 at least, on whichever."""
    return "#fff" if contrast("#ffffff", colour) >= contrast("#000000", colour) else "#000"


def black_from() -> float:
    """Return the share of the scale of `offset_colour` from which on its ink is black."""
    return bisect_left(range(1001), 1, key=lambda at: ink_on(offset_colour(at / 1000)) == "#000") / 1000


def category_style() -> str:
    """Return the style rules of all categories and lines: ground and ink of each."""
    return "".join(f".tm .{name}{{background:{colour};color:{ink_on(colour)}}}" for name, colour in GROUNDS.items())


def edge_of(colour: str) -> str:
    """Return a darker colour of the same hue that has 3 times the contrast of ``colour``; black where none has."""
    channels = bytes.fromhex(colour[1:])
    darker = (f"#{bytes(channel * share // 100 for channel in channels).hex()}" for share in range(99, 0, -1))
    return next((one for one in darker if contrast(one, colour) >= 3), "#000000")


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours ``#rrggbb`` as WCAG 2 defines it: 1 (none) to 21 (black on white)."""

    def luminance(colour: str) -> float:
        channels = [channel / 255 for channel in bytes.fromhex(colour[1:])]
        red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    dim, bright = sorted(map(luminance, (one, other)))
    return (bright + 0.05) / (dim + 0.05)


def norm_scale(norms: Iterable[float]) -> tuple[int, int]:
    """Return log10 of the norms at which the scale of a run starts and ends: whole decades round all above zero."""
    known = [norm for norm in norms if 0 < norm < math.inf]
    if not known:
        return NORM_EXPONENTS
    high = math.ceil(math.log10(max(known)) - 1e-6)
    return max(min(math.floor(math.log10(min(known)) + 1e-6), high - _DECADES[0]), high - _DECADES[1]), high


def least_of(norms: Iterable[float]) -> float:
    """Return where the colours of a pass begin: the least of its norms, known to be above zero.

    At most a quarter of them, if they lie `_GAP` decades below all others, are rounding errors, as the gradients of
    biases before a normalisation are: for those alone the colours of all others are not to be alike.
    """
    known = sorted(norms)
    above = [at for at in range(1, len(known) // 4 + 1) if known[at] >= known[at - 1] * 10**_GAP]
    return known[above[-1] if above else 0]


def norm_level(norm: float, scale: tuple[int, int] = NORM_EXPONENTS) -> int:
    """Return which of the six steps of a norm scale a finite, positive norm falls on: 0 (tiny) to 5 (large)."""
    low, high = scale
    return min(max(int((math.log10(norm) - low) / (high - low) * 6), 0), 5) if norm > 0 else 0


# One set of icons: severities, and what a panel is about; monochrome, in the colour of the text around them.
#
# A severity is a text sign with a shape over it: the style sheet cuts the shape out, and where styles are stripped
# the sign stays; what a panel is about has no sign. Icons are decoration: the word beside one says the same, so none
# has a text alternative of its own.

# Name → the sign where there are no styles, and the shape in a box of 14 by 14.
ICONS: dict[str, tuple[str, str]] = {
    "error": ("\u2716", "M7 .5 13.5 7 7 13.5.5 7zM6.1 3.6v4.2h1.8V3.6zM6.1 8.9v1.7h1.8V8.9z"),
    "warning": ("\u25b2", "M7 .8 13.7 13H.3zM6.2 5v4h1.6V5zM6.2 10v1.6h1.6V10z"),
    "note": ("\u25cb", "M7 .5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13zM6.2 3.4h1.6V5H6.2zM6.2 6h1.6v4.7H6.2z"),
    "ok": ("\u2714", "M1 7.6 2.5 6.1 5.4 9 11.5 2.6 13 4.1 5.4 12z"),
    "tensor": ("", "M1 1h5.4v5.4H1zM7.6 1H13v5.4H7.6zM1 7.6h5.4V13H1zM7.6 7.6H13V13H7.6zM8.8 8.8v3h3v-3z"),
    "graph": ("", "M1 5.2h3.6v1.2h4.2V3.2h4v3.2H10v1.2h2.8v3.2h-4V7.6H4.6v1.2H1z"),
    "memory": ("", "M1 1.5h12v3H1zM1 5.5h12v3H1zM1 9.5h12v3H1zM2.2 10.7v.6h6v-.6z"),
    "random": (
        "",
        "M3 1h8a2 2 0 0 1 2 2v8a2 2 0 0 1-2 2H3a2 2 0 0 1-2-2V3a2 2 0 0 1 2-2z"
        + "".join(
            f"M{place}a1.1 1.1 0 1 0 0 2.2 1.1 1.1 0 0 0 0-2.2z"
            for place in ("4 2.9", "10 2.9", "7 5.9", "4 8.9", "10 8.9")
        ),
    ),
    "code": ("", "M1 2.2h8v1.6H1zM3 5.4h10V7H3zM3 8.6h7v1.6H3zM1 11.8h5v1.6H1z"),
    "compare": ("", "M4 1v2h9v1.6H4v2L.8 3.8zM10 7.4l3.2 2.8L10 13v-2H1V9.4h9z"),
}
SIGNS = {name: sign for name, (sign, _) in ICONS.items()}


def icon(name: str) -> str:
    """Return an icon of the set."""
    return tag("span", SIGNS[name], class_=f"tm-icon tm-i-{name}", aria_hidden="true")


def icon_style() -> str:
    """Return the shapes of all icons."""
    return "".join(f'.tm .tm-i-{name}{{--icon:path(evenodd,"{shape}")}}' for name, (_, shape) in ICONS.items())


# The style sheet of one panel: the tokens, what all panels share, and the files of its kind, as they are written.
#
# A style sheet in a notebook counts for all panels on the page, whatever its place: the rules of one kind of panel
# begin with three classes (``.tm-why.tm.tm``), those that all panels share with ``.tm``, so that no panel changes
# another.


def sheet(*files: str, extra: str = "") -> str:
    """Return the style sheet of a panel: tokens, what all panels share, files of ``static/``, rules of no file."""
    return tokens() + icon_style() + "".join(map(static, ("panel.css", *files))) + extra


def tokens() -> str:
    """Return all tokens, and what says whether they are light or dark."""
    return scale_style() + static("tokens.css")


# -- static files, and the code that the panels of a page share ----------------------------------------------------------

# The static files that panels inline: style sheets and viewers, read once and joined without a bundler.

_STATIC = Path(__file__).parent / "static"
_IMPORT = re.compile(r'^import \{[^}]*\} from "(\.\.?/\w+\.js)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?!default)", re.MULTILINE)
_FUNCTION = re.compile(r"^(?:export )?(?:async )?function (\w+)\(.*?^}$", re.MULTILINE | re.DOTALL)
_NOTE = re.compile(r"/\*\* .*? \*/ ?")  # what a field means, in front of it
# A line that is nothing but comment: a note in front of code is none.
_COMMENT = re.compile(r"(?://|\*/|\* ).*|\*|/\*(?:.*\*/|(?!.*\*/).*)")


@cache
def static(filename: str) -> str:
    """Return a file of ``static/`` without its indentation, empty lines and whole-line comments."""
    return _stripped((_STATIC / filename).read_text(encoding="utf-8"))


def _stripped(text: str) -> str:
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(_NOTE.sub("", line) for line in lines if line and not _COMMENT.fullmatch(line))


@cache
def module(entry: str) -> str:
    """Return a JavaScript module of ``static/`` and all it imports as one module, which exports what ``entry`` does.

    The files are modules of their own, each after those it imports; imports are by name, and no top-level name is
    used twice in files that are put together. A function that nothing in them calls is left out.
    """
    order: list[str] = []

    def gather(name: str) -> None:
        for imported in _IMPORT.findall(static(name)):
            path = posixpath.normpath(f"{posixpath.dirname(name) or '.'}/{imported}")
            if path not in order:
                gather(path)
        order.append(name)

    gather(entry)
    whole = _IMPORT.sub("", static(entry)).strip()
    for name in reversed(order[:-1]):
        text = (_STATIC / name).read_text(encoding="utf-8")
        for function in reversed([*_FUNCTION.finditer(text)]):  # what calls one stands below it
            others = text[: function.start()] + text[function.end() :]
            text = text if re.search(rf"\b{function[1]}\b", others + whole) else others
        whole = f"{_EXPORT.sub('', _IMPORT.sub('', _stripped(text))).strip()}\n{whole}"
    return whole


def script(entry: str) -> str:
    """Return the same for what is not a module: nothing is exported."""
    return _EXPORT.sub("", module(entry))


# The code that the panels of a page share: each piece has a key, and lies packed in an element that runs nothing.
#
# An output by itself carries every piece it needs. In a notebook, whose outputs lie on one page, a piece need not be
# there twenty times: `deduplicate` takes it out of an output, and writes in its place which cell's output carries it. The
# script ``shared_scripts.js``, of which every panel has one, brings the two together.

_CARRIED = re.compile(r'<script type="text/plain" data-tm-code="([\w-]+)">([^<]+)</script>')
_ELSEWHERE = (
    "The interactive view needs the output of cell [{cell}], which is not here yet. If it is gone, run this cell again."
)


@cache
def code_of(name: str, entry: str, *, mount: str, words: str = "", beside: str = "") -> str:
    """Return the element that carries a piece of code.

    Args:
        name: What it is for: ``tensor``.
        entry: A module of ``static/``.
        mount: What of it is called with the panel, the function that unpacks, and the key.
        words: Sentences, as JSON: it is called with them in the place of the key.
        beside: What else makes this piece another one.
    """
    called = f"(panel, unpacked) => {mount}(panel, unpacked, {words})" if words else mount
    whole = f"{script(entry)}\nreturn {called};"
    key = f"{name}-{zlib.crc32((whole + beside).encode()):08x}"
    return tag("script", packed(whole), type="text/plain", data_tm_code=key)


@cache
def loader() -> str:
    """Return the script that a panel with code ends with."""
    called = f"mountPanels(document.currentScript, {json.dumps(_ELSEWHERE)})"
    return tag("script", f"(() => {{{script('shared_scripts.js')}\n{called}}})()")


def elements(html: str) -> dict[str, str]:
    """Return the elements that carry code in an output, by key."""
    return {match[1]: match[0] for match in _CARRIED.finditer(html)}


def deduplicate(html: str, elsewhere: Mapping[str, int]) -> str:
    """Return an output without the pieces that another carries; ``elsewhere``: in which cell, by key."""
    for key, carried in elements(html).items():
        if key in elsewhere:
            html = html.replace(
                carried, tag("script", type="text/plain", data_tm_code=key, data_tm_cell=elsewhere[key])
            )
    return html


def once_each(html: str) -> str:
    """Return an output of several panels in which the first that needs a piece carries it for the others."""
    for key, carried in elements(html).items():
        first, *others = html.split(carried)
        html = first + carried + tag("script", type="text/plain", data_tm_code=key).join(others)
    return html
