"""Every node in every form, the parts of a panel, and its style sheet."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from tensormagic.reports import Finding, Gap
from tensormagic.views import to_html, to_svg, to_text
from tensormagic.views.nodes import (
    SHOWN_FINDINGS,
    Bar,
    Chip,
    Column,
    Findings,
    Items,
    Line,
    Noted,
    Panel,
    Paragraph,
    Part,
    Parts,
    Section,
    Source,
    Strip,
    Table,
    Words,
)
from tensormagic.views.panels import why
from tensormagic.views.text_canvas import columns_of, cut, table, wrapped
from tensormagic.views.theme import SIGNS
from tensormagic.views.to_html import findings_html
from tests.support.kernel import ROOT
from tests.views import samples_why
from tests.views.markup_reader import Page
from tests.views.test_every_renderer import PAGES


def panel(*body, **more):
    return Panel("test", "memory", "`net`", ["a fact"], body, **more)


def text_of(*body, width=100):
    return to_text.render(panel(*body), width=width)


def html_of(*body):
    return to_html.render(panel(*body))


def svg_text(*body):
    return " ".join(ET.fromstring(to_svg.render(panel(*body))).itertext())


FINDING = Finding("TM101", "warning", "`x` is odd.", remedy="Call `x.even()`.")
NODES = {
    "text": ("see `x`", "see x"),
    "finding": (Findings([FINDING]), "TM101"),
    "remedy": (Findings([FINDING]), "x.even()"),
    "gap": (Findings([], [Gap("names", "too many")]), "names"),
    "clear": (Findings([], clear="All is well."), "All is well."),
    "section": (Section("Title", ["inside"], "a note"), "inside"),
    "paragraph": (Paragraph("mind `this`", "warning"), "mind this"),
    "items": (Items(["one", "two", "three"], most=2, more=("more piece", "more pieces")), "and 1 more piece"),
    "table": (Table([Column("a"), Column("b", look="number")], [["x", "12"]]), "12"),
    "left out": (Table([Column()], [["x"]] * 101, nbytes=[1024] * 101, left_out=(2, 0)), "KiB"),
    "source": (Source([Line(3, "x.add_(1)", ["to x"], ["changes y"], "mark"), Line(0, "")]), "changes y"),
    "words": (Table([Column()], [[Words("odd", "error")]]), "odd"),
    "noted": (Table([Column()], [[Noted("main", ["beneath"])]]), "beneath"),
    "chip": (Table([Column()], [[Chip(27)]]), "AA"),
    "strip": (Table([Column()], [[Strip([0.0, 0.5, 1.0, None], "half of it")]]), ""),
    "parts": (Parts([Part("used", "3 MiB", 0.75, "tm-cp")], "not to scale"), "used"),
    "bar": (Table([Column()], [[Bar(0.5)]]), ""),
}


@pytest.mark.parametrize("name", NODES)
def test_each_form_says_what_a_node_says(name):
    """HTML is well-formed, SVG is XML, and all three hold the words."""
    node, words = NODES[name]
    page = Page(html_of(node))
    assert page.left_open == []
    assert words in page.text
    assert words in text_of(node)
    assert words in svg_text(node)


def test_what_is_folded_is_one_click_away_in_a_page_and_left_out_of_a_picture():
    """A terminal shows it; neighbours that are folded stand side by side."""
    one, two = (Section(f"Part {at}", [f"body {at}"], folded=True) for at in (1, 2))
    page = Page(html_of(one, two))
    assert len(page.attributes("details")) == 2
    assert len(page.with_class("tm-folds")) == 1
    assert "body 1" in text_of(one)
    assert "body 1" not in svg_text(one)
    assert "PART 1" not in text_of(Section("Part 1", []))


def test_a_table_is_as_long_as_its_form_has_room_for():
    """And says how many rows are not shown, and how many bytes those have."""
    node = Table(
        [Column("n")], [[str(at)] for at in range(6)], most=(4, 2), more=("smaller", "smaller"), nbytes=[1024] * 6
    )
    assert "and 2 smaller, 2 KiB" in Page(html_of(node)).text
    assert "and 4 smaller, 4 KiB" in text_of(node)


def test_panels_that_follow_stand_below():
    two = panel("first", after=[panel("second")])
    assert len(Page(to_html.render(two)).attributes("section")) == 2
    assert to_text.render(two).index("second") > to_text.render(two).index("first")
    assert "second" in " ".join(ET.fromstring(to_svg.render(two)).itertext())


@pytest.mark.parametrize("name", ["张量", "🙂🙂", "e\u0301tat", "плотность", "データ"])
def test_a_row_stays_in_line_whatever_its_name_is_written_in(name):
    """A Chinese letter and an emoji take two columns, an accent none: what follows begins where it begins elsewhere."""
    rows = [[name, "12 KiB"], ["weight", "3 MiB"]]
    lines = text_of(Table([Column("name"), Column("bytes")], rows)).splitlines()[2:]
    starts = {
        columns_of(line[: line.index(word)]) for line, word in zip(lines, ("BYTES", "12 KiB", "3 MiB"), strict=True)
    }
    assert len(starts) == 1


def test_lines_are_broken_and_cut_as_a_terminal_shows_them():
    """No line is wider than it may be, and no word is lost."""
    words = "张量 的 名字 very long 🙂 " * 6
    lines = wrapped(words, 20, "- ", "  ")
    assert max(map(columns_of, lines)) <= 20
    assert " ".join(" ".join(lines).replace("- ", "", 1).split()) == words.strip()
    assert columns_of(cut("张量张量张量", 7)) <= 7
    assert max(map(columns_of, wrapped("张" * 50, 11))) <= 11
    narrow = table([["张量张量", "a b c d e f g h", "12"]] * 2, width=16)
    assert max(map(columns_of, narrow)) <= 16


@pytest.mark.parametrize("width", [40, 57, 80, 120])
def test_no_line_is_wider_than_the_terminal(width):
    long = "word " * 40 + "x" * 200
    body = (Findings([], [Gap(long, long)], long), Section(long, [long, Items([long])], long), Paragraph(long, "error"),
            Table([Column(long), Column()], [[long, long]]), Source([Line(1, long, [long], [long], "note")]),
            Parts([Part(long, long, 1.0, "")]))  # fmt: skip
    assert max(map(columns_of, text_of(*body, width=width).splitlines())) <= width


def test_what_is_beside_a_line_stands_on_it_where_there_is_room():
    """Several, or a long one, below. Code that would fit in a line of its own does not leave its number alone."""
    assert "x = 1  ← to x" in text_of(Source([Line(1, "x = 1", ["to x"])]))
    assert "← to x\n" in text_of(Source([Line(1, "x = 1", ["to x", "to y"])]))
    assert "  1     x = 1\n" in text_of(Source([Line(1, "  x = 1", ["to x", "to y"]), Line(2, "y", sign="mark")]))
    code = "net=nn.Sequential(nn.Linear(64,256),nn.ReLU())"
    node = Source([Line(3, code, amounts=["12 KiB"])], columns=("kept",))
    *_, first, second = [line.strip() for line in text_of(node, width=60).splitlines()]
    assert first == "12 KiB     3  net=nn.Sequential(nn.Linear(64,256),"
    assert second == "nn.ReLU())"


STATIC = ROOT / "tensormagic" / "views" / "static"
OF_ONE_PANEL = {"slide.css", "trace_viewer.css"}  # which replaces what it dresses


def finding(number, severity="warning"):
    """A finding that says its number."""
    return Finding(f"TM{number}", severity, f"message {number}", evidence={"n": number}, remedy=f"remedy {number}")


@pytest.mark.parametrize("renderer", PAGES, ids=lambda one: one.name)
def test_every_panel_is_made_of_the_same_parts(renderer):
    """A section of class ``tm`` that holds its own style sheet and names what it shows in one header, by one class.

    Every token that a rule or an element of this panel wants is declared.
    """
    html = renderer.render(next(iter(renderer.samples.values())))
    assert re.match(r'<section [^>]*class="tm |<section class="tm ', html)
    assert html.count("<style>") >= 1
    page = Page(html)
    assert bool(page.with_class("tm-head")) == bool(page.with_class("tm-name"))
    assert page.with_class("tm-name") or renderer.name == "overlay_html"
    style = html.partition("<style>")[2].partition("</style>")[0]
    asked = set(re.findall(r"var\((--[\w-]+)\)", html))
    assert asked - set(re.findall(r"(--[\w-]+)\s*:", html)) <= {"--part", "--w"}  # of a bar, set where there is one
    assert len(style) < 28_000


def test_the_rules_of_a_kind_weigh_more_than_the_shared_ones():
    """Sheets count for the whole page: rules of a kind begin with three classes, those of all panels with ``.tm``."""
    begins = []
    for file in STATIC.glob("*.css"):
        rules = re.sub(r"/\*.*?\*/", "", file.read_text(encoding="utf-8"), flags=re.DOTALL)
        if nested := re.fullmatch(r"\s*(\.tm-[\w-]+\.tm\.tm)\{\n(.*)\n\}\s*", rules, flags=re.DOTALL):
            begins += [nested[1]] * nested[2].count("{")  # what is nested weighs as much as what it is nested in
            continue
        while "(" in rules:
            rules = re.sub(r"\([^()]*\)", "", rules)
        begins += re.findall(r"(?:^|[{},])\s*(\.tm[\w.-]*)(?=[^{}]*\{)", rules) if file.name not in OF_ONE_PANEL else []
    assert len(begins) > 200
    assert {
        begin for begin in begins if begin.startswith(".tm-") and not re.match(r"\.tm-[\w-]+\.tm\.tm", begin)
    } == set()


def test_the_likeliest_three_are_shown_and_the_rest_is_folded_and_complete():
    """Three rows are shown; the others stand behind a fourth, which says how many and which; errors are open."""
    found = [finding(300, "error"), *map(finding, range(301, 309))]
    html = findings_html(Findings(found))
    page = Page(html)
    assert "6 more findings: TM303, TM304, TM305, TM306, TM307, TM308" in page.text
    assert all(f"remedy {number}" in page.text for number in range(300, 309))
    assert html.count('open=""') == 1
    assert "1 more finding: TM303" in findings_html(Findings(found[:4]))
    assert "more finding" not in findings_html(Findings(found[:3]))
    script = (STATIC / "trace/headline.js").read_text()
    assert f"const SHOWN_FINDINGS = {SHOWN_FINDINGS};" in script  # the viewer shows as many


def test_what_is_folded_has_its_line_in_a_terminal_and_in_a_picture():
    """Nothing is lost: sign, severity, code and what was found."""
    five = Findings([*map(finding, range(300, 305))])
    lines = [line for line in text_of(five, width=70).splitlines() if "TM303" in line or "TM304" in line]
    assert lines == [f" {SIGNS['warning']} warning  TM{number}  message {number}" for number in (303, 304)]
    assert "2 more findings: TM303, TM304" in to_svg.render(panel(five))


def test_without_styles_words_stay_apart_and_code_begins_at_the_left():
    """As in a notebook that is not trusted: a way's stops are read one by one, and code keeps its indentation."""
    way = Page(to_html.render(why.view(samples_why.SAMPLES["cut_off"]))).text
    assert "addmm 3×1 line 2 norm 1.732 ← sum line 5 norm 1 ← backward" in way
    listing = Page(html_of(Source([Line(1, "for x in y:"), Line(2, "    x()")])))
    assert [cell["style"] for cell in listing.with_class("tm-text")] == ["text-align:left"] * 2
