"""Hand-made reports of refused calls: each kind of clash, nothing known, everything at its longest, hostile text."""

from __future__ import annotations

from dataclasses import replace

from tensormagic.reports import (
    Clashing,
    Edge,
    FailureReport,
    Finding,
    Gap,
    Graph,
    Location,
    Mismatch,
    Node,
    Operand,
    OutOfMemory,
    RelatedLine,
    TraceReport,
)
from tensormagic.reports.storage import contiguous_stride
from tests.reports.samples import failure_report
from tests.views import samples_trace
from tests.views.samples_memory import small

LINE = Location("model.py", 18, "x = self.fc1(x.flatten(1))", 5, "forward")
CALLER = Location("model.py", 31, "loss = F.cross_entropy(net(images), labels)", 5)
SCORES = Location("model.py", 18, "scores = q @ k.transpose(-2, -1)", 5, "attend")
RULE = "The last dimension of the result of `x.flatten(1)` is 5408, but net.fc1 takes 784 (in_features)."


def tensor(name: str, role: str, shape: tuple[int, ...], **more) -> Operand:
    """Return a contiguous float32 tensor as an operand."""
    known = {"dtype": "float32", "device": "cpu", "layout": "strided", "stride": contiguous_stride(shape), **more}
    return Operand(name=name, role=role, shape=shape, **known)


def refused(error: str, location: Location = CALLER, **facts) -> FailureReport:
    """Return a call on that line that raised a RuntimeError."""
    known = {"error_type": "RuntimeError", "stack": (location,), "call": "net(images)", **facts}
    return FailureReport(error=error, location=location, **known)


def clash(kind: str, *operands: Operand, parts: tuple[Clashing, ...]) -> FailureReport:
    """Return a call whose operands do not fit together."""
    rule = Mismatch(kind, "Both must be the same.", parts, ("a + b.float()", "a.double() + b"))
    return refused("does not fit", function="Tensor.add", operands=operands, mismatch=rule)


def argument(text: str) -> Operand:
    """Return a shape, which is no tensor."""
    return Operand(role="shape", is_tensor=False, text=text)


def backward() -> FailureReport:
    """Backward met a tensor that was changed."""
    return refused(
        "one of the variables needed for gradient computation has been modified by an inplace operation",
        Location("train.py", 5, "y.sum().backward()"),
        findings=(Finding(
            "TM301", "error", "y was changed in place after exp saved it.", Location("train.py", 4, "y.add_(1)"),
            remedy="Write `y = y + 1`.", related=(RelatedLine("saved by exp", Location("train.py", 3, "y = x.exp()")),),
        ),),
        function="Tensor.backward", phase="backward", call="y.sum().backward()",
        operands=(tensor("the result of `y.sum()`", "self", ()),), node=(0, 1),
    )  # fmt: skip


# A layer that is too narrow for what it gets: the commonest of all.
LINEAR = refused(
    "mat1 and mat2 shapes cannot be multiplied (32x5408 and 784x64)", LINE, stack=(CALLER, LINE),
    findings=(Finding("TM804", "error", RULE, LINE,
                      remedy="Make the layer as wide as what it gets: `nn.Linear(5408, 64)`."),),
    function="torch.nn.functional.linear", module="net.fc1", call="self.fc1(x.flatten(1))",
    operands=(
        tensor("the result of `x.flatten(1)`", "input", (32, 5408), requires_grad=True, is_leaf=False,
               location=Location("model.py", 17, "x = F.relu(self.conv(x))", 5)),
        tensor("net.fc1.weight", "weight", (64, 784), requires_grad=True),
        tensor("net.fc1.bias", "bias", (64,), requires_grad=True),
    ),
    mismatch=Mismatch("shape", RULE, (Clashing(0, 1, "5408", "784"), Clashing(1, 1, "784", "5408")),
                      ("nn.Linear(5408, 64)",)),
)  # fmt: skip
# The same, with what autograd had recorded.
RECORDED = replace(LINEAR, graph=Graph(
    number=1,
    nodes=(
        Node(0, "AccumulateGrad", "accumulate", "accumulate", variable="net.conv.weight", shapes=((8, 1, 3, 3),)),
        Node(1, "ConvolutionBackward0", "convolution", "op", module="net.conv", shapes=((32, 8, 26, 26),)),
        Node(2, "ReluBackward0", "relu", "op", module="net", shapes=((32, 8, 26, 26),)),
        Node(3, "AccumulateGrad", "accumulate", "accumulate", variable="net.fc1.weight", shapes=((64, 784),)),
        Node(4, "linear", "linear", "custom"),
    ),
    edges=(Edge(1, 0, 1, 0), Edge(2, 1, 0, 0), Edge(4, 2, 0, 0), Edge(4, 3, 1, 0)),
    roots=(4,),
))  # fmt: skip


