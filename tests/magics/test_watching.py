"""%tensormagic watch on and check: silent unless something is wrong, once each, gone without a trace."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import pytest
import torch
from torch import nn

from tensormagic.collectors.session.session_walk import QUICK
from tests.support.shell import private_shell

LISTED = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(2, 2), nn.Linear(2, 2)]
listed = Net()
"""


def told(ran) -> list[str]:
    """Return the codes in what a cell showed, in order."""
    text = "".join(bundle["text/plain"] for bundle in ran.shown)
    return [word for word in text.split() if word.startswith("TM") and word[2:].isdigit()]


def test_watch_on_is_silent_until_something_is_wrong_and_says_it_once(cell):
    """The cell that makes it reports on, the next ones are not, and the line is that of the cell."""
    assert cell("%tensormagic watch on").out.startswith("watch is on")
    assert cell("y = torch.ones(3)").shown == []
    ran = cell(LISTED)
    assert told(ran) == ["TM605"]
    assert "line 4: self.layers = [nn.Linear(2, 2), nn.Linear(2, 2)]" in ran.shown[0]["text/plain"]
    assert cell("y = y + 1").shown == []


def test_what_was_mended_is_told_again_where_it_comes_back(cell):
    """A finding that is gone is forgotten."""
    cell("%tensormagic watch on")
    assert told(cell(LISTED)) == ["TM605"]
    assert told(cell("del listed")) == []
    assert told(cell(LISTED)) == ["TM605"]


def test_twice_as_much_is_told_again(cell):
    """Not every cell that adds a little."""
    cell("losses, steps = [], lambda n: [net(torch.zeros(4096, 2)).exp().mean() for _ in range(n)]")
    cell("net = nn.Sequential(nn.Linear(2, 256), nn.ReLU(), nn.Linear(256, 1))\n%tensormagic watch on")
    assert told(cell("losses += steps(6)")) == ["TM503"]
    assert told(cell("losses += steps(1)")) == []
    assert told(cell("losses += steps(8)")) == ["TM503"]


def test_what_grows_with_every_run_of_a_cell_is_told(cell):
    """Five runs of the same cell, whatever runs in between."""
    cell("%tensormagic watch on")
    cell("features = []")
    codes = []
    for _ in range(6):
        codes += told(cell("features.append(torch.zeros(17, 2**18))"))
        codes += told(cell("x.grad = None"))
    assert codes == ["TM504"]


def test_a_tie_that_breaks_between_two_cells_is_told(cell):
    """It was one Parameter when the model was first seen."""
    cell("%tensormagic watch on")
    cell("lm = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 9, bias=False))\nlm[1].weight = lm[0].weight")
    assert told(cell("lm[1].weight = nn.Parameter(torch.randn(9, 4))")) == ["TM609"]


def test_a_cell_that_fails_fails_and_what_its_error_keeps_is_told(cell):
    """The look comes after the traceback, and changes nothing of the error."""
    cell("%tensormagic watch on")
    ran = cell("def f():\n    big = torch.zeros(20, 2**18)\n    raise ValueError('no')\nf()")
    assert isinstance(ran.error, ValueError)
    assert told(ran) == ["TM502"]
    assert "raise ValueError('no')" in ran.shown[0]["text/plain"]
    assert told(cell("1/0")) == []


def test_an_interrupt_in_the_cell_leaves_the_watch_on(cell):
    """The next cell is looked at as well."""
    cell("%tensormagic watch on")
    assert isinstance(cell("raise KeyboardInterrupt").error, KeyboardInterrupt)
    assert told(cell(LISTED)) == ["TM605"]


def test_off_leaves_nothing_behind(cell, shell):
    """The event is unregistered; what was told is forgotten."""
    before = list(shell.events.callbacks["post_run_cell"])
    cell("%tensormagic watch on")
    cell("%tensormagic watch on")
    assert len(shell.events.callbacks["post_run_cell"]) == len(before) + 1
    assert "watch is off" in cell("%tensormagic watch off").out
    assert shell.events.callbacks["post_run_cell"] == before
    assert cell(LISTED).shown == []


