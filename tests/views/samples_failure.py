"""Hand-made reports of refused calls: each kind of clash, nothing known, everything at its longest, hostile text."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tensormagic import reports
from tests.reports.samples import failure_report
from tests.views import samples_trace
from tests.views.samples_memory import small

LINE = reports.Location("model.py", 18, "x = self.fc1(x.flatten(1))", 5, "forward")
CALLER = reports.Location("model.py", 31, "loss = F.cross_entropy(net(images), labels)", 5)


def tensor(name, role, shape, **more):
    """Return a contiguous float32 tensor as an operand."""
    stride = tuple(prod(shape[at + 1 :]) for at in range(len(shape)))
    return reports.Operand(name=name, role=role, shape=shape, stride=stride,
                   **{"dtype": "float32", "device": "cpu", "layout": "strided", **more})  # fmt: skip


def linear() -> reports.FailureReport:
    """A layer that is too narrow for what it gets: the commonest of all."""
    rule = "The last dimension of the result of `x.flatten(1)` is 5408, but net.fc1 takes 784 (in_features)."
    return reports.FailureReport(
        findings=(reports.Finding("TM804", "error", rule, location=LINE,
                          remedy="Make the layer as wide as what it gets: `nn.Linear(5408, 64)`."),),
        error_type="RuntimeError",
        error="mat1 and mat2 shapes cannot be multiplied (32x5408 and 784x64)",
        function="torch.nn.functional.linear",
        location=LINE,
        way=(CALLER, LINE),
        module="net.fc1",
        operands=(
            tensor("the result of `x.flatten(1)`", "input", (32, 5408), requires_grad=True, is_leaf=False,
                   location=reports.Location("model.py", 17, "x = F.relu(self.conv(x))", 5)),
            tensor("net.fc1.weight", "weight", (64, 784), requires_grad=True),
            tensor("net.fc1.bias", "bias", (64,), requires_grad=True),
        ),
        mismatch=reports.Mismatch("shape", rule,
                                  (reports.Clashing(0, 1, "5408", "784"), reports.Clashing(1, 1, "784", "5408")),
                          ("nn.Linear(5408, 64)",)),
        call="self.fc1(x.flatten(1))",
    )  # fmt: skip


def _clash(
    kind: str, *operands: reports.Operand, parts: tuple[reports.Clashing, ...], **more: object
) -> reports.FailureReport:
    return reports.FailureReport(
        error_type="RuntimeError", error="does not fit", function="Tensor.add", location=CALLER, way=(CALLER,),
        operands=operands, call="net(images)",
        mismatch=reports.Mismatch(kind, "Both must be the same.", parts, ("a + b.float()", "a.double() + b")), **more,
    )  # fmt: skip


def dtypes() -> reports.FailureReport:
    """Numbers of two kinds."""
    return _clash("dtype", tensor("a", "input", (3, 4)), tensor("b", "other", (3, 4), dtype="float64"),
                  parts=(reports.Clashing(1, None, "float64", "float32"),))  # fmt: skip


def devices() -> reports.FailureReport:
    """Tensors in two places."""
    return _clash("device", tensor("a", "input", (3, 4)), tensor("b", "other", (3, 4), device="cuda:0"),
                  parts=(reports.Clashing(0, None, "cpu", "cuda:0"),
                         reports.Clashing(1, None, "cuda:0", "cpu")))  # fmt: skip


def view() -> reports.FailureReport:
    """A view that the strides do not allow."""
    source = reports.Operand(
        name="x", role="self", shape=(4, 3), dtype="float32", device="cpu", stride=(1, 4), layout="strided"
    )
    return _clash(
        "view", source, reports.Operand(role="shape", is_tensor=False, text="(12,)"), parts=(reports.Clashing(0),)
    )


def argument() -> reports.FailureReport:
    """Something that is no tensor does not fit."""
    sizes = reports.Operand(role="shape", is_tensor=False, text="(5, 5)")
    return _clash("argument", tensor("x", "self", (4, 3)), sizes, parts=(reports.Clashing(1, None, "25", "12"),))


def unknown() -> reports.FailureReport:
    """Neither function nor operands are known: the line is, and what torch said."""
    return reports.FailureReport(error_type="RuntimeError", error="no idea", location=LINE, way=(LINE,), exact=False,
                         call="self.fc1(x.flatten(1))")  # fmt: skip


def bare() -> reports.FailureReport:
    """Nothing is known but the exception."""
    return reports.FailureReport(
        error_type="RuntimeError", error="", exact=False, gaps=(reports.Gap("call", "no traceback"),)
    )


def afterwards() -> reports.FailureReport:
    """Read from the line alone: an intermediate value is gone, and said to be."""
    return reports.FailureReport(
        error_type="RuntimeError", error="mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)",
        function="Tensor.matmul", location=CALLER, way=(CALLER,) * 9, exact=False, call="net(images)",
        operands=(reports.Operand(name="the result of `a + 1`", role="input", is_tensor=False),
                  tensor("b", "other", (4, 5))),
        gaps=(reports.Gap("operands", "not kept by Python after the error: the result of `a + 1`"),),
    )  # fmt: skip


def backward() -> reports.FailureReport:
    """Backward met a tensor that was changed."""
    saved = reports.Location("train.py", 3, "y = x.exp()")
    changed = reports.Location("train.py", 4, "y.add_(1)")
    called = reports.Location("train.py", 5, "y.sum().backward()")
    return reports.FailureReport(
        findings=(reports.Finding("TM301", "error", "y was changed in place after exp saved it.", location=changed,
                          remedy="Write `y = y + 1`.", related=(reports.RelatedLine("saved by exp", saved),)),),
        error_type="RuntimeError",
        error="one of the variables needed for gradient computation has been modified by an inplace operation",
        function="Tensor.backward", phase="backward", location=called, way=(called,), call="y.sum().backward()",
        operands=(tensor("the result of `y.sum()`", "self", ()),), node=(0, 1),
    )  # fmt: skip


def inside() -> reports.FailureReport:
    """A call that torch made inside a function of its own."""
    return reports.FailureReport(
        error_type="RuntimeError", error="mat1 and mat2", function="torch.nn.functional.linear", location=CALLER,
        way=(CALLER,), inside="torch.nn.functional.multi_head_attention_forward", call="net(images)", module="net.attn",
        operands=(tensor("", "input", (7,)), tensor("net.attn.in_proj_weight", "weight", (12, 4))),
    )  # fmt: skip


def recorded() -> reports.FailureReport:
    """The same, with what autograd had recorded."""
    nodes = (
        reports.Node(
            0, "AccumulateGrad", "accumulate", "accumulate", variable="net.conv.weight", shapes=((8, 1, 3, 3),)
        ),
        reports.Node(1, "ConvolutionBackward0", "convolution", "op", module="net.conv", shapes=((32, 8, 26, 26),)),
        reports.Node(2, "ReluBackward0", "relu", "op", module="net", shapes=((32, 8, 26, 26),)),
        reports.Node(3, "AccumulateGrad", "accumulate", "accumulate", variable="net.fc1.weight", shapes=((64, 784),)),
        reports.Node(4, "linear", "linear", "custom"),
    )
    edges = (reports.Edge(1, 0, 1, 0), reports.Edge(2, 1, 0, 0), reports.Edge(4, 2, 0, 0), reports.Edge(4, 3, 1, 0))
    return replace(linear(), graph=reports.Graph(number=1, nodes=nodes, edges=edges, roots=(4,)))


def refused_run() -> reports.TraceReport:
    """A traced cell whose forward torch refused, before any backward."""
    failure = recorded()
    return replace(
        samples_trace.one_pass(), state="failed", error=f"{failure.error_type}: {failure.error}", failure=failure,
        findings=failure.findings, graphs=(), passes=(), passes_seen=0, parameters=(), steps_seen=0,
    )  # fmt: skip


def out_of_memory() -> reports.FailureReport:
    """A GPU whose reserve would have been enough, were it in one piece; what was alive then."""
    place = reports.Location("model.py", 18, "scores = q @ k.transpose(-2, -1)", 5, "attend")
    ran_out = reports.OutOfMemory(
        "cuda:0", 2 * 2**30, "Tensor.matmul", place, "CUDA out of memory.", 310 * 2**20, 24 * 2**30, 19 * 2**30,
        3 * 2**30, 5 * 2**30,
    )  # fmt: skip
    return reports.FailureReport(
        error_type="OutOfMemoryError",
        error="CUDA out of memory. Tried to allocate 2.00 GiB.",
        function="Tensor.matmul",
        location=place,
        way=(CALLER, place),
        out_of_memory=ran_out,
        memory=small(),
    )


SAMPLES = {
    make.__name__: make()
    for make in (
        linear, dtypes, devices, view, argument, unknown, bare, afterwards, backward, inside, recorded, out_of_memory,
    )
} | {"hostile": failure_report()}  # fmt: skip
