"""Hand-made traced runs for the rules: a chain of layers and a loss, with the norms that a test asks for."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field, replace

from tensormagic.reports import (
    UNTOUCHED,
    Cell,
    Edge,
    FirstNonfinite,
    Frame,
    Graph,
    Location,
    Node,
    ParameterSeries,
    Pass,
    TraceReport,
)

LINES = tuple(Location("model.py", line, f"line {line}") for line in range(1, 9))
CALL = Location("train.py", 30, "loss.backward()")


def leaf(index, variable, shape=(4, 4)):
    return Node(index, "AccumulateGrad", "accumulate", "accumulate", variable=variable, shapes=(shape,))


def op(index, name, **more):
    return Node(index, f"{name.title()}Backward0", name, "op", **{"location": 0, "shapes": ((4, 4),), **more})


def parameter(name, norms, *, shape=(4, 4), owner="net", **more):
    numel = 1
    for size in shape:
        numel *= size
    touched = sum(norm != UNTOUCHED for norm in norms)
    facts = {"is_parameter": True, "requires_grad": True, "used": touched > 0, "touched": touched, **more}
    return ParameterSeries(
        name=name, shape=shape, dtype="float32", numel=numel, owner=owner, norms=array("f", norms), **facts
    )


def frame(number, norms, bad=None):
    return Frame(pass_number=number, norms=array("f", norms), bad=bad or {})


def passes(count, bad=()):
    return tuple(Pass(at, at, 1, "finished", 0.1, 3, 7, at not in bad) for at in range(1, count + 1))


def run(*graphs, parameters=(), count=1, bad=()):
    """Return a trace of ``count`` passes, those numbered in ``bad`` not finite."""
    return TraceReport(
        title="net", state="finished", cell=Cell("train.py", None, ()), seconds=1.0, own_seconds=0.1,
        locations=(*LINES[:7], CALL), graphs=graphs, passes=passes(count, bad), passes_seen=count, steps_seen=count,
        parameters=tuple(parameters),
    )  # fmt: skip


# -- a NaN that is born ---------------------------------------------------------------------------------------------


def born(name="log", *, of=1, receiver=None, node=None, **facts):
    """Return a run ``x → op → sum`` in which ``op`` made NaN or infinities in the first of ``of`` passes."""
    nonfinite = FirstNonfinite(**{
        "pass_number": 1, "node": 1, "receiver": 0, "input_number": 0, "nan": 0, "inf": 0, "count": 320,
        "incoming_norm": 1.5, **facts,
    })  # fmt: skip
    nodes = (receiver or leaf(0, "x"), replace(op(1, name, location=2), **(node or {})), op(2, "sum"))
    edges = (Edge(2, 1, 0, 0), Edge(1, 0, 0, 0))
    bad = {"0": (nonfinite.nan, nonfinite.inf)}
    frames = (frame(1, (float("nan"), 1.5, 1.0), bad), *(frame(at, (1.0, 1.5, 1.0)) for at in range(2, of + 1)))
    graph = Graph(1, nodes, edges, (2,), (2, 1, 0), of, frames, (nonfinite,))
    return run(graph, count=of, bad=(1,))


# -- layers ---------------------------------------------------------------------------------------------------------


@dataclass
class Layers:
    """A chain of linear layers, the first one nearest to the data.

    Attributes:
        weights: Norm of each weight's gradient, by layer.
        arriving: Norm of what arrives at each layer's ``addmm``; by default the same.
        shape: Of every weight.
        activation: The op between the layers.
        user: The op that uses the weights.
    """

    weights: list[float]
    arriving: list[float] = field(default_factory=list)
    shape: tuple[int, ...] = (4, 4)
    activation: str = "sigmoid"
    user: str = "addmm"

    def report(self):
        nodes, edges, norms = [], [], []
        arriving = self.arriving or self.weights
        for layer, (weight, arrives) in enumerate(zip(self.weights, arriving, strict=True)):
            at = len(nodes)
            nodes += [leaf(at, f"net.{layer}.weight", self.shape), op(at + 1, "t", location=layer % 7)]
            nodes += [op(at + 2, self.user, location=layer % 7), op(at + 3, self.activation)]
            edges += [Edge(at + 1, at, 0, 0), Edge(at + 2, at + 1, 2, 0), Edge(at + 3, at + 2, 0, 0)]
            edges += [Edge(at + 2, at - 1, 1, 0)] if at else []
            norms += [weight, weight, arrives, arrives]
        nodes.append(op(len(nodes), "mean"))
        edges.append(Edge(len(nodes) - 1, len(nodes) - 2, 0, 0))
        graph = Graph(1, tuple(nodes), tuple(edges), (len(nodes) - 1,), (), 1, (frame(1, [*norms, 1.0]),))
        named = [parameter(f"net.{layer}.weight", [norm], shape=self.shape) for layer, norm in enumerate(self.weights)]
        return run(graph, parameters=named)
