"""Text for any terminal: streams that cannot hold every character, and tables however narrow it is."""

from __future__ import annotations

import io

import pytest

from tensormagic.views.page import terminal
from tensormagic.views.text_canvas import BLOCKS, LOOKALIKES, never_raise, table, wrapped, writable
from tests.views.samples_tensor import SAMPLES, as_text
from tests.views.test_every_renderer import TEXTS as RENDERERS

TEXTS = {one.name: one.render(next(iter(one.samples.values()))) for one in RENDERERS}


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "cp437", "latin-1", "shift_jis"])
@pytest.mark.parametrize("name", TEXTS)
def test_every_report_can_be_written(name, encoding):
    """Every character of our own has a lookalike: no question mark comes in, and no line becomes much longer."""
    text = TEXTS[name]
    written = writable(text, encoding)
    written.encode(encoding)
    assert written.count("?") == text.count("?")
    assert max(map(len, written.splitlines())) <= max(map(len, text.splitlines())) + 2
    assert [writable(text, name) for name in ("utf-8", None, "no-such-encoding")] == [text] * 3


def test_the_lookalikes_say_the_same():
    """A product stays a product, a range a range; bars keep their order, and are of one scale."""
    assert writable("offset 1 + 12·j · 8 × 4 · −2 → 3 ≠ 4", "ascii") == "offset 1 + 12*j - 8 x 4 - -2 > 3 != 4"
    assert writable("█·█", "ascii") == "@-@"
    assert writable(BLOCKS, "cp437") == writable(BLOCKS, "ascii") == ".:;=+%#@"
    assert writable("┌─┐", "cp437") == "┌─┐"
    assert writable("日本 x", "cp1252") == "?? x"
    assert all(like.isascii() for like in LOOKALIKES.values())


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_a_report_goes_into_such_a_stream(encoding):
    """Where ``print`` would raise UnicodeEncodeError: a pipe on Windows, a cron job's log; so do our own words."""
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding=encoding, newline="\n") as stream:
        terminal.print_report(SAMPLES["transpose_slice"], stream)
        never_raise(stream)
        print("✔ all · well 日", file=stream, flush=True)
        written = raw.getvalue().decode(encoding)
    never_raise(io.StringIO())  # which has no encoding to change
    assert "offset(i, j) = 1 + 1" in written
    assert "+----+----+" in written
    assert written.replace("·", "-").endswith("v all - well ?\n")


ROWS = [
    ("NAME", "SHAPE", "BYTES", "WHY"),
    ("net.fc.weight", "(5000, 3000)", "57.2 MiB", "shared with the head of the network"),
    ("x", "(4, 2)", "32 B", "nothing else"),
]


def _words(lines: list[str]) -> list[str]:
    return " ".join(lines).replace("\u00a0", " ").split()


@pytest.mark.parametrize("width", range(24, 80, 4))
def test_nothing_is_lost_on_a_narrow_one(width):
    """Every word of every cell is there, and no line is wider than asked for."""
    lines = table(ROWS, width=width)
    assert max(map(len, lines)) <= width
    assert sorted(_words(lines)) == sorted(_words([cell for row in ROWS for cell in row]))


def test_a_table_gives_way_between_words():
    """The column with the most words first; a size, a shape and a name stay in one piece.

    A width that is not reached changes nothing; where words do not fit, the cells stand below the first, further in.
    """
    assert len(table(ROWS, width=120)) == len(ROWS)
    lines = table(ROWS, width=64)
    assert any("net.fc.weight" in line and "57.2 MiB" in line and "(5000, 3000)" in line for line in lines)
    name, below, *_ = table(ROWS[1:], width=36)
    assert (name, below[:28]) == ("  net.fc.weight", "      (5000,\u00a03000)  57.2\u00a0MiB")


@pytest.mark.parametrize(
    ("given", "lines"),
    [
        # A loaded report may have a finding with a code of any length. Where there is little room, it is used.
        (("a b and more", 6, "a very long code ", "  "), ["a very long code", "  a b", "  and", "  more"]),
        (("中 b and more", 6, "a very long code ", "  "), ["a very long code", "  中 b", "  and", "  more"]),
        (("", 6, "a very long code ", "  "), ["a very long code"]),
        (("a b", 6, "", " " * 12), ["a b"]),
        (("more after each", 5), ["more", "after", "each"]),
    ],
)
def test_an_indent_that_leaves_no_room_is_a_line_of_its_own(given, lines):
    assert wrapped(*given) == lines


def test_facts_below_a_long_title_are_whole():
    """The title alone is cut where it is wider than the line."""
    title, *facts = as_text(SAMPLES["largest"], width=40).split("\n")[:4]
    assert title.endswith("…")
    assert [line.strip() for line in facts] == [
        "(512, 4096, 4096) · float32 · cpu ·", "owns its storage · 32 GiB ·", "contiguous · requires_grad=False",
    ]  # fmt: skip
