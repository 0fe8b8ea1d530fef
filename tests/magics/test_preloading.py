"""What the first panel needs is there before it is wanted, and nothing of it stays when the extension goes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import pytest

from tensormagic.magics import preloading
from tensormagic.views.page import live
from tests.support.kernel import ROOT

# A notebook's shell, in a process that has imported nothing of ours yet.
SHELL = """
import json, sys, threading
from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from tests.support.shell import KERNEL
from traitlets.config import Config
InteractiveShell.kernel = KERNEL
shell = InteractiveShell.instance(config=Config(HistoryManager={'enabled': False}))
shell.display_pub = CapturingDisplayPublisher(parent=shell)

def threads():
    return [thread for thread in threading.enumerate() if thread.name == "tensormagic-preload"]

def ours():
    return {name for name in sys.modules if name.startswith("tensormagic")}
"""
TENSOR = "shell.run_cell('import torch; x = torch.ones(3, requires_grad=True)')\n"
# The thread is halted inside the package of reports, with its import begun; ``begun`` says so, ``go_on`` lets it.
HALTED = """
begun, go_on = threading.Event(), threading.Event()

class Halt:
    def find_spec(self, name, path=None, target=None):
        if name == "tensormagic.reports.{module}" and threading.current_thread() in threads():
            begun.set()
            go_on.wait(20)

sys.meta_path.insert(0, Halt())
shell.run_cell("%load_ext tensormagic")
assert begun.wait(20)
"""


def told_by(code):
    """Return what a fresh process prints last, as JSON."""
    done = subprocess.run([sys.executable, "-c", SHELL + code], capture_output=True, text=True, check=True, cwd=ROOT)
    return json.loads(done.stdout.splitlines()[-1])


def running():
    return [thread for thread in threading.enumerate() if thread.name == "tensormagic-preload"]


def test_it_warms_up_and_ends(monkeypatch):
    """A thread that ends by itself."""
    warmed = threading.Event()
    monkeypatch.setattr(live, "preload", warmed.set)
    call_off = preloading.preload_soon(delay=0.0)
    assert warmed.wait(30)
    call_off()
    assert running() == []


def test_it_can_be_called_off(monkeypatch):
    """Unloading at once leaves no thread, and nothing is imported."""
    monkeypatch.setattr(live, "preload", lambda: pytest.fail("it was called off"))
    preloading.preload_soon(delay=60.0)()
    assert running() == []


def test_called_off_in_the_middle_it_ends_with_the_module_that_it_has_begun():
    """``%unload_ext`` before the thread has ended: no thread is left, and the other modules stay out."""
    after = told_by(
        HALTED.format(module="trace") + "threading.Timer(0.2, go_on.set).start()\n"
        "shell.run_cell('%unload_ext tensormagic')\n"
        "print(json.dumps([len(threads()), 'tensormagic.reports' in ours(), 'tensormagic.diagnoses' in ours()]))"
    )
    assert after == [0, True, False]


def test_what_is_missing_is_no_error_here(monkeypatch):
    """The first panel will say what is missing."""

    def broken():
        raise ImportError("no anywidget")

    monkeypatch.setattr(live, "preload", broken)
    call_off = preloading.preload_soon(delay=0.0)
    call_off()
    assert running() == []


def test_a_terminal_is_not_warmed_up(shell):
    """Without a kernel there is no panel."""
    assert running() == []


def test_afterwards_the_first_panels_import_nothing_more():
    """Whatever ``%tensor`` and ``%%tracegrad`` come to need is among what is imported ahead, ipywidgets included."""
    new, shown = told_by(
        TENSOR + "shell.run_cell('%load_ext tensormagic')\n"
        "[thread.join(60) for thread in threads()]\n"
        "before = set(sys.modules)\n"
        "shell.run_cell('%tensor x')\n"
        "shell.run_cell('%%tracegrad\\n(x * x).sum().backward()')\n"
        "new = set(sys.modules) - before\n"
        "shown = [sorted(one['data']) for one in shell.display_pub.outputs]\n"
        "print(json.dumps([[name for name in new if name.startswith(('tensorm', 'ipyw', 'anyw'))], shown]))"
    )
    assert new == []
    assert shown[0] == shown[-1] == ["text/html", "text/latex", "text/plain"]
    assert any("application/vnd.jupyter.widget-view+json" in kinds for kinds in shown)


def test_a_cell_that_comes_in_the_middle_is_answered():
    """While the thread is inside a package, a cell needs all of it: it waits or goes ahead, and neither one fails."""
    cell = "import tensormagic as tm; seen = tm.inspect(x, name='x').name"
    told = told_by(
        TENSOR + HALTED.format(module="tensor") + "threading.Timer(0.3, go_on.set).start()\n"
        f"done = [shell.run_cell(cell).success for cell in ('%tensor x', {cell!r})]\n"
        "[thread.join(60) for thread in threads()]\n"
        "shown = shell.display_pub.outputs[0]['data']['text/plain']\n"
        "print(json.dumps([done, shown[:6], 'tensormagic.views.page.live' in ours(), shell.user_ns['seen']]))"
    )
    assert told == [[True, True], "── x ─", True, "x"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_a_fork_at_any_moment_finds_no_import_begun():
    """Forks each 50 ms for two seconds after loading: no lock of a module is held in any child, and one can trace.

    A lock that is held where its thread is not is waited for for ever. The warming goes on in between, to its end.
    """
    held, traced, at_work, missing = told_by(
        "import os, time, importlib._bootstrap as bootstrap, torch\n"
        "shell.run_cell('%load_ext tensormagic')\n"
        "began, held, traced, at_work = time.monotonic(), [], [], 0\n"
        "for at in range(41):\n"
        "    time.sleep(max(0, began + 0.05 * at - time.monotonic()))\n"
        "    at_work += bool(threads())\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        if at % 8 == 4:\n"
        "            import signal; signal.alarm(30)\n"
        "            import tensormagic as tm\n"
        "            with tm.trace() as trace:\n"
        "                (torch.ones(3, requires_grad=True) ** 2).sum().backward()\n"
        "            os._exit(len(trace.report.passes))\n"
        "        locks = [ref() for ref in bootstrap._module_locks.values()]\n"
        "        os._exit(sum(lock is not None and bool(lock.owner) for lock in locks))\n"
        "    status = os.waitpid(child, 0)[1]\n"
        "    (traced if at % 8 == 4 else held).append(status)\n"
        "[thread.join(60) for thread in threads()]\n"
        "from tensormagic.magics import preloading\n"
        "missing = [name for name in preloading.NEEDED if f'tensormagic.{name}' not in sys.modules]\n"
        "print(json.dumps([held, traced, at_work, missing]))"
    )
    assert held == [0] * 36
    assert traced == [1 << 8] * 5  # each ended by itself, having seen one pass
    assert at_work > 3
    assert missing == []
