"""How numbers are written."""

from __future__ import annotations

import math

import pytest

from tensormagic.renderers.basics import phrases


def test_evidence_is_written_as_people_write_it() -> None:
    """Bytes as sizes, counts in groups; a word, and what is true, as they are."""
    told = phrases.evidence_text({"bytes a run": 5_242_880, "elements": 20_000, "op": "add_", "certain": True})
    assert told == "bytes a run = 5 MiB, elements = 20\u00a0000, op = add_, certain = True"


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (96, "96 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (2**27, "128 MiB"),
     (2**60, "1024 PiB")],
)  # fmt: skip
def test_bytes_are_written_in_binary_units(number: int, text: str) -> None:
    """Sizes are exact below one KiB and short above."""
    assert phrases.number_of_bytes(number) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (1.0, "1"), (54 / 7, "7.714"), (-0.25, "−0.25"), (1e-30, "1e−30"), (2.5e12, "2.5e12"),
     (math.nan, "NaN"), (math.inf, "+Inf"), (-math.inf, "−Inf"), (None, "none")],
)  # fmt: skip
def test_floats_keep_four_digits_and_name_what_is_no_number(value: float | None, text: str) -> None:
    """Four significant digits, a true minus sign, exponents without padding, names for NaN and infinities."""
    assert phrases.short_number(value) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"), (13, "13th"), (21, "21st"),
     (111, "111th"), (1_000_002, "1\u00a0000\u00a0002nd")],
)  # fmt: skip
def test_ordinals_end_as_in_english(number: int, text: str) -> None:
    """The teens take th, everything else goes by its last digit."""
    assert phrases.ordinal(number) == text


def test_counts_are_grouped_from_ten_thousand_on() -> None:
    """Short counts stay as in code; long ones get no-break spaces, or a unit."""
    assert [phrases.count(number) for number in (9999, 10_000, 67_108_864)] == [
        "9999", "10\u00a0000", "67\u00a0108\u00a0864",
    ]  # fmt: skip
    assert [phrases.short_count(number) for number in (9999, 10_000, 33_521_664)] == ["9999", "10 k", "33.5 M"]


def test_tuples_and_signs_are_written_as_in_python() -> None:
    """A tuple of one has its comma; a jump has its sign."""
    assert [phrases.tuple_text(values) for values in ((), (3,), (4, 2))] == ["()", "(3,)", "(4, 2)"]
    assert [phrases.signed(number) for number in (12, -11, 0)] == ["+12", "−11", "0"]


def test_long_lists_say_what_they_leave_out() -> None:
    """Lists are cut with the number of what is missing, series show their ends."""
    assert phrases.listed("abcdefg") == "a, b, c, d, and 3 more"
    assert phrases.listed("ab") == "a, b"
    assert phrases.series(range(0, 1024, 32)) == "0, 32, 64 … 992"
    assert phrases.series((1, 2)) == "1, 2"


def test_shortened_text_is_one_line() -> None:
    """Line breaks become spaces, and a cut is marked."""
    assert phrases.shortened("a\n b", 10) == "a b"
    assert phrases.shortened("abcdefgh", 5) == "abcd…"
