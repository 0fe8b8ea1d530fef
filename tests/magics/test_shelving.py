"""Which outputs of a notebook carry the code that panels share: by what the front end says, cell by cell."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import pytest
from IPython.core.displaypub import CapturingDisplayPublisher

from tensormagic.magics import extension
from tensormagic.magics.shared_assets import Request, SharedPieces
from tensormagic.views import theme
from tests.support.shell import KERNEL

PIECE = "export"


@dataclass
class Notebook:
    """The cells of a notebook, and what the output of each carries."""

    shared_pieces: SharedPieces = field(default_factory=SharedPieces)
    count: int = 0
    carried: dict[str, bool] = field(default_factory=dict)
    described: dict[str, int | None] = field(default_factory=dict)

    def run(self, *cells: str, code: str = "show()") -> list[str]:
        """Run cells that show one panel each; returns those whose output now carries the piece, of all."""
        for cell in cells:
            self.count += 1
            self.shared_pieces.begin(cell, code)
            found = self.shared_pieces.elsewhere([PIECE], self.count)
            self.carried[cell] = not found
            self.described.update({cell: found[PIECE]} if found else {})
        return [cell for cell, carries in self.carried.items() if carries]

    def delete(self, cell: str) -> None:
        del self.carried[cell]
        self.shared_pieces.forget([cell])


CELLS = [f"cell{at}" for at in range(20)]


def test_of_twenty_panels_one_carries() -> None:
    """The first; the others say in which cell it is, by the number beside it."""
    notebook = Notebook()
    assert notebook.run(*CELLS) == ["cell0"]
    assert set(notebook.described.values()) == {1}


def test_run_all_leaves_one_carrier_however_often() -> None:
    """The carrier is run first, and carries again; nobody else does."""
    notebook = Notebook()
    for _ in range(3):
        assert notebook.run(*CELLS) == ["cell0"]


def test_a_cell_that_is_edited_and_run_again_does_not_carry() -> None:
    """Working on one cell for an hour adds no copies."""
    notebook = Notebook()
    notebook.run(*CELLS)
    for at in range(9):
        assert notebook.run("cell7", code=f"show({at})") == ["cell0"]


def test_a_cell_that_is_run_again_as_it_stands_mends_what_is_missing() -> None:
    """Its panel may be there without its code: the carrier's output was cleared, which the kernel cannot see."""
    notebook = Notebook()
    notebook.run(*CELLS)
    assert notebook.run("cell7") == ["cell0", "cell7"]
    assert notebook.run("cell8", "cell9") == ["cell0", "cell7"]
    assert notebook.described["cell9"] == notebook.count - 2


def test_run_all_after_that_leaves_one_again() -> None:
    """Copies that came by mending go with the next run from top to bottom."""
    notebook = Notebook()
    notebook.run(*CELLS)
    notebook.run("cell7")
    notebook.run("cell12")
    assert len(notebook.run()) > 1
    assert len(notebook.run(*CELLS)) == 1
    assert len(notebook.run(*CELLS)) == 1


def test_a_carrier_that_is_edited_hands_over() -> None:
    """Where it shows nothing any more, the next output carries, of a new cell or an old one."""
    notebook = Notebook()
    notebook.run(*CELLS)
    notebook.shared_pieces.begin("cell0", "pass")
    notebook.carried["cell0"] = False
    assert notebook.run("cell5", code="edited") == ["cell5"]


def test_a_deleted_carrier_is_replaced_by_the_next_output() -> None:
    """JupyterLab says with the next cell it runs which are gone."""
    notebook = Notebook()
    notebook.run(*CELLS)
    notebook.delete("cell0")
    assert notebook.run("new") == ["new"]
    assert notebook.run("cell3", code="edited") == ["new"]


def test_a_carrier_that_is_run_again_alone_stays_it() -> None:
    """Its output is replaced by one that carries."""
    notebook = Notebook()
    notebook.run(*CELLS)
    assert notebook.run("cell0") == ["cell0"]
    assert notebook.run("cell0", code="edited") == ["cell0"]


def test_an_output_that_the_cell_clears_is_carried_again() -> None:
    """A loop with clear_output: the last panel is what stays."""
    pieces = SharedPieces()
    pieces.begin("loop", "code")
    assert pieces.elsewhere([PIECE], 1) == {}
    assert pieces.elsewhere([PIECE], 1) == {PIECE: 1}
    pieces.clear()
    assert pieces.elsewhere([PIECE], 1) == {}


def test_pieces_are_followed_one_by_one() -> None:
    """The first tensor carries its viewer, and not what the traced run before it carries."""
    pieces = SharedPieces()
    pieces.begin("traced", "code")
    assert pieces.elsewhere(["export", "trace"], 1) == {}
    pieces.begin("looked", "code")
    assert pieces.elsewhere(["export", "tensor"], 2) == {"export": 1}


LAB = {"cellId": "a1", "deletedCells": [], "recordTiming": False, "trusted": True}
NOTHING_KNOWN = {"nbclient": {}, "a console": {"cellId": "a1"}, "Colab": {"colab": {"cell_id": "a1"}}}


@pytest.mark.parametrize("metadata", NOTHING_KNOWN.values(), ids=NOTHING_KNOWN)
def test_a_front_end_that_says_nothing_may_show_each_output_by_itself(metadata: dict[str, object]) -> None:
    """Only what JupyterLab and VS Code send tells that all outputs are on one page."""
    assert not Request.of({"header": {"msg_id": "1", "session": "p"}, "metadata": metadata}).on_one_page


