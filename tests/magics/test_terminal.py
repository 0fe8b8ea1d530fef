"""Scripts and IPython in a real pseudo-terminal: a few lines below while it runs, and every print stays."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.screen import Screen, run_in_terminal

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals"),
]

SCRIPT = """
import logging, os, sys, time
logging.basicConfig(level="INFO", format="%(message)s")
import torch
import tensormagic as tm
torch.set_num_threads(1)
w = torch.ones(3, requires_grad=True)
before = sys.stdout, sys.stderr
with tm.trace(title="in a terminal", progress=True) as trace:
    for step in range(8):
        (w * w).sum().backward()
        print("step", step)
        time.sleep(0.1)
    logging.info("logged")
    os.write(1, b"from the system\\n")
    assert before == (sys.stdout, sys.stderr)
tm.show(trace.report)
"""
OWN = [*(f"step {number}" for number in range(8)), "logged", "from the system"]


def shown(text):
    """Return a screen on which ``text`` was written."""
    screen = Screen(rows=30, columns=90)
    screen.feed(text)
    return screen


def test_a_script_in_a_terminal(tmp_path):
    """The block was there, in the bottom rows; afterwards it is gone, all that was printed stands, and the report."""
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    text = run_in_terminal([sys.executable, str(path)], tmp_path)
    assert "\x1b[1;24r" in text
    assert "── in a terminal ──" in text
    assert "loss → input, norms" in text
    screen = shown(text)
    assert screen.everything[: len(OWN)] == OWN
    assert screen.everything[len(OWN)].startswith("── in a terminal ── finished · ")
    assert screen.region == (0, 29)
    assert [line for line in screen.everything if line.startswith("── in")] == screen.everything[len(OWN) :][:1]
    assert not [line for line in screen.everything if line.startswith(("flow  ", "loss  "))]


def test_into_a_pipe_goes_nothing_but_the_text(tmp_path):
    """No sequence, no colour, no block: ``progress=True`` in a log file costs nothing."""
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=environment)
    assert "\x1b" not in ran.stdout + ran.stderr
    assert ran.stderr == "logged\n"
    lines = ran.stdout.splitlines()
    assert sorted(line for line in lines if line in OWN) == sorted({*OWN} - {"logged"})
    (head,) = (line for line in lines if line.startswith("── "))
    assert head.startswith("── in a terminal ── finished · ")


CELL = """
import torch, time
%load_ext tensormagic
w = torch.ones(3, requires_grad=True)
lines = "for _ in range(6):", "    (w * w).sum().backward()", "    time.sleep(0.1)", "print('own')"
get_ipython().run_cell_magic("tracegrad", "", "\\n".join(lines))
"""


def test_ipython_in_a_terminal(tmp_path):
    """%%tracegrad shows the block while the cell runs, and the coloured report after it."""
    path = tmp_path / "cell.ipy"
    path.write_text(CELL)
    command = [sys.executable, "-m", "IPython", "--no-banner", "--no-confirm-exit", str(path)]
    text = run_in_terminal(command, tmp_path, IPYTHONDIR=str(tmp_path / "ipython"))
    assert "loss → input, norms" in text
    taken, given_back = text.index("\x1b[1;24r"), text.index("\x1b[r")
    assert taken < text.index("own\r\n") < given_back < text.index("finished")
    assert "38;5" in text or "\x1b[36m" in text


def test_ipython_in_a_pipe_that_is_not_unicode(tmp_path):
    """On Windows a pipe takes a code page: the report comes in characters that it has, and nothing is raised."""
    path = tmp_path / "cell.ipy"
    path.write_text("%load_ext tensormagic\nimport torch\nx = torch.ones(2, 3)\n%tensor x\nprint('own')\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONIOENCODING": "cp1252"}
    command = [sys.executable, "-m", "IPython", "--no-banner", "--no-confirm-exit", str(path)]
    environment["IPYTHONDIR"] = str(tmp_path / "ipython")
    ran = subprocess.run(command, capture_output=True, check=True, cwd=tmp_path, env=environment)
    written = ran.stdout.decode("cp1252")
    assert "offset(i, j) = 0 + 3*i + 1*j" in written
    assert "+---+---+---+" in written
    assert written.splitlines()[-1] == "own"


def test_a_tensor_in_a_terminal_is_short(tmp_path):
    """A large one takes six lines, which name what --text adds. Of a collection the table is there alone."""
    path = tmp_path / "cell.ipy"
    path.write_text(
        "%load_ext tensormagic\nimport torch\nx = torch.ones(64, 64)\n%tensor x\nprint('WHOLE')\n%tensor x --text\n"
        "print('LIST')\n%tensor [x, x + 1]\n"
    )
    command = [sys.executable, "-m", "IPython", "--no-banner", "--no-confirm-exit", "--colors=NoColor", str(path)]
    text = run_in_terminal(command, tmp_path, IPYTHONDIR=str(tmp_path / "ipython"))
    brief, _, rest = text.partition("WHOLE")
    whole, _, table = rest.partition("LIST")
    shown = [line.strip() for line in brief.splitlines() if line.strip()]
    assert len(shown) <= 9
    named = "with --text also: Values, Autograd (no graph), Layout (32 × 32 of 64 × 64: "
    assert any(line.startswith(named) for line in shown)
    assert "not tracked (requires_grad=False)" not in brief
    assert all(words in whole for words in ("LAYOUT", "VALUES", "not tracked (requires_grad=False)"))
    assert "one in full: %tensor" in table
    assert "LAYOUT" not in table


def test_the_overview_breaks_between_words(tmp_path):
    """No line of it is wider than the terminal, and what does not fit goes on below its own column."""
    command = [sys.executable, "-m", "IPython", "--colors=nocolor", "-c", "%load_ext tensormagic\n%tensormagic"]
    text = run_in_terminal(command, tmp_path, IPYTHONDIR=str(tmp_path / "ipython"))
    lines = text.splitlines()[1:-1]  # beside the first and the last one IPython names the window
    assert any(line.startswith("%tensors      ") for line in lines)
    assert any(line.startswith(" " * 14) and line[14] != "%" for line in lines)
    assert max(map(len, lines)) <= 90


DUMB = """
import torch, tensormagic
tensormagic.show(tensormagic.inspect(torch.ones(4, 4), name="x"))
tensormagic.show(tensormagic.rng())
"""


def test_a_terminal_that_only_takes_text_is_not_overrun(tmp_path):
    """With TERM=dumb nothing is coloured, and no line is wider than the window, which would break it in two."""
    text = run_in_terminal([sys.executable, "-c", DUMB], tmp_path, TERM="dumb")
    lines = text.splitlines()
    assert "\x1b" not in text
    assert len(lines) > 20
    assert 80 < max(map(len, lines)) <= 90
