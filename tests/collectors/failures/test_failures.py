"""What is known of a call that torch refused: the call itself, its operands by the user's names, the line."""

from __future__ import annotations

import gc
import linecache
import sys
import traceback
import weakref

import numpy as np
import pytest
import torch

import tensormagic as tm
from tensormagic.api import explain_error
from tensormagic.collectors.failures import failing_source
from tensormagic.collectors.where.source import NOWHERE, position_of
from tests.collectors import failing_calls
from tests.collectors.failing_calls import REFUSALS, tall, wide


def raised_by(run):
    """Return what a function raises, with its traceback."""
    try:
        run()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def explained(run):
    with pytest.raises(Exception) as raised, tm.explain() as told:
        run()
    return told.report, raised.value


def traced(run):
    with pytest.raises(Exception) as raised, tm.trace() as trace:
        run()
    return trace.report.failure, raised.value


def afterwards(run):
    error = raised_by(run)
    return explain_error(error), error


WAYS = {"explained": explained, "traced": traced, "afterwards": afterwards}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.run.__name__)
def test_the_call_and_its_operands_are_named(case, way):
    """Function, expression, line, module and operands, whether or not somebody watched."""
    report, error = WAYS[way](case.run)
    assert (report.function, report.call, report.module) == (case.function, case.call, case.module)
    assert (report.phase, report.error_type, report.error) == (case.phase, type(error).__name__, str(error))
    assert case.call.split("\n")[0] in report.location.text
    assert report.stack[-1] == report.location
    tensors = [operand for operand in report.operands if operand.is_tensor or not operand.text]
    assert [operand.name for operand in tensors] == [name for name, _ in case.operands]
    for operand, (_, shape) in zip(tensors, case.operands, strict=True):
        seen = operand.shape if operand.is_tensor else None
        assert seen == shape or (shape is None and (way == "afterwards") == (seen is None))


def test_a_kernel_in_python_is_inside_of_the_call():
    """On the meta device torch runs operations in Python: the call is still the layer's, with weight and bias."""
    head, scores = torch.nn.Linear(10, 2, device="meta"), torch.ones(32, 10)
    report, _ = afterwards(lambda: head(scores))
    assert report.function == "torch.nn.functional.linear"
    assert [(operand.name, operand.device) for operand in report.operands] == [
        ("scores", "cpu"),
        ("head.weight", "meta"),
        ("head.bias", "meta"),
    ]
    assert [finding.code for finding in report.findings] == ["TM801"]


def as_raised(error):
    """Return all that a user can see of an exception: what it is, its lines, and what it came from."""
    lines = [(entry.name, entry.lineno) for entry in traceback.extract_tb(error.__traceback__)]
    start = next(at for at, (name, _) in enumerate(lines) if name not in {"raised_by", "explained", "traced"})
    return type(error), error.args, lines[start:], error.__cause__, error.__context__


@pytest.mark.parametrize("way", ["explained", "traced"])
@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.run.__name__)
def test_the_exception_is_what_it_was(case, way):
    """Type, arguments, lines, cause and context are those of the plain run."""
    assert as_raised(WAYS[way](case.run)[1]) == as_raised(raised_by(case.run))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="there is no other answer to compare with")
@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.run.__name__)
def test_the_failing_expression_is_found_before_python_3_11_as_well(case):
    """By another package, at the same place, or not at all."""
    trace = raised_by(case.run).__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == failing_calls.__file__:
            there = position_of(trace.tb_frame.f_code, trace.tb_lasti)
            assert failing_source.position_by_executing(trace) in {there, NOWHERE}
        trace = trace.tb_next


@pytest.mark.skipif(sys.version_info < (3, 11), reason="there is no other answer to compare with")
def test_a_product_is_found_before_python_3_11():
    """The usual case is not among those that are not found at all."""
    pytest.importorskip("executing", reason="only Python 3.10 needs it, and IPython 8 brings it")
    entry = raised_by(failing_calls.product).__traceback__.tb_next
    there = position_of(entry.tb_frame.f_code, entry.tb_lasti)
    assert failing_source.position_by_executing(entry) == there != NOWHERE


@pytest.mark.parametrize("way", WAYS)
def test_what_was_given_besides_tensors_is_told(way):
    """Sizes as one writes them, beside the tensor's layout."""
    report, _ = WAYS[way](lambda: wide.view(4, 5))
    source, sizes = report.operands
    assert (source.role, source.dtype, source.device, source.stride) == ("self", "float32", "cpu", (3, 1))
    assert (sizes.role, sizes.text, sizes.is_tensor) == ("shape", "(4, 5)", False)


def own_key():
    return {}["key"]


def own_error():
    raise ValueError("mine")


def own_assert():
    assert wide.sum() > 1e9, "mine"


def own_words():
    raise ValueError(wide.sum())


def of_torch():
    return torch.nothing(3)


def of_this_package():
    raise tm.NonFiniteError("this backward made 1 Inf")


def attribute():
    return wide.nothing


def python():
    return int("x")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "run",
    [own_key, own_error, own_assert, own_words, of_torch, of_this_package, attribute, python],
    ids=lambda run: run.__name__,
)
def test_errors_that_are_not_torchs_are_not_explained(run, way):
    """A KeyError in the user's own code is none of our business."""
    assert WAYS[way](run)[0] is None


