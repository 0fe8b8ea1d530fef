"""The honesty suite: under any cell magic, the run is the user's own, bit for bit.

Every cell magic is a line in `CELL_MAGICS` and goes through all of it.
"""

from __future__ import annotations

import gc
import io
import random
import re
import sys
import traceback
import weakref

import numpy as np
import pytest
import torch
from IPython.core.error import UsageError
from torch import nn

import tensormagic as tm
from tensormagic.collectors.where.source import function_of_code
from tensormagic.magics.cell import CellSyntaxError
from tests.support.shell import KERNEL

SYNTAX_ERROR_LINES = 5
CELL_MAGICS = [
    "%%tracegrad", "%%tracegrad --text", "%%tracegrad --live html", "%%tracegrad --live widget",
    "%%tracegrad --every 2", "%%tracegrad --budget 5% --level ops",
    "%%aliases", "%%aliases --text", "%%gpumem", "%%gpumem --text",
    "%%gpumem --func nn.Module.train --func nn.Linear", "%%rng", "%%rng --text",
]  # fmt: skip

TRAIN = """
torch.manual_seed(3)
net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(144, 3))
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
for step in range(4):
    out = net(torch.randn(5, 1, 8, 8))
    loss = F.cross_entropy(out, torch.tensor([0, 1, 2, 0, 1]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
after = torch.rand(3)
"""


@pytest.fixture(params=CELL_MAGICS)
def magic(request, shell, monkeypatch):
    """A cell magic on a shell whose front end can show widgets; cells run through ``run``."""
    monkeypatch.setattr(type(shell), "kernel", KERNEL, raising=False)
    random.seed(0)  # how an unknown state came about is looked for, which takes %%rng half a second each time
    np.random.seed(0)
    run_quietly(shell, "import torch; from torch import nn; import torch.nn.functional as F")
    return request.param


def run_quietly(shell, source):
    """Run a cell as a front end does: stored in history, output captured."""
    out = io.StringIO()
    old, sys.stdout = sys.stdout, out
    try:
        result = shell.run_cell(source, store_history=True)
    finally:
        sys.stdout = old
    return result, out.getvalue()


def run(shell, magic, body):
    result, _ = run_quietly(shell, f"{magic}\n{body}")
    return result


def state_of(shell):
    namespace = shell.user_ns
    net = namespace["net"]
    tensors = [*net.state_dict().values(), *(p.grad for p in net.parameters()), namespace["out"], namespace["after"]]
    return (
        [tensor.detach().clone() for tensor in tensors],
        [tensor._version for tensor in tensors],
        torch.get_rng_state(),
    )


def test_results_are_bit_identical(shell, magic):
    """Parameters, BatchNorm buffers, gradients, outputs, version counters and the RNG are those of the plain run."""
    assert run_quietly(shell, TRAIN)[0].success
    plain, versions, rng = state_of(shell)
    assert run(shell, magic, TRAIN).success
    traced, traced_versions, traced_rng = state_of(shell)
    assert all(torch.equal(a, b) for a, b in zip(plain, traced, strict=True))
    assert versions == traced_versions
    assert torch.equal(rng, traced_rng)


@pytest.mark.parametrize(
    ("body", "kind", "line"),
    [
        ("a = 1\nb = 2\nraise KeyError('lost')", KeyError, 4),
        ("x = torch.ones(2, requires_grad=True)\n\n(x * 2).backward()", RuntimeError, 4),
        ("\n\nx = torch.ones(2, 3)\ny = x @ x", RuntimeError, 5),
    ],
)
def test_a_failing_cell_fails_with_its_own_error_and_line(shell, magic, body, kind, line):
    """The cell counts as failed, raises what it raised, without a frame of ours below it, from its own line.

    The line is that of the notebook's margin, where the magic stands on line 1 and blank lines count.
    """
    result = run(shell, magic, body)
    assert not result.success
    assert isinstance(result.error_in_exec, kind)
    frames = traceback.extract_tb(result.error_in_exec.__traceback__)
    own = [at for at, frame in enumerate(frames) if not function_of_code(frame.name)][-1]
    assert frames[own].lineno == line
    assert not [frame for frame in frames[own:] if "tensormagic" in frame.filename]


@pytest.mark.parametrize("body", ["x = torch.ones(2, requires_grad=True)\n(x * 2).backward()", "F.relu('text')"])
def test_the_traceback_is_that_of_the_plain_run(shell, magic, body):
    """From the cell's own frame on, the traceback has the same functions and lines as without the magic."""

    def tail(result):
        frames = traceback.extract_tb(result.error_in_exec.__traceback__)
        own = [at for at, frame in enumerate(frames) if not function_of_code(frame.name)][-1]
        return [
            (frame.filename if at else "cell", frame.lineno, function_of_code(frame.name))
            for at, frame in enumerate(frames[own:])
        ]

    plain = tail(run_quietly(shell, f"# the magic's line\n{body}")[0])
    assert tail(run(shell, magic, body)) == plain


