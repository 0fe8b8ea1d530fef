"""The size of the package and who imports whom: what must not grow again, counted as ``make house`` counts it."""

from __future__ import annotations

import functools
import re

import pytest

from tests.support.kernel import ROOT
from tools import house


@functools.cache
def measured():
    """Return what is read from the code of the package; nothing is run."""
    return house.measure(ROOT / "tensormagic", ROOT / "setup.cfg")


@pytest.mark.parametrize("kind", ["circles", "circles_for_types", "against", "long_functions", "long_files"])
def test_it_does_not_grow_again(kind):
    """No circle, no import against the layers, no function over 50 lines and no file over 500."""
    assert getattr(measured(), kind) == []


def test_the_page_has_a_row_for_every_measure():
    """The table in CONTRIBUTING.md stands between its marks and holds the rows that the tool writes."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    written = page.partition(house.BEGIN)[2].partition(house.END)[0].strip().splitlines()
    rows = {row.split("|")[1].strip(): row.split("|")[3].strip() for row in written[2:]}
    assert rows == {name: target for name, (_, target) in house.MEASURES.items()}


def test_every_file_has_a_subject():
    """Each file of the package is counted under one subject, and no more than a few belong to none."""
    subjects = [file.subject for file in measured().files]
    assert set(subjects) <= set(house.SUBJECTS)
    assert subjects.count("shared") < len(subjects) / 20


def test_where_to_look_names_places_that_there_are():
    """Each file and folder that CONTRIBUTING names for one of torch's terms is there, and each class in it."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = page.partition("### Where torch's terms are dealt with")[2].partition("\nThe import contracts")[0]
    named = re.findall(r"`((?:collectors|diagnoses)/[a-z_/.]+)`", table)
    assert len(named) > 12
    assert [path for path in named if not (ROOT / "tensormagic" / path).exists()] == []
    for name, path in re.findall(r"`([A-Z]\w+)` in `([a-z_/.]+)`", table):
        assert f"class {name}" in (ROOT / "tensormagic" / path).read_text(encoding="utf-8")
