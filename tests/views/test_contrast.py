"""What can be read and seen: every text and every mark against every ground, computed from the one table of colours.

WCAG 2, level AA: text 4.5 (1.4.3), what has to be told apart or found, the focus among it, 3 (1.4.11). axe sees the
pages of the samples alone, and no picture; here are all pairs that the rules can make, on the grounds of the hosts.
"""

from __future__ import annotations

import re
from itertools import pairwise, product
from pathlib import Path

import pytest

from tensormagic.views import theme
from tensormagic.views.pictures.timeline import areas, by_category, by_line
from tests.views.samples_memory_run import SAMPLES

VIEWS = Path(theme.__file__).parent
TEXT, MARK = 4.5, 3.0
# What panels lie on: our own ground where a host tells none, JupyterLab's, VS Code's.
GROUNDS = {False: (theme.role("bg"), "#ffffff"), True: (theme.role("bg", dark=True), "#111111", "#1e1e1e")}
WORDS = ("ink", "ink-2", "accent", "ok", "error", "warning", "note")
MARKS = ("accent", "line-2", "hatch", "bar", "error", "warning", "note", "ok")  # the focus and edges among them
TINTS = ("error-bg", "warning-bg", "note-bg")
SIDES = ("LIGHT", "DARK")
SCALES = {name: [getattr(theme, f"{name}_SCALE_{side}") for side in SIDES] for name in ("NORM", "TIME", "BYTES")}
KINDS = {**theme.CATEGORY_COLOURS, **dict(enumerate((*theme.KIND_COLOURS, *theme.CHIP_COLOURS, *theme.RUN_COLOURS)))}
each_side = pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])


def whole(colour):
    """A colour with all its six digits."""
    return colour if len(colour) == 7 else "#" + "".join(2 * digit for digit in colour[1:])


def contrast(one, other):
    """The contrast of two colours, short ones too."""
    return theme.contrast(whole(one), whole(other))


def mixed(colour, share, ground):
    """What ``color-mix(in srgb, colour share, ground)`` is."""
    pairs = zip(*(bytes.fromhex(whole(one)[1:]) for one in (colour, ground)), strict=True)
    return "#" + "".join(f"{round(share * one + (1 - share) * other):02x}" for one, other in pairs)


def surfaces(dark):
    """All that words of a panel stand on, by name."""
    ink, found = theme.role("ink", dark=dark), {name: theme.role(name, dark=dark) for name in TINTS}
    for ground in GROUNDS[dark]:
        found |= {ground: whole(ground), f"bg-2 of {ground}": mixed(ink, 0.04, ground)}
        found[f"band of {ground}"] = mixed(ink, 0.06, ground)
    return found


def rule(sheet, selector):
    """The declarations of a rule, by the end of its selector."""
    text = (VIEWS / "static" / sheet).read_text(encoding="utf-8")
    return re.search(re.escape(selector) + r"\{([^}]*)\}", text)[1]


def share_of_mix(declarations, colour):
    """How much of ``colour`` a rule mixes with the ground."""
    return float(re.search(re.escape(f"color-mix(in srgb,{colour}") + r" (\d+)%,var\(--bg\)\)", declarations)[1]) / 100


@each_side
@pytest.mark.parametrize(("drawn", "least"), [(WORDS, TEXT), (MARKS, MARK)], ids=["words", "marks"])
def test_words_and_marks_are_seen_on_everything_that_they_stand_on(drawn, least, dark):
    """Each ink, and the colour of each severity, has 4.5 on each ground, band and tint; what is no word has 3."""
    grounds = surfaces(dark) | ({"skip": theme.role("skip", dark=dark)} if drawn is MARKS else {})
    low = {(one, name): contrast(theme.role(one, dark=dark), grounds[name]) for one in drawn for name in grounds}
    assert {pair: value for pair, value in low.items() if value < least} == {}


@each_side
@pytest.mark.parametrize("scale", SCALES)
def test_every_step_of_a_scale_is_seen(scale, dark):
    """A line or a rim in the faintest colour of a scale has 3 on the ground and in an opened box; the next has more."""
    steps = SCALES[scale][dark]
    for name, ground in surfaces(dark).items():
        found = [contrast(step, ground) for step in steps]
        assert found[0] >= MARK or "band" in name, (name, found)
        assert all(before < after for before, after in pairwise(found))


@each_side
@pytest.mark.parametrize("scale", SCALES)
def test_names_are_read_on_the_plates_of_the_far_view(scale, dark):
    """From far away a box is filled with a part of its colour: its name has 4.5 on each."""
    share = share_of_mix(rule("trace_viewer.css", "\n.far .box .plate"), "currentColor")
    grounds = product(SCALES[scale][dark], GROUNDS[dark])
    assert min(contrast(theme.role("ink", dark=dark), mixed(step, share, one)) for step, one in grounds) >= TEXT


