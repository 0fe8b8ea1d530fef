"""The call that ended a traced run: what is in the exception, and what only the tracer knows of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch

from tensormagic.collectors.calls.forward import ForwardRecorder
from tensormagic.collectors.failures.failures import Surroundings, failure_of
from tensormagic.collectors.gradients.pass_values import PassValues
from tensormagic.collectors.gradients.traced_graph import TracedGraph
from tensormagic.collectors.where.source import Sites
from tensormagic.reports import FailureReport, Graph, Location, Pass

Last = tuple[Pass, TracedGraph, PassValues]


class TracedFailure:
    """What is known of the call that torch refused, where one ended the run.

    Args:
        recorder: The mode that was on, which knows where nodes were made.
        sites: The lines met so far.
        namespace: Where names are looked up.
    """

    def __init__(self, recorder: ForwardRecorder, sites: Sites, namespace: Mapping[str, Any]) -> None:
        self._origins, self._sites = recorder.origins, sites
        self._around = Surroundings(
            namespace, sites.cell_number, frozenset({ForwardRecorder.__torch_function__.__code__}),
            origin=self._origin, origins=recorder.origins,
        )  # fmt: skip
        self._found: FailureReport | None = None
        self._node: tuple[int, int] | None = None

    def note(self, error: BaseException, last: Last | None) -> None:
        """Read the exception that ended the run.

        Args:
            error: As it came, with the tracer's frames.
            last: The last pass, its graph and its numbers.
        """
        self._found = failure_of(error, self._around)
        if self._found is not None and self._found.phase == "backward" and last is not None:
            done, graph, values = last
            if done.outcome == "failed" and values.order:
                self._node = (graph.skeleton.number, values.order[-1])

    def report(self, graphs: tuple[Graph, ...]) -> FailureReport | None:
        """Return what is known, or None.

        Args:
            graphs: Those of the trace, in its order: the node that was running is in one of them.
        """
        if self._found is None or self._node is None:
            return self._found
        number, node = self._node
        places = [at for at, graph in enumerate(graphs) if graph.number == number]
        return dataclasses.replace(self._found, node=(places[0], node)) if places else self._found

    def _origin(self, tensor: torch.Tensor) -> Location | None:
        """Return the line that made a tensor."""
        maker = tensor.grad_fn
        if maker is None:
            return None
        number, _ = self._origins.of(maker._sequence_nr())
        site = self._origins.origins[number][0] if number >= 0 else None
        return None if site is None else self._sites.locations[site]
