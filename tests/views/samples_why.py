"""Answers to why a gradient is what it is: cut off, zero, a whole module, nothing known, hostile."""

from __future__ import annotations

from tensormagic.reports import GradientFacts, Location, PathStep, WhyGroup, WhyReport
from tests.reports.samples import why_report

LINES = [Location("<ipython-input-3>", line, f"line {line}", cell=3) for line in range(6)]
SOURCE, LOSS = "the traced run of cell 3", PathStep(label="backward", kind="loss")


def facts(name, **more):
    return GradientFacts(**{"name": name, "shape": (4, 4), "dtype": "float32", "requires_grad": True, **more})


# A parameter behind a detach.
CUT_OFF = WhyReport(
    name="net.body.weight", reason="cut off", facts=facts("net.body.weight", is_parameter=True),
    answer="net.body.weight.grad is None because `.detach()` (cell 3, line 2) cut its way to the loss: nothing "
    "that backward walked leads back to it.",
    path=(
        PathStep(label="net.body.weight", kind="tensor"),
        PathStep(label="addmm", location=LINES[1]),
        PathStep(label=".detach()", kind="cut", location=LINES[2], bad=True),
        PathStep(label="addmm", detail="3×1", location=LINES[2], norm=1.7320508),
        PathStep(label="sum", location=LINES[5], norm=1.0),
        LOSS,
    ),
    remedy=("Without `.detach()`: `return self.head(self.body(x))`.",), location=LINES[2], source=SOURCE,
)  # fmt: skip
SAMPLES = {
    "cut_off": CUT_OFF,
    # A dead ReLU.
    "zero": WhyReport(
        name="w", reason="zero", facts=facts("w", grad="present", numel=16, zero=16, norm=0.0),
        answer="Every element of w.grad is exactly zero because relu (cell 3, line 4) got a gradient of norm 0.935 and "
        "passed on nothing but zeros: all of its input lies where its slope is zero.",
        path=(
            PathStep(label="w", kind="tensor", detail="4×4", norm=0.0),
            PathStep(label="3 more", kind="more"),
            PathStep(label="relu", detail="3×4", location=LINES[4], norm=0.935, bad=True),
            LOSS,
        ),
        location=LINES[4], source=SOURCE,
    ),
    # A model, its parameters by reason.
    "module": WhyReport(
        name="net", reason="several", source=SOURCE,
        answer="3 of the 5 parameters of net have no gradient, or a faulty one.",
        groups=(
            WhyGroup(reason="cut off", names=("net.body",), count=2, answer=CUT_OFF.answer),
            WhyGroup(reason="unused", names=("net.spare.weight",), count=1, answer="net.spare.weight is unused."),
            WhyGroup(reason="fine", names=("net.head",), count=2, answer="net.head.weight.grad is there.", fine=True),
        ),
    ),
    # A leaf that nothing leads to.
    "nothing_known": WhyReport(
        name="x", reason="nothing known", facts=facts("x"), answer="x.grad is None because no backward has reached x.",
        path=(PathStep(label="x", kind="tensor"), PathStep(label="nothing known", kind="nothing")),
        evidence=("No variable with a graph was computed from it (2 searched).",), remedy=("x.grad",),
    ),
    "hostile": why_report(),
}  # fmt: skip
