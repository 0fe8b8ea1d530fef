"""The cells of a page of the documentation run in its order in one notebook; those of the README in an empty one."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

import tensormagic
from tests.support.kernel import ROOT

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
USAGE = re.compile(r"^%\S+ .*(\[--|\[help|RUN RUN)")  # the line at the head of a magic's page
EMPTY = ("README.md", "quick_start.md")  # an empty notebook is enough for the cells of these
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]


def cells(path) -> list[str]:
    """Return what a page says to type into a notebook."""
    found = FENCE.findall(path.read_text(encoding="utf-8"))
    languages = {"", "python"} if path.name == "README.md" else {""}
    blocks = [text for language, text in found if language in languages and not USAGE.match(text)]
    typed = [cell for text in blocks for cell in re.split(r"\n\n(?=%)", text)]  # a block may show several cells
    return [text for text in typed if path.name == "README.md" or re.search(r"^%", text, re.MULTILINE)]


class Net(nn.Module):
    """A model with a layer ``fc``, for images of 8 × 8."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(64, 10)

    def forward(self, images):
        return self.fc(images.flatten(1))


class Scale(torch.autograd.Function):
    """A Function of a user's."""

    @staticmethod
    def forward(ctx, x, factor=2.0):
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.factor, None


def train(model, batches):
    """Train for an epoch, as a user's function would."""
    for images, digits in batches:
        nn.functional.cross_entropy(model(images), digits).backward()


def traced(rate) -> tensormagic.TraceReport:
    """Return the report of two steps."""
    w = torch.ones(3, requires_grad=True)
    with tensormagic.trace() as trace:
        for _ in range(2):
            (w * w * rate).sum().backward()
    return trace.report


@pytest.fixture
def names(tmp_path, monkeypatch):
    """Return what the pages take for granted: a model, its data and optimizer, some tensors, two traced runs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "last week").mkdir()
    traced(2.0).save("last week/fast.json")
    net, batches = Net(), [(torch.rand(16, 1, 8, 8), torch.randint(10, (16,))) for _ in range(4)]
    a = torch.rand(4, 6)
    return {
        "torch": torch, "Scale": Scale, "Double": Scale,
        "net": net, "model": net, "train": train, "batches": batches, "loader": batches,
        "loss_function": nn.functional.cross_entropy, "loss_fn": nn.functional.cross_entropy,
        "optimizer": torch.optim.Adam(net.parameters()), "images": batches[0][0], "digits": batches[0][1], "losses": [],
        "a": a, "row": a[0], "x": a, "scores": torch.rand(8, 8, 8), "slow": traced(1.0), "fast": traced(2.0),
    }  # fmt: skip


@pytest.mark.parametrize("path", [path for path in PAGES if cells(path)], ids=lambda path: path.stem)
def test_the_cells_of_a_page_run(path, shell, cell, names, monkeypatch):
    """None of them fails."""
    monkeypatch.setattr("plotly.graph_objects.Figure.show", lambda _figure: None)  # would open a browser
    if path.name in EMPTY:
        for name in ("torch", "nn", "a", "b", "x", "net"):
            del shell.user_ns[name]
    else:
        shell.user_ns.update(names)
    if path.stem == "tensor":
        shell.user_ns["images"] = torch.rand(2, 3, 32, 32)
    for source in cells(path):
        ran = cell(source)
        assert ran.error is None, source
        assert "UsageError" not in ran.err, source + ran.err


def test_the_quoted_verdict_is_what_is_shown(shell, cell, names):
    """The answer that is on the page of `%tensor`, word for word."""
    text = (ROOT / "docs" / "magics" / "tensor.md").read_text(encoding="utf-8")
    (quoted,) = re.findall(r"^```\n(COPY .*?)^```$", text, re.MULTILINE | re.DOTALL)
    shell.user_ns.update(names, x=torch.arange(12.0).reshape(3, 4))
    shown = cell("%tensor x.t().contiguous().view(-1) --text").out
    assert quoted.splitlines() == [line for line in shown.splitlines() if line in quoted.splitlines()]