def test_the_namespace_changes_only_by_what_the_cell_binds(shell, magic):
    """No helper names are added, none are taken away."""
    run_quietly(shell, "kept = 1; gone = 2")
    before = {name for name in shell.user_ns if not name.startswith("_")}
    run(shell, magic, "new = kept + 1\ndel gone")
    after = {name for name in shell.user_ns if not name.startswith("_")}
    assert after - before == {"new"}
    assert before - after == {"gone"}


def test_strings_arrive_intact(shell, magic):
    """Multi-line strings, tabs, backslashes and percent signs in the cell are what was typed."""
    body = 'text = """one\n    two\n\t%three\n\\n !four"""\nother = "a%b"'
    run(shell, magic, body)
    assert shell.user_ns["text"] == "one\n    two\n\t%three\n\n !four"
    assert shell.user_ns["other"] == "a%b"


def test_magics_and_shell_lines_inside_the_cell_work(shell, magic):
    """A line magic inside the cell runs as it would outside."""
    result = run(shell, magic, "%precision 3\nvalue = 1")
    assert result.success
    assert shell.user_ns["value"] == 1


def test_out_and_underscore(shell, magic):
    """The last expression becomes Out[n] and _; a statement, or a semicolon, leaves both alone."""
    count = shell.execution_count
    result = run(shell, magic, "6 * 7")
    assert result.result == 42
    assert shell.user_ns["Out"][count] == 42
    assert shell.user_ns["_"] == 42
    assert run(shell, magic, "nothing = 1").result is None
    assert run(shell, magic, "13;").result is None
    assert shell.user_ns["_"] == 42


def test_lines_carry_the_number_beside_the_cell(shell, magic):
    """The report calls a cell what the notebook calls it: In [n]; also a cell that only defined a function."""
    defined, number = shell.execution_count, shell.execution_count + 1
    run_quietly(shell, "def model(x):\n    return x.sin().mul_(2).sum()")
    if magic.startswith("%%rng") or "--text" in magic:
        pytest.skip("the report itself is looked at")
    gc.collect()  # what earlier cells left is freed now, and not on a line of this run
    run(shell, f"{magic} --into report", "x = torch.ones(2, requires_grad=True)\nmodel(x).backward(); x.data.mul_(2)")
    report = shell.user_ns["report"]
    where, called = lines_of(report)
    assert (where.cell, where.line, where.text) == (defined, 2, "return x.sin().mul_(2).sum()")
    assert (called.cell, called.line, report.cell.count) == (number, 3, number)
    assert report.cell.lines[0].startswith(magic.partition(" ")[0])
    assert report.cell.lines[called.line - 1] == called.text == "model(x).backward(); x.data.mul_(2)"


def lines_of(report):
    """Return the line of the function that the cell called, and the cell's own, as the report has them."""
    if isinstance(report, tm.WritesReport):
        return tuple(write.location for write in report.writes)
    if isinstance(report, tm.MemoryRunReport):
        return tuple(sorted((line.location for line in report.lines), key=lambda location: location.line)[::2])
    found = next(node for node in report.nodes if node.op == "sin")
    return report.locations[found.location], report.locations[report.passes[0].location]


def test_interactivity_all_shows_every_expression(shell, magic):
    """With ast_node_interactivity = "all", every expression shows itself, as IPython would."""
    shell.ast_node_interactivity = "all"
    try:
        _, text = run_quietly(shell, f"{magic}\n'first'\n'second'")
    finally:
        shell.ast_node_interactivity = "last_expr"
    assert "first" in text
    assert "second" in text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("b = = 2", "SyntaxError: invalid syntax"),
        ("  b = 2", "IndentationError: unexpected indent"),
        ("return 5", "SyntaxError: 'return' outside function"),  # only the compiler sees these
        ("(yield 5)", "SyntaxError: 'yield' outside function"),
        ("break", "SyntaxError: 'break' outside loop"),
    ],
)
def test_a_syntax_error_is_the_cells_own(shell, magic, line, message):
    """A cell that is not Python fails with its own error, shown without a frame of IPython's or ours."""
    error = run(shell, magic, f"a = 1\n{line}").error_in_exec
    assert isinstance(error, CellSyntaxError)
    assert error.lineno == 3
    described = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error._render_traceback_()))
    assert line in described
    assert message in described
    assert type(error).__name__ == message.partition(":")[0]
    assert "tensormagic" not in described
    assert len(described.strip().splitlines()) <= SYNTAX_ERROR_LINES


def test_top_level_await_is_refused_clearly(shell, magic):
    """What cannot be run is refused before anything ran, saying what would work."""
    result = run(shell, magic, "ran = True\nimport asyncio\nawait asyncio.sleep(0)")
    assert isinstance(result.error_in_exec, UsageError)
    assert "async def" in str(result.error_in_exec)
    assert "ran" not in shell.user_ns


