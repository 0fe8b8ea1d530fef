"""%aliases and %tensors as HTML and text: one axis for all strips, exact numbers, bounded, complete without scripts."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from tensormagic.renderers import figure
from tensormagic.renderers.basics.markup import unpacked
from tensormagic.renderers.sharing import aliases_html, aliases_text, sharing_words, tensors_html, tensors_text
from tensormagic.reports import AliasPair
from tests.renderers.markup_reader import Page
from tests.renderers.samples_sharing import ALIASES, SLICES, TABLES, TIED, member, row
from tests.renderers.snapshots import assert_snapshot, pixels

ALIAS_CASES = ("slices", "nothing", "asked", "hostile")
TABLE_CASES = ("few", "none", "hostile")


@pytest.mark.parametrize("case", ALIAS_CASES)
def test_aliases_snapshots(case):
    """Exactly what is stored, as text and as HTML."""
    assert_snapshot(f"aliases_{case}.txt", aliases_text.render(ALIASES[case]))
    assert_snapshot(f"aliases_{case}.html", aliases_html.render(ALIASES[case]))


@pytest.mark.parametrize("case", TABLE_CASES)
def test_tensors_snapshots(case):
    """Exactly what is stored, as text and as HTML."""
    assert_snapshot(f"tensors_{case}.txt", tensors_text.render(TABLES[case]))
    assert_snapshot(f"tensors_{case}.html", tensors_html.render(TABLES[case]))


@pytest.mark.parametrize("number", [1, 2, 26, 27, 52, 53, 702, 703])
def test_letters(number):
    """A to Z, then AA: as columns of a spreadsheet."""
    expected = {1: "A", 2: "B", 26: "Z", 27: "AA", 52: "AZ", 53: "BA", 702: "ZZ", 703: "AAA"}
    assert sharing_words.letters(number) == expected[number]


@pytest.mark.parametrize(
    ("relation", "base", "operations", "words"),
    [
        ("owner", "", (), "owns the memory"),
        ("view", "a", ("t", "slice"), "view of `a`: t → slice"),
        ("view", "", (), "view; its base has no name"),
        ("detached", "a", (), "like `a.detach()`"),
        ("data", "a", (), "like `a.data`"),
        ("same storage", "", (), "same storage as another tensor"),
        ("wraps", "n", (), "over the memory of `n`"),
        ("wraps", "", (), "over memory that is not torch's"),
        ("array", "a", (), "NumPy array of `a`"),
        ("buffer view", "", (), "NumPy array over a buffer without a name"),
        ("part", "sp", (), "part of `sp`"),
    ],
)
def test_how(relation, base, operations, words):
    """How each comes to share, in words; without a name where there is none."""
    assert sharing_words.how(member("x", relation=relation, base=base, operations=operations)) == words


def test_numbers_in_the_square_table():
    """Row x, column a: how many elements of x lie in a; nothing in common is a dot, too hard is a question mark."""
    cells = [re.sub(r"<[^>]*>", "", cell) for cell in re.findall(r'<td class="tm-in[^>]*>.*?</td>', _html("slices"))]
    assert cells == [
        "─", "8", "24", "24", "?",
        "8", "─", "8", "8", "·",
        "24", "8", "─", "24", "2",
        "24", "8", "24", "─", "1",
        "?", "·", "3", "1", "─",
    ]  # fmt: skip


def _html(case):
    return aliases_html.render(ALIASES[case])


def test_strips_lie_on_one_axis():
    """All strips of a card are equally wide; what is read is coloured from below, what is not is hatched."""
    sources = [found["src"] or "" for found in Page(_html("asked")).attributes("img")]
    sizes = {pixels(source.split(",")[1])[:2] for source in sources}
    assert (len(sources), sizes) == (5, {(216, 18)})
    _, _, full = pixels(sources[0].split(",")[1])
    assert all(place > 1 for line in full for place in line)
    _, _, part = pixels(sources[1].split(",")[1])
    assert set(part[0][:9]) <= {0, 1}


def test_writes_that_autograd_does_not_notice():
    """Only those that reach a tracked tensor through another counter, or none; one that shares nothing is not named."""
    assert sharing_words.unnoticed(SLICES) == (
        "Autograd does not notice writes through `n` and `q`: they change `a` without counting on its version counter.",
    )
    apart = replace(SLICES, pairs=tuple(replace(pair, overlap="no") for pair in SLICES.pairs))
    assert sharing_words.unnoticed(apart) == ()
    untracked = tuple(replace(each, requires_grad=False) for each in SLICES.members)
    assert sharing_words.unnoticed(replace(SLICES, members=untracked)) == ()


def test_one_object_several_names():
    """Tied weights are a line, not a card."""
    text = aliases_text.render(replace(ALIASES["nothing"], groups=(TIED,), groups_found=1))
    assert "net.0.weight = net.1.weight" in text
    assert " A " not in text


def test_tied_weights_are_the_headline():
    """Where one object has several names, that is what the headline says, and not that nothing is shared."""
    one = replace(ALIASES["nothing"], groups=(TIED,), groups_found=1)
    assert sharing_words.aliases_summary(one) == "`net.0.weight` and `net.1.weight` are the same tensor"
    two = replace(one, groups=(TIED, TIED), groups_found=2)
    assert sharing_words.aliases_summary(two).startswith("2 tensors have several names each")


def test_what_is_cut_says_so():
    """Members, pairs and pieces of memory beyond what has room are counted."""
    page = Page(_html("many")).text
    for words in ("32 of 5000 are listed", "the first 31 found are told", "4992 more objects", "and 4968 more",
                  "31 pairs of objects with elements in common", "more pieces of memory"):  # fmt: skip
        assert words in page
    text = aliases_text.render(ALIASES["many"])
    assert "and 4992 more" in text
    assert "and 28 more pieces of memory" in text


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        (AliasPair("a", "b", "no", 0, 0), "`a` and `b` have no element in common"),
        (AliasPair("a", "b", "maybe", None, None), "`a` and `b` may overlap: too hard to tell"),
        (AliasPair("a", "b", "yes", 1, 1), "1 element of `a` lies in `b`"),
        (AliasPair("a", "b", "yes", 8, 4), "8 elements of `a` lie in `b`"),
    ],
)
def test_a_pair_in_words(pair, words):
    """None, one, many, and not known."""
    assert sharing_words.pair_line(pair) == words


def test_static_table_is_complete():
    """Styles and scripts gone: every row, what all take, letters of shared memory, gradient states."""
    html = re.sub(r"<(style|script).*?</\1>", "", tensors_html.render(TABLES["few"]), flags=re.DOTALL)
    text = Page(html).text
    for words in ("5 tensors, 1 array", "168 B on cpu: 5 in 3 pieces of memory, each counted once", "x +2",
                  "float32 sparse_csr", "57.2 MiB", "leaf, grad", "NllLoss"):  # fmt: skip
        assert words in text
    assert [found["style"] for found in Page(html).with_class("tm-chip")] == ["background-color:#56b4e9;color:#000"] * 3


def test_many_rows_are_cut_to_the_largest():
    """A hundred in the page, the largest; all of them in the packed data."""
    html = tensors_html.render(TABLES["many"])
    page = Page(html)
    assert "The 100 largest of 2000 are listed; the totals are over all." in page.text
    assert page.text.count("ts[") == 100
    assert "ts[1999]" in page.text
    packed = next(content for kind, content in page.scripts if kind == "text/plain")
    rows = json.loads(unpacked(packed))["rows"]
    assert (len(rows), rows[7][0], rows[7][9]) == (2000, "ts[7]", 28)
    assert "the 40 largest of 2000" in tensors_text.render(TABLES["many"])


def test_panels_share_style_and_viewer():
    """Of a collection's panels the style sheet and the script stand there once, whatever their number."""
    html = tensors_html.render(TABLES["collection"])
    assert html.count("<style>") == 1  # the table's own, which holds the panels' rules
    assert ".tm-tensor" in html.split("</style>")[0]
    assert html.count("<script>") == 2
    assert html.count('class="tm tm-tensor"') == 2


