"""Hand-made tensor reports: one for each thing that the renderers of ``%tensor`` have to get right.

Where the elements lie is computed by the collector; all else is made by hand.
"""

from __future__ import annotations

import base64
import math
import zlib
from dataclasses import replace
from functools import partial
from typing import Any

from tensormagic import reports, views
from tensormagic.collectors.geometry.layout import layout as collected_layout
from tensormagic.reports.storage import contiguous_stride
from tests.reports.samples import HOSTILE, finding
from tests.views.hostile import everywhere

NAN, INF = math.nan, math.inf
as_html, as_text, as_svg = (partial(views.draw, form=form) for form in ("html", "txt", "svg"))


def layout(
    shape: tuple[int, ...], stride: tuple[int, ...], offset: int, storage: int, *, values: Any = None
) -> reports.LayoutReport:
    """Return where each index lies, as the collector finds it, and what ``values`` makes of each offset."""
    where = collected_layout(shape, stride, offset, storage_elements=storage, element_size=4)
    if values is None:
        return where
    rows = [[values(at) for at in row] for row in where.grid.offsets]
    texts = tuple(tuple(f"{each:.4g}" if isinstance(each, float) else str(each) for each in row) for row in rows)
    levels = tuple(tuple(float(abs(each) if isinstance(each, complex) else each) for each in row) for row in rows)
    return replace(where, grid=replace(where.grid, values=texts, levels=levels))


def whole(shape: tuple[int, ...], **how: Any) -> reports.LayoutReport:
    """Return the layout of a contiguous tensor that fills its storage."""
    return layout(shape, contiguous_stride(shape), 0, math.prod(shape), **how)


def autograd(**changes: Any) -> reports.AutogradReport:
    """Return the autograd state of a plain leaf without grad, with changes."""
    plain = reports.AutogradReport(
        requires_grad=False, is_leaf=True, grad_fn=None, retains_grad=False, grad="none", grad_shape=None,
        grad_norm=None, hooks=0, leaves=(), leaf_count=0,
        sentence="x does not require grad and has no `grad_fn`: a leaf that collects no gradient.",
    )  # fmt: skip
    return replace(plain, **changes)


def report(name: str, where: reports.LayoutReport, storage: int, **changes: Any) -> reports.TensorReport:
    """Return a report of a float32 tensor on the CPU with that layout, with changes."""
    shape, numel = where.shape, math.prod(where.shape)
    size = changes.get("element_size", 4)
    judged = where.views and replace(where.views, copy_bytes=numel * size)
    fields: dict[str, Any] = {
        "name": name, "type_name": "Tensor", "role": "owns its storage", "dtype": "float32", "shape": shape,
        "device": "cpu", "layout_name": "strided", "element_size": size, "nbytes": numel * size, "numel": numel,
        "version": 0, "is_view": False, "flags": {"is_conj": "False", "is_pinned": "False"},
        "data_text": "tensor([...])", "storage": reports.StorageReport(0x55D0C0DE, storage * size, storage, "cpu"),
        "layout": replace(where, contiguous_bytes=numel * size, views=judged), "autograd": autograd(),
        "aliases_searched": 12,
    }  # fmt: skip
    return reports.TensorReport(**(fields | changes))


def numbers(counts: tuple[int, ...], low: float, high: float, **changes: Any) -> reports.Statistics:
    """Return statistics whose histogram has those counts between ``low`` and ``high``."""
    finite, width = sum(counts), (high - low) / max(len(counts), 1)
    bad = sum(changes.get(key, 0) for key in ("nan", "positive_infinity", "negative_infinity"))
    fields: dict[str, Any] = {
        "count": finite + bad, "of": finite + bad, "finite": finite, "nan": 0, "positive_infinity": 0,
        "negative_infinity": 0, "zero": 0, "minimum": low, "maximum": high, "mean": (low + high) / 2,
        "std": (high - low) / 4, "norm": 10.0, "histogram_counts": counts,
        "histogram_edges": tuple(low + width * at for at in range(len(counts) + 1)),
    }  # fmt: skip
    return reports.Statistics(**(fields | changes))


