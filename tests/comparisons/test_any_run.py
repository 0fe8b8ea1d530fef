"""Whatever a run leaves behind can be saved, loaded, and compared with itself, and then nothing is different."""

from __future__ import annotations

import json

import pytest
import torch

import tensormagic as tm
from tests.programs import test_programs
from tests.programs.cases import PROGRAMS

impatient = test_programs.impatient


def assert_same(report):
    """Save, load, compare."""
    loaded = tm.TraceReport.from_dict(json.loads(json.dumps(report.to_dict(), allow_nan=False)))
    assert repr(loaded) == repr(report)
    found = tm.compare(report, loaded)
    assert [graph.same for graph in found.graphs] == [True] * min(len(report.graphs), 8)
    assert [one.name for one in found.parameters if not one.norms.same] == []
    assert (found.parameters_only_left, found.findings_only_left, found.findings_only_right) == ((), (), ())


@pytest.mark.parametrize("case", PROGRAMS[::3], ids=lambda case: case.name)
def test_a_program_that_uses_autograd(case):
    """A third of the programs that the tracer is compared with: every kind of backward, hook, region and Function."""
    assert_same(test_programs.outcome(case, traced=True)[1])


@pytest.mark.parametrize("options", [{}, {"level": "ops"}])
def test_a_run_at_every_level(options):
    """With operations, cuts and moves of the optimizer in it."""
    net = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tm.trace(namespace={"net": net}, **options) as trace:
        for _ in range(4):
            optimizer.zero_grad()
            out = net(torch.ones(5, 3))
            (out.square().mean() + out.detach().sum()).backward()
            optimizer.step()
    assert_same(trace.report)
