"""What the modules of a traced run hold beside their registries: looked at once, when the run has ended.

Only the ties of weights are taken down when a module is first met: that two Parameters were one cannot be seen later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import nn

from tensormagic.collectors.objects.identity import ModuleNames
from tensormagic.collectors.session.assignments import CellNumber, no_cell
from tensormagic.collectors.session.module_oddities import Optimized, Root, look_at
from tensormagic.collectors.session.ties import Ties
from tensormagic.reports import ModulesReport


class ModuleWatch:
    """Looks at the outermost modules of a run.

    Args:
        modules: Tells of each of them as it is met.
        namespace: The person's names.
        cell_number: Gives the number of a cell.

    Attributes:
        report: What was found; None before `finish`.
    """

    def __init__(self, modules: ModuleNames, namespace: Mapping[str, Any], cell_number: CellNumber | None) -> None:
        self._modules, self._namespace, self._cell_number = modules, namespace, cell_number or no_cell
        self._ties = Ties()
        self._learn, modules.on_root = modules.on_root, self._met
        self.report: ModulesReport | None = None

    def _met(self, name: str, module: nn.Module) -> None:
        self._learn(name, module)
        self._ties.remember(module)

    def finish(self, optimized: Iterable[int], add_gap: Callable[[str, str], None]) -> None:
        """Look at the modules; where that cannot be done, a gap. Never raises."""
        try:
            known = list(optimized)
            self.report = modules_report(
                self._modules.roots(), self._namespace, self._ties, lambda: known, self._cell_number
            )
        except Exception as error:
            add_gap("modules", f"what the modules hold could not be looked at: {type(error).__name__}: {error}")


def modules_report(
    roots: list[Root],
    namespace: Mapping[str, Any],
    ties: Ties,
    optimized: Optimized = tuple,
    cell_number: CellNumber = no_cell,
) -> ModulesReport:
    """Return what modules hold beside their registries, and which ties are broken."""
    found = look_at(roots, namespace, optimized=optimized, cell_number=cell_number)
    untied = tuple(pair for name, root in roots for pair in ties.broken(name, root, cell_number))
    return ModulesReport(tuple(found.loose), tuple(found.hidden), untied)
