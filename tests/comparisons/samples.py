"""Traced runs made by hand, as small as what they are to show."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tensormagic.reports import (
    Cell,
    Edge,
    Finding,
    Frame,
    Gap,
    GradientStatistics,
    Graph,
    Location,
    Node,
    ParameterSeries,
    Pass,
    TraceReport,
)

HOSTILE = "</script><img src=x onerror=alert(1)>`\x1b[2J"


def graph(rows: Sequence[tuple[str, str, str, Sequence[int]]], *, number: int = 1) -> Graph:
    """Return a graph of rows: op, module, variable, and the nodes that made its inputs. ``leaf`` is a leaf."""
    nodes = tuple(
        Node(at, "AccumulateGrad" if op == "leaf" else f"{op.title()}Backward0", "accumulate" if op == "leaf" else op,
             "accumulate" if op == "leaf" else "op", 0, module=module, variable=variable, shapes=((2, at + 1),),
             dtype="float32")
        for at, (op, module, variable, _) in enumerate(rows)
    )  # fmt: skip
    edges = tuple(Edge(at, to, which, 0) for at, row in enumerate(rows) for which, to in enumerate(row[3]))
    return Graph(number, nodes, edges, roots=(len(rows) - 1,))


def layers(*modules: str, op: str = "mul") -> Graph:
    """Return a chain of layers: each module's op has a weight of its own, and a relu behind it; then the sum."""
    rows: list[tuple[str, str, str, Sequence[int]]] = []
    for module in modules:
        last = len(rows) - 1
        rows.append(("leaf", "", f"{module}.weight", ()))
        rows.append((op, module, "", (last, len(rows) - 1) if last >= 0 else (len(rows) - 1,)))
        rows.append(("relu", module, "", (len(rows) - 1,)))
    rows.append(("sum", "", "loss", (len(rows) - 1,)))
    return graph(rows)


def run(
    traced: Graph,
    series: Mapping[str, Sequence[float]],
    *,
    losses: Sequence[float | None] = (),
    title: str = "net",
) -> TraceReport:
    """Return a run through one graph: a pass a step, each leaf's norms given, every other node's 1."""
    count = max(map(len, series.values()), default=0)
    owners = {name: name.partition(".")[0] for name in series}
    passes = tuple(
        Pass(at + 1, at + 1, traced.number, "finished", 0.01, len(traced.nodes), 0, True, value)
        for at, value in zip(range(count), losses or [None] * count, strict=True)
    )
    frames = tuple(
        Frame(at + 1, array("f", [series[node.variable][at] if node.variable in series else 1.0
                                  for node in traced.nodes]))
        for at in range(count)
    )  # fmt: skip
    parameters = tuple(
        ParameterSeries(name, (2, 3), "float32", 6, True, True, True, owners[name], array("f", norms),
                        sum(norm >= 0 or math.isnan(norm) for norm in norms))
        for name, norms in series.items()
    )  # fmt: skip
    return TraceReport(
        title=title, state="finished", cell=Cell("cell", 3, ("loss.backward()",)), seconds=0.5, own_seconds=0.01,
        locations=(Location("cell", 2, "y = net(x)", cell=3),),
        graphs=(replace(traced, passes_seen=count, frames=frames),),
        passes=passes, passes_seen=count, steps_seen=count, parameters=parameters,
    )  # fmt: skip


def small(*, factor: float = 1.0, since: int = 1, title: str = "net") -> TraceReport:
    """Return a run of six steps through two layers; from a step on, the second weight's gradient is so much larger."""
    norms = [0.5 * (factor if step >= since else 1.0) for step in range(1, 7)]
    losses = [2.3, 2.0, 1.5, 1.1, 0.7, 0.41] if factor == 1.0 else [2.3, 2.2, 2.1, 2.0, 1.95, 1.9]
    return run(
        layers("net.0", "net.2"), {"net.0.weight": [0.25] * 6, "net.2.weight": norms}, losses=losses, title=title
    )


def with_nan() -> TraceReport:
    """Return the run whose second weight gets NaN from step 4 on, and whose first gets nothing at all."""
    series = {"net.0.weight": [-1.0] * 6, "net.2.weight": [0.5] * 3 + [math.nan] * 3}
    report = run(layers("net.0", "net.2"), series, losses=[2.3, 2.0, 1.5, math.nan, math.nan, math.nan], title="broken")
    found = Finding("TM402", "error", "the first NaN in `net.2`", report.locations[0], subject="net.2")
    return replace(report, findings=(found,), state="failed", error="ValueError: no")


def deeper() -> TraceReport:
    """Return a run through one layer more, another op in the first, and another name of the model."""
    modules = ("model.0", "model.1", "model.2")
    return run(layers(*modules), {f"{module}.weight": [0.25] * 6 for module in modules}, losses=[2.3] * 6, title="deep")


def hostile() -> TraceReport:
    """Return a run whose every text is markup."""
    report = small(factor=1000.0, title=HOSTILE)
    statistics = GradientStatistics(1, 6, 1.0, 1.0, 0.0, 1.0, 5, 0, 0)
    nodes = tuple(
        replace(node, op=HOSTILE, module=HOSTILE, variable=HOSTILE, dtype=HOSTILE, statistics=statistics)
        for node in report.graphs[0].nodes
    )
    return replace(
        report,
        graphs=(replace(report.graphs[0], nodes=nodes),),
        parameters=tuple(replace(one, name=one.name + HOSTILE) for one in report.parameters),
        locations=(Location(HOSTILE, 1, HOSTILE),),
        findings=(Finding("TM402", "error", HOSTILE, remedy=HOSTILE),),
        gaps=(Gap(HOSTILE, HOSTILE),),
        error=HOSTILE,
    )
