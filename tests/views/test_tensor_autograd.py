"""The autograd section: the reasons, the way to the leaves as picture and tree, what is sent and what is kept."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree as ET

from tensormagic.reports import NOTHING, AutogradDetails, Path, PathNode, TensorReport
from tensormagic.views.graph.words import FORMULAS, formulas
from tensormagic.views.panels.tensor_autograd import autograd_nodes, broken, lines, saved_rows, sent_rows, summary
from tensormagic.views.panels.why import path_note, path_svg, tree
from tensormagic.views.to_html import html
from tests.views.markup_reader import Page, svg_of
from tests.views.samples_tensor import HOSTILE, SAMPLES, as_html, as_text
from tests.views.samples_values import graph
from tests.views.snapshots import assert_snapshot


def autograd_html(report: TensorReport) -> str:
    """The section as a page has it."""
    return "".join(map(html, autograd_nodes(report)))


def details() -> AutogradDetails:
    """The details of the sample."""
    report = graph()
    assert report.autograd is not None
    assert report.autograd.details is not None
    return report.autograd.details


def path() -> Path:
    """The path of the sample."""
    found = details().path
    assert found is not None
    return found


def test_section_is_as_stored() -> None:
    """The section, and the picture in it."""
    assert_snapshot("tensor_autograd.html", autograd_html(graph()))
    assert_snapshot("tensor_autograd.svg", path_svg(path(), "loss"))


def test_a_backward_that_must_fail_is_said_up_front() -> None:
    """A saved tensor that was changed in place opens the disclosure, stands in its summary and in a sentence."""
    report = graph()
    assert broken(report)
    assert summary(report) == ("MseLossBackward0, 34 nodes to 2 leaves, 2 hooks, a saved tensor was changed in place")
    assert (
        "`backward()` would raise: a saved tensor was changed in place (saved by MulBackward0, which made pred)."
        in lines(report)
    )
    assert "<h3>Autograd</h3>" in as_html(report)


def test_a_freed_graph_is_said_and_stays_closed() -> None:
    """A loss after its backward is in the usual state: said, but no alarm."""
    node = replace(path().nodes[0], inputs=(NOTHING,), saved="freed")
    report = graph()
    assert report.autograd is not None
    freed = replace(details(), path=Path((node,), 1, complete=True))
    report = replace(report, autograd=replace(report.autograd, details=freed))
    assert summary(report).endswith("its graph has been freed")
    assert not broken(report)
    assert lines(report)[-1].startswith("Another `backward()` would raise: its graph has been freed")
    assert 'class="freed"' in path_svg(Path((node,), 1, complete=True), "loss")
    assert "<h3>Autograd</h3>" not in as_html(report)


def test_what_is_kept_has_its_state_and_versions() -> None:
    """Fine, changed (both versions), packed, freed: each in words."""
    assert saved_rows(details()) == (
        ("self", "", "changed in place", "saved at version 0, now 2"),
        ("target", "y (5, 1) float32", "fine", "version 0"),
        ("weight", "", "packed by your saved-tensor hook, which is not run to show it", ""),
        ("total", "", "freed by an earlier backward()", ""),
    )


def test_where_the_gradient_goes() -> None:
    """Each input of the node has its target, its formula, or the reason why nothing is sent."""
    assert sent_rows(path()) == (
        ("input 0", "MulBackward0, which made pred", ""),
        ("input 1", "nothing: no gradient needed", ""),
    )
    product = Path((path().nodes[1], *path().nodes[1:]), 34, complete=True)
    assert sent_rows(product) == (
        ("input 0", "AddmmBackward0, which made out", "grad \u00b7 other"),
        ("input 1", "a node further away", "grad \u00b7 self"),
    )


def test_formulas_are_not_guessed() -> None:
    """An op that is not known, or has another number of inputs, has no formula."""
    assert formulas("NoSuchBackward0", 2) == ("", "")
    assert formulas("MulBackward0", 3) == ("", "", "")
    assert all(name.endswith(("Backward0", "Backward1")) for name in FORMULAS)


def test_tree_names_every_listed_node_once() -> None:
    """The terminal's tree: leaves by name or shape, what was made, what is modified."""
    assert tree(path(), "loss") == [
        "loss",
        "\u2514 MseLossBackward0 ()",
        "  \u2514 MulBackward0 (5, 1) \u2192 pred  ! saved tensor changed in place",
        "    \u2514 AddmmBackward0 (5, 1) \u2192 out",
        "      \u251c net.bias (1,), a leaf, grad there",
        "      \u2514 TBackward0 (8, 1)",
        "        \u2514 leaf (1, 8), a leaf",
    ]


