"""``--slide``: every magic that shows a panel shows it for a projector, and saves it so."""

from __future__ import annotations

import pytest

CELL = "net = torch.nn.Linear(2, 1)\nnet(torch.ones(1, 2)).sum().backward()"


@pytest.mark.parametrize(
    ("magic", "line", "cell"),
    [
        ("tensor", "x --slide", None),
        ("tensors", "--slide", None),
        ("aliases", "--slide", None),
        ("gpumem", "--slide", None),
        ("why", "x --slide", None),
        ("rng", "--slide", None),
        ("gradgraph", "loss --slide", None),
        ("tracegrad", "--slide --live off", CELL),
        ("gpumem", "--slide --live off", CELL),
        ("aliases", "--slide", CELL),
        ("rng", "--slide", CELL),
    ],
)
def test_every_magic_has_it(shell, magic, line, cell):
    """What is shown is slides."""
    shell.run_cell("import torch; x = torch.ones(2, requires_grad=True); loss = (x * x).sum()")
    shell.display_pub.outputs.clear()
    if cell is None:
        shell.run_line_magic(magic, line)
    else:
        shell.run_cell_magic(magic, line, cell)
    shown = [output["data"]["text/html"] for output in shell.display_pub.outputs]
    assert 'class="tm tm-slides ' in shown[-1]


def test_what_is_saved_are_slides_too(shell, tmp_path, capsys):
    """The page is; the data is what it always is."""
    shell.run_cell("import torch; x = torch.ones(2)")
    shell.run_line_magic("tensor", f"x --slide --save {tmp_path}/x.html --save {tmp_path}/x.json")
    assert "tm-slides" in (tmp_path / "x.html").read_text(encoding="utf-8")
    assert (tmp_path / "x.json").exists()
    shell.run_cell("import tensormagic as tm; tm.show(tm.inspect(x), slide=True)")
    assert "tm-slides" in shell.display_pub.outputs[-1]["data"]["text/html"]
