"""What the panel of shared memory says, as a tree of nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensormagic.reports import AliasPair
from tensormagic.views.nodes import Items, Paragraph, Section, Strip, Table
from tensormagic.views.panels import aliases
from tests.views.samples_sharing import ALIASES, SLICES, TIED, member


def sections(case):
    return [node for node in aliases.view(ALIASES[case]).body if isinstance(node, Section)]


def table(section):
    return next(node for node in section.body if isinstance(node, Table))


@pytest.mark.parametrize(
    ("relation", "base", "operations", "words"),
    [
        ("owner", "", (), "owns the memory"),
        ("view", "a", ("t", "slice"), "view of `a`: t → slice"),
        ("view", "", (), "view; its base has no name"),
        ("detached", "a", (), "like `a.detach()`"),
        ("data", "a", (), "like `a.data`"),
        ("same storage", "", (), "same storage as another tensor"),
        ("wraps", "n", (), "shares memory with `n`"),
        ("wraps", "", (), "memory from outside torch"),
        ("array", "a", (), "NumPy array of `a`"),
        ("buffer view", "", (), "NumPy array over an unnamed buffer"),
        ("part", "sp", (), "part of `sp`"),
    ],
)
def test_how(relation, base, operations, words):
    """How each comes to share, in words; without a name where there is none."""
    assert aliases.how(member("x", relation=relation, base=base, operations=operations)) == words


def test_writes_that_autograd_does_not_notice():
    """Only those that reach a tracked tensor through another counter, or none; one that shares nothing is not named."""
    assert aliases.transparent(SLICES) == (
        (
            "Autograd does not notice writes through `n` and `q`: they change `a` without incrementing its version "
            "counter."
        ),
    )
    apart = replace(SLICES, pairs=tuple(replace(pair, overlap="no") for pair in SLICES.pairs))
    assert aliases.transparent(apart) == ()
    untracked = tuple(replace(each, requires_grad=False) for each in SLICES.members)
    assert aliases.transparent(replace(SLICES, members=untracked)) == ()


def test_tied_weights_are_the_headline():
    """Where one object has several names, that is what the headline says, and not that nothing is shared."""
    one = replace(ALIASES["nothing"], groups=(TIED,), groups_found=1)
    assert aliases.aliases_summary(one) == "`net.0.weight` and `net.1.weight` are the same tensor"
    two = replace(one, groups=(TIED, TIED), groups_found=2)
    assert aliases.aliases_summary(two) == "2 tensors have several names each"


def test_the_headline_names_both_kinds_of_sharing():
    """Tied weights below a piece of memory that several share are in the headline, too; asked for, the names are."""
    both = replace(ALIASES["nothing"], groups=(SLICES, TIED), groups_found=2)
    said = "1 piece of memory is shared by several objects; `net.0.weight` and `net.1.weight` are the same tensor"
    assert aliases.aliases_summary(both) == said
    asked = replace(both, asked=("a", "net"))
    assert aliases.aliases_summary(asked) == said.replace(";", " with `a` and `net`;", 1)
    nobody = replace(asked, groups=(), groups_found=0)
    assert aliases.aliases_summary(nobody) == "Nothing else reads the memory of `a` and `net`"


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        (AliasPair("a", "b", "no", 0, 0), "`a` and `b` share no element"),
        (AliasPair("a", "b", "maybe", None, None), "`a` and `b` may overlap: too complex to determine"),
        (AliasPair("a", "b", "yes", 1, 1), "1 element of `a` lies in `b`"),
        (AliasPair("a", "b", "yes", 8, 4), "8 elements of `a` lie in `b`"),
    ],
)
def test_a_pair_in_words(pair, words):
    """None, one, many, and not known."""
    assert aliases.pair_line(pair) == words


def test_numbers_in_the_square_table():
    """Row x, column a: how many elements of x lie in a; nothing in common is a dot, too hard is a question mark."""
    rows = table(sections("slices")[0]).rows
    assert [row[4:] for row in rows] == [
        ("\u2500", "8", "24", "24", "?"),
        ("8", "\u2500", "8", "8", "\u00b7"),
        ("24", "8", "\u2500", "24", "2"),
        ("24", "8", "24", "\u2500", "1"),
        ("?", "\u00b7", "3", "1", "\u2500"),
    ]
    assert {column.above for column in table(sections("slices")[0]).columns[4:]} == {"in common with"}


def test_strips_lie_on_one_axis():
    """All strips of a card have as many boxes, and say which bytes are read."""
    strips = [cell for row in table(sections("asked")[0]).rows for cell in row if isinstance(cell, Strip)]
    assert (len(strips), {len(strip.shares) for strip in strips}) == (5, {24})
    assert strips[0].sentence == "a reads bytes 0 to 95"


def test_one_object_several_names():
    """Tied weights are a line, not a card."""
    report = replace(ALIASES["nothing"], groups=(TIED,), groups_found=1)
    (section,) = [node for node in aliases.view(report).body if isinstance(node, Section)]
    assert section.body == [Items(["`net.0.weight = net.1.weight`"], aliases.MOST_SAME)]


def test_what_is_cut_says_so():
    """Members, pairs and pieces of memory beyond what has room are counted."""
    first, *_, further = sections("many")
    told = [node.text for node in first.body if isinstance(node, Paragraph)]
    assert told == ["32 of 5000 are listed.", "Only the first 31 overlapping pairs found are listed."]
    members, pairs = (node for node in first.body if isinstance(node, Section))
    assert (members.title, table(members).left_out) == ("4992 more objects", (4968, 0))
    assert pairs.title == "31 pairs of objects that share elements"
    assert further.title == "4996 more pieces of memory"
    assert len([node for node in further.body if isinstance(node, Section)]) == aliases.MOST_CARDS