def test_shared_nodes_are_told_once() -> None:
    """A node that is used twice is drawn out the first time; a long chain is cut, and that is shown."""
    shared = Path((PathNode("mul", "MulBackward0", inputs=(1, 1)), PathNode("exp", "ExpBackward0")), 2, complete=True)
    assert tree(shared, "x")[2:] == ["  \u251c ExpBackward0 ()", "  \u2514 ExpBackward0 () (as above)"]
    chain = Path(tuple(PathNode("add", "AddBackward0", inputs=(at + 1,)) for at in range(20)), 21, complete=True)
    assert len(tree(replace(chain, nodes=(*chain.nodes, PathNode("", "AccumulateGrad"))), "x")) == 15


def test_picture_holds_every_node_and_what_lies_beyond() -> None:
    """One box a node, one for the tensor, one for the rest; blue leaves, red where it must fail."""
    root = ET.fromstring(path_svg(path(), "loss"))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    labels = ["mse_loss", "mul", "addmm", "net.bias", "t", "leaf", "loss", "\u2026"]
    assert [text for text in texts if text in labels] == labels
    assert "28 more" in texts
    assert "saved: changed in place" in texts
    styles = [element.get("class") for element in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert (styles.count("leaf"), styles.count("bad"), styles.count("self"), styles.count("far")) == (2, 1, 1, 1)


def test_names_that_are_markup_stay_text() -> None:
    """A leaf or tensor may be called anything."""
    node = PathNode(HOSTILE, HOSTILE, HOSTILE, (1,), inputs=(1,))
    hostile = Path((node, PathNode("", "AccumulateGrad", HOSTILE, is_leaf=True)), 2, complete=True)
    clean = "".join(char for char in path_svg(hostile, HOSTILE) if char.isprintable())
    assert {element.tag.rsplit("}")[-1] for element in ET.fromstring(clean).iter()} <= {
        "svg", "style", "rect", "g", "path", "text",
    }  # fmt: skip
    report = replace(graph(), name=HOSTILE)
    assert not [name for _, given in Page(autograd_html(report)).elements for name in given if name.startswith("on")]


def test_picture_in_the_panel_is_this_picture() -> None:
    """The image's address holds the SVG, its alternative text the tree."""
    source, alt = next(
        (given["src"], given["alt"]) for kind, given in Page(autograd_html(graph())).elements if kind == "img"
    )
    assert source is not None
    assert svg_of(source).strip() == path_svg(path(), "loss").strip()
    assert alt == "\n".join(tree(path(), "loss"))


def test_numbers_of_a_bounded_walk_are_honest() -> None:
    """All drawn says nothing; part of a known number says both; past the bound says more than."""
    assert path_note(replace(path(), walked=6)) == ""
    assert path_note(path()) == "the nearest 6 of 34 nodes are drawn"
    beyond = replace(path(), walked=10_000, complete=False)
    assert path_note(beyond) == "the nearest 6 nodes are drawn; there are more than 10\u00a0000"


def test_a_report_without_details_says_what_it_has() -> None:
    """Reports saved before there were details, and tensors whose graph cannot be read, keep their sentences."""
    assert "AUTOGRAD" in as_text(SAMPLES["expanded"])
    assert summary(SAMPLES["expanded"]).startswith("ExpandBackward0")
    assert "stays None" in autograd_html(SAMPLES["expanded"])
    assert autograd_html(SAMPLES["all_missing"]) == ""
