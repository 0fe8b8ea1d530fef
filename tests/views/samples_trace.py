"""Hand-made traced runs: graphs as torch 2.13 builds them, with norms one can compute in the head."""

from __future__ import annotations

import math
from array import array
from dataclasses import replace

from tensormagic import reports

HOSTILE = '</text></svg><script>alert("1")</script>&amp;\x1b[2J\u202e'


class Builder:
    """Collects nodes and edges the way a forward makes them: inputs before what uses them."""

    def __init__(self, device=""):
        self.nodes, self.edges, self.module, self.device = [], [], "", device

    def op(self, op, *inputs, shape=(8, 64), kind="op", **more):
        name = "".join(part.capitalize() for part in op.split("_")) + "Backward0"
        index = self._add(name, op, kind, shape, **more)
        self.edges += [reports.Edge(index, made, number, 0) for number, made in enumerate(inputs) if made is not None]
        return index

    def leaf(self, variable, shape):
        return self._add("AccumulateGrad", "accumulate", "accumulate", shape, variable=variable)

    def _add(self, name, op, kind, shape, **more):
        known = {"module": self.module, "shapes": (shape,), "dtype": "float32", "device": self.device}
        self.nodes.append(reports.Node(len(self.nodes), name, op, kind, **known, **more))
        return len(self.nodes) - 1

    def linear(self, name, given, shape=(8, 64)):
        bias = self.leaf(f"{name}.bias", shape[-1:])
        weight = self.op("t", self.leaf(f"{name}.weight", (shape[-1], 64)), shape=(64, shape[-1]))
        return self.op("addmm", bias, given, weight, shape=shape)

    def conv(self, name, given, shape):
        leaves = [self.leaf(f"{name}.weight", (shape[1], 1, 3, 3)), self.leaf(f"{name}.bias", shape[1:2])]
        return self.op("convolution", given, *leaves, shape=shape)

    def graph(self, norms=None, bad=None, first_nonfinite=()):
        """Return the graph with one pass in which every node got ``norms`` (default: 0.1)."""
        norms = array("f", norms or [0.1] * len(self.nodes))
        return self.traced([reports.Frame(1, norms, bad or {})], first_nonfinite)

    def traced(self, frames, first_nonfinite=()):
        """Return the graph with these passes."""
        order = tuple(reversed(range(len(self.nodes))))
        nodes, edges = tuple(self.nodes), tuple(self.edges)
        return reports.Graph(1, nodes, edges, order[:1], order, len(frames), tuple(frames), first_nonfinite)


def chain(length=10):
    """``x.sin().sin()…``: a leaf and ``length`` ops."""
    build = Builder()
    at = build.leaf("x", (8, 64))
    for _ in range(length):
        at = build.op("sin", at)
    return build.graph()


def mlp(layers=10):
    """Linear and ReLU, ``layers`` times, and a mean."""
    build = Builder()
    at = None
    for number in range(layers):
        build.module = f"net.{2 * number}"
        at = build.linear(f"net.{2 * number}", at)
        build.module = f"net.{2 * number + 1}"
        at = build.op("relu", at)
    build.module = ""
    build.op("mean", at, shape=())
    return build.graph()


def resnet(blocks=30):
    """Residual blocks of two convolutions with batch norm."""
    build = Builder()
    at = build.conv("net.stem", None, (4, 8, 8, 8))
    for number in range(blocks):
        inner = at
        for half in (1, 2):
            build.module = f"net.blocks.{number}"
            inner = build.conv(f"net.blocks.{number}.conv{half}", inner, (4, 8, 8, 8))
            leaves = [build.leaf(f"net.blocks.{number}.bn{half}.{name}", (8,)) for name in ("weight", "bias")]
            inner = build.op("native_batch_norm", inner, *leaves, shape=(4, 8, 8, 8))
            if half == 1:
                inner = build.op("relu", inner, shape=(4, 8, 8, 8))
        at = build.op("relu", build.op("add", at, inner, shape=(4, 8, 8, 8)), shape=(4, 8, 8, 8))
    build.module = "net"
    build.op("mean", at, shape=())
    return build.graph()


