"""What modules hold beside their registries: tensors and modules that ``parameters()`` does not list, and broken ties.

Facts alone; whether one of them is a fault depends on what trains the module, which is told here as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tensormagic.reports.finding import Location

TieEvidence = Literal["was one", "one memory", "equal values"]


@dataclass(frozen=True, slots=True)
class LooseTensor:
    """A tensor that is a plain attribute of a module: neither a parameter nor a buffer of it.

    Attributes:
        name: ``"net.scale"``.
        owner: Name of the outermost module: ``"net"``.
        module: Name of the module that has the attribute.
        shape: Its shape.
        dtype: Without the ``torch.`` prefix.
        device: As torch writes it.
        requires_grad: Whether autograd follows it.
        grad_fn: The node that made it; empty for a leaf.
        kept_elsewhere: Whether it, or each leaf that it was computed from, is registered with a module or has a name of
            its own besides.
        optimized: Whether an optimizer that could be found updates it, or all leaves it was computed from.
        siblings: How many parameters of the outermost module the optimizers that could be found update.
        registered: How many parameters the outermost module has.
        module_device: Where the outermost module's parameters lie, if all on one device; else empty.
        method: The method of the class that assigns it, the last one where several do; empty where none does.
        location: The line that does.
    """

    name: str
    owner: str
    module: str
    shape: tuple[int, ...]
    dtype: str
    device: str
    requires_grad: bool
    grad_fn: str = ""
    kept_elsewhere: bool = False
    optimized: bool = False
    siblings: int = 0
    registered: int = 0
    module_device: str = ""
    method: str = ""
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class HiddenModules:
    """Modules or parameters in a plain list, tuple or dictionary of a module, which therefore does not know them.

    Attributes:
        name: ``"net.layers"``.
        owner: Name of the outermost module.
        container: ``"list"``, ``"tuple"`` or ``"dict"``.
        modules: How many modules lie in it.
        parameters: How many parameters that ask for a gradient are known to no module for it; those that lie in the
            container themselves included.
        numel: Elements of these.
        registered: How many parameters the outermost module has.
        optimized: How many of the hidden ones an optimizer that could be found updates.
        with_gradient: How many of the hidden ones have a gradient.
        trained: Whether parameters that the outermost module knows have one, or an optimizer made a step with them.
        location: The line that makes the container.
    """

    name: str
    owner: str
    container: str
    modules: int
    parameters: int
    numel: int
    registered: int = 0
    optimized: int = 0
    with_gradient: int = 0
    trained: bool = False
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class UntiedPair:
    """Two parameters of a module that were meant to be one, by all that can be seen.

    Attributes:
        first: ``"net.embedding.weight"``.
        second: ``"net.head.weight"``.
        owner: Name of the outermost module.
        evidence: ``"was one"``: they were one Parameter when the module was first seen; ``"one memory"``: two
            Parameters over the same memory; ``"equal values"``: an embedding's and a linear layer's weight, equal in
            every element that was compared.
        compared: How many elements were compared; 0 where none had to be.
        numel: Elements of each.
        location: The line that ties them, where one is found.
    """

    first: str
    second: str
    owner: str
    evidence: TieEvidence
    compared: int = 0
    numel: int = 0
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class ModulesReport:
    """What was found in the modules that were looked at; empty parts where nothing was."""

    loose: tuple[LooseTensor, ...] = ()
    hidden: tuple[HiddenModules, ...] = ()
    untied: tuple[UntiedPair, ...] = ()
