"""Markup and style sheets without what they do not need: a browser reads the same elements, and the same rules."""

from __future__ import annotations

import re

import bleach
import pytest

from tensormagic.renderers.basics.markup import escape, tag
from tensormagic.renderers.basics.minify_html import minify_html
from tensormagic.renderers.basics.style_rules import kept, nested, parsed
from tensormagic.renderers.basics.styling import brought, sheet, used
from tensormagic.renderers.basics.svg_paths import eased, number
from tensormagic.renderers.trace.trace_html import used_by_operations
from tests.renderers.markup_reader import Page
from tests.support.kernel import ROOT

STATIC = ROOT / "tensormagic" / "renderers" / "static"
HOSTILE = '</td>"\'=<b> x="y" > a="b" -->'
TABLE = tag(
    "table",
    tag("thead", tag("tr", tag("th", "a"), tag("th", "b"))),
    tag("tbody", *(tag("tr", tag("th", str(at)), tag("td", escape(HOSTILE), title=HOSTILE)) for at in range(3))),
    class_="tm-list tm-cells",
)
TERMS = tag("dl", *(tag("div", tag("dt", "key"), " ", tag("dd", escape(HOSTILE))) for _ in range(2)))
WORDS = tag("div", tag("p", "one", class_="quiet"), tag("p", "two"), " ", tag("p", "three"), '<img alt="" src="x=">')


@pytest.mark.parametrize("markup", [TABLE, TERMS, WORDS, tag("div", TABLE, TERMS, WORDS)])
def test_slim_markup_is_read_as_the_whole(markup):
    """A strict reader of HTML builds the same tree, whatever the text says; the second time nothing is left to do."""
    tags = {"table", "thead", "tbody", "tr", "th", "td", "dl", "div", "dt", "dd", "p", "img"}
    small = minify_html(markup)
    assert len(small) < len(markup)
    clean = [bleach.clean(one, tags, {"*": ["class", "title", "alt", "src"]}) for one in (small, markup)]
    assert re.sub(r"\s+(?=<)", "", clean[0]) == re.sub(r"\s+(?=<)", "", clean[1])
    assert Page(small).elements == Page(markup).elements
    assert Page(small).left_open == []
    assert minify_html(small) == small


def test_rules_that_begin_alike_are_nested():
    """Neighbours alone, in their order; a selector with another beginning and a block stay as they are."""
    rules = ".tm p{a:b}.tm .x,.tm>.y{c:d;}.tm.tm p{e:f}.tm q,.z q{g:h}@media print{.tm p{i:j}.tm q{k:l}}.tm{m:n}"
    assert nested(rules) == (
        ".tm{p{a:b}.x,>.y{c:d}}.tm.tm p{e:f}.tm q,.z q{g:h}@media print{.tm{p{i:j}q{k:l}}}.tm{m:n}"
    )


def test_a_rule_needs_its_elements_as_its_classes():
    """Those of an alternative need not be there; a block without a rule is not there either."""
    rules = parsed(".tm .tm-x>ul li{a:b}.tm .tm-x :is(ol,dl){c:d}@media print{.tm menu{e:f}}")
    assert kept(rules, frozenset({"tm-x", "li"})) == ".tm .tm-x :is(ol,dl){c:d}"
    assert kept(rules, frozenset({"tm-x", "ul", "li"})).startswith(".tm .tm-x>ul li{a:b}")
    assert "@media print{" in kept(rules, frozenset({"menu"}))
    inner = ".tm :is(td,thead th:not(:first-child)){a:b}"
    assert kept(parsed(inner), frozenset()) == inner


def test_what_a_viewer_adds_to_a_tensor_comes_with_the_viewer():
    """Its controls, its ring and its wire, the kind of grid that is not drawn yet: not in the panel's own sheet."""
    code, markup = brought("tensor", "tensor.css"), '<table class="tm-cells"></table><script data-tm-code="tensor-1">'
    own = sheet(f"tm-tensor {markup}", "tensor.css")
    for name in ("tm-turn", "tm-choice", "tm-ring", "tm-wire", "tm-near", "tm-maps", "tm-bad"):
        assert f".{name}" in code
        assert f".{name}{{" not in own
    assert ".tm-cells{" in own
    assert "--accent:" in own  # which a control alone asks for


def test_every_class_that_a_viewer_gives_has_its_rule():
    """In what comes with the viewer, in the panel, or in a sheet for several kinds: none was lost with its element."""
    scripts = " ".join((STATIC / name).read_text() for name in ("tensor_viewer.js", "tensor_slices.js"))
    given = set(re.findall(r'(?:className = |make\("\w+", |toggle\()"(tm-[\w-]+)', scripts))
    assert len(given) > 8
    assert {name for name in given if f".{name}" not in brought("tensor", "tensor.css")} == set()


def test_a_run_keeps_every_rule_of_its_operations():
    """That table is drawn for few runs: its sheet is the same for all, so it is not looked at for elements."""
    sheet_file = (STATIC / "trace_ops.css").read_text(encoding="utf-8")
    assert [body for body in re.findall(r"\{([^}]*)\}", sheet_file) if body not in used_by_operations()] == []


def test_export_finds_the_rules_for_its_elements():
    """What "Export" adds to any panel is no reason to lose a rule for all disclosures."""
    assert "summary{" in used("<p>", "panel.css")


def test_numbers_of_a_picture_carry_no_needless_zero():
    """Neither behind nor before the point."""
    assert [number(value) for value in (0, 0.5, -0.5, 10.5, -10.5, 20.0, 0.96)] == [
        "0", ".5", "-.5", "10.5", "-10.5", "20", "1",
    ]  # fmt: skip


def test_a_line_is_eased_by_less_than_can_be_seen():
    """Points on the way go, corners and ends stay, and of two in a row that are near one stays."""
    assert eased([(0, 0), (1, 0.1), (2, 0), (3, 5), (4, 0)]) == [(0, 0), (2, 0), (3, 5), (4, 0)]
    slope = [(at, at**2 / 40) for at in range(9)]
    assert eased(slope) == [*slope[::2]]
    assert eased([(1, 2)]) == [(1, 2)]
