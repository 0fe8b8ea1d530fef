"""Runs every magic, and the quick tests, on each combination of versions that is promised.

``make matrix`` makes a virtual environment for each row of `ROWS` in ``build/matrix``, and ends with a table of what
works. A version for which nothing can be installed here (torch without a CPU build, a Python that is not there) is
named with the reason. ``make matrix MATRIX='--smoke oldest'``: the magics alone, on the one row. ``MATRIX=--cuda``
takes a build of torch for CUDA (several gigabytes a row, gone when the row is done) where there is none for the CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import nbformat

from tests.support.every_magic import CELLS, SETUP

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "matrix"
RUNNER = ("nbconvert", "ipykernel")  # what `tensormagic demo --headless` needs beside the package
TESTS = ("expecttest", "hypothesis", "pytest", "pytest-xdist", "scikit-learn", "setuptools")
QUICK = ("-q", "--numprocesses", "logical", "-m", "not browser and not notebook and not corpus", "tests")
# Of the repository's own tools, which are held in the newest environment alone.
NOT_HERE = ("tests/contracts", "tests/tools", "tests/browser", "tests/notebooks")


@dataclass(frozen=True)
class Row:
    """One combination: the Python to run, and versions that differ from those in constraints.txt."""

    name: str
    python: str = "3.11"
    pins: tuple[str, ...] = ()
    newest: bool = False  # without constraints.txt: what pip finds today


OLDEST = ("ipython==7.34.0", "numpy==1.24.0", "ipywidgets==7.7.0", "anywidget==0.9.0", "plotly==5.24.0", "rich==13.0.0")
COLAB = ("ipython==7.34.0", "ipykernel==6.17.1", "numpy==2.0.2", "ipywidgets==7.7.1", "plotly==5.24.1", "rich==13.9.4")
OLD_WIDGETS = ("widgetsnbextension==3.6.10",)  # what ipywidgets 7 needs
OLD_ENOUGH = ("scikit-learn==1.5.2", "scipy==1.13.1")  # of what the tests alone need: the last that take that NumPy
ROWS = (
    Row("pinned"),
    Row("newest", newest=True),
    Row("oldest", pins=(*OLDEST, *OLD_WIDGETS, *OLD_ENOUGH)),
    Row("colab", pins=(*COLAB, *OLD_WIDGETS)),
    Row("ipython-8.0", pins=("ipython==8.0.0",)),
    Row("ipython-8.12", pins=("ipython==8.12.3",)),
    Row("ipython-8.37", pins=("ipython==8.37.0",)),
    Row("numpy-1.26", pins=("numpy==1.26.4",)),
    *(Row(f"torch-2.{minor}", pins=(f"torch==2.{minor}.*",)) for minor in (10, 11, 12, 14, 15)),
    *(Row(f"python-{version}", python=version) for version in ("3.10", "3.12", "3.13", "3.14")),
)


@dataclass(frozen=True)
class Result:
    """What became of one row: the versions that stood in it, and what works."""

    row: str
    versions: str
    magics: str
    tests: str


def main() -> int:
    """Run the rows that were asked for, all without a name; the exit code says whether what ran works."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(row.name for row in ROWS)}")
    parser.add_argument("--smoke", action="store_true", help="run every magic once, and no tests")
    parser.add_argument("--cuda", action="store_true", help="take builds of torch for CUDA where there is no other")
    given = parser.parse_args()
    unknown = set(given.rows) - {row.name for row in ROWS}
    if unknown:
        parser.error(f"no such row: {', '.join(sorted(unknown))}; there are {', '.join(row.name for row in ROWS)}")
    asked = [row for row in ROWS if not given.rows or row.name in given.rows]
    results = [_run(row, smoke=given.smoke, cuda=given.cuda) for row in asked]
    table = ["| row | versions | every magic | quick tests |", "|---|---|---|---|"]
    table += [f"| {each.row} | {each.versions} | {each.magics} | {each.tests} |" for each in results]
    print("\n" + "\n".join(table))
    return int(any("FAILED" in each.magics + each.tests for each in results))