def refused_run() -> TraceReport:
    """A traced cell whose forward torch refused, before any backward."""
    return replace(
        samples_trace.one_pass(), state="failed", error=f"RuntimeError: {RECORDED.error}", failure=RECORDED,
        findings=RECORDED.findings, graphs=(), passes=(), passes_seen=0, parameters=(), steps_seen=0,
    )  # fmt: skip


A, B = tensor("a", "input", (3, 4)), tensor("b", "other", (3, 4))
SAMPLES = {
    "linear": LINEAR,
    "dtypes": clash("dtype", A, replace(B, dtype="float64"), parts=(Clashing(1, None, "float64", "float32"),)),
    "devices": clash("device", A, replace(B, device="cuda:0"),
                     parts=(Clashing(0, None, "cpu", "cuda:0"), Clashing(1, None, "cuda:0", "cpu"))),
    # A view that the strides do not allow, and an argument that is no tensor and does not fit.
    "view": clash("view", replace(tensor("x", "self", (4, 3)), stride=(1, 4)), argument("(12,)"),
                  parts=(Clashing(0),)),
    "argument": clash("argument", tensor("x", "self", (4, 3)), argument("(5, 5)"),
                      parts=(Clashing(1, None, "25", "12"),)),
    # Neither function nor operands are known: the line is, and what torch said; then nothing but the exception.
    "unknown": refused("no idea", LINE, exact=False, call="self.fc1(x.flatten(1))"),
    "bare": FailureReport(error_type="RuntimeError", error="", exact=False, gaps=(Gap("call", "no traceback"),)),
    # Read from the line alone: an intermediate value is gone, and said to be.
    "afterwards": refused(
        "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)", function="Tensor.matmul", stack=(CALLER,) * 9,
        exact=False, operands=(Operand(name="the result of `a + 1`", role="input", is_tensor=False),
                               tensor("b", "other", (4, 5))),
        gaps=(Gap("operands", "not kept by Python after the error: the result of `a + 1`"),),
    ),
    "backward": backward(),
    # A call that torch made inside a function of its own.
    "inside": refused(
        "mat1 and mat2", function="torch.nn.functional.linear", module="net.attn",
        inside="torch.nn.functional.multi_head_attention_forward",
        operands=(tensor("", "input", (7,)), tensor("net.attn.in_proj_weight", "weight", (12, 4))),
    ),
    "recorded": RECORDED,
    # A GPU whose reserve would have been enough, were it in one piece; what was alive then.
    "out_of_memory": FailureReport(
        error_type="OutOfMemoryError", error="CUDA out of memory. Tried to allocate 2.00 GiB.",
        function="Tensor.matmul", location=SCORES, stack=(CALLER, SCORES), memory=small(),
        out_of_memory=OutOfMemory(
            "cuda:0", 2 * 2**30, "Tensor.matmul", SCORES, "CUDA out of memory.", 310 * 2**20, 24 * 2**30, 19 * 2**30,
            3 * 2**30, 5 * 2**30,
        ),
    ),
    "hostile": failure_report(),
}  # fmt: skip
