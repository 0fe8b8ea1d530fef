"""``%%gpumem``: a cell's memory, while it runs and when it has ended."""

from __future__ import annotations

import time

import pytest
import torch

from tensormagic.magics import gpumem
from tensormagic.views.page import sampler
from tests.support.shell import KERNEL

CELL = """%%gpumem {options}
import time, torch
kept = torch.zeros(1000)
time.sleep({seconds})
del kept
{last}"""


@pytest.fixture
def notebook(shell, monkeypatch):
    """A shell whose front end replaces outputs, and a panel that is painted often."""
    monkeypatch.setattr(type(shell), "kernel", KERNEL, raising=False)
    monkeypatch.setattr(gpumem, "INTERVAL", 0.02)
    monkeypatch.setattr(sampler, "SHARE", 1.0)
    return shell


def run(shell, options="", seconds=0.0, last="None"):
    """Run the cell; return the result and the pages that were shown, in order."""
    result = shell.run_cell(CELL.format(options=options, seconds=seconds, last=last))
    return result, [output["data"]["text/plain"] for output in shell.display_pub.outputs]


def test_it_is_shown_while_it_runs(notebook):
    """Pages come before the cell has ended, and tell what is alive then; the last one tells how it ended."""
    _, pages = run(notebook, "--live html", seconds=0.6)
    assert len(pages) >= 3
    assert any("running" in page and "kept = torch.zeros(1000)" in page for page in pages[:-1])
    assert "finished" in pages[-1]


def test_the_widget_gives_way_to_the_static_panel(notebook):
    """What is shown first is a widget with the panel as it is; what stays holds none, and unloading closes it."""
    run(notebook)
    first, last = (output["data"] for output in notebook.display_pub.outputs)
    assert "application/vnd.jupyter.widget-view+json" in first
    assert "running" in first["text/plain"]
    assert "application/vnd.jupyter.widget-view+json" not in last
    assert "finished" in last["text/plain"]
    from ipywidgets import Widget

    model = first["application/vnd.jupyter.widget-view+json"]["model_id"]
    assert model in Widget.get_manager_state()["state"]
    notebook.extension_manager.unload_extension("tensormagic")
    assert model not in Widget.get_manager_state()["state"]
    notebook.extension_manager.load_extension("tensormagic")


def test_an_interrupt_shows_what_happened(notebook):
    """It goes on, and the report of the cell as far as it came is shown."""
    result, pages = run(notebook, last="raise KeyboardInterrupt")
    assert isinstance(result.error_in_exec, KeyboardInterrupt)
    assert "interrupted" in pages[-1]


def test_broken_widgets_leave_the_panel_to_be_painted(notebook, monkeypatch):
    """As with ``--live html``."""

    def broken(*_, **__):
        raise ImportError("no widgets here")

    monkeypatch.setattr("tensormagic.views.page.live._memory_widgets", broken)
    _, pages = run(notebook, seconds=0.3)
    assert len(pages) >= 3
    assert "finished" in pages[-1]


def test_it_is_shown_once_with_live_off(notebook):
    """Nothing is shown before the end."""
    _, pages = run(notebook, "--live off", seconds=0.1)
    assert len(pages) == 1


def test_a_failing_cell_shows_what_happened(notebook):
    """The error goes on, and the report is shown all the same."""
    result, pages = run(notebook, last="torch.ones(2) @ torch.ones(3)")
    assert isinstance(result.error_in_exec, RuntimeError)
    assert any("failed" in page and "kept = torch.zeros" in page for page in pages)


def test_the_report_is_bound_with_its_title(shell, capsys):
    """``--into`` binds it, ``--title`` names it; in a terminal it is text."""
    shell.run_cell(CELL.format(options="--into found --title 'a try' --text", seconds=0, last="6 * 7"))
    found = shell.user_ns["found"]
    assert (found.title, found.state) == ("a try", "finished")
    assert [line.allocated for line in found.lines if line.location.line == 3] == [4000]
    assert "kept = torch.zeros(1000)" in capsys.readouterr().out


def test_painting_never_disturbs_the_run(monkeypatch):
    """What fails is remembered, and nothing is painted after that."""
    calls = []

    def paint():
        calls.append(torch.zeros(1))
        raise ValueError("no page")

    monkeypatch.setattr(gpumem, "INTERVAL", 0.01)
    painter = gpumem.Repainter(paint)
    painter.start()
    time.sleep(0.1)
    painter.stop()
    assert [gap.reason for gap in painter.gaps] == ["ValueError: no page"]
    assert len(calls) == 1