@each_side
def test_numbers_are_read_on_the_bars_behind_them(dark):
    """The columns of bytes beside the lines of a cell have their bars behind the numbers."""
    steps = SCALES["NORM"][dark]
    tints = {".tm-bp": ("var(--n2)", steps[2]), ".tm-bk": ("var(--kept)", theme.KIND_COLOURS[1])}
    tints[".tm-ba"] = ("var(--line-2)", theme.role("line-2", dark=dark))
    for selector, (name, colour) in tints.items():
        share = share_of_mix(rule("source.css", f".tm {selector}"), name)
        for ground in GROUNDS[dark]:
            assert contrast(theme.role("ink", dark=dark), mixed(colour, share, ground)) >= TEXT


ON_PAPER = (theme.LEAF_GROUND[0], theme.SELF_GROUND[0], theme.OTHER_SLICE, theme.role("skip"))
WRITTEN = {
    "numbers in the cells of a heat map": [
        (theme.ink_on(colour), colour) for colour in (theme.offset_colour(at / 255) for at in range(256))
    ],
    "names in a treemap, in a chip, on a strip": [(theme.ink_on(colour), colour) for colour in KINDS.values()],
    "the head of a group": [(theme.role("on-cap"), cap) for cap in (theme.role("cap"), theme.GROUP_COLOUR)],
    "every chip": [(theme.role("on-chip"), one) for one in (*theme.CHIP_COLOURS, *theme.RUN_COLOURS)],
    "a tensor's graph on paper": [(theme.role("ink"), ground) for ground in ON_PAPER],
    **{
        f"leaves, the tensor itself, what was changed in place, {side.lower()}": [
            (theme.role(ink, dark=dark), ground)
            for ink in ("ink", "ink-2")
            for ground in (theme.LEAF_GROUND[dark], theme.SELF_GROUND[dark], theme.role("error-bg", dark=dark))
        ]
        for dark, side in enumerate(SIDES)
    },
}


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written_on_a_colour_is_read(name):
    """Of black and white the better one has 4.5, as has white on a cap, and ink on paper."""
    assert len(WRITTEN[name]) > 1
    assert [pair for pair in WRITTEN[name] if contrast(*pair) < TEXT] == []


def test_every_boundary_of_a_timeline_is_seen():
    """Along the top of each area runs a line that has 3 with the area below it, and one of the two has 3 on paper."""
    drawn = SAMPLES["training"].timelines[0]
    painted = "".join(areas(drawn, layers)[1] for layers in (by_category(drawn), by_line(drawn)))
    pairs = re.findall(r'<g fill="(#\w+)"><path id="\w+" d="[^"]+"/></g><use [^>]* fill="(#\w+)"/>', painted)
    assert len(pairs) == painted.count("<path") > 6
    for edge, colour in {*pairs, *((theme.edge_of(one), one) for one in theme.STACK_COLOURS[:-1])}:
        assert contrast(edge, colour) >= MARK
        for ground in (*GROUNDS[False], *GROUNDS[True]):
            assert max(contrast(edge, ground), contrast(colour, ground)) >= MARK, (edge, colour, ground)


FIGURE_MARKS = (*theme.LINE_COLOURS, *theme.RUN_COLOURS, theme.BAR_COLOUR, theme.BAD_COLOUR, theme.ALONE_COLOUR,
                theme.MIXED_COLOUR)  # fmt: skip


@each_side
def test_lines_and_bars_are_seen_on_either_paper(dark):
    """What is drawn without knowing its ground has 3 on the light one and on the dark one."""
    low = {colour: min(contrast(colour, ground) for ground in GROUNDS[dark]) for colour in FIGURE_MARKS}
    assert {colour: value for colour, value in low.items() if value < MARK} == {}


def _colours(path):
    """The colours that a source names, without those of its comments and docstrings."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r'"""[\s\S]*?"""|/\*[\s\S]*?\*/|^\s*(?:#|//).*$|\s# .*$', "", text, flags=re.MULTILINE)
    return re.findall(r"#(?:[0-9a-fA-F]{6}|[0-9a-fA-F]{3})\b|rgba?\([\d., ]+\)", text)


def test_no_renderer_has_a_colour_of_its_own():
    """HTML, SVG and Plotly take every colour from the table: what is tested above is all there is.

    A script that paints cells cannot read the table: what it names stands there, or is black or white.
    """
    sources = sorted(path for path in VIEWS.rglob("*.py") if path.name != "theme.py")
    assert {path.name: found for path in sources if (found := _colours(path))} == {}
    known = {one for both in theme._roles().values() for one in both} | {theme.OTHER_SLICE, theme.MIXED_COLOUR}
    known |= {"#fff", "#000", "rgb(0, 0, 0)", "rgb(255, 255, 255)"}
    scripts = sorted((VIEWS / "static").rglob("*.js"))
    assert {path.name: found for path in scripts if (found := set(_colours(path)) - known)} == {}
