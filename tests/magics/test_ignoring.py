"""``%config TensorMagic.ignore``, comments on a line, and ``tensormagic.ignore``: what is silenced is still counted."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import tensormagic as tm


class Forgetful(nn.Module):
    """Owns a scale that forward does not use."""

    def __init__(self):
        super().__init__()
        self.body, self.scale = nn.Linear(4, 1), nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.body(x)


@pytest.fixture(autouse=True)
def told_of_everything():
    """Leave nothing silenced."""
    yield
    tm.ignore("")


def traced(comment=False):
    """Return the report of a run in which a parameter gets no gradient."""
    net = Forgetful()
    with tm.trace(namespace={"net": net}) as trace:
        loss = net(torch.ones(2, 4)).sum()
        if comment:
            loss.backward()  # tm: ignore[TM601]
        else:
            loss.backward()
    return trace.report


def test_a_comment_silences_a_finding_about_its_line_and_the_report_says_so():
    """Without the comment there is a finding; with it a gap that names the code."""
    assert [found.code for found in traced().findings] == ["TM601"]
    report = traced(comment=True)
    assert report.findings == ()
    assert [(gap.section, gap.reason) for gap in report.gaps] == [("findings", "1 silenced by you: TM601")]
    assert "1 silenced by you: TM601" in str(report)


def test_ignoring_for_the_session_returns_what_was_ignored_before():
    """So that a library can put it back."""
    assert tm.ignore("TM6") == ()
    assert traced().findings == ()
    assert tm.ignore(["TM105", "TM7"]) == ("TM6",)
    assert [found.code for found in traced().findings] == ["TM601"]


def test_what_is_no_code_is_refused_and_changes_nothing():
    """The error says what was given and what codes look like."""
    tm.ignore("TM6")
    with pytest.raises(tm.SettingError, match="cannot ignore 'everything': codes look like TM201"):
        tm.ignore("everything")
    assert tm.ignore("") == ("TM6",)


def test_the_setting_of_the_magics(shell):
    """``%config`` sets it; a wrong value is refused; unloading takes it back."""
    magics = next(one for one in shell.configurables if type(one).__name__ == "TensorMagic")
    magics.ignore = "TM6"
    assert traced().findings == ()
    with pytest.raises(Exception, match="codes look like"):
        magics.ignore = "six"
    assert magics.ignore == "TM6"
    shell.run_line_magic("unload_ext", "tensormagic")
    assert [found.code for found in traced().findings] == ["TM601"]


def test_a_code_that_there_is_not():
    """A slip is no setting that never does anything."""
    with pytest.raises(tm.SettingError, match="there is no finding TM99; `%tensormagic help` lists them"):
        tm.ignore("TM105, TM99")
