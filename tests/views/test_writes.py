"""What the panel of watched writes says, as a tree of nodes."""

from __future__ import annotations

from tensormagic.views.nodes import Findings, Section, Source, Strip, Words
from tensormagic.views.panels.writes import headline, source_lines, view
from tests.views import samples_writes as samples


def part(report, kind):
    """The only node of a kind in the panel's body."""
    (node,) = [node for node in view(report).body if isinstance(node, kind)]
    return node


def line(report, number):
    return next(line for line in part(report, Source).lines if line.number == number)


def test_the_headline_counts_writes_lines_and_other_names():
    """A loop counts every time; the same name changed on two lines counts once; backward's own are told apart."""
    assert headline(samples.effects()) == (
        "33 in-place writes on 4 lines, 12 other names changed by them, 20 more by backward (it adds up gradients)"
    )
    assert headline(samples.nothing()) == "no in-place write"


def test_what_a_line_changes_stands_below_it():
    """Name, amount and the strip of elements, row by row, and several tensors of one variable together."""
    assert line(samples.effects(), 5).below[0] == (
        "\u2192 `x`: 4 of 12 elements",
        Strip([1.0] * 4 + [0.0] * 8, "4 of 12 elements reached, in reading order", 4),
    )
    best, (history, _) = line(samples.effects(), 9).below
    assert best == "\u2192 `best`: 8 tensors in it, 96 of 96 elements"
    assert history == "\u2192 `history`: 4 items share one memory"


def test_memory_that_a_line_uses_twice_is_told_first():
    """A clash stands out."""
    assert line(samples.effects(), 7).below == [Words("\u2717 changes 6 elements of e, not 3", "strong")]


def test_the_worst_finding_marks_the_line():
    """Error, note, warning; a line that only writes has a mark of its own."""
    signs = {line.number: line.sign for line in source_lines(samples.effects()) if line.sign}
    assert signs == {4: "error", 5: "note", 7: "warning", 9: "warning"}
    assert {line.number: line.sign for line in source_lines(samples.quiet()) if line.sign} == {2: "mark", 9: "mark"}


def test_a_long_cell_shows_the_lines_that_write_and_their_neighbours():
    """Left-out lines are marked; other files stand below under their name."""
    listing = source_lines(samples.large())
    assert [line.number for line in listing[:8]] == [0, 149, 150, 151, 0, 249, 250, 251]
    assert (listing[8].number, listing[8].text) == (0, "model.py")
    assert len(listing) == 8 + 1 + 200


def test_what_is_left_out_is_counted():
    """Names beside a line; rows of the table, sixty in a page, forty in a terminal."""
    told = [words for line in source_lines(samples.large()) for words in line.below if isinstance(words, Words)]
    assert "and 34 more names, in the table below" in {words.text for words in told}
    (table,) = part(samples.large(), Section).body
    assert (len(table.rows), table.most) == (202, (60, 40))


def test_the_table_says_whether_autograd_notices():
    """An array has nothing to do with autograd; a tensor that does not share its counter does."""
    (table,) = part(samples.effects(), Section).body
    assert [row[-1] for row in table.rows] == ["notices", "notices", "", "notices"]
    unseen = samples.changed("w", 3, 3, relation="itself", noticed=False, saved=True)
    (table,) = part(samples.finished(samples.write(2, "mul_", "w", unseen)), Section).body
    assert table.rows[0][-2:] == ["w: 3 of 3 elements, not noticed by autograd", "does not notice"]


def test_a_quiet_run_says_what_was_looked_at():
    """No finding: the sentence claims no more than was done."""
    clear = part(samples.quiet(), Findings).clear
    assert clear.startswith("No write changed another name (240 names and attributes were searched)")
    assert part(samples.nothing(), Findings).clear == "Nothing was written to in place."


def test_a_run_that_ended_early_says_so():
    """The error is told beside the title, and stands out."""
    assert view(samples.refused()).facts[0].look == "error"
