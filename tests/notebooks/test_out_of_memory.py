"""Memory that runs out in a real kernel: the panel of the moment, once, and nothing that it keeps alive."""

from __future__ import annotations

from tests.notebooks.test_watching import text_of

START = "import torch, weakref\n%load_ext tensormagic\nseen = []\nlosses = [torch.ones(4000)]"
FAILS = """
def build(n):
    hidden = torch.ones(1000)
    seen.append(weakref.ref(hidden))
    return torch.empty(n), hidden
build(2**48)
"""
ALIVE = "import gc; gc.collect(); print([one() is not None for one in seen])"


def test_a_cell_that_dies_of_memory_tells_the_moment_once(run_cells):
    """Under %%gpumem the panel of the run has it all, with what letting go would free; then the cell's own error."""
    cells = run_cells(START, f"%%gpumem\n{FAILS}", allow_errors=True).cells
    told = " ".join(text_of(cells[1]).split())
    assert told.count("cpu ran out of memory: torch.empty asked for 1 PiB,") == 1
    assert "The functions that failed hold 3.9 KiB that nothing else holds" in told
    assert "build.<locals>.hidden" in told
    assert "del losses" in told
    assert [output["ename"] for output in cells[1].outputs if output.output_type == "error"] == ["RuntimeError"]


def test_the_explanation_keeps_nothing_alive(run_cells):
    """Once another error has taken the place of the last one, what the failed function had is gone."""
    cells = run_cells(START, "%tensormagic explain on", FAILS, ALIVE, "1/0", ALIVE, allow_errors=True).cells
    assert "── torch.empty ── memory ran out ──" in " ".join(text_of(cells[2]).split())
    assert text_of(cells[3]) == "[True]\n"
    assert text_of(cells[5]) == "[False]\n"


def test_the_remedy_frees_what_only_the_error_holds(run_cells):
    """``%gpumem --free --yes``, as the panel says: what the failed function had is gone."""
    asked = (START, "%tensormagic explain on", FAILS, ALIVE, "%gpumem --free --yes", ALIVE)
    cells = run_cells(*asked, allow_errors=True).cells
    assert "%gpumem --free --yes" in " ".join(text_of(cells[2]).split())
    assert text_of(cells[3]) == "[True]\n"
    assert text_of(cells[5]) == "[False]\n"
