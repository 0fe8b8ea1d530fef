"""%gpumem: what it shows, binds and saves, and that it leaves a session as it was."""

from __future__ import annotations

import gc
import json
import re
import weakref

import pytest
import torch
from IPython.core.error import UsageError

from tensormagic.reports import MemoryReport


def test_everything(cell):
    """Both forms in one display, names and categories in it."""
    (bundle,) = cell("%gpumem").shown
    assert sorted(bundle) == ["text/html", "text/latex", "text/plain"]
    for words in ("net.weight", "parameter", "cpu"):
        assert words in bundle["text/plain"]
    assert "net.weight" in bundle["text/html"]


def test_names_and_devices(cell):
    """Only what these lead to; only that device."""
    report = cell("%gpumem net a[0] --into r --text\nr").value
    assert report.title == "net, a[0]"
    assert {one.name for one in report.storages} == {"net.weight", "net.bias", "a"}
    cell("m = torch.zeros(5, device='meta')")
    report = cell("%gpumem --device meta --into r --text\nr").value
    assert {one.device for one in report.storages} == {"meta"}
    assert report.title == "meta"
    assert "memory of a on cuda ── no tensor is there" in cell("%gpumem a --device cuda --text").out
    ran = cell("%gpumem --device tpu")
    assert str(ran.error) == "torch knows no device 'tpu': cpu, cuda, cuda:1, mps, xpu, meta"


def test_one_item_of_many(cell):
    """An item that was asked for tells what letting go of it frees, although it does not stand out."""
    cell("losses = [torch.zeros(100) for _ in range(30)]")
    report = cell("%gpumem losses[17] --into r --text\nr").value
    assert [(one.code, one.nbytes) for one in report.freeable] == [("del losses[17]", 400)]


def test_outputs_and_variables(cell):
    """A tensor that a cell ended with is held by ``Out`` under its number."""
    cell("torch.ones(333)")
    report = cell("%gpumem --into r --text\nr").value
    one = next(one for one in report.storages if one.nbytes == 1332)
    assert one.name.startswith("Out[")
    assert any(holder.path.startswith("Out[") and holder.kind == "history" for holder in one.holders)


def test_large_outputs_are_found(cell):
    """TM501 and TM205, as the watch finds them; TM503 with the line."""
    cell("torch.ones(17 * 2**20 // 4)")
    cell("kept = torch.ones(5, 2**22)[0, :3]")
    report = cell("%gpumem --into r --text\nr").value
    assert [finding.code for finding in report.findings] == ["TM205", "TM501"]
    assert "`kept = kept.clone()`" in report.findings[0].remedy
    assert "%xdel" in report.findings[1].remedy
    cell("%reset -f out")


def test_into_and_save(cell, tmp_path):
    """Bound to a name, written as files, loaded again."""
    path = tmp_path / "report.json"
    ran = cell(f"%gpumem net --into r --save {path} --save {tmp_path}/r.html --save {tmp_path}/r.txt --text")
    assert ran.shown == []
    assert MemoryReport.from_dict(json.loads(path.read_text())) == cell("r").value
    assert "net.weight" in (tmp_path / "r.html").read_text()
    assert "net.weight" in (tmp_path / "r.txt").read_text()


def test_bad_input(cell):
    """Near names for unknown ones; an unknown option is refused; help is help."""
    ran = cell("%gpumem nett")
    assert isinstance(ran.error, UsageError)
    assert str(ran.error) == "there is no name 'nett' here; did you mean net?"
    assert "unrecognized arguments: --colour" in cell("%gpumem --colour").err
    assert "--device NAME" in cell("%gpumem --help").out


@pytest.mark.parametrize("magic", ["gpumem", "aliases"])
def test_the_help_tells_of_the_cell_magic_too(cell, magic):
    """A cell magic with its help and no cell is refused by IPython: the line magic tells of both."""
    first, second = re.findall(r"^usage: (%+\w+) ", cell(f"%{magic} --help").out, re.MULTILINE)
    assert (first, second) == (f"%{magic}", f"%%{magic}")


