"""Hand-made runs for the trace viewer: a broken one, a calm one, and networks of any size, nothing random in them."""

from __future__ import annotations

import math
from array import array
from dataclasses import replace

from tensormagic.reports import (
    UNTOUCHED,
    Cell,
    Edge,
    Finding,
    FirstNonfinite,
    Frame,
    Gap,
    GradientStatistics,
    Graph,
    Kept,
    LiveFrame,
    Location,
    Node,
    ParameterSeries,
    Pass,
    SavedTensor,
    TraceReport,
)

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
CELL = Cell("<ipython-input-5>", 5, LINES)

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


def _location(line: int) -> Location:
    return Location(CELL.filename, line, LINES[line - 1].strip(), cell=5)


def _skeleton() -> tuple[list[Node], list[Edge]]:
    nodes: list[Node] = []
    edges: list[Edge] = []
    before: int | None = None
    for op, line, shape, module, leaves in STEPS:
        hanging = []
        for leaf in leaves:
            nodes.append(
                Node(
                    len(nodes),
                    "AccumulateGrad",
                    "accumulate",
                    "accumulate",
                    variable=leaf,
                    shapes=((8,),),
                    dtype="float32",
                    device="cpu",
                )
            )
            hanging.append(len(nodes) - 1)
        index = len(nodes)
        kept = (
            SavedTensor("self", shape, "float32", 4 * math.prod(shape), "ok"),
            SavedTensor("result", shape, "float32", 4 * math.prod(shape), "freed"),
        )
        numbers = GradientStatistics(1, math.prod(shape), 0.177, 0.031, -0.0031, 0.0095, 288, 0, 0)
        nodes.append(
            Node(
                index,
                f"{op.title()}Backward0",
                op,
                "op",
                line - 1,
                True,
                module,
                "logp" if op == "log" else "",
                (shape,),
                "float32",
                "cpu",
                kept,
                numbers,
            )
        )
        edges += [
            Edge(index, target, number, 0)
            for number, target in enumerate([*([before] if before is not None else []), *hanging])
        ]
        before = index
    return nodes, edges


def _norm(node: int, number: int) -> float:
    return 10 ** (0.2 * node - 4 + 0.4 * math.sin(number / 5 + node))


def _frame(nodes: list[Node], number: int, broken: bool) -> Frame:
    norms = [_norm(node.index, number) for node in nodes]
    log = next(node.index for node in nodes if node.op == "log")
    bad: dict[str, tuple[int, int]] = {}
    if broken:
        for node in range(log):
            norms[node] = math.nan
            bad[str(node)] = (3 if node == log - 1 else 894, 0)
    return Frame(number, array("f", norms), bad)


def _series(nodes: list[Node], frames: list[Frame]) -> tuple[ParameterSeries, ...]:
    rows = []
    for node in nodes:
        if node.kind == "accumulate":
            norms = array("f", [frame.norms[node.index] for frame in frames])
            rows.append(
                ParameterSeries(node.variable, (16, 3, 3), "float32", 144, True, True, True, "net", norms, len(frames))
            )
    return tuple(rows)


def _run(passes: int, broken_at: int | None) -> TraceReport:
    nodes, edges = _skeleton()
    frames = [_frame(nodes, number, broken_at is not None and number >= broken_at) for number in range(1, passes + 1)]
    log = next(node.index for node in nodes if node.op == "log")
    first_nonfinite = (
        () if broken_at is None else (FirstNonfinite(broken_at, log, log - 1, 0, 3, 0, 320, 0.177, "self", 3, 0, 0),)
    )
    graph = Graph(
        1,
        tuple(nodes),
        tuple(edges),
        (len(nodes) - 1,),
        tuple(range(len(nodes)))[::-1],
        passes,
        tuple(frames),
        first_nonfinite,
    )
    rows = tuple(
        Pass(frame.pass_number, frame.pass_number, 1, "finished", 0.01, len(nodes), 9, not frame.bad)
        for frame in frames
    )
    return TraceReport(
        title="digits-cnn",
        state="finished",
        cell=CELL,
        seconds=12.4,
        own_seconds=0.5,
        locations=tuple(_location(line) for line in range(1, len(LINES) + 1)),
        graphs=(graph,),
        passes=rows,
        passes_seen=passes,
        steps_seen=passes,
        forward_nodes=len(nodes) * passes,
        parameters=_series(nodes, frames),
    )


def calm_run(passes: int = 40) -> TraceReport:
    """A run without problems."""
    return _run(passes, None)


