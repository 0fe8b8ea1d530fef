"""The few things a report works out by itself: offsets, labels, rows to show."""

from __future__ import annotations

import pytest

from tensormagic import reports
from tensormagic.errors import TensorMagicError
from tensormagic.reports.base import install_outlet
from tests.reports.samples import finding, tensor_report, trace_report


def test_the_offset_formula_gives_what_the_grid_shows():
    """storage_offset + i·4 + j·1, for every index of the grid."""
    layout = tensor_report().layout
    computed = tuple(tuple(layout.offset((row, column)) for column in range(3)) for row in range(2))
    assert computed == layout.grid.offsets


def test_an_index_of_the_wrong_length_is_refused():
    """An offset needs one index a dimension."""
    with pytest.raises(ValueError, match="shorter"):
        tensor_report().layout.offset((1,))


@pytest.mark.parametrize(
    ("location", "label"),
    [
        (reports.Location("<ipython-input-5>", 12, cell=5), "cell 5, line 12"),
        (reports.Location("/home/me/model.py", 3), "model.py, line 3"),
        (reports.Location("C:\\me\\model.py", 3), "model.py, line 3"),
    ],
)
def test_a_location_is_told_as_a_person_would(location, label):
    """By cell in a notebook, by file name elsewhere."""
    assert location.label == label


def test_a_finding_points_to_its_page():
    """The page is named for the code."""
    assert finding().url == "docs/diagnoses/TM402.md"


def test_metadata_begins_with_the_eight_that_tutorials_name():
    """The rows stand in the order to show, with the numbers of this tensor."""
    rows = tensor_report().metadata
    names = ["data", "dtype", "shape", "device", "requires_grad", "grad", "grad_fn", "is_leaf"]
    assert list(rows)[:8] == names
    assert rows["stride"] == "(4, 1)"
    assert rows["storage_offset"] == "5"
    assert rows["storage address"] == "0x7f0000000040"
    assert rows["is_conj"] == "False"


def test_a_trace_finds_its_lines_and_nodes():
    """Locations are found by index, and no index is no location."""
    trace = trace_report()
    assert [node.op for node in trace.nodes] == ["accumulate", "log", "sum"]
    assert trace.location(trace.nodes[1].location).cell == 5
    assert trace.location(None) is None


def test_a_report_without_the_package_above_it_says_what_to_import():
    """Plain data alone cannot be drawn; the message says what makes it so."""
    from tensormagic.reports import base

    installed = base._outlet
    install_outlet(None)
    try:
        with pytest.raises(TensorMagicError, match="import tensormagic first"):
            str(tensor_report())
    finally:
        install_outlet(installed)
