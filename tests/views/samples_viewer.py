"""Hand-made runs for the trace viewer: a broken one, a calm one, and networks of any size, nothing random in them."""

from __future__ import annotations

import math
from array import array
from dataclasses import replace

from tensormagic import reports
from tests.views.samples_trace import Builder, series

LINES = (
    "def forward(x, y):",
    "    h = F.relu(net.conv1(x))",
    "    h = F.relu(net.conv2(h))",
    "    h = h.flatten(1)",
    "    p = net.fc(h).softmax(1)",
    "    logp = p.log()",
    "    return F.nll_loss(logp, y)",
    "",
    "for x, y in loader:",
    "    forward(x, y).backward()",
)
CELL = reports.Cell("<ipython-input-5>", 5, LINES)

# op, line, shape, module, leaves that hang on it
STEPS = (
    ("convolution", 2, (32, 16, 6, 6), "net.conv1", ("net.conv1.weight", "net.conv1.bias")),
    ("relu", 2, (32, 16, 6, 6), "", ()),
    ("convolution", 3, (32, 32, 4, 4), "net.conv2", ("net.conv2.weight", "net.conv2.bias")),
    ("relu", 3, (32, 32, 4, 4), "", ()),
    ("view", 4, (32, 512), "", ()),
    ("addmm", 5, (32, 10), "net.fc", ("net.fc.weight", "net.fc.bias")),
    ("softmax", 5, (32, 10), "", ()),
    ("log", 6, (32, 10), "", ()),
    ("nll_loss", 7, (), "", ()),
)


def _location(line: int) -> reports.Location:
    return reports.Location(CELL.filename, line, LINES[line - 1].strip(), cell=5)


def _skeleton() -> Builder:
    build = Builder("cpu")
    before = None
    for op, line, shape, module, leaves in STEPS:
        build.module = ""
        hanging = [build.leaf(leaf, (8,)) for leaf in leaves]
        build.module, numel = module, math.prod(shape)
        kept = tuple(
            reports.SavedTensor(name, shape, "float32", 4 * numel, state)
            for name, state in (("self", "ok"), ("result", "freed"))
        )
        numbers = reports.GradientStatistics(1, numel, 0.177, 0.031, -0.0031, 0.0095, 288, 0, 0)
        known = {"variable": "logp" if op == "log" else "", "saved": kept, "statistics": numbers}
        inputs = [*hanging] if before is None else [before, *hanging]
        before = build.op(op, *inputs, shape=shape, location=line - 1, **known)
    return build


def _norm(node: int, number: float) -> float:
    return 10 ** (0.2 * node - 4 + 0.4 * math.sin(number / 5 + node))


def _frame(nodes: list[reports.Node], number: int, broken: bool) -> reports.Frame:
    norms = [_norm(node.index, number) for node in nodes]
    bad: dict[str, tuple[int, int]] = {}
    log = _log(nodes) if broken else 0
    for node in range(log):
        norms[node] = math.nan
        bad[str(node)] = (3 if node == log - 1 else 894, 0)
    return reports.Frame(number, array("f", norms), bad)


def _log(nodes: list[reports.Node]) -> int:
    return next(node.index for node in nodes if node.op == "log")


def _series(graph: reports.Graph) -> tuple[reports.ParameterSeries, ...]:
    """Return a series for every leaf: its norms in the passes of the graph."""
    leaves = [node for node in graph.nodes if node.kind == "accumulate"]
    return tuple(
        series(node, shape=(16, 3, 3), numel=144, touched=len(graph.frames),
               norms=array("f", [frame.norms[node.index] for frame in graph.frames]))
        for node in leaves
    )  # fmt: skip


def calm_run(passes: int = 40, broken_at: float = math.inf) -> reports.TraceReport:
    """Return a run without problems, or with NaN gradients from that pass on."""
    build = _skeleton()
    nodes = build.nodes
    frames = [_frame(nodes, number, number >= broken_at) for number in range(1, passes + 1)]
    log = _log(nodes)
    born = reports.FirstNonfinite(broken_at, log, log - 1, 0, 3, 0, 320, 0.177, "self", 3, 0, 0)
    graph = build.traced(frames, (born,) if broken_at <= passes else ())
    rows = tuple(
        reports.Pass(frame.pass_number, frame.pass_number, 1, "finished", 0.01, len(nodes), 9, not frame.bad)
        for frame in frames
    )
    return reports.TraceReport(
        title="digits-cnn", state="finished", cell=CELL, seconds=12.4, own_seconds=0.5,
        locations=tuple(_location(line) for line in range(1, len(LINES) + 1)), graphs=(graph,), passes=rows,
        passes_seen=passes, steps_seen=passes, forward_nodes=len(nodes) * passes, parameters=_series(graph),
    )  # fmt: skip


