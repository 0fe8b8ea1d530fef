"""Where parameters lie in their model: beside others of the same make, and by which line they got there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from torch import nn

from tensormagic.collectors.objects.holdings import registered
from tensormagic.collectors.objects.namespace import is_kind
from tensormagic.collectors.session.assignments import CellNumber, assigned
from tensormagic.reports import Location


def like_trained(
    root: tuple[str, nn.Module], names: Sequence[str], still: Iterable[int], trained: Iterable[int]
) -> tuple[int, ...]:
    """Return the parameters that lie in a ModuleList or ModuleDict beside modules of the same make that are trained.

    Which of such modules is used may depend on the data: experts, adapters of a language, layers that are dropped.

    Args:
        root: The model, and its name.
        names: Of all its parameters, with the name of the model.
        still: The numbers of those asked about.
        trained: The numbers of those that are trained.
    """
    patterns = {number: _pattern(*root, names[number]) for number in {*still, *trained}}
    used = {patterns[number] for number in trained}
    return tuple(number for number in still if "*" in patterns[number] and patterns[number] in used)


def _pattern(owner: str, root: nn.Module, name: str) -> tuple[str, ...]:
    """Return the path of a parameter with a star for each place in a list or dictionary of modules."""
    parts = tuple(name.removeprefix(f"{owner}.").split("."))
    parents = [module for module, _ in _steps(root, parts)]
    starred = (is_kind(module, nn.ModuleList, nn.ModuleDict) for module in parents)
    return tuple("*" if star else key for star, key in zip(starred, parts, strict=False))


def _steps(root: nn.Module, path: Iterable[str]) -> Iterator[tuple[nn.Module, str]]:
    """Yield the modules on the way to a parameter, each with the attribute that is taken of it."""
    module: nn.Module | None = root
    for key in path:
        if module is None:
            return
        yield module, key
        module = registered(module, "_modules").get(key)


def made_at(root: nn.Module, paths: Sequence[str], cell_number: CellNumber) -> Location | None:
    """Return the line of a person's class that makes what these parameters have in common, from outside inwards."""
    common: list[str] = []
    for keys in zip(*(path.split(".") for path in paths), strict=False):
        if len(set(keys)) > 1:
            break
        common.append(keys[0])
    lines = [line for module, key in _steps(root, common) for line in assigned(type(module), key, cell_number)[:1]]
    return lines[-1] if lines else None
