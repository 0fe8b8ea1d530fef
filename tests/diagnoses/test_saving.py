"""Checkpoints that cannot be loaded and parameters that cannot be set: the rule that is told, and a way that works."""

from __future__ import annotations

import linecache
import os
import pickle
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import tests
from tensormagic.api.diagnosing import explain_error
from tensormagic.diagnoses.mismatches import mismatch_of
from tensormagic.reports import FailureReport

LAMBDA = (
    "Files and other processes refer to functions and classes by name, and a lambda cannot be found that way: define "
    "it with def or class at the top of a module, or save net.state_dict()."
)


class Unforward(nn.Module):
    def foward(self, x):
        return x


class Settings:
    def __init__(self):
        self.rate = 0.1


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Linear(4, 2)


class Early(nn.Module):
    def __init__(self):
        self.layer = nn.Linear(1, 1)


def refused(line: str, space: dict[str, object]) -> FailureReport:
    """Run a line that fails, as a file of its own, and return what is known of the error."""
    linecache.cache["<cell-of-saving>"] = (len(line), None, [line + "\n"], "<cell-of-saving>")
    with pytest.raises(Exception) as caught:
        exec(compile(line, "<cell-of-saving>", "exec"), space)
    return explain_error(caught.value, namespace=space)


@pytest.fixture(scope="module")
def space(tmp_path_factory):
    """Return names: a model, its weights in several forms, and files (a first pickle marks classes)."""
    net, tmp_path = nn.Linear(4, 2), tmp_path_factory.mktemp("saved")
    torch.save(net, tmp_path / "whole.pt")
    normed = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    torch.save({"best": np.float64(1)}, tmp_path / "numbers.pt")
    torch.save(net.state_dict(), tmp_path / "weights.pt")
    folder = str(tmp_path)
    torch.save(Settings(), tmp_path / "own.pt")
    global Gone  # noqa: PLW0603  (a class that is no longer there when its file is read)
    Gone = type("Gone", (), {"__module__": __name__})
    torch.save(Gone(), tmp_path / "gone.pt")
    del Gone
    torch.jit.save(torch.jit.script(nn.Linear(1, 1)), tmp_path / "scripted.pt")
    whole = (tmp_path / "weights.pt").read_bytes()
    for name, content in (("half", whole[:1000]), ("empty", b""), ("text", b"hello"), ("page", b"<!DOCTYPE html>"),
                          ("pickled", pickle.dumps({"a": [1, 2, 3]}, protocol=4))):  # fmt: skip
        (tmp_path / f"{name}.pt").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "archive.pt", "w") as archive:
        archive.writestr("notes.txt", "notes")
    torch.save(net.state_dict(), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    files = ("old", "own", "gone", "scripted", "half", "empty", "text", "page", "pickled", "archive")
    wrapped = {f"module.{name}": value for name, value in net.state_dict().items()}
    return {
        "torch": torch, "nn": nn, "net": net, "parallel": nn.DataParallel(net), "state": net.state_dict(),
        "wrapped": wrapped, "nested": {"epoch": 3, "state_dict": net.state_dict()},
        "other": {"fc.weight": torch.ones(1)}, "whole": str(tmp_path / "whole.pt"),
        "normed": normed, "parallel_normed": nn.DataParallel(normed), "numbers": str(tmp_path / "numbers.pt"),
        "wrapped_normed": nn.DataParallel(normed).state_dict(),
        "path": str(tmp_path / "weights.pt"), "Unforward": Unforward, "Early": Early, "outer": Outer(),
        "os": os, "tests": tests, "folder": folder, **{name: f"{folder}/{name}.pt" for name in files},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("line", "rule", "ways"),
    [("torch.load(whole)", "The file holds a Linear (torch.nn.modules.linear.Linear), and torch.load reads tensors",
      ("torch.load(whole, weights_only=False)",)),
     ("net.load_state_dict(path)", "A model loads a dictionary of its weights, not a str.",
      ("net.load_state_dict(torch.load(path))",)),
     ("net.load_state_dict(wrapped)",
      "All names in the checkpoint begin with `module.`: it was saved from a model in nn.DataParallel",
      ('net.load_state_dict({name.removeprefix("module."): value for name, value in wrapped.items()})',)),
     ("parallel.load_state_dict(state)", "The model is in nn.DataParallel or DistributedDataParallel, which puts",
      ("parallel.module.load_state_dict(state)",)),
     ("net.load_state_dict(nested)", "The checkpoint holds more than weights, epoch and state_dict: the model's",
      ("net.load_state_dict(nested['state_dict'])",)),
     ("net.load_state_dict(other)", "The checkpoint must have the names of the Linear: weight is not in it", ()),
     ("net.weight = torch.ones(2, 4)", "A plain tensor cannot take the place of the parameter weight.",
      ("net.weight = nn.Parameter(torch.ones(2, 4))",)),
     ("Unforward()(torch.ones(1))", "A module is called through its method forward, and Unforward has none", ()),
     ("net.load_state_dict(state_dict=wrapped)", "All names in the checkpoint begin with `module.`",
      ('net.load_state_dict({name.removeprefix("module."): value for name, value in wrapped.items()})',)),
     ("normed.load_state_dict(wrapped_normed)", "All names in the checkpoint begin with `module.`",
      ('normed.load_state_dict({name.removeprefix("module."): value for name, value in wrapped_normed.items()})',)),
     ("parallel_normed.load_state_dict(normed.state_dict())", "The model is in nn.DataParallel",
      ("parallel_normed.module.load_state_dict(normed.state_dict())",)),
     ("net.load_state_dict({'weights': torch.ones(2, 4)})", "The checkpoint must have the names of the Linear", ()),
     ("net.load_state_dict(net)", "A model loads a dictionary of its weights, not a Linear.",
      ("net.load_state_dict(net.state_dict())",)),
     ("net.load_state_dict([1, 2])", "A model loads a dictionary of its weights, not a list.", ()),
     ("torch.load(numbers)", "The file holds a scalar (numpy._core.multiarray.scalar), and torch.load reads tensors",
      ("torch.load(numbers, weights_only=False)",)),
     ("net.weight, net.bias = torch.ones(2, 4), torch.ones(2)", "A plain tensor cannot take the place", ()),
     ("net.weight = net.weight - 0.1", "A plain tensor cannot take the place of the parameter weight.",
      ("with torch.no_grad(): net.weight -= 0.1",)),
     ("net.weight = 3", "The place of the parameter weight is for an nn.Parameter or None, not an int.", ()),
     ("nn.ModuleList([net])(torch.ones(1))", "A ModuleList holds layers and does not call them", ()),
     ("torch.optim.lr_scheduler.StepLR(net, 3)", "A scheduler takes the optimizer whose learning rate it changes",
      ()),
     ("net.load_state_dict(outer.state_dict())", "The names in the checkpoint that do not fit begin with `model.`, and",
      ('net.load_state_dict({name.removeprefix("model."): value for name, value in outer.state_dict().items()})',)),
     ("outer.load_state_dict(state)", "The names in the checkpoint that do not fit are in the model with `model.`",
      (('outer.load_state_dict({name if name in outer.state_dict() else "model." + name: value '
        "for name, value in state.items()})"),)),
     ("torch.load(own)", "The file holds a Settings (tests.diagnoses.test_saving.Settings), and torch.load reads",
      ("torch.serialization.add_safe_globals([tests.diagnoses.test_saving.Settings])",
       "torch.load(own, weights_only=False)")),
     ("torch.load(half)", "The file is empty, or only the beginning of one: it was saved or copied in part.", ()),
     ("torch.load(empty)", "The file is empty, or only the beginning of one", ()),
     ("torch.load(text)", "The file is not a checkpoint, or is damaged: look at how it begins.", ()),
     ("torch.load(page)", "The file is not a checkpoint, or is damaged: look at how it begins.", ()),
     ("torch.load(page, weights_only=False)", "The file is not a checkpoint, or is damaged: look at how it", ()),
     ("torch.load(pickled)", "The file holds a pickle of protocol 4 or later, and torch.load only reads protocol", ()),
     ("torch.load(archive)", "The file is a zip archive, but not one that torch.save wrote", ()),
     ("torch.load(scripted)", "The file is a model that torch.jit.save wrote, not a checkpoint.",
      ("torch.jit.load(scripted)",)),
     ("torch.jit.load(path)", "The file was not written by torch.jit.save: a checkpoint is read with torch.load.",
      ("torch.load(path)",)),
     ("torch.load(gone, weights_only=False)", "The file names Gone of tests.diagnoses.test_saving, which has none",
      ()),
     ("torch.save(lambda: 1, folder + '/function.pt')",
      LAMBDA, ()),
     ("torch.load(old, mmap=True)", "The file has the format of torch before 1.6, which cannot be mapped", ()),
     ("torch.save(state, folder + '/new/state.pt')", "There is no folder ", None)],
)  # fmt: skip
def test_what_is_told_is_so_and_the_way_works(space, line, rule, ways):
    report = refused(line, space)
    clash = report.mismatch
    assert "\x1b" not in report.error  # torch.load writes its message for a terminal
    assert clash.rule.startswith(rule)
    ways = (f"os.makedirs('{space['folder']}/new', exist_ok=True)",) if ways is None else ways
    assert clash.maybe == ways
    for way in ways:
        exec(way, space)
    torch.serialization.clear_safe_globals()


def test_a_file_from_a_gpu_is_read_onto_the_cpu():
    """The words of torch.load where there is no GPU: they cannot be had otherwise on every machine."""
    words = ("Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. If you are "
             "running on a CPU-only machine, please use torch.load with map_location=torch.device('cpu')")  # fmt: skip
    report = FailureReport(error_type="RuntimeError", error=words, function="torch.load", call="torch.load(path)")
    clash = mismatch_of(report)
    assert clash.rule == "The file was saved from a CUDA device, and torch finds none here."
    assert clash.maybe == ("torch.load(path, map_location='cpu')",)
    (way,) = mismatch_of(replace(report, call="Trainer.load(path)")).maybe
    assert way == "torch.load(…, map_location='cpu')"  # a library's function, which may take no such argument
    clash = mismatch_of(replace(report, error="Attempting to deserialize object on CUDA device 3 but "
                                "torch.cuda.device_count() is 1. Please use torch.load with map_location to map your "
                                "storages to an existing device."))  # fmt: skip
    assert clash.rule == "The file was saved from CUDA device 3, which is not here."


def test_a_file_that_would_call_the_system_is_not_to_be_read_whole():
    words = "Weights only load failed. Trying to load unsupported GLOBAL posix.system whose module posix is blocked."
    clash = mismatch_of(FailureReport(error_type="UnpicklingError", error=words, call="torch.load(path)"))
    assert clash.rule.startswith("Reading this file would call posix.system")
    assert not clash.maybe
