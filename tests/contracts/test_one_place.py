"""What is asked in one place: who reads the edges of live autograd graphs, and who reads what their nodes saved."""

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
