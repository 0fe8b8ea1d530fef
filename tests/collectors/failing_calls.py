"""Calls that torch refuses, as people write them, and what has to be known of each."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Refusal:
    """A call that fails.

    Attributes:
        run: Makes it.
        function: What is called.
        operands: Name and shape of every tensor among the operands, in order; the shape is None where only the call
            itself, seen as it was made, tells it.
        call: The expression in the user's line.
        module: The innermost module.
        phase: See `FailureReport`.
    """

    run: Callable[[], object]
    function: str
    operands: tuple[tuple[str, tuple[int, ...] | None], ...]
    call: str
    module: str = ""
    phase: str = "forward"


REFUSALS: list[Refusal] = []


def refused(function, *operands, call, module="", phase="forward"):
    """Declare a call that torch refuses."""

    def declare(run):
        REFUSALS.append(Refusal(run, function, operands, call, module, phase))
        return run

    return declare


wide, tall = torch.ones(2, 3), torch.ones(4, 5)
pair = [wide, tall]
batch = {"x": wide}


class Scaled(nn.Module):
    """A layer, and a scale of the wrong size."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.ones(7))

    def forward(self, x):
        h = self.fc(x.flatten(1) * 1)
        return h * self.scale


model = Scaled()
stack = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(5, 2))


@refused("Tensor.matmul", ("wide", (2, 3)), ("tall", (4, 5)), call="wide @ tall")
def product():
    return wide @ tall


@refused("Tensor.matmul", ("local", (2, 3)), ("tall.T", (5, 4)), call="local @ tall.T")
def product_with_a_transpose():
    local = wide.clone()
    return local @ tall.T


@refused("Tensor.matmul", ("the result of `wide + 1`", None), ("tall", (4, 5)), call="(wide + 1) @ tall")
def product_of_a_result():
    return (wide + 1) @ tall


@refused("torch.cat", ("wide", (2, 3)), ("tall", (4, 5)), call="torch.cat([wide, tall])")
def list_written_out():
    return torch.cat([wide, tall])


@refused("torch.stack", ("pair[0]", (2, 3)), ("pair[1]", (4, 5)), call="torch.stack(pair)")
def list_with_a_name():
    return torch.stack(pair)


@refused("Tensor.matmul", ("batch['x']", (2, 3)), ("tall", (4, 5)), call='batch["x"] @ tall')
def item_of_a_dictionary():
    return batch["x"] @ tall


@refused("torch.nn.functional.linear", ("the result of stack.1", (2, 4)), ("stack.2.weight", (2, 5)),
         ("stack.2.bias", (2,)), call="stack(wide)", module="stack.2")  # fmt: skip
def layer_of_a_stack():
    return stack(wide)


@refused("torch.nn.functional.linear", ("the result of `x.flatten(1) * 1`", (2, 3)), ("model.fc.weight", (4, 4)),
         ("model.fc.bias", (4,)), call="self.fc(x.flatten(1) * 1)", module="model.fc")  # fmt: skip
def layer_of_a_module():
    return model(wide)


@refused("Tensor.mul", ("h", (2, 4)), ("model.scale", (7,)), call="h * self.scale", module="model")
def product_in_a_forward():
    return model(torch.ones(2, 4))


@refused("torch.nn.functional.cross_entropy", ("the result of `wide * 2`", (2, 3)), ("labels", (5,)),
         call="F.cross_entropy(wide * 2, labels)")  # fmt: skip
def function_of_torchs_own_python():
    labels = torch.tensor([0, 1, 2, 0, 1])
    return F.cross_entropy(wide * 2, labels)


@refused("Tensor.view", ("wide", (2, 3)), call="wide.view(4, 5)")
def method():
    return wide.view(4, 5)


@refused("Tensor.add_", ("x", (2, 3)), ("tall", (4, 5)), call="x += tall")
def augmented_assignment():
    x = wide.clone()
    x += tall
    return x


@refused("Tensor.__getitem__", ("wide", (2, 3)), call="wide[5]")
def index_out_of_range():
    return wide[5]


@refused("Tensor.__bool__", ("wide", (2, 3)), call="wide")
def truth_of_a_tensor():
    if wide:
        return 1
    return 0


@refused("nn.BatchNorm1d", ("wide[None, None]", (1, 1, 2, 3)), call="norm(wide[None, None])",
         module="norm")  # fmt: skip
def module_that_refuses_by_itself():
    norm = nn.BatchNorm1d(3)
    return norm(wide[None, None])


_UNTIL_IT_RAISES = (2, 3) if sys.version_info < (3, 12) else None  # then the variable of a comprehension is gone


