"""What a session keeps, in a real kernel: what the findings say, and that each remedy frees what it promises to."""

from __future__ import annotations

START = "%load_ext tensormagic\n%tensormagic watch on"
MAKE = """
import gc, weakref, torch
refs = []
def large():
    made = torch.zeros(20, 2**18)
    refs.append(weakref.ref(made))
    return made
"""
ALIVE = "gc.collect()\nprint([ref() is not None for ref in refs])"


def text_of(cell) -> str:
    """Return all that a cell printed or displayed, as text."""
    parts = [output.get("text", "") or output.get("data", {}).get("text/plain", "") for output in cell.outputs]
    return "".join(parts)


def test_outputs_keep_memory_and_the_remedy_frees_it(run_cells):
    """TM501 names the output; %reset -f out is not enough, %xdel is: also of what lies in a tuple, a while later."""
    cells = run_cells(START, MAKE, "large()", "%reset -f out\n" + ALIVE, "(1, large())", "2", "3",
                      "%xdel _5\n" + ALIVE, "large()", "%xdel _9\n" + ALIVE).cells  # fmt: skip
    assert "Out[3] keeps 20 MiB alive that none of your variables refers to" in text_of(cells[2])
    assert text_of(cells[3]).endswith("[True]\n")
    assert text_of(cells[7]) == "[True, False]\n"
    assert "%xdel _9" in text_of(cells[8])
    assert text_of(cells[9]) == "[True, False, False]\n"


def test_a_semicolon_keeps_nothing_in_the_history(run_cells):
    """As the remedy says."""
    cells = run_cells(START, MAKE, "large();", ALIVE).cells
    assert text_of(cells[2]) == ""
    assert text_of(cells[3]) == "[False]\n"


def test_the_last_error_keeps_memory_and_the_remedy_frees_it(run_cells):
    """TM502 names the function's local and its line; setting sys.last_value is not enough, another error is."""
    fails = "def evaluate():\n    features = large()\n    raise ValueError('no')\nevaluate()"
    cleared = "import sys\nsys.last_type = sys.last_value = sys.last_traceback = sys.last_exc = None"
    cells = run_cells(START, MAKE, fails, cleared, ALIVE, "1/0", ALIVE, allow_errors=True).cells
    told = text_of(cells[2])
    assert "The last error keeps 20 MiB alive" in told
    assert "features of evaluate" in told
    assert "cell 3, line 3: raise ValueError('no')" in told
    assert text_of(cells[4]) == "[True]\n"
    assert text_of(cells[6]) == "[False]\n"


def test_a_notebook_is_silent_where_nothing_is_wrong_and_names_the_cell_where_something_is(run_cells):
    """Training, looking and plotting numbers; then a validation loop that stores its losses."""
    train = """
from torch import nn
net = nn.Sequential(nn.Linear(4, 256), nn.ReLU(), nn.Linear(256, 1))
optimizer = torch.optim.Adam(net.parameters())
history = []
for _ in range(8):
    optimizer.zero_grad()
    loss = net(torch.randn(4096, 4)).square().mean()
    loss.backward()
    optimizer.step()
    history.append(loss.item())
"""
    check = "history[-1] < 1e9"
    validate = "losses = []\nfor _ in range(6):\n    losses.append(net(torch.randn(4096, 4)).square().mean())"
    more = "more = [net(torch.ones(4096, 4)) for _ in range(9)]"
    asked = (train, check, "%tensor net[0].weight --text", validate, "%tensormagic watch off", more)
    cells = run_cells(START, MAKE, *asked).cells
    assert [text_of(cells[at]) for at in (1, 2)] == ["", ""]
    assert text_of(cells[3]) == "True"
    assert "losses stores 6 tensors with their graphs" in text_of(cells[5])
    assert "cell 6, line 3: losses.append(" in text_of(cells[5])
    assert text_of(cells[7]) == ""