@pytest.mark.parametrize("metadata", [LAB, {"cellId": "vscode-notebook-cell:/home/me/a.ipynb#W0"}])
def test_front_ends_with_one_page_are_known(metadata: dict[str, object]) -> None:
    """By the metadata of the request, whatever started the kernel."""
    assert Request.of({"header": {"msg_id": "1", "session": "p"}, "metadata": metadata}).on_one_page


class Publisher(CapturingDisplayPublisher):
    """Keeps what is published, and tells the hooks, as ipykernel's does."""

    def register_hook(self, hook):
        self.hook = hook

    def unregister_hook(self, hook):
        assert self.hook == hook
        self.hook = lambda message: message

    def clear_output(self, wait=False):
        assert self.hook({"msg_type": "clear_output", "content": {"wait": wait}})["content"] == {"wait": wait}


@pytest.fixture
def lab(shell, cell, monkeypatch):
    """Return a function that runs a cell as JupyterLab needs it, and returns the pieces each panel carries."""
    extension.unload(shell)
    shell.display_pub = Publisher(parent=shell)
    counter = itertools.count()
    parent = {}
    monkeypatch.setattr(type(shell), "get_parent", lambda _: parent, raising=False)
    monkeypatch.setattr(type(shell), "kernel", KERNEL, raising=False)
    extension.load(shell)

    def run(name, source="%tensor a", *, page="p", **metadata):
        parent.clear()
        parent.update(header={"msg_id": str(next(counter)), "session": page}, content={"code": source})
        parent["metadata"] = {**LAB, "cellId": name, **metadata}
        pages = [bundle["text/html"] for bundle in cell(source).shown]
        return [sorted(key.split("-")[0] for key in theme.elements(html)) for html in pages]

    return run


def test_as_jupyterlab_asks(lab):
    """A new panel carries what none before it does; another page, and a deleted carrier, begin anew."""
    assert lab("one") == [["export", "tensor"]]
    assert lab("two", "%tensor a\n%tensor b\n%tensors") == [[], [], ["tensors"]]
    assert lab("three", "%rng", deletedCells=["one"]) == [["export"]]
    assert lab("four") == [["tensor"]]
    assert lab("five", page="opened again") == [["export", "tensor"]]


def test_the_value_of_a_cell_is_a_panel_too(lab, shell):
    """A report in the last line is shown through the formatter."""
    lab("one", "import tensormagic; r = tensormagic.inspect(a)\ntensormagic.show(r)")
    shown = shell.display_formatter.format(shell.user_ns["r"])[0]["text/html"]
    assert theme.elements(shown) == {}
    assert "needs the output of cell [" in shown


def test_what_is_not_shown_there_carries_all(lab, shell):
    """%%capture keeps it for another cell; slides and files are pages of their own."""
    assert lab("one") == [["export", "tensor"]]
    lab("two", "%%capture kept\n%tensor a")
    assert len(theme.elements(shell.user_ns["kept"].outputs[0].data["text/html"])) == 2
    assert lab("three", "%tensor a --slide") == [["tensor"]]


def test_what_an_output_widget_takes_is_not_saved_with_the_cell(lab):
    """It carries all, as does the next panel."""
    taken = "import ipywidgets\nwidget = ipywidgets.Output()\n"
    taken += "widget.msg_id = get_ipython().get_parent()['header']['msg_id']\n%tensor a\nwidget.close()"
    assert lab("one", taken) == [["export", "tensor"]]
    assert lab("two") == [["export", "tensor"]]
    assert lab("three") == [[]]


def test_clearing_the_output_of_a_cell(lab):
    """What stays in the end carries; what was cleared does not count."""
    loop = "from IPython.display import clear_output\nimport tensormagic\n"
    loop += "for _ in range(3):\n    clear_output(wait=True)\n    tensormagic.show(tensormagic.inspect(a))"
    assert lab("one", loop) == [["export", "tensor"]] * 3
    assert lab("two") == [[]]


def test_a_panel_that_is_repainted_keeps_what_it_carries(lab):
    """A live panel is one output: its last form carries what its first one did."""
    pages = lab("one", "%%gpumem --live html\nimport torch; kept = torch.ones(1000)")
    assert pages[0] == pages[-1] == ["export"]
    assert lab("two", "%%tracegrad --live html\nnet(torch.ones(3, 2)).sum().backward()")[-1] == ["trace"]


@pytest.mark.parametrize(("mode", "second"), [("each", [["export"]]), ("once", [[]]), ("auto", [["export"]])])
def test_the_setting_decides_by_hand(lab, mode, second):
    """``once`` where the front end says nothing, as for nbconvert; ``each`` for outputs that travel alone."""
    lab("zero", f"%config TensorMagic.viewer = '{mode}'")
    assert lab("", "%rng", deletedCells=None) == [["export"]]
    assert lab("", "%rng --help\n%rng", deletedCells=None) == second


def test_unloading_ends_it(lab, shell):
    """Nothing is heard any more."""
    lab("one")
    extension.unload(shell)
    assert shell.display_pub.hook({"msg_type": "clear_output"}) == {"msg_type": "clear_output"}
    extension.load(shell)
