"""Saved reports that were damaged, or made to be: refused with a sentence, before anything is drawn of them."""

from __future__ import annotations

import base64
import copy
import json
import os
import random
import zlib

import pytest
import torch
from torch import nn

import tensormagic as tm
from tensormagic.errors import ReportFormatError

ODD = ("x", "", "A" * 5000, -1, 0, 3, 10**6, 10**30, 10**400, 0.5, True, None, [], {}, [1, 2], {"float": "nan"})


def saved(report):
    return json.loads(json.dumps(report.to_dict()))


def samples():
    """Reports of every kind that is quickly had."""
    torch.manual_seed(0)
    net, memory = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)), torch.zeros(12)
    names = {"net": net, "x": torch.rand(3, 8, 8), "memory": memory, "view": memory[4:]}
    with tm.trace(namespace=names, level="ops") as trace:
        net(torch.ones(2, 3)).sum().backward()
    with tm.track_memory(namespace=names) as run:
        torch.ones(8, 8) @ torch.ones(8, 8)
    with tm.watch_writes(namespace=names) as writes:
        memory.add_(1)
    with tm.track_rng(namespace=names) as draws:
        torch.randn(3)
    return {
        "picture": tm.inspect(names["x"], name="x", picture=True),
        "view": tm.inspect(names["view"], name="view", namespace=names),
        "overlay": tm.overlay({"a": memory[:8], "b": memory[4:]}),
        "aliases": tm.aliases(names),
        "tensors": tm.tensors(names),
        "memory": tm.memory(names),
        "rng": tm.rng(names),
        "check": tm.check(names),
        "why": tm.why(net[0].weight, namespace=names),
        "trace": trace.report,
        "run": run.report,
        "writes": writes.report,
        "draws": draws.report,
    }


@pytest.fixture(scope="module")
def reports():
    return samples()


def load(tmp_path, data):
    file = tmp_path / "report.json"
    file.write_text(json.dumps(data))
    return tm.load(file)


def places(data, path=()):
    """Yield every place in plain data, as the keys that lead there."""
    pairs = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in pairs:
        yield (*path, key)
        yield from places(value, (*path, key))


def changed(data, rng):
    """Return a copy in which one value was replaced, taken away or doubled."""
    data = copy.deepcopy(data)
    *way, last = rng.choice(list(places(data)))
    holder = data
    for key in way:
        holder = holder[key]
    how = rng.random()
    if how < 0.8:
        holder[last] = rng.choice(ODD)
    elif how < 0.9 or not isinstance(holder, list):
        del holder[last]
    else:
        holder.insert(last, holder[last])
    return data


def test_what_is_whole_is_loaded(reports, tmp_path):
    """Every kind, and it is what it was."""
    for report in reports.values():
        assert load(tmp_path, saved(report)).to_dict() == saved(report)


def test_damaged_reports_are_refused_or_drawn(reports, tmp_path):
    """One thing in a report is otherwise: it is refused in a sentence that is not long, or can be read."""
    rng, refusals = random.Random(0), []
    wholes = {name: saved(report) for name, report in reports.items()}
    for at in range(int(os.environ.get("TENSORMAGIC_DAMAGED", "300"))):
        name = rng.choice(list(wholes))
        data = changed(wholes[name], rng)
        try:
            report = load(tmp_path, data)
        except ReportFormatError as error:
            refusals.append(str(error))
        else:
            assert str(report), (at, name)
    assert refusals
    assert max(map(len, refusals)) < 1000


@pytest.mark.parametrize(
    "data",
    [
        {"tensormagic": "report", "format": 1},
        {"tensormagic": "nothing", "format": 1},
        {"tensormagic": ["tensor"], "format": 1},
        [],
        None,
    ],
)
def test_what_is_no_report(data, tmp_path):
    """A file that says of itself what no report is."""
    with pytest.raises(ReportFormatError):
        load(tmp_path, data)


def test_a_version_that_is_no_number(reports, tmp_path):
    """JSON's true is not the number one."""
    with pytest.raises(ReportFormatError):
        load(tmp_path, {**saved(reports["rng"]), "format": True})


def test_a_picture_of_other_pixels_is_not_unpacked(reports, tmp_path):
    """A gigabyte of zeros takes a megabyte: no more is unpacked than width and height say."""
    data = saved(reports["picture"])
    data["picture"]["images"][0]["pixels"] = base64.b64encode(zlib.compress(bytes(1 << 26))).decode()
    with pytest.raises(ReportFormatError, match="pixels"):
        load(tmp_path, data)
    data["picture"]["images"][0]["pixels"] = "no base64"
    with pytest.raises(ReportFormatError, match="pixels"):
        load(tmp_path, data)


@pytest.mark.parametrize("start", [-1, 10**6, 10**18])
def test_an_element_outside_its_memory_is_not_drawn(start, reports, tmp_path):
    """The page would have a cell for each byte before it."""
    data = saved(reports["overlay"])
    data["storages"][0]["rows"][0]["elements"][2]["start"] = start
    with pytest.raises(ReportFormatError, match="element"):
        load(tmp_path, data)
