"""Names that no file can have, and files that nothing can be read from: a sentence that says so."""

from __future__ import annotations

import os

import pytest
import torch

import tensormagic as tm
from tensormagic.errors import TensorMagicError


@pytest.fixture
def report():
    return tm.inspect(torch.ones(2), name="x")


def test_a_file_that_cannot_be_written_is_named(report, tmp_path, monkeypatch):
    """Once, and nothing else with it."""
    monkeypatch.setattr("pathlib.Path.replace", lambda *_: (tmp_path / "no").rename(tmp_path / "where"))
    with pytest.raises(OSError, match=r"x\.txt'$"):
        report.save(tmp_path / "x.txt")


def test_a_name_with_a_nul(report, tmp_path):
    """No system has files of such names."""
    with pytest.raises(TensorMagicError, match="cannot create the file"):
        report.save(tmp_path / "a\0b.txt")
    with pytest.raises(TensorMagicError):
        tm.read_snapshot(tmp_path / "a\0b")


def test_a_link_to_itself(report, tmp_path):
    """It leads to no file, whatever Python calls that."""
    (tmp_path / "x.txt").symlink_to(tmp_path / "x.txt")
    with pytest.raises((TensorMagicError, OSError)):
        report.save(tmp_path / "x.txt")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_that_nobody_writes_into(tmp_path):
    """It is not waited for."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TensorMagicError, match="it is not a file"):
        tm.read_snapshot(tmp_path / "pipe")
