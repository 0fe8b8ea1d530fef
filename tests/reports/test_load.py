"""Reports that come from files: they come back whole, and what is wrong with a file is told in a sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tensormagic as tm
from tensormagic import reports
from tensormagic.reports.base import RENAMED
from tests.reports.samples import tensor_report, trace_report, watch_report


def written(folder: Path, change=None) -> Path:
    """Return a saved trace, changed as asked."""
    data = trace_report().to_dict()
    if change is not None:
        change(data)
    path = folder / "run.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def refused(path: Path, cls=reports.TraceReport) -> str:
    with pytest.raises(tm.ReportFormatError) as refusal:
        cls.load(path)
    return str(refusal.value)


@pytest.mark.parametrize("make", [trace_report, tensor_report])
def test_what_was_saved_loads_back(make, tmp_path):
    """Saved by ``save``, into a folder that was not there, read by ``load``: the same report."""
    report = make()
    path = tmp_path / "my runs" / "one.json"
    report.save(path)
    assert repr(type(report).load(path)) == repr(report)
    assert repr(type(report).load(str(path))) == repr(report)


def renamed(data):
    """Return saved data with the names that fields had in older files, and how many there were."""
    if isinstance(data, list):
        found = [renamed(each) for each in data]
        return [each for each, _ in found], sum(number for _, number in found)
    if not isinstance(data, dict):
        return data, 0
    found = {key: renamed(each) for key, each in data.items()}
    old = {RENAMED.get(key, key): each for key, (each, _) in found.items()}
    return old, sum(number for _, number in found.values()) + len(RENAMED.keys() & data.keys())


@pytest.mark.parametrize("make", [trace_report, watch_report])
def test_fields_have_the_names_of_older_files_too(make, tmp_path):
    """A field that was renamed is read by its old name."""
    report = make()
    data, number = renamed(report.to_dict())
    assert number >= 2
    (tmp_path / "old.json").write_text(json.dumps(data), encoding="utf-8")
    assert repr(type(report).load(tmp_path / "old.json")) == repr(report)


def test_home_is_understood(tmp_path, monkeypatch):
    """A path that begins with ``~``, both ways."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    trace_report().save("~/run.json")
    assert (tmp_path / "run.json").is_file()
    assert reports.TraceReport.load("~/run.json").title == "Net"


def test_a_file_that_is_not_there(tmp_path):
    """The file, and why it cannot be read."""
    assert refused(tmp_path / "no.json") == f"cannot read {str(tmp_path / 'no.json')!r}: No such file or directory"


@pytest.mark.parametrize("text", ["", "{", "\x00\x01", "[" * 100_000, '{"a": 1} x'])
def test_a_file_that_is_no_json(text, tmp_path):
    """Empty, cut, binary, nested without end: one sentence with the file's name."""
    path = tmp_path / "run.json"
    path.write_text(text, encoding="utf-8")
    assert refused(path).startswith(f"cannot load {str(path)!r}: it is not a JSON file: ")


def test_a_file_that_is_no_text(tmp_path):
    """Bytes that are no UTF-8."""
    path = tmp_path / "run.json"
    path.write_bytes(b"\xff\xfe\xfa")
    assert "it is not a JSON file" in refused(path)


def test_another_kind(tmp_path):
    """A tensor's report where a trace is expected."""
    tensor_report().save(tmp_path / "x.json")
    assert refused(tmp_path / "x.json").endswith("expected a saved 'trace' report, but this is 'tensor'")


def test_a_newer_format_says_to_upgrade(tmp_path):
    """The version in the file, the one that is understood, and what to do."""
    path = written(tmp_path, lambda data: data.update(format=7))
    assert refused(path).endswith(
        "this report has format 7; this version reads format 1. It was saved by a newer tensormagic: upgrade with "
        "pip install -U tensormagic"
    )


def test_a_field_that_is_not_known_is_passed_over(tmp_path):
    """A later release of the same format may add fields."""
    path = written(tmp_path, lambda data: data.update(invented=[1, 2]))
    assert repr(reports.TraceReport.load(path)) == repr(trace_report())


DAMAGE = {
    "text for a number": lambda data: data.update(passes_seen="2"),
    "a number for text": lambda data: data.update(title=3),
    "truth for a number": lambda data: data.update(steps_seen=True),
    "an unknown state": lambda data: data.update(state="melted"),
    "a list for a graph": lambda data: data.update(graphs=[[]]),
    "an edge into nowhere": lambda data: data["graphs"][0]["edges"][0].update(target=99),
    "a root below zero": lambda data: data["graphs"][0].update(roots=[-1]),
    "an order beyond the end": lambda data: data["graphs"][0].update(order=[0, 10**12]),
    "a node without its number": lambda data: data["graphs"][0]["nodes"][0].update(index=1),
    "a node on a line that is not there": lambda data: data["graphs"][0]["nodes"][0].update(location=5),
    "too few norms": lambda data: data["graphs"][0]["frames"][0].update(norms=[1.0]),
    "bad values of a node that is not there": lambda data: data["graphs"][0]["frames"][0].update(bad={"x": [1, 0]}),
    "a nonfinite in nowhere": lambda data: data["graphs"][0]["first_nonfinite"][0].update(receiver=77),
    "a pass on a line that is not there": lambda data: data["passes"][0].update(location=9),
    "a parameter with too many norms": lambda data: data["parameters"][0].update(norms=[1.0] * 9),
    "a finding about nothing": lambda data: data["findings"][0].update(node=[1, 99]),
    "a quiet fault at nothing": lambda data: data["silent_errors"]["unseen"][0].update(node=99),
    "a failed backward at nothing": lambda data: data["failure"]["backward"]["freed"].update(graph=7),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_refused_as_a_whole(damage, tmp_path):
    """Whatever does not fit together is told before anything trusts it."""
    assert refused(written(tmp_path, DAMAGE[damage])).startswith("cannot load ")
