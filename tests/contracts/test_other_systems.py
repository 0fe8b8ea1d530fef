"""What Python lacks on Windows is not needed: everything is imported, and every question asked, without it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.kernel import ROOT

# What torch and IPython take themselves is loaded before it is taken away from us.
WITHOUT = """
import importlib, os, pkgutil, signal, sys
import torch, torch._dynamo, IPython, plotly.graph_objects, anywidget, psutil, nbclient, nbconvert
for name in ("resource", "fcntl", "pwd", "grp", "termios", "tty", "pty", "posix", "syslog"):
    sys.modules[name] = None
for name in ("fork", "register_at_fork", "getuid", "geteuid", "getpgid", "killpg", "setsid", "sysconf", "WNOHANG"):
    vars(os).pop(name, None)
for name in ("pthread_sigmask", "pthread_kill", "sigpending", "sigwait", "setitimer", "alarm", "SIGKILL", "SIGALRM"):
    vars(signal).pop(name, None)
os.O_BINARY = 0
import tensormagic as tm
"""
EVERYTHING = """
for module in pkgutil.walk_packages(tm.__path__, "tensormagic."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""
ASKED = """
from pathlib import Path
from tensormagic.collectors import devices
assert devices.read_cpu(Path("no such folder"))[0][0].process > 0
devices.read_cpu.__defaults__ = (Path("no such folder"), None)
net, x = torch.nn.Linear(2, 1), torch.ones(3, 2)
with tm.trace(memory=True, writes=True, draws=True, ranks=sys.argv[1]) as run:
    (net(x) * torch.rand(3, 1)).sum().backward()
asked = [run.report, tm.inspect(x), tm.tensors({"x": x}), tm.memory({"net": net}), tm.aliases({"x": x, "y": x[0]}),
         tm.rng(), tm.why(net.weight, "net.weight"), tm.model(net), tm.compare(run, run), tm.gradgraph(net(x).sum()),
         tm.overlay({"x": x, "y": x[0]}), tm.check({"net": net}), tm.ranks(sys.argv[1])]
assert all(map(str, asked))
"""
MAGICS = """
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config
shell = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
shell.run_line_magic("load_ext", "tensormagic")
shell.user_ns.update(net=torch.nn.Linear(2, 1), x=torch.ones(3, 2))
for name, line in (("tensor", "x"), ("tensors", ""), ("aliases", ""), ("gpumem", ""), ("rng", ""), ("model", "net"),
                   ("why", "net.weight"), ("tensormagic", "check"), ("tensormagic", "version")):
    shell.run_line_magic(name, line)
for name in ("tracegrad", "gpumem", "aliases", "rng"):
    shell.run_cell_magic(name, "", "net(x).sum().backward()")
"""


@pytest.mark.parametrize("program", [EVERYTHING, ASKED, MAGICS], ids=["imported", "asked", "magics"])
def test_what_windows_lacks_is_not_needed(program, tmp_path):
    """In a process of its own: what is missing stays missing."""
    command = [sys.executable, "-c", WITHOUT + program, str(tmp_path / "run")]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
