"""How numbers, sizes, shares, durations and lists are said, in every layer."""

from __future__ import annotations

import ast
import math

import pytest

from tensormagic import words


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (9999, "9999"), (10_000, "10\u00a0000"), (67_108_864, "67\u00a0108\u00a0864"), (-3, "−3"),
     (-12_345, "−12\u00a0345")],
)  # fmt: skip
def test_counts_are_grouped_from_ten_thousand_on(number: int, text: str) -> None:
    """Short counts stay as in code; long ones get no-break spaces, and a negative one a true minus sign."""
    assert words.count(number) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(9999, "9999"), (10_000, "10 k"), (33_521_664, "33.5 M"), (999_400, "999 k"), (999_600, "1 M"), (2e9, "2 G")],
)
def test_long_counts_have_a_unit_where_room_is_short(number: int, text: str) -> None:
    """Three digits, and the next unit before a thousand of one."""
    assert words.short_count(number) == text


def test_one_of_a_thing_and_more() -> None:
    """One zero, three zeros, two passes; none are several."""
    assert [words.plural(number, "zero") for number in (0, 1, 3)] == ["0 zeros", "1 zero", "3 zeros"]
    assert words.plural(2, "pass", "passes") == "2 passes"
    assert words.plural(12_345, "zero") == "12\u00a0345 zeros"
    assert [words.is_or_are(number) for number in (0, 1, 2)] == ["are", "is", "are"]


@pytest.mark.parametrize(
    ("number", "whole", "text"),
    [(1, 1, "the one element"), (2, 2, "both elements"), (3, 3, "all 3 elements"), (1, 2, "1 of the 2 elements"),
     (9, 3, "all 3 elements"), (12_345, 67_890, "12\u00a0345 of the 67\u00a0890 elements")],
)  # fmt: skip
def test_a_part_is_told_by_its_whole(number: int, whole: int, text: str) -> None:
    """All, both, the one, or so many of them."""
    assert words.part_of(number, whole) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"), (13, "13th"), (21, "21st"),
     (111, "111th"), (1_000_002, "1\u00a0000\u00a0002nd")],
)  # fmt: skip
def test_ordinals_end_as_in_english(number: int, text: str) -> None:
    """The teens take th, everything else goes by its last digit."""
    assert words.ordinal(number) == text


@pytest.mark.parametrize(
    ("names", "text"),
    [([], ""), ("a", "a"), ("ab", "a and b"), ("abc", "a, b and c"), ("abcd", "a, b, c and d"),
     ("abcdefg", "a, b, c, d and 3 more"), (["a, b", "c"], "a, b and c")],
)  # fmt: skip
def test_lists_end_in_and(names: str | list[str], text: str) -> None:
    """No comma before the "and"; beyond four the number of what is left out."""
    assert words.listed(names) == text


def test_lists_of_which_only_the_first_are_known() -> None:
    """What is not in the list counts as left out, another length and another last word can be asked for."""
    assert words.listed("ab", found=2) == "a and b"
    assert words.listed("ab", found=20_000) == "a, b and 19\u00a0998 more"
    assert words.listed("abcdef", most=2, found=9) == "a, b and 7 more"
    assert words.listed("a", found=3) == "a and 2 more"
    assert words.listed("abc", last="or") == "a, b or c"


