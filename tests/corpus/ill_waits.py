"""Runs whose every step waits for a device (TM803).

On a CPU there is nothing to wait for, so that these reports are made by hand: what the tracer leaves of such a loop on
a machine with an accelerator, with the lines of the program that is beside each.
"""

from __future__ import annotations

from pathlib import Path

from tensormagic.api.diagnosing import diagnosed
from tensormagic.reports import Location
from tests.corpus.cases import ill
from tests.diagnoses.samples_calls import tensor, traced, waiting


def line(text):
    """Return the place in this file where the text stands alone on a line."""
    lines = [one.strip() for one in Path(__file__).read_text(encoding="utf-8").splitlines()]
    return Location(__file__, lines.index(text) + 1, text)


_A_LOSS_THAT_IS_LOGGED = """
for images, classes in loader:
    loss = F.cross_entropy(net(images.cuda()), classes.cuda())
    loss.backward()
    optimizer.step()
    running += loss.item()
"""


@ill("TM803", severity="note", line="running += loss.item()", subject="loss", says=(
    "The host waits for cuda:0 in every step: item read from it 200 times in 200 steps",))  # fmt: skip
def a_loss_read_in_every_step():
    report = traced(
        waiting("item", calls=200, operands=(tensor("loss", (), device="cuda:0"),)),
        steps=200, locations=(line("running += loss.item()"),),
    )  # fmt: skip
    return diagnosed(report)


_A_CHECK_OF_A_NORM = """
    if norm > 10:
    history.append(norm.cpu())
"""


@ill("TM803", severity="note", line="if norm > 10:", related=("history.append(norm.cpu())",), says=(
    "bool and cpu read from it 100 times in 50 steps on 2 lines",))  # fmt: skip
def a_norm_compared_in_every_step():
    norm = (tensor("norm", (), device="cuda:0"),)
    report = traced(
        waiting("bool", calls=50, operands=norm), waiting("cpu", calls=50, operands=norm, location=1),
        steps=50, locations=(line("if norm > 10:"), line("history.append(norm.cpu())")),
    )  # fmt: skip
    return diagnosed(report)


_A_MASK_BY_INDEX = """
    hits = (scores > 0.5).nonzero()
"""


@ill("TM803", severity="note", line="hits = (scores > 0.5).nonzero()", says=(
    "The host waits for mps:0 in every step: nonzero read from it 40 times in 20 steps",))  # fmt: skip
def indices_looked_up_in_every_step():
    scores = (tensor("scores > 0.5", (8, 8), device="mps:0", dtype="bool"),)
    report = traced(
        waiting("nonzero", calls=40, operands=scores, detail="mps:0"),
        steps=20, locations=(line("hits = (scores > 0.5).nonzero()"),),
    )  # fmt: skip
    return diagnosed(report)
