"""Which of the lines on the stack is the user's own."""

from __future__ import annotations

import importlib
import json
import linecache
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import torch

import tensormagic
from tensormagic.collectors.where.source import SourceLines, is_own_code, lines_of
from tests.support.kernel import ROOT

PURELIB = sysconfig.get_path("purelib")


@pytest.mark.parametrize(
    ("filename", "own"),
    [
        (__file__, True),
        ("/home/ada/model.py", True),
        ("/home/ada/tensormagic/model.py", True),
        ("<ipython-input-3-0123456789ab>", True),
        ("/tmp/ipykernel_123/4567.py", True),
        ("<stdin>", True),
        ("<python-input-3>", True),
        ("<console>", True),
        ("<string>", True),
        ("<doctest model.f[0]>", True),
        ("<frozen importlib._bootstrap>", False),
        ("<__array_function__ internals>", False),
        (torch.__file__, False),
        (json.__file__, False),
        (tensormagic.__file__, False),
        (f"{PURELIB}/einops/einops.py", False),
        ("/home/ada/.local/lib/python3.11/site-packages/torch/functional.py", False),
        ("/usr/lib/python3/dist-packages/torch/functional.py", False),
        ("/tmp/torchinductor_ada/gj/cgjnyawxmfw7.py", False),
    ],
)
def test_own_code(filename, own):
    """Cells, scripts and modules of the user; not torch, Python, this package or anything installed."""
    assert is_own_code(filename) is own


class Here(SourceLines):
    """Knows the line that asks it."""

    def here(self, depth=1):
        return self.of_frame(sys._getframe(depth))


def test_equal_places_are_one_site():
    """The same line gives the same number, another line another, in order of first meeting."""
    sites = Here()
    first = [sites.here() for _ in range(3)]
    second = sites.here()
    assert (first, second) == ([0, 0, 0], 1)
    assert [location.line for location in sites.locations] == [sites.locations[0].line, sites.locations[0].line + 1]


def test_what_a_site_says():
    """File, line, text and function; no cell outside a notebook."""
    sites = Here()
    sites.here()  # this very line
    (location,) = sites.locations
    assert location.text == "sites.here()  # this very line"
    assert location.filename == __file__
    assert location.function == "test_what_a_site_says"
    assert location.cell is None
    lines = Path(__file__).read_text().splitlines()
    assert lines[location.line - 1].strip() == location.text


def test_the_number_of_a_cell():
    """The file name of a cell is asked for its number; at the top level there is no function."""
    sites = Here({"<ipython-input-9-x>": 9}.get)
    source = "def deep():\n    return sites.here()\n\ndeep()\nsites.here()\n"
    linecache.cache["<ipython-input-9-x>"] = (
        len(source),
        None,
        source.splitlines(keepends=True),
        "<ipython-input-9-x>",
    )
    try:
        exec(compile(source, "<ipython-input-9-x>", "exec"), {"sites": sites})
    finally:
        del linecache.cache["<ipython-input-9-x>"]
    told = [(place.cell, place.line, place.text, place.function, place.label) for place in sites.locations]
    assert told == [
        (9, 2, "return sites.here()", "deep", "cell 9, line 2"),
        (9, 5, "sites.here()", "", "cell 9, line 5"),
    ]


def test_library_frames_are_passed_over():
    """Where a library calls back, the line is the one that called the library."""
    sites = Here()
    names = {}
    code = compile("def through(function):\n    return function()\n", f"{PURELIB}/lib.py", "exec")
    exec(code, names)
    site = names["through"](lambda: sites.of_frame(sys._getframe(1)))
    assert sites.locations[site].function == "test_library_frames_are_passed_over"


def test_a_stack_without_own_code():
    """Nothing is made up."""
    names = {"sys": sys}
    code = compile("frame = sys._getframe(0)\n", f"{PURELIB}/lib.py", "exec")
    exec(code, names)
    assert SourceLines().of_frame(None) is None
    assert not is_own_code(names["frame"].f_code.co_filename)