INTERRUPTED = """
class Interrupt(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, gradient):
        raise KeyboardInterrupt
x = torch.ones(3, requires_grad=True)
y = (Interrupt.apply(x * 2) * 3).sum()
y.backward()
"""


def test_an_interrupt_in_backward_leaves_nothing_behind(shell, magic):
    """The interrupt comes through, no hook stays on any node, and backward works again afterwards."""
    result = run(shell, magic, INTERRUPTED)
    assert isinstance(result.error_in_exec, KeyboardInterrupt)
    shell.run_cell("z = (x * 2).sum(); z.backward()")
    assert shell.user_ns["x"].grad.tolist() == [2, 2, 2]


def test_no_tensor_and_no_graph_is_kept_alive(shell, magic):
    """Once the user's names are gone, so are the tensors and the autograd nodes of the traced cell."""
    run(shell, magic, TRAIN)
    namespace = shell.user_ns
    watched = [weakref.ref(namespace[name]) for name in ("out", "loss", "net", "after")]
    watched += [weakref.ref(parameter) for parameter in namespace["net"].parameters()]
    for name in ("out", "loss", "net", "after", "optimizer"):
        del namespace[name]
    gc.collect()
    assert [reference() for reference in watched if reference() is not None] == []


def test_the_same_cell_twice(shell, magic):
    """Running the same cell again works and gives the same result."""
    assert run(shell, magic, TRAIN).success
    first = shell.user_ns["after"].clone()
    assert run(shell, magic, TRAIN).success
    assert torch.equal(first, shell.user_ns["after"])


def test_reload(shell, magic):
    """Unload and load again: the magic works, and works once."""
    shell.extension_manager.unload_extension("tensormagic")
    assert magic.partition(" ")[0].lstrip("%") not in shell.magics_manager.magics["cell"]
    shell.extension_manager.load_extension("tensormagic")
    assert run(shell, magic, "6 * 7").result == 42


def test_fused_inference_path_is_not_left(shell, magic):
    """nn.TransformerEncoder in eval mode gives the same bits as without the magic: its fast path stays on."""
    body = (
        "torch.manual_seed(0)\n"
        "encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2).eval()\n"
        "with torch.no_grad():\n    out = encoder(torch.randn(2, 5, 16))"
    )
    run_quietly(shell, body)
    plain = shell.user_ns["out"].clone()
    run(shell, magic, body)
    assert torch.equal(plain, shell.user_ns["out"])


def test_the_person_s_own_hooks_and_modes_still_work(shell, magic):
    """Tensor hooks, node hooks and anomaly mode of the user's own do what they do without the magic."""
    body = (
        "seen = []\n"
        "x = torch.ones(3, requires_grad=True)\n"
        "h = x * 2\n"
        "h.register_hook(lambda gradient: gradient * 10)\n"
        "h.grad_fn.register_prehook(lambda gradients: seen.append('pre'))\n"
        "with torch.autograd.set_detect_anomaly(True):\n    (h * 3).sum().backward()"
    )
    assert run(shell, magic, body).success
    assert shell.user_ns["x"].grad.tolist() == [60, 60, 60]
    assert shell.user_ns["seen"] == ["pre"]


WARNINGS = """
import warnings
x = torch.ones(2, requires_grad=True)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter(ACTION)
    for _ in range(3):
        torch.tensor(x)
        F.softmax(x * 2)
    torch.tensor(x)
seen = [(w.filename == __import__("sys")._getframe().f_code.co_filename, w.lineno, str(w.message)[:20]) for w in caught]
"""


@pytest.mark.parametrize("action", ["always", "default"])
def test_warnings_point_at_the_person_s_line_and_come_as_often(shell, magic, action):
    """What torch warns about is attributed to the same line, once for each, as without the magic."""
    shell.user_ns["ACTION"] = action
    assert run_quietly(shell, f"# the magic's line\n{WARNINGS}")[0].success
    plain = shell.user_ns["seen"]
    assert run(shell, magic, WARNINGS).success
    assert shell.user_ns["seen"] == plain
    assert len(plain) == {"always": 7, "default": 3}[action]
    assert all(own for own, _, _ in plain)


def test_backward_hooks_of_modules_that_work_in_place_still_work(shell, magic):
    """A model with in-place ReLU and a residual trains: nothing of ours inserts nodes."""
    body = (
        "net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 1))\n"
        "x = torch.randn(2, 4)\nout = net(x)\nout += 1\nout.sum().backward()"
    )
    assert run(shell, magic, body).success
    assert all(isinstance(parameter.grad, torch.Tensor) for parameter in shell.user_ns["net"].parameters())
    assert isinstance(shell.user_ns["net"], nn.Module)