def test_unloading_while_it_is_on_leaves_nothing_behind(cell, shell):
    """The ``shell`` fixture compares all that an extension can register."""
    cell("%config TensorMagic.watch = True")
    assert told(cell(LISTED)) == ["TM605"]
    shell.extension_manager.unload_extension("tensormagic")
    assert cell("second = Net()").shown == []


def test_two_shells_are_watched_each_by_itself(cell, shell, tmp_path):
    """Switching one off leaves the other on."""
    cell("%tensormagic watch on")
    with private_shell(tmp_path / "second") as second:
        second.extension_manager.load_extension("tensormagic")
        second.run_line_magic("tensormagic", "watch on")
        second.run_line_magic("tensormagic", "watch off")
        second.extension_manager.unload_extension("tensormagic")
    assert told(cell(LISTED)) == ["TM605"]


def test_nothing_is_kept_alive(cell, shell):
    """A model that is deleted is gone, although it was looked at and told of."""
    cell("%tensormagic watch on")
    cell(LISTED)
    kept = weakref.ref(shell.user_ns["listed"]), weakref.ref(shell.user_ns["listed"].layers[0].weight)
    cell("del listed")
    gc.collect()
    assert [reference() for reference in kept] == [None, None]


def test_a_look_that_fails_is_one_line(cell, monkeypatch):
    """The cell's own outcome stands."""
    cell("%tensormagic watch on")
    monkeypatch.setattr("tensormagic.collectors.session.watching.look", lambda *_args, **_more: 1 / 0)
    ran = cell("4 + 4")
    assert (ran.error, ran.value) == (None, 8)
    assert "tensormagic watch failed: ZeroDivisionError: division by zero" in ran.out


def test_check_shows_all_of_it_and_notes_as_well(cell):
    """Also while no watch is on."""
    cell("class M(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.fc = nn.Linear(2, 2)\n"
         "        self.mask = torch.ones(2)\nm = M()")  # fmt: skip
    ran = cell("%tensormagic check")
    assert told(ran) == ["TM603"]
    assert "m.mask is a plain tensor" in ran.shown[0]["text/plain"]
    assert "What holds the most" in ran.shown[0]["text/html"]


@pytest.mark.parametrize("given", ["maybe", "on off"])
def test_what_is_no_switch_is_refused(cell, given):
    """With what it takes."""
    refused = str(cell(f"%tensormagic watch {given}").error)
    assert refused == f"%tensormagic watch takes on, off, or nothing, but was given '{given}'"


def test_what_is_nothing_is_refused(cell):
    """With all that there is, and what was given; behind ``check`` stand names."""
    refused = str(cell("%tensormagic wotch on").error)
    assert "watch on|off" in refused
    assert "there is no page on 'wotch on'" in refused
    assert "there is no name 'wotch' here" in str(cell("%tensormagic check wotch").error)
    refused = "%tensormagic check takes no options, but was given --text"
    assert str(cell("%tensormagic check net, a --text").error) == refused
    assert "or a topic (did you mean help?); there is no page on 'hlep'" in str(cell("%tensormagic hlep").error)


def test_a_look_changes_nothing(cell, shell):
    """Random numbers, version counters, gradients and names are what they were."""
    net = shell.user_ns["net"]
    net(torch.ones(1, 2)).sum().backward()
    cell("%tensormagic watch on")
    state, names = torch.get_rng_state(), set(shell.user_ns)
    before = [(p._version, p.grad.clone()) for p in net.parameters()]
    cell("None")
    assert torch.equal(torch.get_rng_state(), state)
    assert {name for name in set(shell.user_ns) - names if not name.startswith("_i")} == set()
    after = [(p._version, p.grad) for p in net.parameters()]
    assert all(one == two and torch.equal(g, h) for (one, g), (two, h) in zip(before, after, strict=True))


