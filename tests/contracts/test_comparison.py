"""The page that holds other tools against this one: its figures are those that were measured, and nothing else is."""

from __future__ import annotations

import re

import pytest

from tests.benchmarks.peers import tables
from tests.benchmarks.peers.environment import wanted
from tests.support.kernel import ROOT

README = ROOT / "README.md"
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


def cells(head: str) -> list[str]:
    """Return the cells of the row of the README's comparison that begins so."""
    (row,) = re.findall(rf"^\| {re.escape(head)}.*$", README.read_text(encoding="utf-8"), re.MULTILINE)
    return [cell.strip() for cell in row.strip("|").split("|")][1:]


def test_the_readme_has_the_same_figures():
    """How many kinds of tensor are shown, and what a watched step costs."""
    found = tables.measured()
    shown = {tool: found["tensors"]["kinds"] - len(refused) for tool, refused in found["tensors"]["refused"].items()}
    assert cells("twenty kinds of tensor")[:2] == [str(shown["tensormagic"]), str(shown["lovely-tensors"])]
    step, forward = found["costs"]["of_the_step"], found["costs"]["of_the_forward"]
    costs = cells("cost of a step that is all overhead")
    assert costs[0] == f"× {step['tensormagic']:g}"
    assert costs[3] == f"× {forward['torchlens.trace']:g} of its forward"
    assert costs[4] == f"× {step['anomaly mode']:g} to {step['anomaly mode, 40 functions deep']:g}"


@pytest.mark.parametrize(("seen", "told"), [({"a": ""}, "yes"), ({"a": "TypeError: no"}, "raises"), ({}, "–")])
def test_what_a_tool_did_in_a_word(seen, told):
    """It worked, it raised, or it was not asked."""
    assert tables._outcome(seen, "a") == told