def transformer(layers=8):
    """Encoder layers: attention with its views, feed-forward, two residual streams, two layer norms."""
    build = Builder()
    at = build.leaf("x", (4, 16, 64))
    for number in range(layers):
        at = _encoder_layer(build, f"net.layers.{number}", at)
    build.module = ""
    build.op("mean", at, shape=())
    return build.graph()


def _encoder_layer(build, path, given):
    build.module = f"{path}.self_attn"
    flat = build.op("view", build.op("transpose", given), shape=(64, 64))
    heads = build.op("view", build.linear(f"{path}.self_attn.in_proj", flat, (64, 192)), shape=(4, 16, 192))
    q, k, v = (build.op("transpose", build.op("select", heads)) for _ in range(3))
    scores = build.op("softmax", build.op("bmm", q, build.op("transpose", k)))
    mixed = build.op("view", build.op("transpose", build.op("bmm", scores, v)))
    out = build.linear(f"{path}.self_attn.out_proj", mixed)
    build.module = path
    at = _norm(build, f"{path}.norm1", build.op("add", given, out))
    hidden = build.op("relu", build.linear(f"{path}.linear1", at, (64, 128)))
    build.module = path
    return _norm(build, f"{path}.norm2", build.op("add", at, build.linear(f"{path}.linear2", hidden)))


def _norm(build, path, given):
    leaves = [build.leaf(f"{path}.{name}", (64,)) for name in ("weight", "bias")]
    return build.op("native_layer_norm", given, *leaves)


def lstm(steps=300):
    """An LSTM cell in a plain loop: four shared parameters, ``steps`` times twelve ops."""
    build = Builder()
    build.module = "net.cell"
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    leaves = {name: build.leaf(f"net.cell.{name}", (64, 16)) for name in names}
    hidden = memory = None
    for _ in range(steps):
        gates = build.op("addmm", leaves["bias_ih"], None, build.op("t", leaves["weight_ih"]))
        again = build.op("addmm", leaves["bias_hh"], hidden, build.op("t", leaves["weight_hh"]))
        split = build.op("unsafe_split", build.op("add", gates, again))
        i, f, o = (build.op("sigmoid", split) for _ in range(3))
        kept = build.op("mul", f, memory)
        memory = build.op("add", kept, build.op("mul", i, build.op("tanh", split)))
        hidden = build.op("mul", o, build.op("tanh", memory))
    build.module = ""
    build.op("mean", hidden, shape=())
    return build.graph()


def digits_cnn(*, broken=False):
    """The network of the mock-up: two convolutions, a probe behind a detach, ``softmax`` and ``log`` by hand."""
    build = Builder()
    build.module = "net"
    first = build.op("relu", build.conv("net.conv1", None, (32, 16, 6, 6)), shape=(32, 16, 6, 6))
    second = build.op("relu", build.conv("net.conv2", first, (32, 32, 4, 4)), shape=(32, 32, 4, 4))
    flat = build.op("view", build.op("view", second, shape=(32, 32, 16)), shape=(32, 512))
    probe = build.linear("net.probe", None, (32, 4))
    chances = build.op("softmax", build.linear("net.fc", flat, (32, 10)), shape=(32, 10))
    log = build.op("log", chances, shape=(32, 10))
    nll = build.op("nll_loss", log, shape=())
    build.op("add", nll, build.op("mse_loss", probe, shape=()), shape=())
    return _broken(build, log, chances) if broken else build.graph(_falling(len(build.nodes)))


def _falling(count):
    """Norms from 1 at the loss down to 1e-4 at the input."""
    return [10 ** (-4 * (count - 1 - at) / (count - 1)) for at in range(count)]