def test_a_notebook_of_ordinary_size_is_looked_through_whole(cell, shell, monkeypatch):
    """A model of a hundred layers, its optimizer, and lists of numbers: within the bounds of a quick look.

    Its seconds are left to ``bench_watch.py``, as steps of that training.
    """
    monkeypatch.setattr("tensormagic.collectors.session.session_walk.QUICK", replace(QUICK, seconds=60.0))
    shell.user_ns["deep"] = nn.Sequential(*(nn.Linear(4, 4) for _ in range(100)))
    shell.user_ns["many"] = list(range(200_000))
    cell("optimizer = torch.optim.Adam(deep.parameters())\ndeep(torch.ones(1, 4)).sum().backward()\noptimizer.step()")
    from tensormagic import api

    report = api.check(shell.user_ns, quick=True)
    assert report.tensors > 800
    assert report.gaps == ()


def test_a_parameter_that_no_loss_uses_is_told_after_the_training(cell):
    """With the line of its class, once; a run that adds as many steps does not tell it again."""
    cell("%tensormagic watch on")
    assert told(cell("class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
                     "        self.body, self.head = nn.Linear(2, 2), nn.Linear(2, 2)\n"
                     "        self.side = nn.Linear(2, 2)\n"
                     "    def forward(self, x):\n        return self.head(self.body(x))\n"
                     "model = Net()\nopt = torch.optim.Adam(model.parameters())")) == []  # fmt: skip
    steps = "for _ in range(20):\n    opt.zero_grad(); model(torch.ones(1, 2)).sum().backward(); opt.step()"
    ran = cell(steps)
    assert told(ran) == ["TM601"]
    assert "opt holds model.side and had no gradient for it in 20 steps" in " ".join(ran.shown[0]["text/plain"].split())
    assert "self.side = nn.Linear(2, 2)" in ran.shown[0]["text/plain"]
    assert told(cell(steps)) == []


def test_what_the_panel_of_a_traced_cell_has_told_the_watch_does_not_tell_again(cell):
    """A module's fault stands in both; what only the watch sees it tells."""
    cell("%tensormagic watch on")
    cell("%config TensorMagic.live = 'off'")
    ran = cell("%%tracegrad\n" + LISTED + "sum(layer(torch.ones(1, 2)).sum() for layer in listed.layers).backward()\n"
               "features = [net(torch.zeros(4096 * 16, 2)).exp().mean() for _ in range(6)]\n"
               "net2 = nn.Sequential(nn.Linear(2, 256), nn.ReLU(), nn.Linear(256, 1))")  # fmt: skip
    assert told(ran).count("TM605") == 1
    assert told(cell("x = 1")) == []
    assert told(cell("losses = [net2(torch.zeros(4096, 2)).exp().mean() for _ in range(6)]")) == ["TM503"]
    assert told(cell("other = Net()")) == ["TM605"]


def test_check_of_a_training_shows_questions_and_answers(cell):
    """With expressions instead of nothing; what is no model is an error that says so."""
    cell("import torch; model = torch.nn.Linear(4, 2); batch = torch.randn(8, 4), torch.arange(8) % 2")
    ran = cell("%tensormagic check model, torch.optim.SGD(model.parameters(), lr=0.1), batch")
    text = "".join(bundle["text/plain"] for bundle in ran.shown)
    assert "check model" in text
    assert "overfits" in text
    assert "overfits" in "".join(
        bundle["text/plain"]
        for bundle in cell("%tensormagic check model torch.optim.SGD(model.parameters()) batch").shown
    )
    assert "takes the model" in str(cell("%tensormagic check batch").error)
    assert "not a Python expression" in str(cell("%tensormagic check model,,").error)


def test_check_of_a_function_names_the_cell(cell):
    """A line of a cell is called by its number, not by the file that the kernel made of it."""
    methods = ("@staticmethod", "def forward(ctx, x): return x * 2", "@staticmethod", "def backward(ctx, g): return g")
    cell("\n    ".join(("class Twice(torch.autograd.Function):", *methods)))
    ran = cell("%tensormagic check Twice, x")
    shown = "".join([ran.out, *(bundle["text/plain"] for bundle in ran.shown)])
    assert "TM318" in shown
    assert "cell 1, line 5: def backward(ctx, g): return g" in shown