def standing() -> TraceReport:
    """A graph that was drawn before any backward ran through it, as ``%gradgraph`` draws it."""
    report = _run(1, None)
    graph = replace(report.graphs[0], passes_seen=0, frames=())
    return replace(
        report, title="loss", state="drawn", seconds=0.0, own_seconds=0.0, graphs=(graph,), passes=(), passes_seen=0,
        steps_seen=0, parameters=(), kept=Kept(slots=14, storages=11, nbytes=1_480_000, leaf_bytes=73_000),
    )  # fmt: skip


def broken_run(passes: int = 37, at: int = 31) -> TraceReport:
    """A run in which ``p.log()`` gives NaN gradients from pass ``at`` on, with its finding and a gap."""
    report = _run(passes, at)
    finding = Finding(
        "TM402",
        "error",
        "the first NaN gradient is born in `log`: its input holds 3 zeros",
        _location(6),
        {"nan": 3, "zeros": 3, "pass": at},
        "use `F.log_softmax(net.fc(h), 1)`: it never forms the zero, so 0 ÷ 0 cannot occur",
        subject="logp",
        node=(0, report.graphs[0].first_nonfinite[0].node),
        fix="logp = F.log_softmax(net.fc(h), 1)",
    )
    gap = Gap("saved tensors", "the graph was freed before they could be read")
    return replace(report, findings=(finding,), gaps=(gap,))


def large_run(count: int = 2000, passes: int = 40, *, branches: int = 3) -> TraceReport:
    """A run through ``count`` nodes: blocks of a few ops with a leaf each and a shortcut round them."""
    names = ("layer_norm", "addmm", "gelu", "addmm", "dropout", "add")
    nodes: list[Node] = []
    edges: list[Edge] = []
    before, start = None, None
    while len(nodes) < count - 1:
        number = len(nodes)
        op = names[number % len(names)]
        block = number // (len(names) * branches)
        leaf = None
        if op in {"layer_norm", "addmm"} and len(nodes) < count - 2:
            leaf = len(nodes)
            name = f"encoder.layers.{block}.{op}{number}.weight"
            nodes.append(
                Node(
                    leaf,
                    "AccumulateGrad",
                    "accumulate",
                    "accumulate",
                    variable=name,
                    shapes=((512, 512),),
                    dtype="float32",
                    device="cpu",
                )
            )
        index = len(nodes)
        saved = (
            SavedTensor("self", (8, 128, 512), "float32", 2097152, "ok"),
            SavedTensor("weight", (512, 512), "float32", 1048576, "ok"),
        )
        numbers = GradientStatistics(
            1, 524288, _norm(index % 19, 1), 0.01 + index / 1e5, 1e-6 * index, 0.001 + index / 1e6, index, 0, 0
        )
        nodes.append(
            Node(
                index,
                f"{op.title()}Backward0",
                op,
                "op",
                index % len(LINES),
                True,
                f"encoder.layers.{block}",
                "",
                ((8, 128, 512),),
                "float32",
                "cpu",
                saved,
                numbers,
            )
        )
        targets = [
            target
            for target in (before, leaf, start if op == "add" and start is not None else None)
            if target is not None
        ]
        edges += [Edge(index, target, place, 0) for place, target in enumerate(dict.fromkeys(targets))]
        start = index if op == "add" or start is None else start
        before = index
    nodes.append(Node(len(nodes), "MeanBackward0", "mean", "op", 6, shapes=((),), dtype="float32", device="cpu"))
    edges.append(Edge(len(nodes) - 1, before or 0, 0, 0))
    frames = []
    for number in range(1, passes + 1):
        norms = array("f", [_norm(node % 19, number + node * 0.37) for node in range(len(nodes))])
        frames.append(Frame(number, norms))
    graph = Graph(
        1, tuple(nodes), tuple(edges), (len(nodes) - 1,), tuple(range(len(nodes)))[::-1], passes, tuple(frames)
    )
    base = _run(passes, None)
    return replace(base, title=f"encoder of {count}", graphs=(graph,), parameters=_series(nodes, frames))


def live_frame(report: TraceReport, number: int, reached: int, *, structure: int = 1) -> LiveFrame:
    """What a run through ``report``'s first graph looks like when pass ``number`` has reached so many nodes."""
    graph = report.graphs[0]
    count = len(graph.nodes)
    norms = array("f", [_norm(node % 19, number) if node >= count - reached else UNTOUCHED for node in range(count)])
    last = array("f", [_norm(place % 19, number - 1) for place in range(len(report.parameters))])
    return LiveFrame(
        structure,
        graph.number,
        number,
        number,
        reached < count,
        count - reached,
        reached,
        norms,
        number - 1,
        last,
        number * 0.1,
    )
