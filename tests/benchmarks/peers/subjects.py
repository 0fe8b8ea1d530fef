"""What every tool is compared with: twenty tensors, and four small programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

Look = Callable[[torch.Tensor], str]
LAYERS, WIDTH, BATCH, DEPTH = 50, 64, 8, 1500


def plain_tensors() -> Iterator[tuple[str, torch.Tensor]]:
    """Yield strided tensors of many dtypes."""
    x = torch.randn(3, 4)
    yield "plain", x
    yield "a transposed view", x.t()
    yield "with gradient", torch.ones(3, requires_grad=True)
    yield "with NaN", torch.tensor([1.0, float("nan")])
    yield "empty", torch.empty(0, 3)
    yield "0-d", torch.tensor(3.0)
    yield "integers", torch.arange(4)
    yield "bool", torch.tensor([True, False])
    yield "complex", torch.randn(3, dtype=torch.complex64)
    yield "bfloat16", x.bfloat16()
    yield "float8", x.to(torch.float8_e4m3fn)


def special_tensors() -> Iterator[tuple[str, torch.Tensor]]:
    """Yield those that are no grid of numbers."""
    x = torch.randn(3, 4)
    rows = [torch.ones(2, 3), torch.ones(4, 3)]
    yield "sparse COO", x.relu().to_sparse()
    yield "sparse CSR", x.relu().to_sparse_csr()
    yield "sparse BSR", torch.eye(4).to_sparse_bsr((2, 2))
    yield "jagged", torch.nested.nested_tensor(rows, layout=torch.jagged)
    yield "nested", torch.nested.nested_tensor(rows)
    yield "meta", torch.empty(3, 4, device="meta")
    yield "quantized", torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
    with FakeTensorMode():
        fake = torch.empty(3, 4)
    yield "fake", fake


def looked_at(look: Look) -> dict[str, str]:
    """Return what a look at each of the twenty raised, by kind; an empty text where it was shown."""
    found = {kind: outcome(lambda x=x: look(x)) for kind, x in (*plain_tensors(), *special_tensors())}

    def inside(x: torch.Tensor) -> torch.Tensor:
        found["inside vmap"] = outcome(lambda: look(x))
        return x * 2

    torch.vmap(inside)(torch.randn(3, 4))
    return found


def outcome(action: Callable[[], object]) -> str:
    """Return the name and the first line of what an action raised; an empty text where it raised nothing."""
    try:
        action()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"[:160]
    return ""


WEIGHT = torch.ones(3, requires_grad=True)


def function(x: torch.Tensor) -> torch.Tensor:
    """Compute something with a gradient, without a module."""
    return (WEIGHT * x).sum()


def deep() -> torch.Tensor:
    """Return the end of a graph of 1,500 operations, one after the other."""
    y = torch.ones(1, requires_grad=True)
    for _ in range(DEPTH):
        y = y + 1
    return y.sum()


def stateful() -> nn.Sequential:
    """Return a network in train mode whose forward leaves traces: BatchNorm's mean, and drawn numbers."""
    torch.manual_seed(0)
    layers = (nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))
    return nn.Sequential(*layers).train()


def overhead() -> nn.Sequential:
    """Return a network whose step is all overhead: fifty times a small layer and a ReLU."""
    return nn.Sequential(*[layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())])


def spoilt() -> None:
    """Run a backward that fails, since a saved tensor was changed; the two lines that matter are marked."""
    x = torch.linspace(-1, 1, 5, requires_grad=True)
    y = torch.sigmoid(x)  # line: saved
    y += 1  # line: changed
    y.sum().backward()


def born_nan() -> None:
    """Run a backward whose gradient becomes NaN, while every value of the forward is finite."""
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    root = x.sqrt()  # line: origin
    (root * x).sum().backward()


def born_infinite() -> None:
    """Run a backward whose gradient becomes infinite, and not NaN."""
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    root = x.sqrt()  # line: origin
    root.sum().backward()