def _broken(build, log, chances):
    """``log`` of three zeros: its gradient is finite, what it sends on is not."""
    norms, bad = _falling(len(build.nodes)), {}
    start = next(node.index for node in build.nodes if node.variable == "net.probe.bias")
    for node in build.nodes[: chances + 1]:
        if node.index not in range(start, start + 4) and node.op != "mse_loss":
            norms[node.index] = math.nan
            bad[str(node.index)] = (3 if node.index == chances else math.prod(node.shapes[0]), 0)
    nonfinite = reports.FirstNonfinite(1, log, chances, 0, 3, 0, 320, 0.177, "self", 3)
    return build.graph(norms, bad, (nonfinite,))


def parameters_of(graph, passes=40):
    """Return a series for every leaf: falling, one decade over all passes, each leaf a little lower than the last."""
    found = []
    for place, node in enumerate(node for node in graph.nodes if node.kind == "accumulate"):
        logs = (-1 - 0.3 * place - at / passes + 0.08 * math.sin(at * 1.7 + place) for at in range(passes))
        found.append(series(node, norms=array("f", [10**log for log in logs]), touched=passes))
    return tuple(found)


def series(node, **facts):
    """Return a leaf's series of a parameter of ``net``."""
    given = {"name": node.variable, "shape": node.shapes[0], "dtype": "float32", "numel": math.prod(node.shapes[0])}
    given |= {"is_parameter": True, "requires_grad": True, "used": True, "owner": "net"}
    return reports.ParameterSeries(**given | facts)


def passes(count=40, graph=1):
    return tuple(reports.Pass(number, number, graph, "finished", 0.01, 13) for number in range(1, count + 1))


CELL = reports.Cell("<cell>", 5, ("loss.backward()",))


def report(graph=None, *, count=40, **changes):
    """Return a finished run of ``count`` passes through ``graph``; its frame is that of the last pass."""
    graph = digits_cnn() if graph is None else graph
    frames = tuple(replace(frame, pass_number=count) for frame in graph.frames)
    first_nonfinite = tuple(replace(nonfinite, pass_number=count) for nonfinite in graph.first_nonfinite)
    graph = replace(graph, frames=frames, first_nonfinite=first_nonfinite, passes_seen=count)
    given = {"title": "digits-cnn", "state": "finished", "cell": CELL, "seconds": 12.4, "own_seconds": 0.5}
    given |= {"graphs": (graph,), "passes": passes(count), "passes_seen": count, "steps_seen": count}
    given |= {"forward_nodes": len(graph.nodes), "parameters": parameters_of(graph, count)}
    return reports.TraceReport(**given | changes)


LINE = reports.Location("<cell>", 12, "logp = p.log()", 5)
BORN = reports.Finding(
    "TM402", "error", "the first NaN gradient is born in log: its input holds 3 zeros", LINE,
    {"zeros": 3}, "use logp = F.log_softmax(net.fc(h), 1): it never forms the zero, so 0 / 0 cannot occur", "log",
)  # fmt: skip


def broken():
    """The run of the mock-up: in pass 37 the logarithm of a zero."""
    whole = report(digits_cnn(broken=True), count=37, findings=(BORN,))
    ending = (array("f", [*each.norms[:-1], math.nan]) for each in whole.parameters)
    parameters = (
        each if "probe" in each.name else replace(each, norms=norms)
        for each, norms in zip(whole.parameters, ending, strict=True)
    )
    return replace(whole, parameters=tuple(parameters))


def one_pass():
    """A single ``loss.backward()``: bars instead of lines."""
    return report(count=1)


def empty():
    """A cell in which no backward ran."""
    return report(reports.Graph(1, (), ()), count=0, graphs=(), parameters=(), title="")


def failed():
    """A run that raised in its second step."""
    gap = reports.Gap("saved tensors", "the graph was freed before they were read")
    return report(count=2, state="failed", error="ValueError: expected 10 classes, got 11", gaps=(gap,))


def hostile():
    """Names that try to be markup."""
    build = Builder()
    weight = build.leaf(f"net.{HOSTILE}", (3,))
    build.op(HOSTILE, build.op("sin", weight, shape=(3,)), shape=(), kind="custom")
    findings = (replace(BORN, message=HOSTILE),)
    return report(build.graph(), title=HOSTILE, state="failed", error=HOSTILE, findings=findings)


