"""Words for where a backward ran."""

from __future__ import annotations

import dataclasses

import pytest

from tensormagic.reports import Pass, PassContext
from tensormagic.views.panels.trace_words import circumstances_text
from tests.reports.samples import trace_report


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (None, ""),
        (PassContext(inside=1, graph=1, node=1), "inside log"),
        (PassContext(inside=1, graph=9, node=1), "inside another"),
        (PassContext(inside=1, graph=1, node=99), "inside another"),
        (PassContext(thread="worker"), "on thread worker"),
        (PassContext(levels=("vmap", "grad")), "in vmap > grad"),
        (PassContext(2, 1, 0, "worker", ("grad",)), "inside mul, on thread worker, in grad"),
    ],
)
def test_words(told, words):
    """The node that made the call is named where it is known."""
    report = trace_report()
    one = Pass(1, 1, 1, "finished", 0.1, 3, pass_context=told)
    ops = {node.index: node.op for node in report.graphs[0].nodes}
    expected = words.replace("log", ops[1]).replace("mul", ops[0])
    assert circumstances_text(dataclasses.replace(report, passes=(one,)), one) == expected