def transpose_slice() -> reports.TensorReport:
    """``a = arange(24.).view(4, 6); a[2, 2] = nan; n = a.numpy(); x = a.t()[1:5, ::2]``: the mockup's first panel."""
    where = layout((4, 2), (1, 12), 1, 24, values=lambda at: NAN if at == 14 else float(at))
    assert where.strip is not None
    where = replace(where, strip=replace(where.strip, row_length=6, row_name="a"))
    statistics = numbers((2, 2, 0, 0, 0, 0, 1, 2), 1.0, 16.0, nan=1, mean=54 / 7, std=6.626, norm=27.2,
                         first_nan=(1, 1))  # fmt: skip
    nan = reports.Finding(
        "TM401", "warning", "1 of 8 elements is NaN: `x[1, 1]`, which is also `a[2, 2]` and `n[2, 2]`.",
        evidence={"nan": 1, "elements": 8}, subject="x",
        remedy="List them with `x.isnan().nonzero()`. `torch.nan_to_num(x)` returns a repaired copy and leaves `a` "
        "as it is.",
    )  # fmt: skip
    shares = reports.Finding(
        "TM201", "note", "x shares memory with a, n: writing x changes 8 of a's 24 elements.",
        remedy="Take a copy before writing: `x = x.clone()` (32 B).", subject="x",
    )  # fmt: skip
    return report(
        "x", where, 24, role="view of a", is_view=True, version=1, statistics=statistics, findings=(nan, shares),
        aliases=(
            reports.Alias("a", "view of the same base", "Tensor", (4, 6), 8, 24, "yes", 1, True),
            reports.Alias("n", "NumPy array", "ndarray", (4, 6), 8, 24, "yes", None, False),
            reports.Alias("x._base", "base", "Tensor", (24,), 8, 24, "yes", 1, True),
        ),
        data_text="tensor([[ 1., 13.],\n        [ 2., nan],\n        [ 3., 15.],\n        [ 4., 16.]])",
    )  # fmt: skip


def expanded() -> reports.TensorReport:
    """``bias = nn.Parameter(tensor([.1, -.25, 0., .4])); e = bias.expand(6, 4)``: stride 0."""
    stored = (0.1, -0.25, 0.0, 0.4)
    where = layout((6, 4), (0, 1), 0, 4, values=lambda at: stored[at])
    repeats = reports.Finding(
        "TM202", "warning", "e repeats memory: each of bias's 4 elements is read 6 times, so writing e in place "
        "raises RuntimeError.", remedy="Write to bias, or take a full copy first: `e = e.clone()` (96 B).",
    )  # fmt: skip
    return report(
        "e", where, 4, role="view of bias", is_view=True, findings=(repeats,),
        statistics=numbers((6, 0, 0, 6, 6, 0, 0, 6), -0.25, 0.4, zero=6, mean=0.0625, std=0.2379, norm=2.4),
        autograd=autograd(requires_grad=True, is_leaf=False, grad_fn="ExpandBackward0", leaves=("bias",), leaf_count=1,
                          sentence="e is not a leaf: e.grad stays None."),
        aliases=(reports.Alias("bias", "base", "Parameter", (4,), 4, 4, "yes", 0, True),),
    )  # fmt: skip