def cuts():
    """The probe of the mock-up behind its ``detach``, a scale read by ``item``, a mask that chooses."""
    graph = digits_cnn()
    view, probe, mse = (next(n.index for n in graph.nodes if n.op == op and n.shapes == ((shape,)))
                        for op, shape in (("view", (32, 512)), ("addmm", (32, 4)), ("mse_loss", ())))  # fmt: skip
    lines = (
        reports.Location("<cell>", 10, "z = net.probe(h.detach())", 5),
        reports.Location("model.py", 3, "with torch.no_grad():"),
    )
    found = (
        reports.Cut(kind="detach", op="detach", location=0, line=10, source=view, source_name="view", source_location=0,
            target=probe, input_number=1, shape=(32, 512), dtype="float32", count=40),
        reports.Cut(kind="no_grad", op="no_grad", location=1, line=3, source_name="target.0", target=mse,
                    input_number=1,
            shape=(32, 4), dtype="float32", count=40),
        reports.Cut(kind="non-differentiable", op="gt", location=0, line=10, source=view, earlier=True, target=mse,
            selects=True, shape=(32,), dtype="bool"),
        reports.Cut(kind="item", op="item", location=0, line=10, source=len(graph.nodes) - 1, dtype="float",
                    count=12_000),
    )  # fmt: skip
    return report(replace(graph, cuts=found), locations=lines)


def forward():
    """The network of the mock-up with what its forward made: falling, one ReLU dead, an infinity from ``log``."""
    graph = digits_cnn()
    size = len(graph.nodes)
    dead = next(node.index for node in graph.nodes if node.op == "relu")
    log = next(node.index for node in graph.nodes if node.op == "log")
    norms, measures = array("f"), array("f")
    for node in graph.nodes:
        seen = node.op != "t"
        norms.append(10.0 - 9.0 * node.index / size if seen else reports.UNTOUCHED)
        share = 1.0 if node.index == dead else 0.5 if node.op == "relu" else 0.0
        measures.extend((2.0, -0.25, 0.125, share, 0.0, 0.0) if seen else (reports.UNTOUCHED,) * 6)
    norms[log] = math.inf
    values = reports.ForwardValues(norms, measures, {str(log): (0, 3)})
    frames = tuple(replace(frame, forward=values) for frame in graph.frames)
    return report(
        replace(graph, frames=frames, forward_nonfinite=reports.ForwardNonfinite(7, log, 0, 3, 320, given=False))
    )


def paced():
    """A run of 800 steps of which 41 were traced, as a budget allowed; its last step was not."""
    whole = report(count=41)
    numbers = [1 + 19 * at for at in range(41)]
    done = tuple(replace(one, number=at, step=at) for one, at in zip(whole.passes, numbers, strict=True))
    frames = tuple(replace(frame, pass_number=numbers[-1]) for frame in whole.graphs[0].frames)
    sampling = reports.StepSampling(
        reports.Schedule(budget=0.05), steps=41, passes=41, ranges=tuple((at, at) for at in numbers), cost=0.046,
        first_cost=0.012, after_finding=3, last_traced=False, last_norms=array("f", [0.3] * len(whole.parameters)),
    )  # fmt: skip
    graphs = (replace(whole.graphs[0], frames=frames),)
    return replace(whole, graphs=graphs, passes=done, passes_seen=800, steps_seen=800, sampling=sampling)


def untouched():
    """A branch that no gradient reached, and a parameter without one."""
    whole = report()
    frame = whole.graphs[0].frames[0]
    norms = array("f", [reports.UNTOUCHED if at in range(2, 8) else norm for at, norm in enumerate(frame.norms)])
    graph = replace(whole.graphs[0], frames=(replace(frame, norms=norms),))
    none = array("f", [reports.UNTOUCHED] * 40)
    silent = replace(whole.parameters[-1], norms=none, touched=0)
    return replace(whole, graphs=(graph,), parameters=(*whole.parameters[:-1], silent))
