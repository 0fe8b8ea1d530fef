"""What is read off a node once."""

from __future__ import annotations

import pytest
import torch

from tensormagic.collectors.graphs.nodes import op_name, saved_tensors


@pytest.mark.parametrize(
    ("node", "op"),
    [
        ("AddmmBackward0", "addmm"),
        ("NativeLayerNormBackward0", "native_layer_norm"),
        ("MaxPool2DWithIndicesBackward0", "max_pool2d_with_indices"),
        ("UpsampleNearest2DBackward0", "upsample_nearest2d"),
        ("LogSoftmaxBackward0", "log_softmax"),
        ("TBackward0", "t"),
        ("ScaledDotProductFlashAttentionForCpuBackward0", "scaled_dot_product_flash_attention_for_cpu"),
        ("NllLossBackward0", "nll_loss"),
        ("CopySlices", "CopySlices"),
        ("MyReLUBackward", "MyReLU"),
    ],
)
def test_op_names(node, op):
    """Autograd's class names become the names a user knows; a custom Function keeps its own."""
    assert op_name(node) == op


def test_saved_tensors_have_slot_shape_dtype_and_bytes():
    """What mm keeps is what it was given."""
    a, b = torch.ones(2, 3, requires_grad=True), torch.ones(3, 4, dtype=torch.float32, requires_grad=True)
    saved = {found.name: found for found in saved_tensors((a @ b).grad_fn)}
    assert (saved["self"].shape, saved["self"].dtype, saved["self"].nbytes, saved["self"].state) == (
        (2, 3), "float32", 24, "ok",
    )  # fmt: skip
    assert saved["mat2"].shape == (3, 4)


def test_a_freed_graph_says_so():
    """After backward the saved tensors are gone, and that is a state, not an error."""
    a = torch.ones(2, requires_grad=True)
    out = a.exp()
    node = out.grad_fn
    out.sum().backward()
    assert [found.state for found in saved_tensors(node)] == ["freed"]
