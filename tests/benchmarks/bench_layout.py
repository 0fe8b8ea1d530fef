"""A graph of 2,000 nodes: laid out, drawn, saved. Run by ``make bench``."""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn

import tensormagic as tm
from tensormagic import views
from tensormagic.views.graph.drawing import draw
from tensormagic.views.page.document import trace_document

pytestmark = pytest.mark.benchmark


@pytest.fixture(scope="module")
def report():
    """A traced run of a transformer with about two thousand autograd nodes, three steps."""
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    net = nn.TransformerEncoder(layer, 36, enable_nested_tensor=False)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            net(torch.randn(2, 8, 32)).square().mean().backward()
    return trace.report


def test_layout_and_document(report):
    """Folding, layout and document take well under the two seconds that drawing may take in all."""
    nodes = len(report.nodes)
    began = time.perf_counter()
    drawing = draw(report.graphs[0])
    laid_out = time.perf_counter()
    trace_document(report)
    ended = time.perf_counter()
    print(f"\n    {nodes} nodes in {len(drawing.boxes)} boxes: layout {1000 * (laid_out - began):.0f} ms, "
          f"document {1000 * (ended - laid_out):.0f} ms")  # fmt: skip
    assert nodes >= 1900
    assert ended - began < 2


def test_saved_size(report):
    """The output that stays in the notebook is under 300 KB."""
    size = len(views.render(report, "html").encode())
    print(f"\n    saved output: {size / 1000:.0f} KB")
    assert size < 300_000
