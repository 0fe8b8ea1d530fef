"""A person who looks for one of torch's terms is led to the file that deals with it."""

from __future__ import annotations

import ast
import re

import pytest

import tensormagic.api
from tests.support.kernel import ROOT

TERMS = dict(re.findall(r"^    (\w[\w -]*?) {2,}(\S+\.py)$", tensormagic.api.__doc__ or "", flags=re.MULTILINE))
PACKAGE = ROOT / "tensormagic"


def test_the_ten_terms_are_listed():
    assert {*TERMS} == {
        "saved tensor", "leaf", "view", "storage offset", "version counter", "hook", "checkpoint", "graph break",
        "retained memory", "in-place",
    }  # fmt: skip


@pytest.mark.parametrize("term", TERMS)
def test_a_term_is_found_within_three_hits(term):
    """By the alphabet, as ``git grep`` lists them; the first words of the file itself speak of the term."""
    hits = []
    for path in sorted(PACKAGE.rglob("*.py")):
        hits += [line for line in path.read_text(encoding="utf-8").splitlines() if re.search(rf"\b{term}\b", line)]
    assert any(TERMS[term] in line for line in hits[:3])
    docstring = ast.get_docstring(ast.parse((PACKAGE / TERMS[term]).read_text(encoding="utf-8"))) or ""
    assert re.search(rf"\b{term}", docstring, re.IGNORECASE)
