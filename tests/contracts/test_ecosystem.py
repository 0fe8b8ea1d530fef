"""The page of libraries holds a row for each that the suite runs, at the version that is installed for it."""

from __future__ import annotations

import re

from tests.benchmarks.peers.environment import wanted
from tests.ecosystem import __main__ as suite
from tests.ecosystem.libraries import LIBRARIES, REQUIREMENTS

PINS = dict(line.split("==") for line in wanted(REQUIREMENTS))


def test_each_library_is_installed_and_on_the_page():
    """As many programs as requirements, each with its version on the page."""
    page = suite.PAGE.read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| ([\w-]+) \| ([\d.]+) \|", page, re.MULTILINE))
    assert rows == PINS
    assert PINS.keys() == LIBRARIES.keys()
    assert "FAILS" not in page


def test_what_fails_is_said():
    """By the names of the followers under which it does; what cannot be installed is no failure."""
    found = {"einops": {"trace": [], "memory": ["the results differ in 1 of 3"]}, "kornia": {"not to be had": ["no"]}}
    said = {row[0]: row[-1] for row in suite.rows(found)}
    assert said == {"einops": "FAILS: memory", "kornia": "not to be had"}
    assert "| einops | " in suite.with_table("before\n| library |\n|---|\n\nafter\n", found)
