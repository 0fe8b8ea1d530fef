"""Thousands of traced cells in one kernel: memory and objects stay flat, and a cell costs what the first did.

Run by ``make bench``.
"""

from __future__ import annotations

import json
import statistics

import numpy as np
import pytest

from tests.support.kernel import notebook_of, run_notebook

pytestmark = pytest.mark.benchmark

CELLS = 2_000
BYTES_A_CELL = 400  # of the line through the resident memory of the later looks; 10,000 cells: 4 MB
OBJECTS_A_CELL = 0.02
FEW = 50  # cells of one notebook
MOST_EMPTY = 0.110  # seconds
OBJECTS = 500_000  # that Python's garbage collector knows
OF_A_NIGHT = 400  # cells, which leave some 1,600 tensors
MOST_SLOWER = 8  # times; a look at all names costs more where there are more


def _run(folder, call):
    notebook = run_notebook(
        notebook_of("%load_ext tensormagic\nfrom tests.benchmarks import cells", f"cells.{call}"),
        folder, seconds=1800,
    )  # fmt: skip
    streams = "".join(output.get("text", "") for output in notebook.cells[1].outputs if output.output_type == "stream")
    return json.loads(next(line for line in streams.splitlines() if line.startswith('{"looks"')))


def test_thousands_of_cells(tmp_path):
    """Objects and resident memory, a line through both: nothing is left by a cell; no mode or hook stays."""
    found = _run(tmp_path, f"main({CELLS})")
    numbers, objects, resident = np.array(found["looks"][2:], float).T  # what an allocator keeps comes first
    by_object, by_byte = np.polyfit(numbers, objects, 1)[0], np.polyfit(numbers, resident, 1)[0]
    print(f"\n    {CELLS} cells: {by_object:.3f} objects and {by_byte:.0f} bytes a cell, "
          f"{resident[0] / 1e6:.1f} to {resident[-1] / 1e6:.1f} MB")  # fmt: skip
    assert by_object <= OBJECTS_A_CELL
    assert by_byte <= BYTES_A_CELL
    assert not found["left"]


def test_many_runs_do_not_slow_each_other(tmp_path):
    """Of fifty traced cells the last ten take at most a tenth longer than the first ten, in CPU time."""
    seconds = _run(tmp_path, f"main({FEW})")["seconds"]
    first, last = (statistics.median(part) for part in (seconds[:10], seconds[-10:]))
    print(f"\n    of {FEW} cells: {1000 * first:.1f} ms at first, {1000 * last:.1f} ms at last")
    assert last <= 1.1 * first


def test_an_empty_memory_cell(tmp_path):
    """With half a million objects alive, looking at them before and after a cell that does nothing, in CPU time."""
    median = statistics.median(_run(tmp_path, f"empty({OBJECTS})")["seconds"])
    print(f"\n    an empty %%gpumem cell, beside {OBJECTS} objects: {1000 * median:.0f} ms")
    assert median <= MOST_EMPTY


def test_the_last_cells_of_a_night(tmp_path):
    """After hundreds of cells, with their names, outputs and sources, a magic is not many times slower, in CPU time."""
    first, last = _run(tmp_path, f"night({OF_A_NIGHT})")["seconds"]
    slower = {name: last[name] / first[name] for name in first}
    print(f"\n    after {OF_A_NIGHT} cells: " + ", ".join(
        f"{name} {1000 * last[name]:.0f} ms ({ratio:.1f} times)" for name, ratio in slower.items()
    ))  # fmt: skip
    assert max(slower.values()) <= MOST_SLOWER