def causal_scores() -> reports.TensorReport:
    """A float16 tensor of 64 x 1024 x 1024 on a GPU, sampled, -Inf above the diagonal."""
    shape = (64, 1024, 1024)

    def score(at: int) -> float:
        query, key = divmod(at % (1024 * 1024), 1024)
        return -INF if key > query else math.sin(at * 12.9898) * 3

    where = whole(shape, values=score)
    bell = tuple(round(2e6 * math.exp(-(((at - 20) / 6) ** 2))) for at in range(40))
    statistics = numbers(bell, -6.102, 6.313, negative_infinity=33_521_664, zero=1, mean=-0.0001, std=0.9996,
                         of=math.prod(shape))  # fmt: skip
    mask = reports.Finding("TM401", "note", "33 521 664 elements (49.95 %) are -Inf, exactly those with j > i.")
    return report(
        "scores", where, math.prod(shape), dtype="float16", element_size=2, device="cuda:0", findings=(mask,),
        statistics=statistics,
    )  # fmt: skip


def scalar() -> reports.TensorReport:
    """``loss``: no dimensions, made by a graph."""
    leaves = ("net.0.weight", "net.0.bias")
    return report(
        "loss", layout((), (), 0, 1, values=lambda _: 0.6931), 1, statistics=numbers((1,), 0.6931, 0.6931, std=None),
        autograd=autograd(requires_grad=True, is_leaf=False, grad_fn="NllLossBackward0", leaf_count=30,
                          retains_grad=True,
                          leaves=leaves, hooks=1, sentence="loss is made by NllLossBackward0."),
    )  # fmt: skip


def vector() -> reports.TensorReport:
    """One dimension, every second element of ten."""
    return report(
        "v", layout((5,), (2,), 0, 10, values=float), 10, statistics=numbers((1, 1, 1, 1, 1), 0.0, 8.0, zero=1)
    )


def hostile() -> reports.TensorReport:
    """Every text a user could choose holds markup."""
    gaps = (reports.Gap("autograd", "freed"),)
    return everywhere(replace(transpose_slice(), kinds=sparse().kinds, findings=(finding(),), gaps=gaps), HOSTILE)


def all_missing() -> reports.TensorReport:
    """Nothing could be read: every section is a named gap."""
    sections = ("storage", "layout", "statistics", "autograd", "aliases")
    gaps = tuple(reports.Gap(section, "RuntimeError: this wrapper has no storage") for section in sections)
    plain = scalar()
    return replace(
        plain, name="wrapped", type_name="BatchedTensor", shape=(3, 2), numel=6, nbytes=24, version=None, flags={},
        storage=None, layout=None, statistics=None, autograd=None, data_text="", layout_name="unknown", gaps=gaps,
        aliases_searched=0,
    )  # fmt: skip


