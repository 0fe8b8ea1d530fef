"""What the README counts is what there is: findings, programs, operators, questions, lessons, packages."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys

import pytest
import torch

from tensormagic.commands import COMMANDS
from tensormagic.diagnoses import RULES
from tests.corpus.score import every_case
from tests.support.kernel import ROOT
from tests.sweeps import transparency
from tools.matrix import OLDEST

README = (ROOT / "README.md").read_text(encoding="utf-8")
WORDS = {15: "fifteen", 16: "sixteen", 17: "seventeen", 18: "eighteen", 19: "nineteen", 20: "twenty"}
# As the README calls what pyproject.toml asks for.
PACKAGES = {"Python": "requires-python", "NumPy": "numpy", "IPython": "ipython"}


def programs():
    """Return how many programs of the corpus have a fault, and how many have none."""
    broken = [bool(case.code) for case in every_case()]
    return f"{sum(broken)} broken programs and {len(broken) - sum(broken)} correct ones"


def sweep():
    """Return what `make sweep` goes through."""
    operators = [op for op in transparency.operators() if transparency.supports(op, torch.float32)]
    return f"{len(operators)} differentiable operators and {len(transparency.modules())} modules"


def questions():
    """Return how many questions the front page of the documentation answers."""
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    return f"**[{len(re.findall(r'^[0-9]+[.] ', index, re.MULTILINE))} questions, answered]"


def examples():
    """Return how many lessons the course has."""
    found = [path for path in (ROOT / "examples").iterdir() if path.suffix in {".ipynb", ".py"}]
    return f"of {WORDS[len(found)]} examples"


def findings():
    """Return how many findings there are."""
    return f"There are [{len({rule.code for rule in RULES})} of them](docs/findings.md)"


@pytest.mark.parametrize("count", [programs, sweep, questions, examples, findings], ids=lambda count: count.__name__)
def test_a_number_in_the_readme_is_counted(count):
    """Each is what is there."""
    assert count() in " ".join(README.split())


def test_the_requirements_are_those_of_the_package():
    """Every package that is always needed, with the oldest version that will do, and no other."""
    told = README.partition("## Requirements\n\n")[2].partition(". No network")[0]
    said = dict(re.findall(r"([A-Za-z]+) ≥ ([0-9.]+[0-9]|[0-9])", told))
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    needed = dict(
        re.findall(r'^    "([a-z]+)>=([0-9.]+)",$', project.partition("[project.optional-dep")[0], re.MULTILINE)
    )
    needed |= dict(re.findall(r'^(requires-python) = ">=([0-9.]+)"', project, re.MULTILINE))
    assert {PACKAGES.get(name, name): version for name, version in said.items()} == needed
    bounds = {name: ".".join([*version.split("."), "0", "0"][:3]) for name, version in needed.items()}
    tried = dict(pin.split("==") for pin in OLDEST)  # by `make matrix`, where Python and torch have rows of their own
    assert tried == {name: bound for name, bound in bounds.items() if name not in {"requires-python", "torch"}}


def test_it_is_short():
    """What it is, how to install it, what to try, what it answers and costs: one page, the rest is in the docs."""
    assert len(README.splitlines()) <= 110


def test_the_moving_picture_moves_and_is_small():
    """The graph lights up in more than ten pictures, in less than a megabyte."""
    picture = (ROOT / "docs" / "images" / "tracegrad.png").read_bytes()
    at = picture.index(b"acTL")
    assert int.from_bytes(picture[at + 4 : at + 8], "big") > 10
    assert picture.count(b"fcTL") == int.from_bytes(picture[at + 4 : at + 8], "big")
    assert len(picture) < 1_000_000


def test_the_commands_work_as_typed(tmp_path):
    """What the README says to install can be installed from a clone, and the command it ends with is there."""
    clone = tmp_path / "tensormagic"
    clone.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, clone)
    for name in ("tensormagic", "examples", "docs"):
        shutil.copytree(ROOT / name, clone / name, ignore=shutil.ignore_patterns("__pycache__"))
    (block,) = re.findall(r"^```console\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    installed, shown = block.splitlines()
    program, *rest = shlex.split(installed.removeprefix("$ "))
    offline = ["--dry-run", "--no-deps", "--no-index", "--no-build-isolation"]
    command = [sys.executable, "-m", program, *rest, *offline]
    ran = subprocess.run(command, cwd=clone, capture_output=True, text=True, check=False)
    assert "Would install tensormagic" in ran.stdout, ran.stdout + ran.stderr
    assert "does not provide the extra" not in ran.stderr
    assert shown.removeprefix("$ python -m tensormagic ") in COMMANDS


def test_the_changelog_is_short():
    """One unreleased section of a screen or two; the detail of a change is in its commit and on its page."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\w+)", text, re.MULTILINE)[0] == "Unreleased"
    assert len(text.partition("\n## Unreleased")[2].partition("\n## ")[0].splitlines()) <= 100
