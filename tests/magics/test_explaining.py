"""Errors explained in the notebook: below the traceback, under the other magics beside it, once, and unchanged."""

from __future__ import annotations

import gc
import sys
import traceback
import weakref

import pytest

SWITCH = "%tensormagic explain on"
FAILS = "p = torch.ones(2, 3)\nq = torch.ones(4, 5)\np @ q"


def explanations(ran):
    """Return what was shown of refused calls, as text."""
    return [shown["text/plain"] for shown in ran.shown if " said  " in shown["text/plain"]]


def test_it_is_off_until_it_is_switched_on_and_again_afterwards(cell):
    """%tensormagic explain on, and off; the name alone says how it is."""
    assert explanations(cell(FAILS)) == []
    assert cell("%tensormagic explain").out.startswith("explain is off. If on: PyTorch errors are explained")
    assert cell(SWITCH).out.startswith("explain is on: PyTorch errors are explained")
    (told,) = explanations(cell(FAILS))
    assert told.startswith("── Tensor.matmul ── the shapes do not fit ──")
    assert " 3 ✖ p @ q\n" in told
    cell("%tensormagic explain off")
    assert explanations(cell(FAILS)) == []


def test_what_python_refuses_is_not_laid_at_torch_s_door(cell):
    """No function of torch's was called where a shape is unpacked."""
    cell(SWITCH)
    (panel,) = explanations(cell("w = torch.ones(3, 8, requires_grad=True)\ny = w * 2\nb, c, h = y.shape"))
    assert "the shapes do not fit" in panel
    assert "Python refused this: ValueError" in panel
    assert "  Python said  ValueError: not enough values to unpack (expected 3, got 2)" in panel


def test_memory_that_ran_out_is_told_by_name(cell):
    """In place of shapes: what was asked for, and what held the memory, the variables of the function among it."""
    cell(SWITCH)
    source = "def build(n):\n    hidden = torch.ones(2**22)\n    return torch.empty(n), hidden\nbuild(2**48)"
    (told,) = explanations(cell(source))
    assert told.startswith("── torch.empty ── memory ran out ──")
    words = " ".join(told.split())
    assert "cpu ran out of memory: torch.empty asked for 1 PiB," in words
    assert "The functions that failed hold 16 MiB that nothing else holds" in words
    assert "build.<locals>.hidden" in told


def test_the_setting_is_listed(cell):
    """It is a setting as the others are."""
    cell("%config TensorMagic.explain = True")
    assert "%config TensorMagic.explain = True" in cell("%tensormagic").out


def test_the_error_is_what_it_was(cell):
    """Type, message and traceback lines; and IPython prints the same traceback."""
    runs = []
    for line in ("pass", SWITCH):
        cell(line)
        ran = cell(FAILS)
        frames = [entry.name for entry in traceback.extract_tb(ran.error.__traceback__)]
        runs.append((type(ran.error), str(ran.error), frames))
    assert runs[0] == runs[1]


OWN = ["{}['key']", "raise ValueError('mine')", "raise KeyboardInterrupt", "1 +", "undefined"]


@pytest.mark.parametrize("source", OWN)
def test_errors_of_the_persons_own_are_not_explained(cell, source):
    """Nor is an interrupt, or a cell that is no Python."""
    cell(SWITCH)
    assert explanations(cell(source)) == []


def test_the_same_cell_twice_is_explained_twice(cell):
    """Nothing is remembered of the first time."""
    cell(SWITCH)
    assert len(explanations(cell(FAILS))) == len(explanations(cell(FAILS))) == 1


@pytest.mark.parametrize("switch", ["pass", SWITCH])
@pytest.mark.parametrize("magic", ["%%tracegrad", "%%aliases", "%%tracegrad --live off"])
def test_under_a_cell_magic_it_is_told_once(cell, magic, switch):
    """Whether or not every cell is explained."""
    cell(switch)
    ran = cell(f"{magic}\n{FAILS}")
    assert isinstance(ran.error, RuntimeError)
    told = [shown["text/plain"] for shown in ran.shown if "p @ q" in shown["text/plain"]]
    assert len([text for text in told if "GIVEN AS" in text]) == 1


@pytest.mark.parametrize("magic", ["%tensor", "%gradgraph"])
@pytest.mark.parametrize("switch", ["pass", SWITCH])
def test_the_expression_of_a_line_magic_is_explained(cell, magic, switch):
    """Once; the operands are named as written in the expression, and the line is the user's."""
    cell(switch)
    cell("p, q = torch.ones(2, 3), torch.ones(4, 5)")
    (told,) = explanations(cell(f"r = p\n{magic} p @ q.T"))
    assert " q.T " in told
    assert " 2 ✖ p @ q.T\n" in told


@pytest.mark.parametrize("magic", ["%tensor", "%gradgraph", "%why"])
def test_an_expression_that_calls_a_function_leads_to_the_line_that_failed_there(cell, magic):
    """The function's line is the place, with what failed in it; the expression stands in the line of the magic."""
    cell("def product(left, right):\n    return left @ right")
    (told,) = explanations(cell(f"p = torch.ones(2, 3)\n{magic} product(p, torch.ones(4, 5))"))
    assert " 2   product(p, torch.ones(4, 5))\n" in told
    assert " 2 ✖ return left @ right\n" in told
    assert "‾‾‾‾‾‾‾‾‾‾‾‾" in told
    assert "<string>" not in told


