"""What is shipped: sdist and wheel hold every file, work with the sources away, and versions are honest."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from importlib import metadata
from pathlib import Path

import nbformat
import pytest

from tests.support.every_magic import CELLS, SETUP
from tests.support.kernel import ROOT

NOT_SHIPPED = {"__pycache__"}
BESIDE_THE_PACKAGE = (
    "CHANGELOG.md",
    "CITATION.cff",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "constraints.txt",
    "pyproject.toml",
)
PURELIB = "import sysconfig; print(sysconfig.get_path('purelib'))"
# Prints where the package is, then each magic that ran without an error, then what else was found.
SMOKE = f"""
import contextlib, io, sys
from IPython.core.interactiveshell import InteractiveShell
from tensormagic import __file__ as place
from tensormagic.commands import main

shell = InteractiveShell.instance()
shell.run_cell({SETUP!r}).raise_error()
shell.run_cell("%load_ext tensormagic").raise_error()
done = []
for cell in {CELLS!r}:
    with contextlib.redirect_stdout(io.StringIO()):
        shell.run_cell(cell).raise_error()
    done.append(cell.split("\\n")[0])
for command in (["help", "tracegrad"], ["examples", "copied"]):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(command) == 0
    assert len(out.getvalue()) > 100
    done.append(command[0])
print(place, *done, sep="\\n")
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build the sdist from a copy of the sources, and from that the wheel, with the installed setuptools."""
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    for name in (*BESIDE_THE_PACKAGE, "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, source)
    (source / "tests").mkdir()
    (source / "tests" / "test_alone.py").write_text("")  # setuptools takes such files along where nobody says no
    for name in ("tensormagic", "examples", "docs"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns(*NOT_SHIPPED))
    build(source, "sdist", folder)
    shutil.rmtree(source)
    shutil.unpack_archive(next(folder.glob("*.tar.gz")), folder, filter="data")
    build(next(path for path in folder.iterdir() if path.is_dir()), "wheel", folder)
    return next(folder.glob("*.whl"))


def build(source, kind, folder):
    """Build an sdist or a wheel of a folder of sources."""
    code = f"import sys; from setuptools import build_meta; build_meta.build_{kind}(sys.argv[1])"
    ran = subprocess.run(
        [sys.executable, "-c", code, str(folder)], cwd=source, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


@pytest.fixture(scope="module")
def wheel(built):
    """Return the names of what is in the wheel."""
    with zipfile.ZipFile(built) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """Install the wheel into an environment of its own, which borrows what it needs from this one; give its Python."""
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-index", "--no-deps"]
    subprocess.run([*pip, str(built)], check=True)
    place = subprocess.run([str(python), "-c", PURELIB], check=True, capture_output=True, text=True).stdout.strip()
    Path(place, "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    return python


def test_the_sdist_holds_what_belongs_to_a_release(built):
    """Changelog and pinned versions come along, and no test file without the others."""
    (source,) = (path for path in built.parent.iterdir() if path.is_dir())
    assert {path.name for path in source.iterdir()} >= {*BESIDE_THE_PACKAGE, "README.md", "LICENSE"}
    assert not (source / "tests").exists()


def test_one_version_stands_everywhere():
    """The version of the package is the one to cite."""
    given = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert given is not None
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    assert cited is not None
    assert cited[1] == given[1]


def test_the_wheel_holds_every_file_of_the_package(wheel):
    """Scripts, styles and the typing marker are shipped, not only Python files."""
    files = [path for path in (ROOT / "tensormagic").rglob("*") if path.is_file() and not NOT_SHIPPED & {*path.parts}]
    missing = {path.relative_to(ROOT).as_posix() for path in files} - wheel
    assert missing == set()


def test_the_wheel_holds_nothing_else(wheel):
    """No tests and no tools come along; examples and documentation lie beside the package, under ``share``."""
    known = r"tensormagic(-[^/]+\.dist-info)?/|tensormagic-[^/]+\.data/data/share/tensormagic/(examples|docs)/"
    assert {name for name in wheel if not re.match(known, name)} == set()


def test_the_wheel_holds_the_examples(wheel):
    """``python -m tensormagic demo`` finds them in an installation."""
    shipped = {name.rpartition("/")[2] for name in wheel if "/share/tensormagic/examples/" in name}
    assert shipped == {path.name for path in (ROOT / "examples").iterdir() if path.suffix in {".ipynb", ".py"}}


def test_the_wheel_holds_the_documentation(wheel):
    """``%tensormagic help`` finds every page in an installation."""
    shipped = {name.partition("/share/tensormagic/")[2] for name in wheel if "/share/tensormagic/docs/" in name}
    assert shipped == {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")}


def run_installed(python, folder, *arguments):
    """Run the Python of the installation, away from the sources and from the settings of whoever runs the tests."""
    hidden = {"PYTHONPATH", "VIRTUAL_ENV"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment["JUPYTER_PATH"] = str(Path(sysconfig.get_path("data"), "share", "jupyter"))  # nbconvert's own pages
    environment |= {"IPYTHONDIR": str(folder), "JUPYTER_CONFIG_DIR": str(folder), "JUPYTER_DATA_DIR": str(folder)}
    command = [str(python), *map(str, arguments)]
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_an_installation_works_with_the_sources_away(installed, tmp_path):
    """Every magic once, in a shell of the environment that the wheel was installed into."""
    script = tmp_path / "smoke.py"
    script.write_text(SMOKE, encoding="utf-8")
    place, *done = run_installed(installed, tmp_path, script).splitlines()[-len(CELLS) - 3 :]
    assert Path(place).is_relative_to(installed.parent.parent)
    assert done == [*(line.split("\n")[0] for line in CELLS), "help", "examples"]


def test_the_commands_of_an_installation(installed, tmp_path):
    """`doctor` finds all well, `demo` runs a notebook in a kernel of its own, `show` reads a saved report."""
    doctor = run_installed(installed, tmp_path, "-m", "tensormagic", "doctor")
    assert doctor.endswith("everything works\n")
    assert str(installed) in doctor
    cells = (
        "%load_ext tensormagic\nimport torch, tensormagic\nprint(tensormagic.__file__)",
        "%tensor torch.ones(3) --save x.json",
    )
    nbformat.write(nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, cells))), tmp_path / "own.ipynb")
    run_installed(installed, tmp_path, "-m", "tensormagic", "demo", "--headless", "--notebook", "own.ipynb", "pages")
    page = (tmp_path / "pages" / "own.html").read_text(encoding="utf-8")
    assert str(installed.parent.parent) in page
    assert 'class="tm ' in page
    assert "torch.ones(3)" in run_installed(installed, tmp_path, "-m", "tensormagic", "show", "x.json")


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