def test_inside_a_function(cell):
    """Its variables are names, told with their line."""
    cell("def work():\n    inner = torch.zeros(99)\n    %gpumem --into r --text\n    return inner.numel()\nwork()")
    one = next(one for one in cell("r").value.storages if one.nbytes == 396)
    assert one.name == "inner"
    assert one.holders[0].location.function == "work"


def test_names_complete(shell, cell):
    """As after %tensor."""
    cell("attention = a")
    _, matches = shell.complete("att", "%gpumem att", 11)
    assert "attention" in matches


def test_many_looks_leave_nothing(cell, shell):
    """As many objects and storages as after the first; no name, no output; what is deleted is gone."""
    cell("loss = net(torch.ones(3, 2)).sum()")
    gc.collect()  # the shells of other tests
    cell("%gpumem --text --into r")
    gc.collect()
    objects, storages = len(gc.get_objects()), shell.user_ns["r"].devices[0].storages
    own, version = set(shell.user_ns), shell.user_ns["a"]._version
    for _ in range(15):
        shell.run_line_magic("gpumem", "--text --into r")
    gc.collect()
    assert shell.user_ns["r"].devices[0].storages == storages
    assert len(gc.get_objects()) <= objects + 20
    assert (set(shell.user_ns), shell.user_ns["a"]._version) == (own, version)
    gone = weakref.ref(shell.user_ns["loss"])
    cell("del loss")
    assert gone() is None


def test_a_refusal_holds_nothing(cell):
    """The error that `%tensor` leaves is no reason why a tensor of the session is in memory."""
    cell("big = torch.zeros(500)")
    assert cell("%tensor print").error is not None
    report = cell("%gpumem --into r --text\nr").value
    one = next(one for one in report.storages if one.nbytes == 2000)
    assert [holder.path for holder in one.holders] == ["big"]


@pytest.mark.parametrize("line", ["%gpumem", "%gpumem net --text"])
def test_out_stays_as_it_is(cell, shell, line):
    """A line magic has no value."""
    assert cell(line).value is None
    assert shell.user_ns["Out"] == {}


def test_a_snapshot_has_its_own_devices(cell):
    """An option that would be passed over is refused."""
    told = cell("%gpumem --snapshot memory.pickle --device cuda:0").err
    assert "--snapshot shows all devices of the file: leave out --device" in told


def test_a_device_that_is_not_there(cell):
    """It says so, and tells nothing of what lies elsewhere."""
    cell("w = torch.ones(1000, 1000, requires_grad=True)\nlosses = [((w * 1.5) ** 2).sum() for _ in range(8)]")
    assert "TM503" in cell("%gpumem --device cpu --text").out
    out = cell("%gpumem --device cuda:7 --text").out
    assert "memory of cuda:7 ── no tensor is there" in out
    assert "torch sees no cuda:7 here" in out
    assert "TM503" not in out


def test_what_was_asked_for_is_told_once(cell):
    """A list that is asked for has its `clear()` among what letting go of it frees, and not beside it as well."""
    out = cell("losses = [torch.zeros(100) for _ in range(30)]\n%gpumem losses --text").out
    assert out.count("losses.clear()") == 1


@pytest.mark.parametrize(
    ("given", "device"),
    [("cuda", "cuda"), ("cuda:1", "cuda:1"), ("0", "cuda:0"), ("'cpu'", "cpu"), ("here", "cpu"), ("text", "cuda")],
)
def test_a_device_is_no_expression(shell, cell, given, device):
    """The message says how a device is asked for; a name of the user's that holds tensors is still theirs."""
    shell.user_ns |= {"here": torch.device("cpu"), "text": "cuda", "mps": [torch.ones(3)]}
    assert f"%gpumem --device {device}" in str(cell(f"%gpumem {given}").error)
    for other in ("mps", "mps[ 0 ]", "mps[0:1]", "{'a': mps}['a']"):
        assert cell(f"%gpumem {other} --text").error is None
