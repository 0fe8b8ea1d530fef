"""``python -m tensormagic``: what its commands print, copy and return."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tensormagic
from tensormagic.commands import COMMANDS, demo, main
from tensormagic.errors import ReportFormatError
from tests.support.kernel import ROOT


def test_it_runs_as_a_module():
    """Without a command it lists them, each with its sentence."""
    ran = subprocess.run([sys.executable, "-m", "tensormagic"], capture_output=True, text=True, cwd=ROOT, check=True)
    assert [name for name in COMMANDS if f"    {name} " not in ran.stdout] == []


def test_commands_work_without_what_runs_notebooks():
    """nbformat, nbclient and nbconvert come with the extra ``lab``: only the demo as a page needs them."""
    code = (
        "import sys\nsys.modules.update(dict.fromkeys(('nbformat', 'nbclient', 'nbconvert')))\n"
        "from tensormagic.commands import main\nmain(['examples'])\nsys.exit(main(['help', 'TM402']))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert "01_first_light.ipynb" in ran.stdout


def test_every_example_is_listed_with_its_title(capsys):
    """In their order, by file name; the titles are those in the files."""
    assert main(["examples"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = sorted(path.name for path in (ROOT / "examples").iterdir() if path.suffix in {".ipynb", ".py"})
    assert [line.split()[0] for line in lines[: len(names)]] == names
    assert lines[0].endswith("First light")


def test_examples_are_copied_and_changes_kept(tmp_path, capsys):
    """A file that a user has changed is left as it is, and said so; a missing one comes back."""
    folder = tmp_path / "new" / "course"
    assert main(["examples", str(folder)]) == 0
    changed, removed = folder / "14_script.py", folder / "01_first_light.ipynb"
    changed.write_text("mine")
    removed.unlink()
    capsys.readouterr()
    assert main(["examples", str(folder)]) == 0
    assert f"kept {changed}: you have changed it" in capsys.readouterr().out
    assert changed.read_text() == "mine"
    assert removed.read_bytes() == (ROOT / "examples" / removed.name).read_bytes()


def test_a_folder_that_cannot_be_made(tmp_path, capsys):
    """One line with the reason and what to do."""
    (tmp_path / "file").write_text("")
    assert main(["examples", str(tmp_path / "file" / "sub")]) == 1
    assert "name another folder" in capsys.readouterr().out


def test_examples_that_are_not_there(monkeypatch, tmp_path, capsys):
    """A broken installation says where it looked."""
    monkeypatch.setattr(demo, "shipped", lambda kind: [tmp_path / "a" / kind, tmp_path / "b" / kind])
    assert main(["examples"]) == 1
    assert str(tmp_path / "b") in capsys.readouterr().out


def test_the_demo_opens_jupyterlab_on_the_first_example(tmp_path, monkeypatch):
    """By the interpreter that runs it, on the copy."""
    called = []
    monkeypatch.setattr(demo, "find_spec", lambda _: object())
    monkeypatch.setattr(demo.subprocess, "call", lambda command: called.append(command) or 0)
    assert main(["demo", str(tmp_path)]) == 0
    assert called == [[sys.executable, "-m", "jupyterlab", str(tmp_path / "01_first_light.ipynb")]]


def test_the_demo_without_jupyterlab(tmp_path, monkeypatch, capsys):
    """It says what to install, and copies nothing."""
    monkeypatch.setattr(demo, "find_spec", lambda _: None)
    assert main(["demo", str(tmp_path / "new")]) == 1
    assert 'pip install "tensormagic[lab]"' in capsys.readouterr().out
    assert not (tmp_path / "new").exists()


def test_a_notebook_that_is_not_there(tmp_path, capsys):
    """It is named."""
    assert main(["demo", "--headless", "--notebook", str(tmp_path / "no.ipynb")]) == 1
    assert "no.ipynb" in capsys.readouterr().out


@pytest.fixture
def saved(tmp_path):
    """Return the path of a saved report."""
    path = tmp_path / "run.json"
    tensormagic.rng({}).save(path)
    return path


def test_a_saved_report_is_shown(saved, capsys):
    """As text; of whatever kind it is."""
    assert main(["show", str(saved)]) == 0
    assert capsys.readouterr().out.lstrip("─ ").startswith("random generators")


def test_a_saved_report_becomes_a_page(saved, tmp_path, capsys):
    """--save writes other forms and prints nothing else."""
    assert main(["show", str(saved), "--save", str(tmp_path / "run.html")]) == 0
    assert capsys.readouterr().out == f"saved {tmp_path / 'run.html'}\n"
    assert "tm-rng" in (tmp_path / "run.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"tensormagic": "nonsense"}', "no json"])
def test_what_is_no_report(tmp_path, capsys, text):
    """One line that names the file."""
    path = tmp_path / "x.json"
    path.write_text(text)
    assert main(["show", str(path)]) == 1
    assert str(path) in capsys.readouterr().out
    with pytest.raises(ReportFormatError, match=r"x\.json"):
        tensormagic.load(path)


def test_the_version_is_told(capsys):
    """As any command tells it."""
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("tensormagic ")
