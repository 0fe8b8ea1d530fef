"""What the panel of %why says, as a tree of nodes, and the way that it draws."""

from __future__ import annotations

from tensormagic.views.nodes import Items, Paragraph, Section, Table, Words
from tensormagic.views.panels.why import WayPicture, line_words, view
from tests.views.samples_why import SAMPLES


def part(name, kind):
    """The first node of a kind in the panel's body."""
    return next(node for node in view(SAMPLES[name]).body if isinstance(node, kind))


def test_the_answer_stands_first():
    """Who is asked about, and the answer in large type."""
    panel = view(SAMPLES["cut_off"])
    assert panel.title == "why net.body.weight.grad"
    assert panel.lead.startswith("net.body.weight.grad is None because `.detach()` (cell 3, line 2) cut its way")


def test_what_to_do_is_a_sentence_or_code():
    """A sentence marks its own code; what is code as a whole is code."""
    (items,) = part("cut_off", Section).body
    assert items == Items(["Without `.detach()`: `return self.head(self.body(x))`."], 1)


def test_what_the_answer_rests_on():
    """Its line, and who saw it."""
    told = next(node for node in view(SAMPLES["cut_off"]).body if isinstance(node, Section) and not node.title).body
    assert told == ["cell 3, line 2: `line 2`", Paragraph("as the traced run of cell 3 saw it", "quiet")]


def test_a_module_is_a_row_for_each_reason():
    """What is not as it should be stands out."""
    rows = part("module", Table).rows
    assert [row[0] for row in rows] == [Words("cut off", "error"), Words("unused", "error"), "fine"]
    assert rows[0][1:3] == ["2 parameters", Words("net.body", "code")]


def test_what_the_gradient_did_not_reach_is_drawn_so():
    """Before the cut, seen from the tensor, every stop is dashed; behind it none is."""
    html = part("cut_off", WayPicture).html()
    assert html.count('class="tm-stop tm-op tm-none"') == 1
    assert html.count('class="tm-stop tm-tensor tm-none"') == 1
    assert html.count('class="tm-arrow tm-ended"') == 2


def test_lines_of_several_files_are_told_with_them():
    """In one cell the line alone says where; through several, the cell as well."""
    report = SAMPLES["cut_off"]
    assert {line_words(report, step) for step in report.way} >= {"line 5"}
    assert "cell 3, line 1" not in {line_words(report, step) for step in report.way}
