"""The page of libraries holds a row for each that the suite runs, at the version that is installed for it."""

from __future__ import annotations

import re

from tests.ecosystem import __main__ as suite
from tests.ecosystem.launchers import LAUNCHERS
from tests.ecosystem.libraries import LIBRARIES


def test_each_library_is_installed_and_on_the_page():
    """As many programs as requirements, each with its version on the page."""
    page = suite.PAGE.read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| ([\w-]+) \| ([\d.]+) \|", page, re.MULTILINE))
    pinned, starting = suite.versions(), {name for each in LAUNCHERS.values() for name in each.needs}
    assert rows == {name: pinned[name] for name in LIBRARIES}
    assert pinned.keys() == LIBRARIES.keys() | starting
    assert "FAILS" not in page


def test_each_launcher_is_on_the_page():
    """As it is called, at the version that is installed for it."""
    page = suite.PAGE.read_text(encoding="utf-8")
    for called, versions, outcome in suite.rows_of_launchers({name: {} for name in LAUNCHERS}):
        found = re.search(rf"^\| {re.escape(called)} \| (.*) \| {outcome} \|$", page, re.MULTILINE)
        assert found
        assert versions.startswith("torch ") or found[1] == versions


def test_what_fails_is_said():
    """By the names of the followers under which it does; what cannot be installed is no failure."""
    found = {"einops": {"trace": [], "memory": ["the results differ in 1 of 3"]}, "kornia": {"not to be had": ["no"]}}
    said = {row[0]: row[-1] for row in suite.rows(found)}
    assert said == {"einops": "FAILS: memory", "kornia": "not to be had"}
    (row,) = suite.rows_of_launchers({"ray": {"ranks": ["rank 0 came to something else"]}})
    assert row[-1] == "FAILS: ranks"
    page = suite.with_tables("before\n| library |\n|---|\n\n| two ranks started by |\n|---|\n\nafter\n", found)
    assert "| einops | " in page
