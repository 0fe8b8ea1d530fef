"""The page of libraries holds a row for each that the suite runs, at the version that is installed for it."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from tests.ecosystem import __main__ as suite
from tests.ecosystem.launchers import LAUNCHERS
from tests.ecosystem.libraries import LIBRARIES
from tests.support.kernel import ROOT


def test_each_library_is_installed_and_on_the_page():
    """As many programs as requirements, each with its version on the page."""
    page = suite.PAGE.read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| ([\w-]+) \| ([\d.]+) \|", page, re.MULTILINE))
    pinned, starting = suite.versions(), {name for each in LAUNCHERS.values() for name in each.needs}
    assert rows == {name: pinned[name] for name in LIBRARIES}
    assert pinned.keys() == LIBRARIES.keys() | starting
    assert "FAILS" not in page


def test_each_launcher_is_on_the_page():
    """As it is called, at the version that is installed for it."""
    page = suite.PAGE.read_text(encoding="utf-8")
    for called, versions, outcome in suite.rows_of_launchers({name: {} for name in LAUNCHERS}):
        found = re.search(rf"^\| {re.escape(called)} \| (.*) \| {outcome} \|$", page, re.MULTILINE)
        assert found
        assert versions.startswith("torch ") or found[1] == versions


def test_what_fails_is_said():
    """By the names of the followers under which it does; what cannot be installed is no failure."""
    found = {"einops": {"trace": [], "memory": ["the results differ in 1 of 3"]}, "kornia": {"not to be had": ["no"]}}
    said = {row[0]: row[-1] for row in suite.rows(found)}
    assert said == {"einops": "FAILS: memory", "kornia": "not to be had"}
    (row,) = suite.rows_of_launchers({"ray": {"ranks": ["rank 0 came to something else"]}})
    assert row[-1] == "FAILS: ranks"
    page = suite.with_tables("before\n| library |\n|---|\n\n| two ranks started by |\n|---|\n\nafter\n", found)
    assert "| einops | " in page


_THEIRS = """
import torch

def test_sees_the_mode():
    assert not torch._C._len_torch_function_stack()

def test_leaves_a_mode():
    torch.set_default_dtype(torch.float64)

def test_trains():
    w = torch.ones(2, requires_grad=True)
    (w * float("nan")).sum().backward()
"""


def test_tests_of_another_project_are_followed(tmp_path):
    """Those that see the tool, or leave something, fail; what was found in the others is counted."""
    (tmp_path / "test_theirs.py").write_text(_THEIRS, encoding="utf-8")
    said = {}
    for follow in ("none", "trace"):
        environment = os.environ | {"FOLLOW": follow, "PYTHONPATH": str(ROOT / "tests" / "ecosystem")}
        command = [sys.executable, "-m", "pytest", "-p", "followed", "-p", "no:cacheprovider", "-rf", "--no-header"]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=100
        )
        said[follow] = done.stdout
    assert "3 passed" in said["none"]
    assert "2 failed, 1 passed" in said["trace"]
    assert "test_leaves_a_mode - Failed: default dtype" in said["trace"]
    assert "1 TM401 error" in said["trace"]