def largest() -> reports.TensorReport:
    """As much as any report brings: 32 x 32 sampled cells, 256 strip cells, long names, many aliases and findings."""
    shape = (512, 4096, 4096)
    where = whole(shape, values=lambda at: math.sin(at) * 1e-5)
    cell = math.prod(shape) // 256
    cells = tuple(reports.StripCell(at * cell, at * cell + cell, cell // 2, cell // 2) for at in range(256))
    where = replace(where, strip=reports.Strip(0, math.prod(shape), cell, cells, exact=False))
    name = "model.encoder.layers[11].attention.self.query_key_value_projection.weight"
    findings = tuple(
        reports.Finding(f"TM9{at:02}", "warning", "A long sentence about it. " * 8,
                        reports.Location("train.py", at + 1, "x = y " * 12),
                {"elements": at}, "Something to do about it. " * 8)
        for at in range(10)
    )  # fmt: skip
    aliases = tuple(
        reports.Alias(f"{name}_{at}", "view of the same base", "Tensor", shape, 7, 9, "yes", 1, True)
        for at in range(40)
    )
    flags = {f"is_{at}": "False" for at in range(24)}
    return report(name, where, math.prod(shape), findings=findings, aliases=aliases, flags=flags,
                  data_text="[[0.123, ...]]\n" * 12,
                  statistics=numbers((12345,) * 64, -1.0, 1.0, nan=3, positive_infinity=4))  # fmt: skip


def sparse() -> reports.TensorReport:
    """Return a CSR matrix with an empty row, its stored elements and one of its component tensors."""
    values = replace(vector(), name="x.values()", role="owns its storage", findings=(), aliases=())
    stored = reports.StoredList(
        3, 3, (reports.StoredLine("col_indices", ("1", "0", "2")), reports.StoredLine("values", ("1.5", "-2", "nan"))),
        (reports.StoredGroup("row 0", 0, 1), reports.StoredGroup("row 1", 1, 1), reports.StoredGroup("row 2", 1, 3)),
        "crow_indices", 1,
    )  # fmt: skip
    picture = reports.StoredMap(
        "row", "column", 3, 3, 1, 1, ((0, 1, 0), (0, 0, 0), (1, 0, 1)),
        ((reports.NOT_STORED, 0, reports.NOT_STORED), (reports.NOT_STORED,) * 3, (1, reports.NOT_STORED, 2)),
        (("", "1.5", ""), ("", "", ""), ("-2", "", "nan")),
    )  # fmt: skip
    kind = reports.KindReport(
        "sparse_csr", "sparse CSR", "3 values are stored for a tensor of (3, 3), row after row.",
        (reports.Fact("nnz", "3", "stored values"), reports.Fact("density", "33.3 %"),
         reports.Fact("index dtype", "int64")),
        (reports.Component("x.values()", "the stored values, row after row", values),), picture, stored,
        ("row 2 owns places 1 to 2", "col_indices[1] = 0, so [2, 0] is values[1] = -2"), 68,
    )  # fmt: skip
    roles = reports.KindReport("parameter", "Parameter", "A module lists it in parameters().")
    return replace(all_missing(), name="x", type_name="Tensor", role="has no storage of its own",
                   shape=(3, 3), numel=9, nbytes=36, layout_name="sparse_csr", gaps=(),
                   kinds=(kind, roles))  # fmt: skip


def joined() -> reports.TensorReport:
    """Return that matrix with a map of joined cells, not every stored element looked at, and a place nobody owns."""
    kind, roles = sparse().kinds
    stored = replace(kind.stored, groups=kind.stored.groups[2:])
    cells = reports.StoredMap("row", "column", 99, 99, 50, 50, ((7, 0), (1, 3)), title="by block", sampled=11)
    return replace(sparse(), kinds=(replace(kind, map=cells, stored=stored), roles))


def packed(*levels: int) -> str:
    """Pixels as a report holds them."""
    return base64.b64encode(zlib.compress(bytes(levels))).decode()


def images() -> reports.TensorReport:
    """Two of five grey images of 3 by 2 pixels, one pixel of which is NaN."""
    first = reports.ImageFrame("0", 3, 2, packed(0, 255, 128, 255, 255, 255, 0, 0, 64, 255, 192, 255))
    second = reports.ImageFrame("1", 3, 2, packed(*(0, 255) * 6))
    shot = reports.TensorPicture(
        "(N, H, W)", 1, -1.5, 2.0, "shown", images=(first, second), of=5, step=4, size=(8, 12), bad=1
    )
    return replace(vector(), picture=shot)


def colour() -> reports.TensorReport:
    """One pixel of colour."""
    frame = reports.ImageFrame("", 1, 1, packed(255, 128, 0, 255))
    return replace(vector(), picture=reports.TensorPicture("(C, H, W)", 3, 0.0, 1.0, "unit", (frame,), size=(1, 1)))


def signals() -> reports.TensorReport:
    """Two signals with a gap, one of them in columns of several values."""
    lines = (
        reports.SignalLine("0", (0.0, 1.0, NAN, -1.0, 2.0), (0.0, 1.0, NAN, -1.0, 2.0), (0, 0, 7, 0, 0)),
        reports.SignalLine("1", (0.0, 0.0, 0.0, NAN, 0.5), (1.0, 2.0, 1.0, NAN, 0.5), (0, 0, 0, 1, 0)),
    )
    shot = reports.TensorPicture("(N, T)", 0, -1.0, 2.0, "shown", lines=lines, of=2, step=3, size=(15,), bad=8)
    return replace(vector(), picture=shot)


CHAIN = reports.CopyVerdict(
    "x.t().contiguous().view(-1)",
    (reports.Sharing("x", "separate", 0, 12),),
    (
        reports.Step("x.t()", "view", "x", 0, "the strides are swapped; no element moves"),
        reports.Step(
            ".contiguous()", "copy", "", 48, "contiguous() had to copy: the stride was `(1, 4)`, contiguous is `(3, 1)`"
        ),
        reports.Step(".view(-1)", "view", "x.t().contiguous()", 0, "other sizes and strides over the same elements"),
    ),
)
LINE = reports.Location("train.py", 12, function="step")
MANY = reports.HoldersReport(
    (
        reports.Holder("x", "name", "tensor"),
        reports.Holder("batch[0]", "item", "tensor"),
        reports.Holder("Out[12]", "history", "tensor"),
        reports.Holder("opt.state[net.fc.weight]['exp_avg']", "optimizer", "tensor"),
        reports.Holder("the last error (ValueError), local of step", "traceback", "tensor", location=LINE),
        reports.Holder("graph of loss: AddmmBackward0, saved as mat1", "graph", "tensor"),
        reports.Holder("array", "name", "storage", 96),
    ),
    found=7,
    looked=120,
)
NO_NUMBERS = {"minimum": None, "maximum": None, "mean": None, "std": None, "norm": None}
ODD = (NAN, INF, -INF, 0.0, -0.0, 1e-30)
SAMPLES = {
    "transpose_slice": transpose_slice(), "expanded": expanded(), "causal_scores": causal_scores(),
    "scalar": scalar(),
    # `torch.empty(0, 3)`: no elements and no storage to draw.
    "empty": report("nothing", layout((0, 3), (3, 1), 0, 0), 0, aliases_searched=0,
                    statistics=numbers((), 0.0, 0.0, **NO_NUMBERS)),
    "vector": vector(),
    # complex64, coloured and counted by magnitude.
    "complex": report("z", whole((2, 3), values=lambda at: complex(at, -1)), 6, dtype="complex64",
                      element_size=8, statistics=numbers((2, 2, 2), 1.0, 5.099, of_what="magnitudes")),
    "bool": report("mask", whole((3, 3), values=lambda at: at % 2 == 0), 9, dtype="bool",
                   element_size=1, statistics=numbers((4, 5), 0.0, 1.0, zero=4)),
    # NaN, +Inf and -Inf side by side, and nothing finite in the first row.
    "non_finite": report("odd", whole((2, 3), values=lambda at: ODD[at]), 6, statistics=numbers(
        (2, 1), 0.0, 1e-30, nan=1, positive_infinity=1, negative_infinity=1, zero=2)),
    "hostile": hostile(), "all_missing": all_missing(),
    # A finding of each severity, with location, evidence and remedy.
    "every_severity": replace(vector(), findings=tuple(
        reports.Finding(f"TM90{at}", severity, f"A {severity} about v.",
                        reports.Location("<ipython-input-5>", at + 1, "v.add_(1)", 5), {"elements": at},
                        f"Do {severity} things.", "v")
        for at, severity in enumerate(("error", "warning", "note"))
    )),
    # An image batch in channels_last: four dimensions, a slice of it drawn, part of the rows left out.
    "channels": report(
        "images", layout((8, 3, 64, 48), (9216, 1, 144, 3), 0, 73_728, values=lambda at: (at % 97) / 97), 73_728,
        statistics=numbers((760,) * 97, 0.0, 0.99, count=10_000, of=73_728, sampling="every 7th"), type_name="Image",
    ),
    "largest": largest(), "sparse": sparse(), "joined": joined(), "signals": signals(),
    "asked": replace(images(), verdict=CHAIN, holders=MANY),
}  # fmt: skip
