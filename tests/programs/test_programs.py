"""Everything that autograd does, under the tracer: the run is what it is without, and what is shown is true."""

from __future__ import annotations

import random
import traceback
import warnings
from collections import Counter
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

import tensormagic as tm
from tests.corpus.parity import counted_walks, passes_of
from tests.programs import calls, functions, hooks, regions, transforms
from tests.programs.cases import PROGRAMS, Program

DECLARED = (calls, functions, hooks, regions, transforms)  # imported for the programs in them
every_program = pytest.mark.parametrize("case", PROGRAMS, ids=lambda case: case.name)


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """A data loader waits five seconds for a worker that has failed."""
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.2)


def bits(value: Any) -> Any:
    """Return something that is equal just where every bit is."""
    if isinstance(value, torch.Tensor):
        plain = value.detach()
        plain = plain.to_dense() if plain.layout is not torch.strided else plain
        return tuple(value.shape), str(value.dtype), value.requires_grad, plain.contiguous().numpy(force=True).tobytes()
    return value


def told(error: BaseException) -> tuple[Any, ...]:
    """Return an exception as a user sees it, from the program's own frame on."""
    frames = [(frame.filename, frame.lineno, frame.name) for frame in traceback.extract_tb(error.__traceback__)]
    start = next(at for at, (_, _, name) in enumerate(frames) if name in {case.name for case in PROGRAMS})
    return type(error), str(error), frames[start:]


def outcome(case: Program, *, traced: bool) -> tuple[Any, Any]:
    """Run a program; returns all that can be seen of it, and the report."""
    torch.manual_seed(7)
    random.seed(7)
    report, seen, error = None, None, None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with tm.trace(namespace={}) if traced else nullcontext() as trace:
                seen = case.run()
        except (Exception, KeyboardInterrupt) as raised:
            error = told(raised)
    if traced:
        report = trace.report
    said = [(w.category, str(w.message), w.filename, w.lineno) for w in caught]
    drawn = bytes(torch.get_rng_state()), random.random()
    return (tree_map(bits, seen), error, said, drawn), report


@every_program
def test_the_run_is_the_person_s(case):
    """Results, gradients, random numbers, warnings, exceptions and their lines are those of a run without us."""
    plain, traced = (outcome(case, traced=each)[0] for each in (False, True))  # one line: anomaly mode tells it
    assert (plain[1] or (None,))[:1] == (case.raises,), plain[1]
    assert traced == plain


@every_program
def test_what_is_shown_is_true(case):
    """Every pass is there, through autograd's own nodes and edges; and what the program itself declares."""
    with counted_walks() as walks:
        _, report = outcome(case, traced=True)
    assert report.passes_seen + report.inner_passes_seen == case.passes
    assert passes_of(report) == walks
    assert [gap for gap, words in zip(report.gaps, case.gaps, strict=True) if words not in gap.reason] == []
    case.check(report)


class Listening(TorchFunctionMode):
    """Puts a tensor hook of the test's own on every result that has a gradient."""

    def __init__(self):
        super().__init__()
        self.heard = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.grad_fn is not None and not _is_in_place(func):
            name = result.grad_fn.name().rsplit("::", 1)[-1]
            result.register_hook(lambda gradient: self.heard.append((name, _norm(gradient))))
        return result


def _is_in_place(func):
    return getattr(func, "__name__", "").rstrip("_") != getattr(func, "__name__", "")


def _norm(gradient):
    dense = gradient.detach().to_dense() if gradient.layout is not torch.strided else gradient.detach()
    return round(torch.linalg.vector_norm(dense.to(torch.float64)).item(), 3)


@pytest.mark.parametrize("case", [case for case in PROGRAMS if case.measured], ids=lambda case: case.name)
@pytest.mark.filterwarnings("ignore")
def test_norms_are_those_that_tensor_hooks_see(case):
    """In a run without us, tensor hooks see gradients of the same norms, at nodes of the same names."""
    with Listening() as listening:
        try:
            case.run()
        except (Exception, KeyboardInterrupt):  # judged by the other tests
            return
    _, report = outcome(case, traced=True)
    measured = Counter(
        (graph.nodes[at].name, round(norm, 3))
        for graph in report.graphs for frame in graph.frames for at, norm in enumerate(frame.norms)
    )  # fmt: skip
    assert Counter(listening.heard) - measured == Counter()


def test_the_harness_can_fail():
    """A program that sees the mode on the stack is told apart."""

    def sensitive():
        return torch._C._len_torch_function_stack()

    case = Program(sensitive, 0, lambda report: None, measured=False)
    assert outcome(case, traced=False) != outcome(case, traced=True)


def test_there_are_a_hundred_programs():
    """What is promised of autograd is promised of many programs."""
    assert len(PROGRAMS) >= 80
