"""Reports in streams that cannot hold every character: nothing raises, and what is said stays true."""

from __future__ import annotations

import io

import pytest

from tensormagic.views.page import terminal
from tensormagic.views.text_canvas import BLOCKS, LOOKALIKES, never_raise, writable
from tests.views import samples_tensor
from tests.views.test_every_renderer import RENDERERS

TEXTS = {one.name: one.render(next(iter(one.samples.values()))) for one in RENDERERS if one.output == "text"}


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "cp437", "latin-1", "shift_jis"])
@pytest.mark.parametrize("name", TEXTS)
def test_every_report_can_be_written(name, encoding):
    """Every character of our own has a lookalike: no question mark comes in, and no line becomes much longer."""
    text = TEXTS[name]
    written = writable(text, encoding)
    written.encode(encoding)
    assert written.count("?") == text.count("?")
    assert max(map(len, written.splitlines())) <= max(map(len, text.splitlines())) + 2


def test_what_a_stream_can_hold_is_left_alone():
    """UTF-8, a stream without an encoding, and one that Python does not know."""
    text = TEXTS["trace_text"]
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
    """Where ``print`` would raise UnicodeEncodeError: a pipe on Windows, a cron job's log."""
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding=encoding, newline="\n") as stream:
        terminal.print_report(samples_tensor.SAMPLES["transpose_slice"], stream)
        stream.flush()
        written = raw.getvalue().decode(encoding)
    assert "offset(i, j) = 1 + 1" in written
    assert "+----+----+" in written


def test_a_stream_of_our_own_never_raises():
    """The command line prints its signs into anything."""
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding="ascii") as stream:
        never_raise(stream)
        print("✔ all · well 日", file=stream, flush=True)
        assert raw.getvalue() == b"v all - well ?\n"
    never_raise(io.StringIO())
