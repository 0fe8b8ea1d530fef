"""Looks before a training: all in order, much to look at, nothing run, hostile names."""

from __future__ import annotations

from tensormagic.diagnoses.start import probes_of
from tensormagic.reports import (
    ArgumentCheck,
    Extent,
    FunctionCheck,
    Gap,
    Location,
    OptimizerSettings,
    Overfit,
    Probe,
    StartReport,
)
from tests.reports.samples import HOSTILE, finding


def judged(**facts) -> StartReport:
    """Return a report with the answers to what its facts tell."""
    return StartReport(**facts, probes=probes_of(StartReport(**facts)))


def full() -> StartReport:
    """Every field has a value."""
    return StartReport(
        findings=(finding(),), model=HOSTILE, optimizer="SGD", batch=True, shuffled=True,
        settings=(
            OptimizerSettings(parameters=2, rate=0.0, decay=1.0, decoupled=True, maximizes=True, scheduled=True),
        ),
        fits=False, guessed=True, out_of_range=True, connected=False, loss_has_gradient=False, loss_shape=(2,),
        normalises=True, first_input=Extent(shape=(2,), dtype="float32"), cut_off=("c",), step=(1.0, 2.0),
        parameters=6, trainable=5, missing=("a.b",),
        unknown_parameters=2, training=False, in_eval=("bn",),
        inputs=(Extent(shape=(2, 3), dtype="float32", low=0.0, high=1.0, mean=0.5, std=0.2, bad=1, different=0),),
        target=Extent(shape=(), dtype="int64", low=1.0, high=1.0, different=1),
        outputs=(2, 3), loss="mse_loss", last="sigmoid", value=1.0, expected=2.0, without_gradient=("c",),
        zero_gradient=("d",), bad_gradient=("e",), mixes=True, overfit=Overfit(8, 50, 2.0, 1.0),
        error="RuntimeError: x", seconds=0.5,
        function=FunctionCheck(arguments=(ArgumentCheck("x", 1.0, 2.0, agrees=False),), doubled=1.0,
                               location=Location("cell", 3, "return g")),
        probes=(Probe("mode", "look", "in eval mode", "train"),), gaps=(Gap("batch", "none"),),
    )  # fmt: skip


SAMPLES = {
    # A classifier with nothing to complain of.
    "ready": judged(
        model="net", optimizer="Adam", parameters=4, trainable=4, missing=(), outputs=(16, 10), loss="cross_entropy",
        inputs=(Extent(shape=(16, 64), dtype="float32", low=-2.1, high=2.4, mean=0.01, std=0.98),),
        target=Extent(shape=(16,), dtype="int64", low=0.0, high=9.0, mean=4.4, std=2.8, different=9),
        value=2.31, expected=2.302585, without_gradient=(), mixes=False, overfit=Overfit(8, 50, 2.3, 0.001),
        seconds=0.4,
    ),
    # Eval mode, a part that no optimizer has, raw inputs, a layer without a gradient, and no learning.
    "odd": judged(
        model="net", optimizer="SGD", parameters=6, trainable=6, missing=("head.weight", "head.bias"), training=False,
        inputs=(Extent(shape=(16, 4), dtype="float32", low=1.0, high=3500.0, mean=812.0, std=640.0),),
        target=Extent(shape=(16,), dtype="float32", low=0.0, high=9.0, mean=4.4, std=2.8), outputs=(16, 1),
        loss="mse_loss", value=7000.0, expected=27.0, without_gradient=("gate.weight",), mixes=True,
        overfit=Overfit(8, 50, 7000.0, 6900.0), seconds=2.0,
    ),
    # A class that is not there; nothing was run after it.
    "stopped": judged(
        model="net", parameters=2, trainable=2, outputs=(8, 3), loss="cross_entropy",
        target=Extent(shape=(8,), dtype="int64", low=1.0, high=3.0, mean=2.0, std=0.8, different=3), batch=True,
        out_of_range=True,
    ),
    # A custom Function of which one gradient is right, one is not, and one is none.
    "function": judged(model="Scale", parameters=3, seconds=0.01, function=FunctionCheck(doubled=1.0, arguments=(
        ArgumentCheck("x", 1.5, 1.5, agrees=True), ArgumentCheck("factor", 0.75, -2.25, agrees=False),
        ArgumentCheck("offset", None, 1.0, agrees=False),
    ))),
    "hostile": full(),
}  # fmt: skip
