"""Hand-made tensor reports about values and autograd: a bad slice, sampled slices, a graph that cannot run back."""

from __future__ import annotations

from dataclasses import replace

from tensormagic import reports
from tensormagic.views.panels.tensor_autograd import autograd_nodes
from tensormagic.views.to_html import html
from tests.views.samples_tensor import INF, NAN, NO_NUMBERS, autograd, numbers, report, scalar, whole


def bad_item() -> reports.TensorReport:
    """A batch whose item 5 holds NaN, whose channel 3 is dead and channel 9 loud."""
    shape = (8, 16, 12, 12)
    where = whole(shape, values=lambda at: (at % 89) / 89)
    items = reports.DimensionSlices(
        dim=0, size=8, elements=2304, looked=2304, cell_slices=1, levels=(1.0, 0.9, 1.1, 1.0, 1.0, 1.2, 0.8, 1.0),
        cell_bad=(0, 0, 0, 0, 0, 12, 0, 0), bad_count=1, bad=(reports.BadSlice(5, 12, 0),),
    )  # fmt: skip
    channels = reports.DimensionSlices(
        dim=1, size=16, elements=1152, looked=1152, cell_slices=1,
        levels=tuple(0.0 if at == 3 else 40.2 if at == 9 else 1.0 for at in range(16)),
        cell_bad=tuple(4 if at in {1, 2, 7} else 0 for at in range(16)), bad_count=3,
        bad=(reports.BadSlice(1, 4, 0), reports.BadSlice(2, 4, 0), reports.BadSlice(7, 4, 0)), zero_count=1, zero=(3,),
        large=(reports.LargeSlice(9, 40.2),),
    )  # fmt: skip
    nan = reports.Finding(
        "TM401", "warning", "In x 12 of the 18 432 elements are NaN; all of them lie in i=5, one of 8."
    )
    counts = tuple(range(1, 25))
    return report("x", where, 18_432, slices=(items, channels), findings=(nan,),
                  statistics=numbers(counts, -3.0, 40.2, nan=12, first_nan=(5, 1, 0, 0)))  # fmt: skip


def sampled() -> reports.TensorReport:
    """A huge matrix: thousands of rows to a cell, everything of a sample, NaN and Inf found by it alone."""
    shape = (100_000, 512)
    where = whole(shape)
    rows = reports.DimensionSlices(
        dim=0, size=100_000, elements=512, looked=5, cell_slices=1563,
        levels=(*(1.0 + at % 7 for at in range(63)), NAN),
        cell_bad=(0,) * 63 + (9,), bad_count=6, bad=tuple(reports.BadSlice(99_990 + at, 1, at % 2) for at in range(4)),
        bad_exact=False, zero_count=700, zero=(1, 2, 3, 50),
    )  # fmt: skip
    statistics = numbers((3000, 9000, 2000), -2.0, 2.0, nan=6, positive_infinity=3, of=51_200_000, count=51_200_000,
                         sampled=14_000, sampling="every 7th index of dimension 0", first_nan=(99_990, 0),
                         first_positive_infinity=(99_991, 3))  # fmt: skip
    return report("table", where, 51_200_000, slices=(rows,), statistics=statistics)


def nothing_finite() -> reports.TensorReport:
    """No slice has a finite value: there is no scale."""
    where = whole((13, 12), values=lambda _: INF)
    rows = reports.DimensionSlices(
        dim=0, size=13, elements=12, looked=12, cell_slices=1, levels=(NAN,) * 13, cell_bad=(12,) * 13, bad_count=13,
        bad=tuple(reports.BadSlice(at, 0, 12) for at in range(4)),
    )  # fmt: skip
    return report("mask", where, 156, slices=(rows, replace(rows, dim=1, size=12)),
                  statistics=numbers((), 0.0, 0.0, positive_infinity=156, **NO_NUMBERS))  # fmt: skip


def graph() -> reports.TensorReport:
    """A loss over a linear layer: a changed saved tensor, a hook, a name that is markup, more nodes than are listed."""
    path = reports.Path(
        (
            reports.PathNode("mse_loss", "MseLossBackward0", "", (), inputs=(1, reports.NOTHING)),
            reports.PathNode(
                "mul", "MulBackward0", "pred", (5, 1), inputs=(2, reports.BEYOND), saved="changed in place"
            ),
            reports.PathNode("addmm", "AddmmBackward0", "out", (5, 1), inputs=(3, reports.NOTHING, 4)),
            reports.PathNode("", "AccumulateGrad", "net.bias", (1,), is_leaf=True, has_grad=True),
            reports.PathNode("t", "TBackward0", "", (8, 1), inputs=(5,)),
            reports.PathNode("", "AccumulateGrad", "", (1, 8), is_leaf=True),
        ),
        walked=34,
        complete=True,
    )
    details = reports.AutogradDetails(
        output_number=1, because="not a leaf", grad_because="torch keeps the gradients of leaves only",
        hooks=(reports.Hook("tensor hook", "clip", "train.py, line 3"),
               reports.Hook("post-accumulate hook", "<lambda>")),
        saved=(reports.SavedState("self", "changed in place", saved_version=0, version=2),
               reports.SavedState("target", "fine", "y", (5, 1), "float32", 20, 0, 0),
               reports.SavedState("weight", "packed by a hook"), reports.SavedState("total", "freed")),
        path=path,
    )  # fmt: skip
    state = autograd(
        requires_grad=True, is_leaf=False, grad_fn="MseLossBackward0", leaf_count=2, details=details,
        leaves=("net.bias", "a leaf (1, 8)"), sentence="made by MseLossBackward0",
    )  # fmt: skip
    return replace(scalar(), autograd=state)


def graph_path() -> reports.Path:
    """The way of that graph to its leaves."""
    return graph().autograd.details.path


def autograd_html(shown: reports.TensorReport) -> str:
    """The section of autograd as a page has it."""
    return "".join(map(html, autograd_nodes(shown)))


SAMPLES = {"graph": graph(), "bad_item": bad_item(), "sampled": sampled(), "nothing_finite": nothing_finite()}
