"""The size of the package and who imports whom: what must not grow again, counted as ``make house`` counts it."""

from __future__ import annotations

import functools

import pytest

from tests.support.kernel import ROOT
from tools import house

# What is not at its target yet may only fall: lower the bound with it.
BOUNDS = {
    "import circles": 0,
    "import circles, imports for types counted": 0,
    "imports against the layers": 0,
    "functions over 50 lines": 0,
    "files over 500 lines": 0,
}


@functools.cache
def measured():
    """Return what is read from the code of the package; nothing is run."""
    return house.measure(ROOT / "tensormagic", ROOT / "setup.cfg")


@pytest.mark.parametrize("name", BOUNDS)
def test_it_does_not_grow_again(name):
    """Circles, imports against the layers, long functions and long files: no more than there are today."""
    found = measured()
    count, _ = house.MEASURES[name]
    places = {
        "import circles": found.circles,
        "import circles, imports for types counted": found.circles_for_types,
        "imports against the layers": found.against,
        "functions over 50 lines": found.long_functions,
        "files over 500 lines": found.long_files,
    }[name]
    assert count(found) == len(places)
    assert len(places) <= BOUNDS[name], "\n".join(places)


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