def test_long_names_keep_both_ends():
    """The last part says most, and so does the first."""
    name = sharing_words.row_cells(row("model.encoder.layers.11.attention.output.dense.weight"))[0]
    assert len(name) == 34
    assert name.startswith("model.enc")
    assert name.endswith("dense.weight")


def test_figures():
    """Bars for what is read; the largest tensors first."""
    drawn = figure(ALIASES["asked"], "memory_map")
    assert [round(start) for start in drawn.data[0].base[:3]] == [0, 4, 8]
    assert set(drawn.data[0].y) == {"A  a", "A  x", "A  n", "A  q", "A  e"}
    sizes = figure(TABLES["few"], "sizes")
    assert list(sizes.data[0].x)[:2] == [60_000_000, 96]
    assert sizes.data[0].y[1].endswith("  A")


def test_a_narrow_terminal_tells_how_memory_is_shared():
    """What does not fit beside a strip goes on below; no word of it is cut."""
    text = aliases_text.render(ALIASES["slices"], width=76)
    assert max(map(len, text.split("\n"))) <= 76
    assert [line for line in text.split("\n") if "…" in line] == []
    assert "requires grad," in text


def test_a_narrow_table_leaves_out_the_only_device():
    """The header tells it; what each tensor's gradient is has no other place. Two devices are told in each row."""
    one = tensors_text.render(TABLES["many"], width=66)
    assert ("DEVICE" in one, "GRADIENT" in one, "on cpu" in one) == (False, True, True)
    assert "DEVICE" in tensors_text.render(TABLES["many"], width=100)
    assert "DEVICE" in tensors_text.render(TABLES["few"], width=70)
