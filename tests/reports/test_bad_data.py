"""What is said when data is no saved report: what was given, and what was expected."""

from __future__ import annotations

import pytest

from tensormagic import reports
from tensormagic.errors import ReportFormatError
from tensormagic.reports.base import encode
from tests.reports.samples import tensor_report, trace_report


def saying(data, cls=reports.TensorReport):
    """Return the message with which ``cls`` refuses ``data``."""
    with pytest.raises(ReportFormatError) as refusal:
        cls.from_dict(data)
    return str(refusal.value)


def test_another_kind_is_named():
    """Both the kind that was given and the kind that was expected are in the message."""
    assert saying(trace_report().to_dict()) == "expected a saved 'tensor' report, but this is 'trace'"


def test_data_without_a_kind_is_refused():
    """A dictionary of anything else is no report."""
    assert saying({"x": 1}) == "expected a saved 'tensor' report, but this is None"
    assert saying({"x": 1}, reports.Report) == "expected a saved report, but this is None"
    assert saying({"tensormagic": ["trace"]}, reports.Report) == "expected a saved report, but this is ['trace']"


def test_the_base_of_reports_reads_any_of_them():
    """What is in a file says of which class it is."""
    assert repr(reports.Report.from_dict(trace_report().to_dict())) == repr(trace_report())


@pytest.mark.parametrize("data", [[], None, 5, "x" * 1000])
def test_what_is_no_dictionary_is_refused(data):
    """A JSON file can hold a list, a number, a long text: each is told, and cut."""
    assert saying(data) == f"expected a saved 'tensor' report, but this is {data!r:.80}"


def test_another_format_is_named():
    """A report of a later version says which format it has and which is understood."""
    message = saying(tensor_report().to_dict() | {"format": 99})
    assert message.startswith("this report has format 99; this version reads format 1. It was saved by a newer")
    old = saying(tensor_report().to_dict() | {"format": 0})
    assert old == "this report has format 0; this version reads format 1"


def test_a_missing_part_is_named():
    """A required field that is not there is told by name."""
    data = tensor_report().to_dict()
    del data["dtype"]
    message = saying(data)
    assert message.startswith("this is not a saved TensorReport: TypeError:")
    assert "'dtype'" in message


@pytest.mark.parametrize(
    ("field", "value"),
    [("shape", 5), ("storage", "none"), ("layout", []), ("statistics", {"mean": 1.0}), ("aliases", [1])],
)
def test_a_part_of_the_wrong_shape_is_refused(field, value):
    """Data that cannot be what the field holds is refused, not passed on."""
    message = saying(tensor_report().to_dict() | {field: value})
    assert message.startswith("this is not a saved TensorReport: ")


def test_a_word_where_a_number_belongs_is_refused():
    """A word is no number."""
    data = trace_report().to_dict() | {"seconds": "long"}
    assert "expected a number, but here is 'long'" in saying(data, reports.TraceReport)


def test_a_live_object_is_no_plain_data():
    """Anything but plain data is refused when it is written, by type."""
    with pytest.raises(ReportFormatError, match=r"plain data only, but here is a complex: 1j"):
        encode({"x": 1j})
