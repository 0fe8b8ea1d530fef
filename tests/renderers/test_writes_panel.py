"""Watched writes as text and as a panel: findings first, each line with what it changed, nothing left out silently."""

from __future__ import annotations

import pytest

from tensormagic.renderers.sharing import writes_html, writes_text
from tensormagic.renderers.sharing.writes_words import headline, source_lines, table_rows
from tests.renderers import samples_writes as samples
from tests.renderers.markup_reader import Page
from tests.renderers.snapshots import assert_snapshot

EXACT = ("effects", "quiet", "nothing", "refused", "hostile")


@pytest.mark.parametrize("name", EXACT)
def test_text_is_as_stored(name):
    """Every kind of run has its text in ``tests/snapshots``; a change is seen there."""
    assert_snapshot(f"writes_{name}.txt", writes_text.render(samples.SAMPLES[name]))


@pytest.mark.parametrize("name", ["effects", "quiet"])
def test_panel_is_as_stored(name):
    """The panel's markup is the stored one."""
    assert_snapshot(f"writes_{name}.html", writes_html.render(samples.SAMPLES[name]))


@pytest.mark.parametrize("width", [60, 80, 100, 160])
@pytest.mark.parametrize("name", samples.SAMPLES)
def test_no_line_is_wider_than_asked(name, width):
    """Whatever the names and the code, the text keeps to its width."""
    assert max(map(len, writes_text.render(samples.SAMPLES[name], width=width).splitlines())) <= width


def test_the_headline_counts_writes_lines_and_other_names():
    """A loop counts every time; the same name changed on two lines counts once; backward's own are told apart."""
    assert headline(samples.effects()) == (
        "33 in-place writes on 4 lines, 12 other names changed by them, 20 more by backward (it adds up gradients)"
    )
    assert headline(samples.nothing()) == "no in-place write"


def test_what_a_line_changes_stands_below_it():
    """Name, amount and the strip of elements, and several tensors of one variable together."""
    lines = writes_text.render(samples.effects()).splitlines()
    at = next(place for place, line in enumerate(lines) if line.startswith("   5 "))
    assert lines[at + 1].strip() == "→ x: 4 of 12 elements  ▮▮▮▮▯▯▯▯▯▯▯▯"
    step = next(place for place, line in enumerate(lines) if line.startswith("   9 "))
    assert [line.strip() for line in lines[step + 1 : step + 3]] == [
        "→ best: 8 tensors in it, 96 of 96 elements",
        "→ history: 4 items are one memory",
    ]


def test_the_strip_has_a_box_an_element_and_gaps_between_rows():
    """Twelve boxes for x (3, 4), four of them filled, a gap before the second and third row."""
    page = Page(writes_html.render(samples.effects()))
    strips = page.with_class("tm-marks")
    assert "4 of 12 elements reached, in reading order" in {strip["title"] for strip in strips}
    boxes = page.attributes("i")
    assert sum("row" in (box.get("class") or "").split() for box in boxes) == 3 * 2  # x, and numbers twice


def test_the_worst_finding_marks_the_line():
    """Error, note, warning; a line that only writes has a mark of its own."""
    signs = {line.number: line.sign for line in source_lines(samples.effects()) if line.sign}
    assert signs == {4: "error", 5: "note", 7: "warning", 9: "warning"}
    assert {line.number: line.sign for line in source_lines(samples.quiet()) if line.sign} == {2: "write", 9: "write"}


def test_a_long_cell_shows_the_lines_that_write_and_their_neighbours():
    """Left-out lines are marked; other files stand below under their name."""
    listing = source_lines(samples.large())
    assert [line.number for line in listing[:8]] == [0, 149, 150, 151, 0, 249, 250, 251]
    assert (listing[8].number, listing[8].text) == (0, "model.py")
    assert len(listing) == 8 + 1 + 200


def test_what_is_left_out_is_counted():
    """Names beside a line, and rows of the table."""
    for output in (writes_text.render(samples.large()), Page(writes_html.render(samples.large())).text):
        assert "and 34 more names" in output
    assert "and 162 more lines that write" in writes_text.render(samples.large())
    assert "and 142 more lines that write" in Page(writes_html.render(samples.large())).text


def test_the_table_says_whether_autograd_notices():
    """An array has nothing to do with autograd; a tensor that does not share its counter does."""
    assert [row[-1] for row in table_rows(samples.effects())] == ["notices", "notices", "", "notices"]
    unseen = samples.changed("w", 3, 3, relation="itself", noticed=False, saved=True)
    report = samples.finished(samples.write(2, "mul_", "w", unseen))
    assert [row[-1] for row in table_rows(report)] == ["does not notice"]
    assert "3 of 3 elements, unseen by autograd" in writes_text.render(report)


def test_a_quiet_run_says_what_was_looked_at():
    """No finding: the sentence claims no more than was done."""
    assert "No write changed another name (240 names and attributes were looked through)" in writes_text.render(
        samples.quiet()
    )
    assert "Nothing was written to in place." in writes_text.render(samples.nothing())