def _run(row: Row, *, smoke: bool, cuda: bool) -> Result:
    print(f"== {row.name}", flush=True)
    python = shutil.which(f"python{row.python}")
    if python is None or subprocess.run([python, "-c", ""], check=False, capture_output=True).returncode:
        return Result(row.name, f"Python {row.python}", "not to be had: no such Python here", "")
    folder = FOLDER / row.name
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([python, "-m", "venv", str(folder)], check=True)
    own = folder / "bin" / "python"
    refused = _install(own, row, smoke=smoke, cuda=cuda)
    if refused:
        return Result(row.name, f"Python {row.python} {' '.join(row.pins)}", f"not to be had: {refused}", "")
    result = Result(row.name, _versions(own), _magics(own, folder), "" if smoke else _tests(own, folder))
    if cuda:
        shutil.rmtree(folder / "lib")
    return result


def _install(python: Path, row: Row, *, smoke: bool, cuda: bool) -> str:
    """Install the package and what the row names; return why that cannot be, empty where it can."""
    replaced = {pin.partition("==")[0] for pin in row.pins}
    replaced |= {"setuptools"} if "torch" in replaced else set()  # each torch has bounds of its own for it
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    kept = [line for line in pinned if line.partition("==")[0].lower() not in replaced]
    if row.newest:  # pip's own choice would be a build for CUDA
        kept = [line for line in kept if line.startswith("torch==") and not cuda]
    torch = next((line for line in (*row.pins, *kept) if line.startswith("torch==")), "torch")
    if not cuda and not _has_cpu_build(python, torch):
        return f"no CPU build of {torch} for this Python"
    constraints = FOLDER / f"{row.name}.txt"
    constraints.write_text("\n".join([*kept, *row.pins]), encoding="utf-8")
    wanted = [str(ROOT), *RUNNER, *(() if smoke else TESTS)]
    pip = [str(python), "-m", "pip", "install", "-q", "-c", str(constraints), *wanted]
    ran = subprocess.run(pip, check=False, capture_output=True, text=True)
    return ran.stderr.strip().splitlines()[-1] if ran.returncode else ""


def _has_cpu_build(python: Path, torch: str) -> bool:
    """Return whether pip would take a torch that needs no package of NVIDIA's; it is asked without loading any."""
    asked = ["--dry-run", "--no-deps", "--only-binary", ":all:", "--ignore-installed", "--report", "-", torch]
    ran = subprocess.run(
        [str(python), "-m", "pip", "install", "-q", *asked], check=False, capture_output=True, text=True
    )
    if ran.returncode:
        return False
    (found,) = json.loads(ran.stdout)["install"]
    return not any(re.match("nvidia|cuda", need) for need in found["metadata"].get("requires_dist", ()))


def _versions(python: Path) -> str:
    code = (
        "import platform; from importlib.metadata import version as v; print(', '.join(['Python ' + "
        "platform.python_version(), *(f'{n} {v(n)}' for n in ('torch', 'ipython', 'numpy', 'ipywidgets', 'plotly'))]))"
    )
    return subprocess.run([str(python), "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def _magics(python: Path, folder: Path) -> str:
    """Run every magic in a notebook, in a kernel of the environment; return how many cells ran."""
    cells = ["%load_ext tensormagic", SETUP, *CELLS]
    notebook = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, cells)))
    nbformat.write(notebook, folder / "every_magic.ipynb")
    command = [str(python), "-m", "tensormagic", "demo", "--headless", "--notebook", "every_magic.ipynb", "pages"]
    ran = subprocess.run(command, cwd=folder, env=_alone(folder), check=False, capture_output=True, text=True)
    (folder / "every_magic.log").write_text(ran.stdout + ran.stderr, encoding="utf-8")
    return f"all {len(CELLS)}" if ran.returncode == 0 else f"FAILED ({folder / 'every_magic.log'})"


def _tests(python: Path, folder: Path) -> str:
    """Run the quick tests against the sources; return pytest's last line."""
    left_out = [f"--ignore={path}" for path in NOT_HERE]
    command = [str(python), "-m", "pytest", *QUICK, *left_out]
    ran = subprocess.run(command, cwd=ROOT, env=_alone(folder), check=False, capture_output=True, text=True)
    (folder / "tests.log").write_text(ran.stdout + ran.stderr, encoding="utf-8")
    summary = (ran.stdout.strip().splitlines() or ["nothing"])[-1].strip("= ")
    return summary if ran.returncode == 0 else f"FAILED: {summary} ({folder / 'tests.log'})"


def _alone(folder: Path) -> dict[str, str]:
    """Return an environment in which no setting and no kernel of the user's is found."""
    own = {name: str(folder) for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR")}
    kept = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    return {**kept, **own, "JUPYTER_PREFER_ENV_PATH": "1", "OMP_NUM_THREADS": "1"}


if __name__ == "__main__":
    sys.exit(main())
