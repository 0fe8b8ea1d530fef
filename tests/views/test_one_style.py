"""Every sample of every panel says numbers and lists in the one style of `tensormagic.words`, in text and in HTML."""

from __future__ import annotations

import ast
import html
import re
from functools import cache
from pathlib import Path

import pytest

import tensormagic
from tensormagic.views import render
from tests.views.test_every_renderer import FORMS, SAMPLES

PACKAGE = Path(tensormagic.__file__).parent
TOLD = ("title", "aria-label", "alt", "placeholder")  # attributes that a user is told


@cache
def plurals() -> set[str]:
    """Return the plurals of all nouns that the package counts with `tensormagic.words.plural`."""
    found = set()
    sources = (file.read_text(encoding="utf-8") for file in PACKAGE.rglob("*.py"))
    for source in sources:
        for node in ast.walk(ast.parse(source)) if "plural(" in source else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "plural":
                words = [each.value for each in node.args[1:] if isinstance(each, ast.Constant)]
                found |= {words[1] if len(words) > 1 else f"{words[0]}s"} - {words[0]} if words else set()
    return found


@cache
def second_styles() -> dict[str, re.Pattern[str]]:
    """Return what is looked for: a style other than that of the words, by its name."""
    nouns = "|".join(sorted(map(re.escape, plurals())))
    alone = r"(?<![\w.,:×−\u00a0/-])(?<!\w )"  # a number that begins here, and is not the end of a name or a larger one
    return {
        "digits grouped by something else": re.compile(r"(?<![\d.,])\d{1,3}(?:[,'\u2009\u202f]\d{3})+(?![\d,])"),
        "digits grouped below 10 000": re.compile(r"(?<![\d\u00a0.])\d\u00a0\d{3}(?![\d\u00a0])"),
        "a count without groups": re.compile(rf"(?<![\w.])\d{{5,}} (?:{nouns})\b"),
        "one of several": re.compile(rf"{alone}1 (?:{nouns})\b"),
        "several of one": re.compile(rf"{alone}(?:[2-9]|\d\d+) (?:tensor|element|node|pass|step|storage|line|name)\b"),
        "a percent sign without its space": re.compile(r"\d[\u00a0\u202f]?%"),
        "a bound with a space": re.compile(r"[<>] \d[\d.]* %"),
        "bytes in other units": re.compile(r"\d (?:bytes?|[kKMGT]B)\b"),
        "a comma before the last of a list": re.compile(r", and [\d\u00a0]+ more\b"),
    }


CASES = [(kind, form, name) for kind, samples in SAMPLES.items() for form in FORMS[kind] for name in samples]


@pytest.mark.parametrize(
    "text",
    ["1,234 elements", "4\u00a0800 B", "12345 elements", "1 tensors", "3 tensor", "47%", "47\u00a0%", "< 0.1 %",
     "12 bytes", "3 MB", "a, b, and 7 more"],
)  # fmt: skip
def test_a_second_style_is_seen(text: str) -> None:
    """Each of them is caught, so that finding none in a panel says something; nouns are what the package counts."""
    assert {"tensors", "elements", "backward passes", "leaves"} <= plurals()
    assert any(pattern.search(text) for pattern in second_styles().values())


@pytest.mark.parametrize(
    "text",
    ["12\u00a0345 elements", "9999 elements", "1 tensor", "x1 tensors", "4.7 %", "<0.001 %", "12 B", "a, b and 7 more",
     "of 11 tensors", "[0, 123]"],
)  # fmt: skip
def test_the_one_style_passes(text: str) -> None:
    """What is written as it should be is not caught."""
    assert not [name for name, pattern in second_styles().items() if pattern.search(text)]


@pytest.mark.parametrize(("kind", "form", "name"), CASES, ids=["-".join(case) for case in CASES])
def test_a_panel_has_one_style(kind: str, form: str, name: str) -> None:
    """No sample is said in a second style: counts, shares, bytes, plurals, lists."""
    made = render(SAMPLES[kind][name], form)
    told = [made] if form == "txt" else _told(made)
    wrong = [
        (style, text[max(found.start() - 40, 0) : found.end() + 20])
        for text in told
        for style, second in second_styles().items()
        for found in second.finditer(text)
    ]
    assert wrong == []


def _told(markup: str) -> list[str]:
    """Return the text of a page, a line for each block and cell, its no-break spaces kept; and what attributes tell."""
    seen = re.sub(r'(?:src|href)="data:[^"]*"', "", markup)
    seen = re.sub(r"<(script|style)\b.*?</\1>", "\n", seen, flags=re.DOTALL)
    text = re.sub(r"</?(?:a|b|i|code|em|span|strong|small)\b[^>]*>", "", seen)
    told = [re.sub(r"<[^>]*>", "\n", text), *re.findall(rf'(?:{"|".join(TOLD)})="([^"]*)"', seen)]
    return [html.unescape(each) for each in told]
