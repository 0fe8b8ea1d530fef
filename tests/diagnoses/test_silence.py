"""What a user does not want to be told is not told, and only that."""

from __future__ import annotations

import pytest

from tensormagic.diagnoses.rule import codes_of, is_silenced
from tensormagic.reports import Finding, Location, RelatedLine


def finding(text: str, related: str = "") -> Finding:
    """Return a finding about a line, and about a second one."""
    lines = (RelatedLine("saved here", Location("a.py", 2, related)),) if related else ()
    return Finding("TM301", "error", "It was changed.", Location("a.py", 1, text), related=lines)


@pytest.mark.parametrize(
    ("text", "silenced"),
    [
        ("x.add_(1)", False),
        ("x.add_(1)  # tm: ignore[TM301]", True),
        ("x.add_(1)  # tm:ignore[tm301]", True),
        ("x.add_(1)  # tm: ignore[TM201, TM301]", True),
        ("x.add_(1)  # tm: ignore[TM201]", False),
        ("x.add_(1)  # tm: ignore[TM3]", True),
        ("x.add_(1)  # tm: ignore", True),
        ("x.add_(1)  # tm: ignore[all]", False),
        ("x.add_(1)  # noqa  # tm: ignore[TM301]  (meant)", True),
        ("x.add_(1)  # atm: ignored", False),
    ],
)
def test_a_comment_on_the_line(text, silenced):
    """The codes in brackets, their families, or all; what cannot be read silences nothing."""
    assert is_silenced(finding(text), ()) is silenced


def test_a_comment_on_the_other_line_that_matters():
    """Either of two lines may carry the comment."""
    assert is_silenced(finding("x.add_(1)", "y = x.pow(2)  # tm: ignore[TM301]"), ())


@pytest.mark.parametrize(("ignored", "silenced"), [("", False), ("TM301", True), ("TM2 TM3", True), ("TM302", False)])
def test_a_setting(ignored, silenced):
    """Whole codes, or the first digits."""
    assert is_silenced(finding("x.add_(1)"), codes_of(ignored)) is silenced


@pytest.mark.parametrize("text", ["201", "TM2011", "all", "TM2*"])
def test_what_is_no_code_is_refused(text):
    """The message says what codes look like."""
    with pytest.raises(ValueError, match="codes look like TM201"):
        codes_of(text)
