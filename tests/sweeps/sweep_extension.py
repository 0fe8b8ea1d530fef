"""Operators that a C++ extension brings, with an autograd Function of C++: compiled here, so part of the sweep."""

from __future__ import annotations

import shutil

import pytest
import torch

import tensormagic as tm

pytestmark = pytest.mark.sweep

SOURCE = """
#include <torch/extension.h>
struct Thrice : public torch::autograd::Function<Thrice> {
  static torch::Tensor forward(torch::autograd::AutogradContext* ctx, torch::Tensor x) {
    ctx->save_for_backward({x});
    return x * 3;
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* ctx, torch::autograd::variable_list gradients) {
    return {gradients[0] * 3};
  }
};
torch::Tensor thrice(torch::Tensor x) { return Thrice::apply(x); }
torch::Tensor composed(torch::Tensor x) { return (x.sin() * x).exp(); }
TORCH_LIBRARY(tensormagic_sweep, library) { library.def("thrice(Tensor x) -> Tensor", &thrice); }
"""


@pytest.fixture(scope="module")
def extension(tmp_path_factory):
    """Compile it; half a minute."""
    if shutil.which("c++") is None or shutil.which("ninja") is None:
        pytest.skip("no C++ compiler, or no ninja")
    from torch.utils.cpp_extension import load_inline

    folder = str(tmp_path_factory.mktemp("extension"))
    return load_inline("tensormagic_sweep", SOURCE, functions=["thrice", "composed"], build_directory=folder)


def test_operators_of_cpp(extension):
    """Nodes of C++ are there under their names; a registered operator has its line, a bound function's is inexact."""
    x = torch.ones(3, requires_grad=True)
    expected = torch.autograd.grad(extension.composed(extension.thrice(x)).sum(), x)[0]
    with tm.trace(namespace={"x": x}) as trace:
        y = torch.ops.tensormagic_sweep.thrice(x)
        z = extension.composed(extension.thrice(x))
        (y.sum() + z.sum()).backward()
    assert torch.equal(x.grad, expected + 3)
    report = trace.report
    assert report.gaps == ()
    ops = [node for node in report.nodes if node.kind != "accumulate"]
    found = {(node.op, node.exact_location, report.location(node.location).text) for node in ops}
    assert ("Thrice", True, "y = torch.ops.tensormagic_sweep.thrice(x)") in found
    assert {exact for op, exact, _ in found if op in {"sin", "exp"}} == {False}
    series = next(series for series in report.parameters if series.name == "x")
    assert series.norms[0] == pytest.approx(x.grad.norm().item())
