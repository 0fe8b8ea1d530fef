"""Questions about tensors and reports: why a gradient is as it is, and what differs between two runs."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tensormagic.api.diagnosing import diagnosed
from tensormagic.api.looking import readable
from tensormagic.api.process_state import DrawWatch
from tensormagic.api.running import Trace, last_trace, met_in, was_met
from tensormagic.collectors import requirements
from tensormagic.collectors.requirements import names_here, require, require_name, require_torch
from tensormagic.comparisons import compare_draws, compare_traces
from tensormagic.comparisons.ranks import Given as Ranks, ranks_of
from tensormagic.diagnoses.why import explain as explain_gradient, explain_module
from tensormagic.errors import NotATensorError, ReportFormatError, TensorMagicError
from tensormagic.reports import (
    ComparisonReport,
    ModelReport,
    RankReport,
    Report,
    RngComparison,
    RngRunReport,
    RunReport,
    TraceReport,
    WatchReport,
    WhyReport,
)


def why(  # noqa: PLR0913  (one parameter; the rest by name)
    x: Any,
    name: str = "",
    *,
    loss: Any = None,
    trace: TraceReport | Trace | None = None,
    namespace: Mapping[str, Any] | None = None,
    cell_number: Callable[[str], int | None] | None = None,
) -> WhyReport:
    """Return why ``x.grad`` is None, zero, NaN, or what it is; of a module, its parameters by reason.

    Nothing is run again, changed or kept. What the last traced run saw is used where there is one.

    Args:
        x: A tensor, or a module.
        name: What to call it; by default its name in the namespace.
        loss: What backward was, or is to be, called on; by default whatever has a name and was computed from ``x``.
        trace: The run to read from; by default the last one that is still there.
        namespace: Where names of models and tensors are looked up; by default the caller's globals.
        cell_number: Gives the number of a notebook's cell from its file name: earlier cells are read for the lines
            that made a loss.

    Raises:
        NotATensorError: for anything else; the message says what was given and what would work.
        TensorMagicError: where ``trace`` is not a traced run.
        RequirementError: where torch is missing or too old.

    >>> import torch, tensormagic
    >>> w = torch.ones(2, requires_grad=True)
    >>> y = w * 2
    >>> tensormagic.why(y, "y", namespace={"w": w, "y": y}).answer
    'y.grad is None because y is not a leaf: mul made it, and torch keeps .grad only for leaves.'
    """
    require_torch()
    from tensormagic.collectors.failures.lost_graph import Asking, lost_way
    from tensormagic.collectors.objects.children import is_module
    from tensormagic.collectors.tensors.gradient_facts import gradient_facts, names_of, parameters_of, scale_in
    from tensormagic.collectors.where.source import innermost_own

    namespace = names_here(namespace, "why")
    require_name(name, "why(x, name)")
    names, run = names_of(namespace), _report(trace)
    with readable(x, name or "x"):
        if is_module(x):
            named = name or next((label for label, each in list(namespace.items()) if each is x), "")
            every, met = [], met_in(run)
            for label, each in parameters_of(x, named or type(x).__name__):
                one = replace(gradient_facts(each, label, names), seen=met(each))
                # by its way from the module that is asked about: a loop's `p` may be a name of it, too
                every.append(replace(one, name=label, expression="") if named else one)
            return explain_module(named or type(x).__name__, every, run)
        if not requirements.is_tensor(x):
            called = name or "x"
            if x is None and called.endswith(".grad"):
                owner = called.removesuffix(".grad")
                raise NotATensorError(f"{called} is None; ask about the tensor itself: why({owner})")
            array = f"{called} is an array: only torch tensors have gradients"
            raise NotATensorError(requirements.why_not_a_tensor(x, called) or array)
    if loss is not None and not requirements.is_tensor(loss):
        given = requirements.what(loss)
        raise NotATensorError(f"the loss is {given}, not a tensor: give the tensor that backward is called on")
    towards = (names.of(loss) or "loss", loss) if requirements.is_tensor(loss) else ("", None)
    with readable(x, name or "x"):
        found = gradient_facts(x, name, names, loss=towards, scale=scale_in(namespace))
        found = replace(found, seen=was_met(run, x))
        asking = innermost_own(sys._getframe(1))  # noqa: SLF001  (the user's own line)
        if loss is not None and found.path is None and asking is not None:
            cut, lines = lost_way(Asking(asking, asking.f_lineno, None, cell_number), loss, x)
            found = replace(found, cut=cut, locations=lines)
        return explain_gradient(found, run)


def model(
    net: Any, name: str = "", *, trace: TraceReport | Trace | None = None, namespace: Mapping[str, Any] | None = None
) -> ModelReport:
    """Return a model as a tree: shapes, parameters, mode, optimizer, memory, gradients and updates of each module.

    A model is not run: shapes and updates are those of the last traced run that met it. In its place may stand
    a function that calls it, ``lambda: net(x)``: that is called once, as you would, and shapes are what it makes.

    Args:
        net: A model, or a function of no arguments that calls or returns one.
        name: What to call it; by default its name in the namespace.
        trace: The run to read from; by default the last one that is still there.
        namespace: Where models and optimizers may have a name; by default the caller's globals.

    Raises:
        TensorMagicError: for anything else, and where ``trace`` is not a traced run.
        RequirementError: where torch is missing or too old.

    >>> import torch, tensormagic
    >>> net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
    >>> report = tensormagic.model(lambda: net(torch.zeros(5, 3)), "net")
    >>> [(row.path, row.shapes) for row in report.rows]
    [('net', ((5, 2),)), ('net.0', ((5, 2),)), ('net.1', ((5, 2),))]
    """
    __tracebackhide__ = True
    require_torch()
    from tensormagic.collectors.objects.children import is_module
    from tensormagic.collectors.session.model import ForwardShapes, ModelFacts, collect_model, traced_in
    from tensormagic.collectors.session.unregistered import TiedWeights, modules_report

    namespace = names_here(namespace, "model")
    require_name(name, "model(net, name)")
    forward, found = None, net
    if not is_module(net) and callable(net):
        with ForwardShapes() as forward:
            found = net()
        if forward.root is None:
            forward = None
        elif not is_module(found):
            found = forward.root
    if not is_module(found):
        given = f"{name or 'this'} is {requirements.what(found)} and calls no model"
        raise TensorMagicError(f"{given}: give a model, or a call of one such as net(x)")
    own = next((label for label, each in list(namespace.items()) if each is found and label[:1] != "_"), "")
    dotted = re.sub(r"\[(\d+)\]", r".\1", name)
    called = own or (dotted if dotted.replace(".", "").isidentifier() else "net")
    run = _report(trace)
    report = collect_model(found, called, ModelFacts(namespace, forward, traced_in(run, found, met_in(run))))
    odd = diagnosed(WatchReport(modules=modules_report([(called, found)], namespace, TiedWeights())))
    return replace(report, findings=odd.findings, gaps=(*report.gaps, *odd.gaps))


def _report(trace: TraceReport | Trace | None) -> TraceReport | None:
    given = last_trace() if trace is None else trace
    report = _of_trace(getattr(given, "report", given))
    if report is not None and not isinstance(report, TraceReport):
        raise TensorMagicError(f"trace is a traced run: a trace or its report, not {requirements.what(trace)}")
    return report


def load(path: str | os.PathLike[str]) -> Report:
    """Return the report that ``report.save("x.json")`` wrote, whatever kind it is.

    Args:
        path: The file.

    Raises:
        ReportFormatError: where the file cannot be read, or holds no report; the message names the file.
        TensorMagicError: where ``path`` is not a path.
    """
    report = Report.load(path)
    try:
        str(report)
    except TensorMagicError:
        raise
    except Exception as error:
        reason = f"its parts do not fit together ({type(error).__name__}: {error!s:.200})"
        raise ReportFormatError(f"cannot load {os.fspath(path)!r}: {reason}") from error
    return report


Run = TraceReport | Trace | RngRunReport | DrawWatch | str | os.PathLike[str]


def compare(left: Run, right: Run, *, names: Sequence[str] | None = None) -> ComparisonReport | RngComparison:
    """Return what is different between two traced runs: graph, gradients, losses, findings.

    Of two runs whose draws were watched: the first random number that differs.

    Nodes are matched by what they are and what is around them, so that moved lines, another name of the model, or
    a layer more do not hide what is the same.

    Args:
        left: The run that the other is compared with: a report, a trace, or a saved ``.json`` file.
        right: The other run.
        names: What to call the two; by default their titles, or ``a`` and ``b`` where these are equal.

    Raises:
        ReportFormatError: for a file that is not a saved run.
        TensorMagicError: for anything else that is no such run, for one of each sort, or other than two names.
    """
    if names is not None:
        require(names, Sequence, "compare()", "two names, one per run")
        for name in names:
            require_name(name, "compare(names=…)")
    if names is not None and len(names) != 2:
        raise TensorMagicError(f"compare() takes two names, one per run, but was given {len(names)}")
    one, other = _report_of(left), _report_of(right)
    if isinstance(one, RngRunReport) and isinstance(other, RngRunReport):
        first, second = names or ("a", "b")
        return compare_draws(one, other, names=(first, second))
    if isinstance(one, TraceReport) and isinstance(other, TraceReport):
        return compare_traces(one, other, names=names)
    raise TensorMagicError(f"compare() takes two runs of one sort, not a {one.kind_name} and a {other.kind_name}")


def _report_of(run: Run) -> TraceReport | RngRunReport:
    if isinstance(run, str | os.PathLike):
        loaded = _of_trace(load(run))  # another report is loaded again as what it is not, which says what it is
        return loaded if isinstance(loaded, TraceReport | RngRunReport) else TraceReport.load(run)
    report = _of_trace(getattr(run, "report", run))
    if not isinstance(report, TraceReport | RngRunReport):
        raise TensorMagicError(
            f"compare() takes traced runs: reports, traces, or saved .json files, not {requirements.what(run)}; "
            "keep each run under a name of its own: %%tracegrad --into NAME, or tm.trace() as NAME"
        )
    return report


def _of_trace(report: Any) -> Any:
    """Return the trace of a run of which several things were asked, and anything else as it is."""
    return report.trace if isinstance(report, RunReport) else report


def ranks(of: Ranks | Iterable[Ranks]) -> RankReport:
    """Return what the ranks of a run came to, compared with each other: where they diverge, and since when.

    Args:
        of: The folder that every rank was given as ``tensormagic.trace(ranks=folder)``, also while they run; the
            trace report of each rank, as ``rc[:].pull("r").get()`` gives them; or several folders, single files in
            them, and results of this function that are to be merged, as a tree of any shape: each level may run
            elsewhere, since the results can be pickled.

    Raises:
        ReportFormatError: where there is no such folder, or what is in it was written by no rank.
        TraceError: where a report is of no rank, or two are of the same.
    """
    return diagnosed(ranks_of(of))


def rank_report(report: RankReport, rank: int) -> TraceReport:
    """Return the full report of a rank, for commands.

    Raises:
        TensorMagicError: where it saved none.
    """
    try:
        return report.reports[rank]
    except KeyError as error:
        raise TensorMagicError(str(error.args[0])) from None
