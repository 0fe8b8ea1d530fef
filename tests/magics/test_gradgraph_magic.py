"""``%gradgraph``: the graph of what stands, as a user types it."""

from __future__ import annotations

import re

import pytest
from IPython.core.error import UsageError

from tensormagic.reports import TraceReport
from tensormagic.views.graph.marks import marks_of


def test_it_draws_what_leads_to_the_loss(shell, cell):
    """The picture, the sentence, and the report under a name."""
    cell("loss = (net(x) ** 2).mean()")
    shell.run_line_magic("gradgraph", "loss --into graph --text")
    assert isinstance(shell.user_ns["graph"], TraceReport)
    assert shell.user_ns["graph"].title == "loss"
    shell.run_line_magic("gradgraph", "loss")
    bundle = shell.display_pub.outputs[-1]["data"]
    assert "backward can run through this graph" in bundle["text/plain"]
    assert "Backward graph of loss" in bundle["text/html"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nosuch", "there is no name 'nosuch'"),
        ("loss x", "draws one graph, but here are 2 expressions: loss, x. Name one: %gradgraph loss"),
        ("loss.detach()", "has no graph: it does not require grad"),
        ("3", "3 is an int, not a tensor"),
        ("net", "net is a model and has no graph: draw what it computes, %gradgraph net(x).sum()"),
        ("loss --nosuch", "unrecognized arguments: --nosuch"),
    ],
)
def test_what_cannot_be_drawn_is_a_plain_message(shell, cell, line, words):
    """A usage error that says what was given and what would work."""
    cell("loss = (net(x) ** 2).mean()")
    with pytest.raises(UsageError, match=re.escape(words)):
        shell.run_line_magic("gradgraph", line)


def test_what_was_changed_in_place_is_called_by_its_name(shell, cell):
    """At the node that made it and at the one that needs it: by its variable, not by torch's slot."""
    cell("a = torch.ones(3, requires_grad=True); s = a.sigmoid(); t = (s * s).sum()\nwith torch.no_grad(): s.zero_()")
    shell.run_line_magic("gradgraph", "t --into graph")
    report = shell.user_ns["graph"]
    words = {mark.words for mark in marks_of(report, report.graphs[0])}
    assert words == {"s changed in place"}


def test_without_anything_it_helps(shell, capsys):
    """The usage, and every option."""
    shell.run_line_magic("gradgraph", "")
    assert "--into NAME" in capsys.readouterr().out


def test_a_refused_tensor_is_not_kept(shell, cell):
    """The error that says why there is no graph keeps no tensor alive."""
    cell("import weakref\nplain = torch.ones(3)\nwatch = weakref.ref(plain)")
    with pytest.raises(UsageError) as caught:
        shell.run_line_magic("gradgraph", "plain")
    assert caught.value.__context__ is None
    cell("del plain")
    assert shell.user_ns["watch"]() is None
