"""What the examples store: a run changes them only where words or looks differ, and nothing that was live stays."""

from __future__ import annotations

import nbformat
import pytest

from tools import outputs


def notebook(*shown, cell_id="one"):
    """Return a notebook of one cell with these outputs: texts, and pictures as ``(png, text)``."""
    data = [{"text/plain": one} if isinstance(one, str) else dict(zip(("image/png", "text/plain"), one, strict=True))
            for one in shown]  # fmt: skip
    displays = [nbformat.v4.new_output("display_data", data=each) for each in data]
    kernel = {"name": "python3", "display_name": "Python 3"}
    cell = nbformat.v4.new_code_cell("%tensor x", id=cell_id, outputs=displays)
    return nbformat.v4.new_notebook(cells=[cell], metadata={"kernelspec": kernel})


@pytest.mark.parametrize(
    ("fresh", "changed"),
    [
        ([("10", "a 3 in 20 ms")], []),
        ([("10.9", "a 14 in 3 s")], []),
        ([("12", "a 3 in 20 ms")], ["one"]),
        (["a 3 in 20 ms"], ["one"]),
        ([("10", "a (3,) in 20 ms")], ["one"]),
    ],
    ids=["same", "other numbers", "another look", "no picture", "a shape in brackets"],
)
def test_a_cell_whose_pictures_look_otherwise_is_stored_anew(fresh, changed):
    """Or whose text does; not by a number that has changed in the same place."""

    def apart(one, other):
        return abs(float(one) - float(other))

    assert outputs.changed_looks(notebook(("10", "a 3 in 20 ms")), notebook(*fresh), apart) == changed


def test_what_was_live_leaves_no_empty_output():
    """The last picture that was shown while a cell ran is emptied when it has ended."""
    ran = notebook("a line", "")
    outputs.still(ran, None)
    assert [one.data for one in ran.cells[0].outputs] == [{"text/plain": "a line"}]
