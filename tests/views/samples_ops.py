"""Hand-made runs at level ``ops``: small, one whose names attack, and one with more operations than fit."""

from __future__ import annotations

from array import array
from dataclasses import replace

from tensormagic.reports import Location, NodeCosts, OpsReport, OpUse
from tests.views import samples_trace

TEXTS = ("loss = net(x).square().mean()", "loss.backward()", "optimizer.step()")


def operations():
    """A step in which three quarters of the time is the backward; one call has no line."""
    run = samples_trace.one_pass()
    size = len(run.graphs[0].nodes)
    forward, backward = array("f", [0.0] * (size - 1) + [1e-3]), array("f", [2e-4] * size)
    uses = (
        OpUse("aten.mm.default", "backward", 0, "net.0", 8, 0.006, 65_536),
        OpUse("aten.addmm.default", "forward", 0, "net.0", 4, 0.002, 8192),
        OpUse("aten.add_.Tensor", "optimizer", 2, "", 16, 0.0008, 0, ("self",), 16),
        OpUse("aten.mm.out", "backward", 1, "", 1, 0.0007, 0, ("out",), 1),
        OpUse("mylib.fused.default", "other", None, "", 1, 0.0005, 1 << 20, failed=1),
    )
    costs = NodeCosts(1, 4, 4, forward, array("f", [512.0] * size), backward, array("f", [1024.0] * size))
    locations = tuple(Location("<ipython-input-5>", at, text, cell=5) for at, text in enumerate(TEXTS, 2))
    return replace(run, locations=locations, ops=OpsReport(uses, (costs,), ("cpu",)))


def many_operations():
    """More operations than a table shows, on an accelerator."""
    uses = tuple(OpUse(f"aten.op{at}.default", "forward", at % 3, "", at, at / 1e5, at) for at in range(1, 60))
    return replace(operations(), ops=OpsReport(uses, devices=("cuda",)))


SAMPLES = {make.__name__: make() for make in (operations, many_operations)}