def test_a_file_that_was_edited_and_loaded_again(tmp_path, monkeypatch):
    """Its lines are those that it has now, not those that Python read the first time."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    path = tmp_path / "edited_model.py"
    path.write_text("def step(sites):\n    return sites.here(1)\n")
    module = importlib.import_module("edited_model")
    monkeypatch.setitem(sys.modules, "edited_model", module)
    first, second = Here(), Here()
    module.step(first)
    path.write_text("# a line more\n\ndef step(sites):\n    return sites.here()  # as it is now\n")
    importlib.reload(module)
    module.step(second)
    assert [place.text for place in first.locations] == ["return sites.here(1)"]
    assert [(place.line, place.text) for place in second.locations] == [(4, "return sites.here()  # as it is now")]


@pytest.mark.parametrize("filename", ["y" * 5000, "", "<made up>", "a/" * 3000])
def test_code_of_any_name_is_traced(filename):
    """What `compile` takes as a file name may be no name that a disk has: it is no business of the run's."""
    code = "x = torch.ones(3, requires_grad=True)\nwith tm.trace() as trace:\n    (x * 2).sum().backward()"
    names = {"torch": torch, "tm": tensormagic}
    exec(compile(code, filename, "exec"), names)
    assert len(names["trace"].report.graphs) == 1
    assert lines_of(filename) == []


def test_what_was_typed_at_pythons_prompt_has_its_source(monkeypatch):
    """Python 3.14 keeps it in a table of its own, by the code."""
    kept = {("<python-input-7>", "step", 1): (6, None, ["x = 1\n"], "<python-input-7>")}
    monkeypatch.setattr(linecache, "_interactive_cache", kept, raising=False)
    assert lines_of("<python-input-7>") == ["x = 1\n"]
    assert lines_of("<python-input-8>") == []


def test_a_shell_that_is_installed_elsewhere_is_a_library(tmp_path):
    """As with ``pip install --target``; what lies beside it is the user's own."""
    (tmp_path / "IPython").mkdir()
    (tmp_path / "IPython" / "__init__.py").touch()
    code = (
        "import IPython\nfrom tensormagic.collectors.where.source import is_own_code\n"
        f"print(is_own_code(IPython.__file__), is_own_code({str(tmp_path / 'mine.py')!r}))"
    )
    settings = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    ran = subprocess.run([sys.executable, "-c", code], env=settings, capture_output=True, text=True, check=True)
    assert ran.stdout == "False True\n"


def test_a_package_reached_through_a_link(tmp_path):
    """As where a home folder is one: its frames are known as its own, so a compiled call gives the modes back."""
    (tmp_path / "tensormagic").symlink_to(Path(tensormagic.__file__).parent, target_is_directory=True)
    code = (
        "import torch\nimport tensormagic as tm\n"
        "double = torch.compile(lambda x: x * 2, backend='eager')\n"
        "with tm.trace(writes=True):\n    double(torch.ones(3))\n    print(torch._C._len_torch_function_stack())\n"
        "print(tm.__file__)"
    )
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["1", str(tmp_path / "tensormagic" / "__init__.py")]


@pytest.mark.parametrize("options", [{}, {"level": "ops"}, {"memory": True, "writes": True, "draws": True}])
@pytest.mark.parametrize("filename", ["nowhere.py", "no\udc80where.py"])
def test_a_loader_that_raises_ends_no_run(filename, options):
    """Python asks the loader of a module for the text of a line, and a loader may raise anything."""

    class Loader:
        def get_source(self, name):
            raise KeyError(name)

    code = "def f(w):\n    a = torch.zeros(3)\n    a.add_(1)\n    return (w * a * torch.rand(3)).sum()\n"
    names = {"torch": torch, "__name__": "made", "__loader__": Loader()}
    exec(compile(code, filename, "exec"), names)
    w = torch.ones(3, requires_grad=True)
    try:
        with tensormagic.trace(**options) as trace:
            names["f"](w).backward()
    finally:
        linecache.cache.pop(filename, None)
    run = trace.report.trace if options.get("memory") else trace.report
    assert len(run.passes) == 1
    assert run.gaps == ()