@pytest.mark.parametrize(
    "line",
    ["x.numpy() + np.ones(4)", "x.numpy() @ np.ones((4, 1))", "x.numpy()[5]", "np.asarray(x)[5]", "x.numpy().mean(3)",
     "x.tolist() + 1", "'acc: ' + x", "'loss: ' + x.sum().item()", "[1] + x"],
)  # fmt: skip
def test_what_numpy_and_python_say_of_what_left_torch_is_not_torchs(line):
    """Where a tensor was asked for its array, its list or its number, the rest of the line is not torch's."""
    filename = "<left torch>"
    linecache.cache[filename] = (len(line), None, [line + "\n"], filename)
    told = tm.explain()
    with pytest.raises((ValueError, TypeError, IndexError)), told:
        exec(compile(line, filename, "exec"), {"x": torch.ones(3), "np": np})
    assert told.report is None


def test_an_interrupt_is_not_explained():
    """The user pressed stop: nothing was refused."""
    with pytest.raises(KeyboardInterrupt), tm.explain() as told:
        raise KeyboardInterrupt
    assert told.report is None


def test_the_way_leads_from_the_outermost_line_to_the_failing_one():
    """Every line of the user's own, the innermost last."""
    report, _ = afterwards(REFUSALS[7].run)
    assert [line.text for line in report.stack[-2:]] == ["return model(wide)", "h = self.fc(x.flatten(1) * 1)"]


def test_what_was_not_kept_is_a_gap():
    """Without a mode, a result that the line itself computed is gone: it is named, and said to be missing."""
    report, _ = afterwards(lambda: (wide + 1) @ tall)
    assert [gap.reason for gap in report.gaps] == ["not kept by Python after the error: the result of `wide + 1`"]
    assert report.exact is False


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_kept_alive(way):
    """Neither tensors nor frames outlive the exception."""

    def run():
        nonlocal reference
        operand = torch.ones(7, 3)
        reference = weakref.ref(operand)
        return operand @ tall

    reference = None
    report, error = WAYS[way](run)
    assert report.operands[0].name == "operand"
    del error
    gc.collect()
    assert reference() is None


def test_a_running_function_keeps_nothing_that_it_has_let_go():
    """Reading the names of a function that goes on must not leave a copy of them in its frame."""
    held = torch.ones(3)
    reference = weakref.ref(held)
    names = []
    try:
        held @ tall
    except RuntimeError as error:
        names = [operand.name for operand in explain_error(error).operands]
    assert names == ["held", "tall"]
    del held
    gc.collect()
    assert reference() is None


def test_the_line_that_made_an_operand_is_told_under_a_trace():
    """The tracer knows which line made what has a graph."""

    def run():
        weight = torch.ones(3, 3, requires_grad=True)
        hidden = wide @ weight
        return hidden @ tall

    report, _ = traced(run)
    assert report.operands[0].location.text == "hidden = wide @ weight"


def test_the_node_that_failed_in_backward_is_told_under_a_trace():
    """The last node that backward reached."""

    def run():
        x = torch.ones(3, requires_grad=True)
        y = x.exp()
        y.add_(1)
        y.sum().backward()

    with pytest.raises(RuntimeError), tm.trace() as trace:
        run()
    graph, node = trace.report.failure.node
    assert trace.report.graphs[graph].nodes[node].op == "exp"


def test_a_mode_that_was_left_by_an_exception_is_gone():
    """Twice in a row, and torch's stack of modes is empty in between."""
    for _ in range(2):
        report, _ = explained(lambda: wide @ tall)
        assert report.function == "Tensor.matmul"
        assert torch._C._len_torch_function_stack() == 0


def test_a_file_that_is_not_there_is_no_refusal_of_torch_s():
    """Python says it well: there is nothing to explain."""
    told = tm.explain(namespace={})
    with pytest.raises(FileNotFoundError), told:
        torch.load("no_such_file.pt")
    assert told.report is None


class Net(torch.nn.Module):
    """Has no forward."""


@pytest.mark.parametrize(
    ("run", "function", "given"),
    [
        (lambda: torch.randn(3).softmax(dim=1), "Tensor.softmax", [("input", ""), ("dim", "1")]),
        (lambda: sum(torch.randn(2, 3), torch.randn(4)), "sum", [("iterable", ""), ("start", "")]),
        (lambda: torch.tensor([1.0]) @ 3, "Tensor.matmul", [("input", ""), ("other", "3")]),
        (lambda: torch.arange(0, 5, -1), "torch.arange", [("start", "0"), ("end", "5"), ("step", "-1")]),
        (lambda: torch.randint(5, 2, (3,)), "torch.randint", [("low", "5"), ("high", "2"), ("size", "(3,)")]),
        (lambda: torch.optim.lr_scheduler.StepLR(1, 3), "torch.optim.lr_scheduler.StepLR", None),
        (lambda: torch.utils.data.TensorDataset(tall, wide), "torch.utils.data.TensorDataset", None),
        (lambda: torch.autograd.grad(torch.ones(2, requires_grad=True), ()), "torch.autograd.grad", None),
        (lambda: Net()(1), "Net._forward_unimplemented", None),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_functions_and_arguments_have_the_names_that_a_user_writes(run, function, given):
    """Also where no operand of the line is left; of several forms of a call, that which takes as many arguments."""
    if function == "torch.utils.data.TensorDataset" and torch.__version__ < "2.11":
        pytest.skip("torch 2.10 takes tensors of any two lengths")
    report, _ = afterwards(run)
    assert report.function == function
    if given is not None:
        assert [(one.role, one.text) for one in report.operands] == given


def endless(value):
    return [endless(each) for each in (value,)] if not isinstance(value, torch.Tensor) else value


def changing():
    known = {"a": torch.ones(1), "b": torch.ones(1)}
    return list(zip(known, iter(known.popitem, None), strict=False))


@pytest.mark.parametrize("run", [lambda: endless(1), changing], ids=["endless recursion", "a dictionary that changes"])
def test_a_runtime_error_of_python_s_own_is_not_torch_s(run):
    """Though the failing call is given something of torch's."""
    assert afterwards(run)[0] is None