def standing() -> reports.TraceReport:
    """A graph that was drawn before any backward ran through it, as ``%gradgraph`` draws it."""
    report = calm_run(1)
    graph = replace(report.graphs[0], passes_seen=0, frames=())
    return replace(
        report, title="loss", state="drawn", seconds=0.0, own_seconds=0.0, graphs=(graph,), passes=(), passes_seen=0,
        steps_seen=0, parameters=(),
        saved=reports.SavedTotals(slots=14, storages=11, nbytes=1_480_000, leaf_bytes=73_000),
    )  # fmt: skip


def broken_run(passes: int = 37, at: int = 31) -> reports.TraceReport:
    """A run in which ``p.log()`` gives NaN gradients from pass ``at`` on, with its finding and a gap."""
    report = calm_run(passes, at)
    finding = reports.Finding(
        "TM402", "error", "the first NaN gradient is born in `log`: its input holds 3 zeros", _location(6),
        {"nan": 3, "zeros": 3, "pass": at},
        "use `F.log_softmax(net.fc(h), 1)`: it never forms the zero, so 0 ÷ 0 cannot occur", subject="logp",
        node=(0, _log(report.graphs[0].nodes)), fix="logp = F.log_softmax(net.fc(h), 1)",
    )  # fmt: skip
    gap = reports.Gap("saved tensors", "the graph was freed before they could be read")
    return replace(report, findings=(finding,), gaps=(gap,))


SAVED = (
    reports.SavedTensor("self", (8, 128, 512), "float32", 2097152, "ok"),
    reports.SavedTensor("weight", (512, 512), "float32", 1048576, "ok"),
)


def large_run(count: int = 2000, passes: int = 40, *, branches: int = 3) -> reports.TraceReport:
    """A run through ``count`` nodes: blocks of a few ops with a leaf each and a shortcut round them."""
    names = ("layer_norm", "addmm", "gelu", "addmm", "dropout", "add")
    build = Builder("cpu")
    nodes = build.nodes
    before: int | None = None
    start: int | None = None
    while len(nodes) < count - 1:
        number = len(nodes)
        op = names[number % len(names)]
        path = f"encoder.layers.{number // (len(names) * branches)}"
        build.module, leaf = "", None
        if op in {"layer_norm", "addmm"} and number < count - 2:
            leaf = build.leaf(f"{path}.{op}{number}.weight", (512, 512))
        build.module, shortcut, at = path, start if op == "add" else None, len(nodes)
        targets = dict.fromkeys(target for target in (before, leaf, shortcut) if target is not None)
        numbers = reports.GradientStatistics(
            1, 524288, _norm(at % 19, 1), 0.01 + at / 1e5, 1e-6 * at, 0.001 + at / 1e6, at, 0, 0
        )
        known = {"location": at % len(LINES), "saved": SAVED, "statistics": numbers}
        before = build.op(op, *targets, shape=(8, 128, 512), **known)
        start = before if op == "add" or start is None else start
    build.module = ""
    build.op("mean", before or 0, shape=(), location=6)
    frames = [
        reports.Frame(number, array("f", [_norm(node % 19, number + node * 0.37) for node in range(len(nodes))]))
        for number in range(1, passes + 1)
    ]
    graph = build.traced(frames)
    return replace(calm_run(passes), title=f"encoder of {count}", graphs=(graph,), parameters=_series(graph))


def live_frame(report: reports.TraceReport, number: int, reached: int, *, structure: int = 1) -> reports.LiveFrame:
    """What a run through ``report``'s first graph looks like when pass ``number`` has reached so many nodes."""
    graph = report.graphs[0]
    count = len(graph.nodes)
    norms = array(
        "f", [_norm(node % 19, number) if node >= count - reached else reports.UNTOUCHED for node in range(count)]
    )
    last = array("f", [_norm(place % 19, number - 1) for place in range(len(report.parameters))])
    return reports.LiveFrame(structure, graph.number, number, number, reached < count, count - reached, reached, norms,
                     number - 1, last, number * 0.1)  # fmt: skip