def test_the_error_of_the_next_cell_is_explained_as_well(cell):
    """What one cell was told does not silence the next."""
    cell(SWITCH)
    cell(f"%%tracegrad\n{FAILS}")
    assert len(explanations(cell(FAILS))) == 1


def test_a_function_of_another_cell_is_shown_with_its_own_cell(cell):
    """The line that failed, and the one that called."""
    cell(SWITCH)
    cell("def product(left, right):\n    return left @ right")
    (told,) = explanations(cell("product(torch.ones(2, 3), torch.ones(4, 5))"))
    assert " 1   product(torch.ones(2, 3), torch.ones(4, 5))\n" in told
    assert " 2 ✖ return left @ right\n" in told


def test_nothing_is_kept_alive(cell, shell):
    """Beyond what IPython itself keeps of the last error."""
    cell(SWITCH)
    cell("def failing():\n    operand = torch.ones(7, 3)\n    keep(operand)\n    return operand @ x")
    found = []
    shell.user_ns["keep"] = lambda operand: found.append(weakref.ref(operand))
    assert len(explanations(cell("failing()"))) == 1
    sys.last_value = sys.last_traceback = sys.last_exc = shell.InteractiveTB.tb = shell.InteractiveTB.value = None
    cell("pass")
    gc.collect()
    assert found[0]() is None


def test_unloading_takes_it_away(cell, shell):
    """No event is left."""
    cell(SWITCH)
    before = len(shell.events.callbacks["post_run_cell"])
    shell.extension_manager.unload_extension("tensormagic")
    assert len(shell.events.callbacks["post_run_cell"]) == before - 1
    assert explanations(cell(FAILS)) == []
    shell.extension_manager.load_extension("tensormagic")


@pytest.mark.parametrize("line", ["explain maybe", "explain on now"])
def test_a_switch_is_on_or_off(cell, line):
    """With what it was given."""
    given = line.removeprefix("explain ")
    assert str(cell(f"%tensormagic {line}").error) == (
        f"%tensormagic explain takes on, off, or nothing, but was given '{given}'"
    )


@pytest.mark.parametrize("line", ["nothing on", "x y"])
def test_what_cannot_be_switched_is_refused(cell, line):
    """With what can."""
    assert "explain on|off" in str(cell(f"%tensormagic {line}").error)


def test_help_is_help(cell):
    """As for every other magic."""
    assert "%tensormagic explain on|off" in cell("%tensormagic --help").out


@pytest.mark.parametrize(
    ("line", "words"),
    [("%tensormagic ", {"explain"}), ("%tensormagic ex", {"explain"}), ("%tensormagic explain ", {"on", "off"}),
     ("%tensormagic explain of", {"off"})],
)  # fmt: skip
def test_tab_completes_the_switches(shell, line, words):
    """First what, then on or off."""
    shell.Completer.use_jedi = False
    _, matches = shell.complete(line.split(" ")[-1], line, len(line))
    assert words <= set(matches)


def test_in_a_terminal_it_is_text_below_the_traceback(cell, shell, monkeypatch):
    """As wide as the terminal, after what IPython prints."""
    monkeypatch.setattr("tensormagic.views.text_canvas.prints_best", lambda: True)
    cell(SWITCH)
    ran = cell(FAILS)
    assert ran.out.index("RuntimeError") < ran.out.index("── Tensor.matmul ──")


def test_a_loss_made_in_an_earlier_cell(cell):
    """What cut it off stands there, or in the cell before; its line is given by the number of that cell."""
    cell("with torch.no_grad():\n    out = net(torch.ones(3, 2))")
    cell("loss = out.mean()")
    cell(SWITCH)
    (told,) = explanations(cell("loss.backward()"))
    assert "loss has no graph for backward: torch.no_grad() kept autograd from recording it" in " ".join(told.split())
    assert "cell 1, line 1: with torch.no_grad()" in told
    cell("loss = net(torch.ones(3, 2)).detach().sum()")
    (told,) = explanations(cell("loss.backward()"))
    assert "cell 5, line 1: loss = net(torch.ones(3, 2)).detach().sum()" in told


def test_a_cell_with_a_backward_that_runs_again(cell):
    """Nothing has made the loss anew: the cell that freed its graph is named; after a new loss there is no error."""
    cell(SWITCH)
    cell("loss = net(torch.ones(3, 2)).tanh().sum()")
    assert explanations(cell("loss.backward()")) == []
    (told,) = explanations(cell("loss.backward()"))
    assert "backward goes through the graph of loss a second time" in " ".join(told.split())
    assert "freed by the earlier backward: cell 3, line 1: loss.backward()" in told
    cell("loss = net(torch.ones(3, 2)).tanh().sum()")
    assert explanations(cell("loss.backward()")) == []