def test_series_show_their_ends() -> None:
    """The middle of a long one is left out."""
    assert words.series(range(0, 1024, 32)) == "0, 32, 64 … 992"
    assert words.series((1, 2)) == "1, 2"


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (96, "96 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (1280, "1.3 KiB"),
     (2**20 - 1, "1 MiB"),
     (1_047_500, "1022.9 KiB"), (2**27, "128 MiB"), (2**60, "1024 PiB"), (-1536, "−1.5 KiB")],
)  # fmt: skip
def test_bytes_are_in_binary_units(number: int, text: str) -> None:
    """Exact below one KiB, at most one decimal above, and never 1024 of a unit that has a larger one."""
    assert words.number_of_bytes(number) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0 %"), (1e-7, "<0.001 %"), (0.0000123, "0.0012 %"), (0.0042, "0.42 %"), (0.046, "4.6 %"), (0.05, "5 %"),
     (0.0996, "10 %"), (0.1, "10 %"), (0.125, "13 %"),
     (0.4567, "46 %"), (0.988, "99 %"), (0.9912, "99.1 %"), (0.99, "99 %"),
     (0.9996, ">99.9 %"), (1, "100 %"), (1.234, "123 %"), (123.4, "12\u00a0340 %"), (-0.25, "−25 %")],
)  # fmt: skip
def test_percentages_have_two_digits(share: float, text: str) -> None:
    """Only nothing is 0 %, and only everything is 100 %."""
    assert words.percent(share) == text


def test_percentages_of_a_whole() -> None:
    """A part of nothing is nothing."""
    assert [words.percent(1, 3), words.percent(3, 3), words.percent(0, 0), words.percent(2, 0)] == [
        "33 %", "100 %", "0 %", "0 %",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (3.2e-7, "320 ns"), (1.26e-6, "1.3 µs"),
     (3.06e-4, "306 µs"), (9.999e-4, "1.0 ms"), (1.3e-3, "1.3 ms"), (9.96e-3, "10 ms"), (0.085, "85 ms"),
     (0.9996, "1.0 s"), (12.41, "12.4 s"), (59.97, "1 min 0 s"), (119.7, "2 min 0 s"), (200, "3 min 20 s")],
)  # fmt: skip
def test_durations_have_the_unit_that_keeps_them_short(seconds: float, text: str) -> None:
    """Rounding never makes 1000 ms or 60 s."""
    assert words.seconds_text(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (1.0, "1"), (54 / 7, "7.714"), (-0.25, "−0.25"), (1e-30, "1e−30"), (2.5e12, "2.5e12"),
     (math.nan, "NaN"), (math.inf, "+Inf"), (-math.inf, "−Inf"), (None, "none")],
)  # fmt: skip
def test_floats_keep_four_digits_and_name_what_is_no_number(value: float | None, text: str) -> None:
    """Four significant digits, a true minus sign, exponents without padding, names for NaN and infinities."""
    assert words.short_number(value) == text


def test_tuples_and_signs_are_written_as_in_python() -> None:
    """A tuple of one has its comma; a jump has its sign."""
    assert [words.tuple_text(values) for values in ((), (3,), (4, 2))] == ["()", "(3,)", "(4, 2)"]
    assert [words.signed(number) for number in (12, -11, 0)] == ["+12", "−11", "0"]


def test_shortened_text_is_one_line() -> None:
    """Line breaks become spaces, and a cut is marked."""
    assert words.shortened("a\n b", 10) == "a b"
    assert words.shortened("abcdefgh", 5) == "abcd…"
    assert words.shortened("view_of(x)._base", 9, tail=6) == "vi…._base"


def test_evidence_is_written_as_people_write_it() -> None:
    """Bytes as sizes, counts in groups; a word, and what is true, as they are."""
    told = words.evidence_text({"bytes a run": 5_242_880, "elements": 20_000, "op": "add_", "certain": True})
    assert told == "bytes a run = 5 MiB, elements = 20\u00a0000, op = add_, certain = True"


def test_a_parser_that_fails_beside_another_thread_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPython 3.11 says "AST constructor recursion depth mismatch" of code that is in order."""
    parse, failures = ast.parse, [SystemError("AST constructor recursion depth mismatch (before=36, after=34)")]

    def failing_once(*arguments: object, **others: object) -> object:
        if failures:
            raise failures.pop()
        return parse(*arguments, **others)

    monkeypatch.setattr(ast, "parse", failing_once)
    assert ast.unparse(words.syntax("x.sum()", "eval")) == "x.sum()"
    assert not failures
