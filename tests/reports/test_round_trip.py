"""A report saved and loaded is the same report, whatever it holds."""

from __future__ import annotations

import json
import math
from array import array
from dataclasses import fields, is_dataclass, replace

import pytest
from hypothesis import given, strategies as some

from tensormagic import reports
from tests.reports.samples import (
    HOSTILE,
    alias_report,
    comparison_report,
    failure_report,
    finding,
    overlay_report,
    ranks_report,
    tensor_report,
    tensor_table,
    trace_report,
    watch_report,
    why_report,
    writes_report,
)
from tests.reports.samples_memory import memory_report, memory_run_report
from tests.reports.samples_snapshot import snapshot_report
from tests.views import samples_freeing, samples_model, samples_rng, samples_run, samples_start

SAMPLES = {
    "aliases": alias_report,
    "comparison": comparison_report,
    "failure": failure_report,
    "freeing": samples_freeing.full,
    "memory": memory_report,
    "memory run": memory_run_report,
    "memory snapshot": snapshot_report,
    "overlay": overlay_report,
    "ranks": ranks_report,
    "rng": samples_rng.full_standing,
    "rng comparison": samples_rng.full_comparison,
    "rng run": samples_rng.full_run,
    "run": samples_run.full,
    "model": samples_model.hostile,
    "start": samples_start.full,
    "tensor": tensor_report,
    "tensors": tensor_table,
    "trace": trace_report,
    "watch": watch_report,
    "why": why_report,
    "writes": writes_report,
}


def through_json(report):
    """Return the report after a trip through strict JSON text."""
    text = json.dumps(report.to_dict(), allow_nan=False)
    return type(report).from_dict(json.loads(text))


def types_in(value):
    """Return the type of every value inside ``value``, so that 1, 1.0 and True count as different."""
    if is_dataclass(value):
        return type(value), [types_in(getattr(value, field.name)) for field in fields(value)]
    if isinstance(value, dict):
        return dict, {key: types_in(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple, [types_in(item) for item in value]
    return type(value)


@pytest.mark.parametrize("kind", SAMPLES)
def test_a_report_survives_json(kind):
    """Every field of every part comes back with its value and its type; NaN and both infinities included."""
    report = SAMPLES[kind]()
    loaded = through_json(report)
    assert repr(loaded) == repr(report)  # NaN is not equal to itself, its text is
    assert types_in(loaded) == types_in(report)


@pytest.mark.parametrize("kind", SAMPLES)
def test_the_sample_fills_every_part(kind):
    """The hand-made report is a fair sample: no optional part of it is left empty."""
    report = SAMPLES[kind]()
    every = [field.name for field in fields(report) if field.metadata.get("saved", True)]
    assert [name for name in every if getattr(report, name) in ((), {}, None, "")] == []


def test_the_three_that_json_lacks_stay_apart():
    """NaN, infinity and minus infinity are neither dropped nor confused, in plain floats and packed ones."""
    loaded = through_json(tensor_report())
    first, second, third = loaded.layout.grid.levels[0]
    assert math.isnan(first)
    assert (second, third) == (math.inf, -math.inf)
    norms = through_json(trace_report()).graphs[0].frames[1].norms
    assert isinstance(norms, array)
    assert norms.typecode == "f"
    assert norms[0] == reports.UNTOUCHED
    assert math.isnan(norms[1])
    assert norms[2] == math.inf


def test_hostile_text_comes_back_unchanged():
    """Nothing in the data format escapes or cuts text: that is for markup alone."""
    loaded = through_json(tensor_report())
    assert loaded.name == HOSTILE
    assert loaded.flags[HOSTILE] == HOSTILE
    assert loaded.findings[0].evidence["name"] == HOSTILE


@given(text=some.text())
def test_any_name_survives(text):
    """Any text at all can be a name, a finding's message and a piece of evidence's name."""
    given_finding = replace(finding(), message=text, evidence={text: 1})
    report = replace(tensor_report(), name=text, findings=(given_finding,))
    loaded = through_json(report)
    assert loaded.name == text
    assert loaded.findings == (given_finding,)


@pytest.mark.parametrize("text", ["nan", "inf", "-inf"])
def test_a_tensor_may_be_called_nan(text):
    """A name that reads like a number stays a name."""
    assert through_json(replace(tensor_report(), name=text)).name == text


@pytest.mark.parametrize("text", ["nan", "inf", "-inf"])
def test_evidence_may_be_called_nan(text):
    """A piece of evidence that is the text ``nan`` comes back as text."""
    report = replace(tensor_report(), findings=(replace(finding(), evidence={"name": text}),))
    assert through_json(report).findings[0].evidence == {"name": text}


def test_the_dictionary_says_what_it_is():
    """Kind and format version stand first, so that another program can tell what it reads."""
    data = tensor_report().to_dict()
    assert list(data)[:2] == ["tensormagic", "format"]
    assert data["tensormagic"] == "tensor"
    assert data["format"] == reports.FORMAT_VERSION


@pytest.mark.parametrize("kind", SAMPLES)
def test_reports_cannot_be_changed(kind):
    """A report is a record of a moment: assigning to it raises."""
    report = SAMPLES[kind]()
    with pytest.raises(AttributeError):
        report.findings = ()
