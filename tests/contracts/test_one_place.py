"""What is asked in one place: edges of live autograd graphs, what their nodes saved, the text of an exception."""

from __future__ import annotations

import re

import pytest

from tests.support.kernel import ROOT

COLLECTORS = ROOT / "tensormagic" / "collectors"


@pytest.mark.parametrize(
    ("attribute", "places"),
    [
        ("next_functions", ["graphs/live_nodes.py", "graphs/structure.py"]),
        (r"_(raw_)?saved_", ["graphs/saved_tensors.py"]),
    ],
)
def test_attributes_of_nodes_are_read_in_one_place(attribute, places):
    """The attribute of a live node, behind a dot or in quotes, stands in these files and in no others."""
    asked = re.compile(rf"[.\"']{attribute}")
    found = [path for path in COLLECTORS.rglob("*.py") if asked.search(path.read_text(encoding="utf-8"))]
    assert sorted(path.relative_to(COLLECTORS).as_posix() for path in found) == places


def test_the_text_of_an_exception_is_asked_for_in_one_place():
    """An exception of the user's may raise as it is put into words: `error_text` alone expects that."""
    written = re.compile(r"\{type\((\w+)\)\.__name__\}: \{\1\}")
    assert written.search("{type(error).__name__}: {error}")
    package = COLLECTORS.parent
    assert [path for path in package.rglob("*.py") if written.search(path.read_text(encoding="utf-8"))] == []
