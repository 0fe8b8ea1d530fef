"""What is shipped: the wheel holds every file of the package, and versions are honest."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata

import pytest

from tests.support.kernel import ROOT

NOT_SHIPPED = {"__pycache__"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel from a copy of the sources, with the installed setuptools; return the names inside."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "tensormagic", source / "tensormagic", ignore=shutil.ignore_patterns(*NOT_SHIPPED))
    shutil.copytree(ROOT / "examples", source / "examples")
    code = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, str(source)], cwd=source, check=True, capture_output=True)
    with zipfile.ZipFile(next(source.glob("*.whl"))) as archive:
        return set(archive.namelist())


def test_the_wheel_holds_every_file_of_the_package(wheel):
    """Scripts, styles and the typing marker are shipped, not only Python files."""
    files = [path for path in (ROOT / "tensormagic").rglob("*") if path.is_file() and not NOT_SHIPPED & {*path.parts}]
    missing = {path.relative_to(ROOT).as_posix() for path in files} - wheel
    assert missing == set()


def test_the_wheel_holds_nothing_else(wheel):
    """No tests and no tools come along; the examples lie beside the package, under ``share``."""
    known = r"tensormagic(-[^/]+\.dist-info)?/|tensormagic-[^/]+\.data/data/share/tensormagic/examples/"
    assert {name for name in wheel if not re.match(known, name)} == set()


def test_the_wheel_holds_the_examples(wheel):
    """``python -m tensormagic demo`` finds them in an installation."""
    shipped = {name.rpartition("/")[2] for name in wheel if "/share/tensormagic/examples/" in name}
    assert shipped == {path.name for path in (ROOT / "examples").iterdir() if path.suffix in {".ipynb", ".py"}}


def constraints():
    """Return name → version of constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line.split(";")[0].strip() for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", pin) for pin in pins), "exact versions, no addresses"
    return dict(pin.split("==") for pin in pins)


@pytest.mark.parametrize("package", ["torch", "ipython", "ipywidgets", "plotly", "anywidget", "jupyterlab"])
def test_the_tests_run_on_the_versions_that_are_pinned(package):
    """What constraints.txt says is what is installed (build tags such as ``+cpu`` aside)."""
    if sys.version_info < (3, 11):
        pytest.skip("the pinned releases need Python 3.11")
    assert metadata.version(package).split("+")[0] == constraints()[package]


@pytest.mark.parametrize(
    ("package", "name"), [("torch", "torch"), ("ipython", "IPython"), ("jupyterlab", "JupyterLab")]
)
def test_the_readme_names_the_versions_that_were_run(package, name):
    """The versions in the README are those of constraints.txt."""
    assert f"{name} {constraints()[package]}" in (ROOT / "README.md").read_text(encoding="utf-8")
