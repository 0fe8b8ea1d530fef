"""No text in any field of any report does more than be read: no markup, no script, no control, no million letters."""

from __future__ import annotations

import json
from functools import cache
from xml.etree import ElementTree as ET

import pytest

from tensormagic import views
from tensormagic.reports import Report
from tests.views.hostile import ALL_MARKUP, MARK, TOGETHER, classes, covering, everywhere, in_class
from tests.views.markup_reader import Page, svg_of
from tests.views.test_every_renderer import FORMS, SAMPLES

LARGEST = {"html": 1_500_000, "svg": 400_000, "txt": 4_000_000}  # every single text at its longest, all at once
WAYS = [pytest.param(kind, form, id=f"{kind}-{form}") for kind, forms in FORMS.items() for form in forms]


@cache
def covered(kind: str) -> tuple[Report, ...]:
    """Return few samples of a kind that together have every place of a text."""
    return tuple(covering(SAMPLES[kind]).values())


@cache
def usual(kind: str, form: str) -> frozenset[tuple[str, str]]:
    """Return every element with every attribute that the samples of a kind have where all they say is harmless."""
    pairs: set[tuple[str, str]] = {("code", ""), ("br", "")}
    for name, report in SAMPLES[kind].items():
        pairs |= parts(form, views.render(everywhere(report, "calm"), form))
        pairs |= parts(form, views.render(report, form)) if name != "hostile" else set()
    return frozenset(pairs)


def parts(form: str, output: str) -> set[tuple[str, str]]:
    """Return the elements of an output, those of pictures in addresses too, and each of their attributes' names."""
    page = Page("" if form == "svg" else output)
    sources = [image["src"] for image in page.attributes("img") if "svg" in image["src"][:20]]
    elements = [(tag, list(attributes)) for tag, attributes in page.elements]
    for picture in [output] if form == "svg" else map(svg_of, sources):
        elements += [(one.tag.rsplit("}")[-1], list(one.attrib)) for one in ET.fromstring(picture).iter()]
    return {(tag, "") for tag, _ in elements} | {(tag, name) for tag, names in elements for name in names}


def assert_harmless(kind: str, form: str, output: str) -> None:
    """Assert that nothing in an output does what its text says."""
    output.encode()
    if form == "txt":
        assert not [char for char in output if not char.isprintable() and char not in "\n\u00a0\u200c\u200d"]
        return
    assert parts(form, output) <= usual(kind, form)
    if form == "html":
        assert "<!--" not in output
        assert_page_harmless(Page(output))


def assert_page_harmless(page: Page) -> None:
    """Assert that styles, addresses and programs hold nothing of a user's text, and that data is data."""
    assert page.left_open == []
    for _, attributes in page.elements:
        for name in ("style", "class", "type"):
            assert MARK not in (attributes.get(name) or "")
        assert (attributes.get("src") or "data:image/").startswith("data:image/")
        assert (attributes.get("href") or "#").startswith(("#", "data:image/png;"))
    for kind, text in page.scripts:
        if "json" in kind:
            json.loads(text)
        else:
            assert MARK not in text


@pytest.mark.parametrize("kind", [kind for kind, forms in FORMS.items() if "html" in forms])
def test_markup_in_one_class_stays_text(kind: str) -> None:
    """Each class of a report's parts in turn holds all markup there is, while what the others say is as ever."""
    for report in covered(kind):
        for name in classes(report):
            assert_harmless(kind, "html", views.render(in_class(report, name, ALL_MARKUP), "html"))


@pytest.mark.parametrize("what", TOGETHER)
@pytest.mark.parametrize(("kind", "form"), WAYS)
def test_text_in_all_fields_stays_text(kind: str, form: str, what: str) -> None:
    """All fields at once hold one kind of hostile text, and the output is not larger for it than a page may be."""
    for report in covered(kind):
        output = views.render(everywhere(report, TOGETHER[what]), form)
        assert_harmless(kind, form, output)
        assert len(output) < LARGEST[form]
