"""Who is told of a backward call, and that torch's own function is back when nobody listens any more."""

from __future__ import annotations

import threading
import warnings

import torch

import tensormagic as tm
from tensormagic.collectors.hooks.replacing import followed_backward


class Follower:
    """Counts the calls it reports on."""

    def __init__(self):
        self.calls = []

    def follow(self, call):
        self.calls.append(call)
        return call.run()


def run_backward():
    torch.ones(2, requires_grad=True).sum().backward()


def in_a_thread(target):
    thread = threading.Thread(target=target, name="worker")
    thread.start()
    thread.join()


def test_what_is_told():
    """Roots, what was asked for, and whether leaves accumulate; the result goes back to the caller."""
    follower = Follower()
    x = torch.ones(2, requires_grad=True)
    y = x.exp().sum()
    with followed_backward(follower):
        (gradient,) = torch.autograd.grad(y, x)
        run_backward()
    assert gradient.tolist() == x.exp().tolist()
    asked, accumulated = follower.calls
    assert [call.accumulates for call in follower.calls] == [False, True]
    assert (asked.roots[0] is y, asked.inputs[0] is x, accumulated.inputs) == (True, True, ())


def test_one_s_own_thread_comes_first_and_others_go_to_whoever_came_last():
    """Of two who follow, each is told of its thread's calls; the later one of those of third threads."""
    first, second = Follower(), Follower()
    follows, may_leave = threading.Event(), threading.Event()

    def other():
        with followed_backward(second):
            run_backward()
            follows.set()
            may_leave.wait(10)

    with followed_backward(first):
        thread = threading.Thread(target=other)
        thread.start()
        follows.wait(10)
        run_backward()
        in_a_thread(run_backward)
        may_leave.set()
        thread.join()
        run_backward()
    assert (len(first.calls), len(second.calls)) == (2, 2)


def test_somebody_else_s_replacement_stays():
    """Who replaces torch's function meanwhile keeps their replacement, which goes on to torch's."""
    original, seen = torch.autograd._engine_run_backward, []
    try:
        with followed_backward(Follower()):
            ours = torch.autograd._engine_run_backward

            def theirs(*args, **kwargs):
                seen.append(1)
                return ours(*args, **kwargs)

            torch.autograd._engine_run_backward = theirs
        run_backward()
        assert torch.autograd._engine_run_backward is theirs
        assert seen == [1]
    finally:
        torch.autograd._engine_run_backward = original


def test_two_traces_on_two_threads():
    """Each has the passes of its thread, with their lines, although the nodes bear the same numbers."""
    reports, both = {}, threading.Barrier(2)

    def train(name, factor):
        x = torch.ones(3, requires_grad=True)
        both.wait(10)
        with tm.trace(namespace={"x": x}) as trace:
            for _ in range(4):
                (x * factor).sum().backward()
                both.wait(10)
        reports[name] = trace.report

    threads = [threading.Thread(target=train, args=each) for each in (("a", 2.0), ("b", 5.0))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, factor in (("a", 2.0), ("b", 5.0)):
        report = reports[name]
        assert (report.passes_seen, report.gaps) == (4, ())
        assert [round(norm, 4) for norm in report.parameters[0].norms] == [round(factor * 3**0.5, 4)] * 4
        assert {report.location(node.location).text for node in report.nodes if node.op == "mul"} == {
            "(x * factor).sum().backward()"
        }


def test_a_backward_that_outlives_the_trace():
    """On another thread a backward may end after the trace: its hooks go with it, and the report names the gap."""
    began, may_end = threading.Event(), threading.Event()
    x = torch.ones(2, requires_grad=True)
    y = x.exp()

    def wait(gradient):
        began.set()
        may_end.wait(10)

    y.register_hook(wait)
    loss = y.sum()
    thread = threading.Thread(target=loss.backward)
    with tm.trace(namespace={"x": x}) as trace:
        thread.start()
        began.wait(10)
    may_end.set()
    thread.join()
    assert ["was still running when the trace ended" in gap.reason for gap in trace.report.gaps] == [True]
    assert x.grad.tolist() == x.exp().tolist()


def test_a_warning_in_a_hook_names_the_line_that_it_always_names():
    """How far up the user's line is counts the same with the tracer's frames in between."""

    def places(trace):
        x = torch.ones(2, requires_grad=True)
        y = x.exp()
        y.register_hook(lambda gradient: [warnings.warn("far up", stacklevel=level) for level in range(1, 9)] and None)
        with warnings.catch_warnings(record=True) as caught, trace:
            warnings.simplefilter("always")
            y.sum().backward()
        return [(each.filename, each.lineno) for each in caught]

    import contextlib

    plain, traced = (places(trace) for trace in (contextlib.nullcontext(), tm.trace()))
    assert traced == plain
    assert plain[5][0] == __file__  # past torch's own frames
