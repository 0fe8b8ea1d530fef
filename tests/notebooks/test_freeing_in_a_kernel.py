"""``%gpumem --free --yes`` in a real kernel, which keeps outputs and errors in more places than a shell does."""

from __future__ import annotations

PREPARE = """%load_ext tensormagic
import gc, torch
def failing():
    inside = torch.ones(3000)
    raise ValueError("no")
mine = torch.ones(7)"""
COUNT = "gc.collect(); print(sorted(item.numel() for item in gc.get_objects() if type(item) is torch.Tensor))"


def test_a_kernel_lets_go_of_outputs_and_of_the_error(run_cells):
    """Of two outputs and an error, right after it was raised, all that has no name is gone."""
    cells = (PREPARE, "torch.ones(1000)", "mine", "failing()", "%gpumem --free --yes --text", COUNT)
    *_, told, counted = run_cells(*cells, allow_errors=True).cells
    shown = "".join(output["text"] for output in told.outputs)
    assert "Released the last error (ValueError) and Out[2]: 15.6 KiB freed, in 2 storages." in shown
    assert [output["text"] for output in counted.outputs] == ["[7]\n"]
