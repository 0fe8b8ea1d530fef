"""Text and packed data: what is invisible is written out, what is long is cut, what several forms need is made once."""

from __future__ import annotations

import random
from array import array
from threading import Thread

import pytest
from rich.cells import cached_cell_len

from tensormagic.reports import Frame, Graph, Node, SavedTensor
from tensormagic.views import markup
from tensormagic.views.markup import escape, json_block, made_once, once, plain, plain_report
from tensormagic.views.text_canvas import columns_of
from tests.reports.samples import tensor_report, trace_report
from tests.reports.samples_memory import memory_report
from tests.views.hostile import HUGE, everywhere, with_text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mb", r"a\x1b[31mb"),
        ("x\x00\x07\x9b", r"x\x00\x07\x9b"),
        ("a\u202eb\u2069", r"a\u202eb\u2069"),
        ("\ud83d", r"\ud83d"),
        ("a\r\nb\tc", "a\\r\nb\tc"),
        ("\u2028\ufeff\u200b", r"\u2028\ufeff\u200b"),
        ("e" + "\u0300" * 9, "e" + "\u0300" * 4 + "…"),
    ],
)
def test_what_is_invisible_is_written_as_python_writes_it(text: str, shown: str) -> None:
    """Controls, directions, separators and half pairs are seen; more accents than any language has are not."""
    assert plain(text) == shown
    assert plain(plain(text)) == shown


@pytest.mark.parametrize("text", ["x", "שלום", "مرحبا", "naïve café", "👩\u200d👧", "тензор", "a\n\tb", "", "\u00a0"])
def test_what_people_write_stays(text: str) -> None:
    """Letters of any script, joined pictures, tabs and line ends are left alone."""
    assert plain(text) == text


def test_long_text_is_cut_and_says_so() -> None:
    """Of a million letters four hundred are shown, with the count; lines are cut one by one."""
    assert plain("x" * HUGE) == "x" * 400 + "… (1\u00a0000\u00a0000 characters)"
    assert plain("x" * 500) == "x" * 500
    assert plain(f"a\n{'b' * 501}\nc") == f"a\n{'b' * 400}… (501 characters)\nc"
    many = plain("line\n" * HUGE)
    assert len(many) < 20_000
    assert many.endswith("… (5\u00a0000\u00a0000 characters)")
    assert plain(many) == many
    assert plain("\x1b" * 500) == r"\x1b" * 100 + "… (500 characters)"


def test_report_without_such_text_is_the_very_same() -> None:
    """Nothing is copied where nothing has to change; where it has, every text of every part is plain, not data."""
    calm = everywhere(trace_report(), "calm")
    assert plain_report(calm) is calm
    for make in (trace_report, tensor_report, memory_report):  # the last holds parts of its own kind
        shown = plain_report(everywhere(make(), "\u202e"))
        wanted = with_text(make(), lambda path, _: "\u202e" if path == "ImageFrame.pixels" else r"\u202e")
        assert shown.to_dict() == wanted.to_dict()


def test_where_text_reaches_markup_by_another_way_it_is_no_less_safe() -> None:
    """Data write out what is invisible, too."""
    assert escape("<\u202e\x00>") == r"&lt;\u202e\x00&gt;"
    assert json_block("</script>\u2028\ud800") == r'"\u003c/script\u003e\u2028\ud800"'


def test_one_wild_text_among_many_records_is_found() -> None:
    """Records of one class are looked at field by field: one that is wild is written out, all others stay."""
    saved = SavedTensor("self", (2,), "float32", 8, "ok")
    nodes = [Node(at, "AddBackward0", "add", "op", module="net", saved=(saved,)) for at in range(40)]
    graph = Graph(1, tuple(nodes), ())
    assert plain_report(graph) is graph
    nodes[30] = Node(30, "AddBackward0", "add", "op", module="net\x1b", saved=(saved,))
    nodes[31] = Node(31, "AddBackward0", "add", "op", saved=(SavedTensor("a\x00", (2,), "float32", 8, "ok"),))
    shown = plain_report(Graph(1, tuple(nodes), ()))
    assert (shown.nodes[30].module, shown.nodes[31].saved[0].name) == ("net\\x1b", "a\\x00")
    assert all(new is old for new, old in zip(shown.nodes[:30], nodes[:30], strict=True))
    assert plain_report(Frame(1, array("f", [1.0]), bad={"\x1b": (1, 0)})).bad == {"\\x1b": (1, 0)}


def test_measuring_a_text_keeps_no_copy_of_it() -> None:
    """Each cell's lines are others: rich would hold the last four thousand of them."""
    before = cached_cell_len.cache_info().currsize
    assert columns_of("a \u00b7 \u4e2d 4.25") == 11
    assert cached_cell_len.cache_info().currsize == before


def test_the_same_object_is_made_into_the_same_once():
    """Within the block, a second call returns what the first did; another object, equal or not, has its own.

    Outside nothing is kept, nor is what another thread keeps seen; a failure keeps nothing.
    """
    made, found, first, equal = [], [], [1], [1]
    listed = once(lambda numbers: made.append(numbers) or [*numbers, "made"])
    with made_once():
        kept = listed(first)
        with made_once():
            assert listed(first) is kept
        assert listed(first) is kept
        assert listed(equal) is not kept
        assert made == [first, equal]
        other = Thread(target=lambda: found.append(listed(first)))
        other.start()
        other.join()
    assert found[0] is not kept
    assert listed(first) is not listed(first)
    with pytest.raises(TypeError), made_once():
        listed(3)
    assert len(made) == 6


@pytest.mark.parametrize("count", [3, 600_000])
def test_what_is_packed_is_unpacked(count):
    """Short and long text comes back, and holds nothing that means something in a page."""
    text = "".join(random.Random(0).choices("abc<&>é∞\n", k=count))
    assert markup.unpacked(markup.packed(text)) == text
    assert not {"<", ">", "&", '"', "'", "\\"}.intersection(markup.packed(text))
