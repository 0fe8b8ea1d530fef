"""The few things a report works out by itself: offsets, labels, rows to show."""

from __future__ import annotations

import base64
import pickle
import subprocess
import sys

import pytest

from tensormagic import reports
from tests.reports.samples import finding, tensor_report, trace_report
from tests.support.kernel import ROOT


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


def test_a_report_that_comes_alone_is_drawn_all_the_same():
    """In a process that has imported nothing but plain data: what was sent there, or read with pickle."""
    sent = base64.b64encode(pickle.dumps(tensor_report())).decode()
    code = f"import base64, pickle; print(pickle.loads(base64.b64decode({sent!r})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.rstrip("\n") == str(tensor_report()).rstrip("\n")
