"""What importing costs: the packages that must not be loaded, checked in a process of its own."""

from __future__ import annotations

import ast
import functools
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import tensormagic
from tensormagic.magics.about import FILES
from tests.support.kernel import ROOT

PACKAGE = Path(tensormagic.__file__).parent
HEAVY = ("torch", "numpy", "IPython", "plotly", "anywidget", "ipywidgets", "traitlets", "jinja2", "networkx")
PURE = sorted([PACKAGE / "errors.py", PACKAGE / "words.py", *(PACKAGE / "reports").glob("*.py")])


LOAD = (
    "from IPython.core.interactiveshell import InteractiveShell\n"
    "from traitlets.config import Config\n"
    "shell = InteractiveShell(config=Config(HistoryManager={'enabled': False}))\n"
    "shell.extension_manager.load_extension('tensormagic')\n"
    "assert 'tensormagic' in shell.extension_manager.loaded"
)


@functools.cache
def ours_after(statement):
    """Return which modules of this package a fresh interpreter has loaded after ``statement``, sorted."""
    code = f"{statement}\nimport sys, json\nprint(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    return [name for name in json.loads(run.stdout) if name.startswith("tensormagic.")]


def loaded_by(statement):
    """Return which of the heavy packages a fresh interpreter has loaded after ``statement``."""
    code = f"{statement}\nimport sys, json\nprint(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    return json.loads(run.stdout)


def foreign_imports(source):
    """Return the top-level packages imported anywhere in ``source`` that are neither standard library nor ours."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add("tensormagic" if node.level else node.module)
    top = {name.split(".")[0] for name in names}
    return sorted(top - sys.stdlib_module_names - {"tensormagic"})


@pytest.mark.parametrize("folder", ["tests/benchmarks", "tests/sweeps", "tools"])
def test_what_ci_does_not_run_imports_what_there_is(folder):
    """Each name that these files import from the package is an attribute of the module, or a module itself."""
    nodes = (node for path in (ROOT / folder).rglob("*.py") for node in ast.walk(ast.parse(path.read_text("utf-8"))))
    froms = [
        node for node in nodes if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tensormagic")
    ]
    assert froms
    for module, name in sorted({(node.module, alias.name) for node in froms for alias in node.names}):
        if not hasattr(importlib.import_module(module), name):
            importlib.import_module(f"{module}.{name}")


def test_reports_import_nothing_heavy():
    """Reading a saved report needs neither torch nor a notebook."""
    assert loaded_by("import tensormagic.reports") == []


def test_the_check_sees_a_heavy_import():
    """The same check names a package that was imported."""
    assert loaded_by("import tensormagic.reports, traitlets") == ["traitlets"]


def test_the_package_imports_no_notebook_and_no_plot():
    """``import tensormagic`` leaves IPython, plotly and widgets alone until they are used."""
    assert not {"IPython", "plotly", "anywidget", "ipywidgets"} & set(loaded_by("import tensormagic"))


def test_loading_the_extension_imports_no_torch_no_plot_and_no_widget():
    """``%load_ext tensormagic`` leaves what takes a second to import for its first use."""
    assert not {"torch", "numpy", "plotly", "anywidget", "ipywidgets"} & set(loaded_by(LOAD))


def test_loading_the_extension_imports_nothing_that_a_shell_does_not_need_yet():
    """No report, no diagnosis, no drawing, no collector, and no magic's own module before it is used."""
    beyond = [f"tensormagic.{layer}" for layer in ("reports", "diagnoses", "comparisons", "views", "commands")]
    assert [name for name in ours_after(LOAD) if name.startswith(tuple(beyond))] == []
    assert [name for name in ours_after(LOAD) if name.startswith("tensormagic.collectors.")] == [
        "tensormagic.collectors.requirements"
    ]
    assert [name for name in ours_after(LOAD) if name.startswith("tensormagic.api.")] == ["tensormagic.api.showing"]
    assert not {f"tensormagic.magics.{name}" for name in FILES} & set(ours_after(LOAD))


def test_unloading_imports_nothing():
    """What was never used is not imported to be put away."""
    after = ours_after(f"{LOAD}\nshell.extension_manager.unload_extension('tensormagic')")
    assert set(after) == set(ours_after(LOAD))


@pytest.mark.parametrize("path", PURE, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_plain_data_imports_the_standard_library_alone(path):
    """Not even inside a function or for a type hint does plain data import a foreign package."""
    assert foreign_imports(path.read_text(encoding="utf-8")) == []


def test_foreign_imports_sees_a_hidden_one():
    """The check finds an import inside a function and one for types alone."""
    source = "import os\nif TYPE_CHECKING:\n    from torch.nn import Module\ndef f():\n    import numpy as np\n"
    assert foreign_imports(source) == ["numpy", "torch"]


def test_importing_the_package_imports_neither_torch_nor_what_is_heavy():
    """Names are looked up when they are first asked for; until then nothing but the errors is there."""
    code = "import sys, tensormagic; print([m for m in sys.modules if m.startswith(('torch', 'tensormagic.'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "['tensormagic.lazy_exports', 'tensormagic.errors']"