@refused("Tensor.matmul", ("each", _UNTIL_IT_RAISES), ("tall", (4, 5)), call="each @ tall")
def list_comprehension():
    return [each @ tall for each in pair]


@refused("Tensor.matmul", ("each", (2, 3)), ("tall", (4, 5)), call="each @ tall")
def generator():
    return list(each @ tall for each in pair)  # noqa: C400  (a generator is what is tried)


@refused("Tensor.matmul", ("given", (2, 3)), ("tall", (4, 5)), call="given @ tall")
def lambda_():
    return (lambda given: given @ tall)(wide)  # noqa: PLC3002  (a lambda is what is tried)


@refused("torch.einsum", ("wide", (2, 3)), ("tall", (4, 5)), call='torch.einsum("ij,jk->ik", wide, tall)')
def einsum():
    return torch.einsum("ij,jk->ik", wide, tall)


@refused("Tensor.backward", ("w", (2,)), call="w.backward()", phase="backward")
def backward_of_a_vector():
    w = torch.ones(2, requires_grad=True) * 2
    w.backward()


@refused("Tensor.__bool__", ("the result of `wide > 0`", None), call="wide > 0")
def truth_of_a_comparison():
    return 1 if wide > 0 else 0


@refused("torch.cat", ("args[0][0]", (2, 3)), ("args[0][1]", (4, 5)), call="torch.cat(*args, **kwargs)")
def arguments_unpacked():
    args, kwargs = ([wide, tall],), {"dim": 0}
    return torch.cat(*args, **kwargs)


@refused("torch.matmul", ("held.left", (2, 3)), ("held.right", (4, 5)), call="torch.matmul(held.left, held.right)")
def attributes_in_slots():
    class Held:
        __slots__ = ("left", "right")

    held = Held()
    held.left, held.right = wide, tall
    return torch.matmul(held.left, held.right)


@refused("Tensor.split", ("wide", (2, 3)), call="wide.split([2, 2], 1)")
def method_in_python():
    return wide.split([2, 2], 1)


@refused("torch.nn.functional.max_unpool1d", ("wide", (2, 3)), ("places", (2, 2)),
         call="F.max_unpool1d(wide, places, 2)")  # fmt: skip
def one_dimension_by_two():
    places = torch.zeros(2, 2, dtype=torch.long)
    return F.max_unpool1d(wide, places, 2)


@refused("Tensor.matmul", ("the result of `torch.ones(2, 3)`", None), ("the result of `torch.ones(4, 5)`", None),
         call="torch.ones(2, 3) @ torch.ones(4, 5)")  # fmt: skip
def results_of_torchs_functions_alone():
    return torch.ones(2, 3) @ torch.ones(4, 5)


@refused("nn.LSTM", ("the result of `torch.ones(5, 3, 6)`", (5, 3, 6)), call="lstm(torch.ones(5, 3, 6))", module="lstm")
def module_that_binds_its_parameters_anew():
    lstm = nn.LSTM(4, 8)
    return lstm(torch.ones(5, 3, 6))


@refused("torch.optim.SGD", ("wide", (2, 3)), call="torch.optim.SGD([wide], lr=-1)")
def optimizer():
    return torch.optim.SGD([wide], lr=-1)


@refused("Tensor.matmul", ("ghost", (2, 3)), ("tall", (4, 5)), call="ghost @ tall")
def torchs_own_python_below_an_operator():
    ghost = wide.to("meta")
    return ghost @ tall


class Broken(torch.autograd.Function):
    """Its backward multiplies what cannot be multiplied."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient @ tall


@refused("Tensor.matmul", ("gradient", (2, 3)), ("tall", (4, 5)), call="gradient @ tall", phase="backward")
def backward_of_ones_own():
    leaf = wide.clone().requires_grad_()
    Broken.apply(leaf).sum().backward()


@refused("Tensor.matmul", ("gradient", (2, 3)), ("tall", (4, 5)), call="gradient @ tall", phase="backward")
def hook():
    leaf = wide.clone().requires_grad_()
    leaf.register_hook(lambda gradient: gradient @ tall)
    leaf.sum().backward()


@refused(
    "torch.autograd.grad", ("total", ()), ("wide", (2, 3)), call="torch.autograd.grad(total, wide)", phase="backward"
)
def a_tensor_that_torch_puts_into_a_list():
    total = wide.sum()
    return torch.autograd.grad(total, wide)


def doubled(x: int):
    return 2 * x


scripted = torch.jit.script(doubled)


@refused("torch.ScriptFunction", ("wide", (2, 3)), call="scripted(wide)")
def scripted_function():
    return scripted(wide)
