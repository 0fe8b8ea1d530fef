"""Cells that are run by an engine of ipyparallel's, and cells that fork: what is shown is where the user looks."""

from __future__ import annotations

import os

import pytest

TRAIN = "loss = net(torch.ones(3, 2)).square().mean()\nloss.backward()"


@pytest.fixture
def engine(monkeypatch, shell):
    """Make the shell that of an engine: its outputs are sent on to the client, and updates of them are not."""
    kernel = type("IPythonParallelKernel", (), {"__module__": "ipyparallel.engine.kernel"})
    monkeypatch.setattr(type(shell), "kernel", kernel(), raising=False)
    return shell


@pytest.mark.parametrize("magic", ["%%tracegrad", "%%tracegrad --live html", "%%gpumem"])
@pytest.mark.parametrize("end", ["", "\n1 / 0"])
def test_an_engine_shows_the_final_panel(engine, cell, magic, end):
    """Once, when the cell has ended, however it ended: what would be put in its place later never came."""
    ran = cell(f"{magic}\n{TRAIN}{end}")
    outputs = engine.display_pub.outputs[-len(ran.shown) :]
    assert [output["update"] for output in outputs] == [False]
    (bundle,) = ran.shown
    assert "text/html" in bundle
    assert ("failed" if end else "finished") in bundle["text/plain"]


FORKING = """%%tracegrad --into r
import os
child = os.fork()
if not child:
    try:
        net(torch.ones(3, 2)).square().mean().backward()
    finally:  # torch refuses it where an earlier backward has started threads
        os._exit(0)
done = os.waitpid(child, 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_launcher_around_which_nothing_was_seen_is_told(cell):
    """Not that there was no backward: there were, where nobody looked."""
    ran = cell(FORKING)
    assert ran.error is None
    for form in ("text/plain", "text/html"):
        told = " ".join(ran.shown[0][form].split())
        assert "no backward was seen" not in told.lower()
        assert "1 process was forked in this run, and is not followed from here".lower() in told.lower()
        assert "trace inside the function that runs there" in told
    assert cell("r").value.forked == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_of_a_run_that_was_seen_it_is_no_matter(cell):
    """Data loaders fork, too."""
    ran = cell(f"%%tracegrad\nimport os\nchild = os.fork()\nif not child: os._exit(0)\nos.waitpid(child, 0)\n{TRAIN}")
    assert "forked" not in ran.shown[0]["text/plain"]
