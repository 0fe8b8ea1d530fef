"""The page that holds other tools against this one: its figures are those that were measured, and nothing else is."""

from __future__ import annotations

import pytest

from tests.benchmarks.peers import tables
from tests.benchmarks.peers.environment import wanted

PAGE = tables.PAGE.read_text(encoding="utf-8")


def test_the_page_holds_what_was_measured():
    """Its sentence on when and with what, and its measured tables, are those of the last run."""
    assert tables.as_measured(PAGE, tables.measured()) == PAGE


def test_the_page_is_told_apart_from_another_run():
    """The comparison above can fail: another number of tensors, another cost, another outcome is another page."""
    for path in (("tensors", "kinds"), ("costs", "step_milliseconds"), ("graphs", "deep", "torchview")):
        found = tables.measured()
        place = found
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = "other" if path[-1] == "torchview" else 99
        assert tables.as_measured(PAGE, found) != PAGE, path


def test_the_versions_are_those_that_are_installed_for_it():
    """What `make peers` installs is what was measured, but for what could not be installed."""
    found = tables.measured()
    pins = dict(line.split("==") for line in wanted())
    assert found["versions"] == {name: version for name, version in pins.items() if name not in found["absent"]}


@pytest.mark.parametrize(("seen", "told"), [({"a": ""}, "yes"), ({"a": "TypeError: no"}, "raises"), ({}, "–")])
def test_what_a_tool_did_in_a_word(seen, told):
    """It worked, it raised, or it was not asked."""
    assert tables._outcome(seen, "a") == told
