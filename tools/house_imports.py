"""Who imports whom in a package: circles between files, and imports that run against the layers of setup.cfg.

The layers are those of the import contracts (``type = layers``), which ``make lint`` checks as well: nothing is written
twice. Read with ``ast`` alone; nothing is imported.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from configparser import ConfigParser
from dataclasses import dataclass
from pathlib import Path

CONTRACT = "importlinter:contract:"
IS_TYPING = {"TYPE_CHECKING", "typing.TYPE_CHECKING"}


@dataclass(frozen=True, order=True)
class Import:
    """One module that imports another of the same package; ``for_types``: under ``TYPE_CHECKING`` alone."""

    module: str
    imported: str
    for_types: bool = False


@dataclass(frozen=True)
class Layers:
    """One contract in one container: from child module to its layer, 0 being the highest, and what is let pass."""

    container: str
    layer_of: Mapping[str, int]
    closed: frozenset[int]
    ignored: tuple[re.Pattern[str], ...]

    def forbids(self, edge: Import) -> bool:
        """Return whether ``edge`` runs from a lower layer to a higher one, or between neighbours kept apart."""
        importer, imported = (self._child(name) for name in (edge.module, edge.imported))
        if importer is None or imported is None or importer == imported:
            return False
        low, high = self.layer_of[importer], self.layer_of[imported]
        against = low > high or (low == high and low in self.closed)
        return against and not any(one.fullmatch(f"{edge.module} -> {edge.imported}") for one in self.ignored)

    def _child(self, module: str) -> str | None:
        inside = module.removeprefix(f"{self.container}.") if self.container else module
        return next((child for child in self.layer_of if f"{inside}.".startswith(f"{child}.")), None)


def imports(trees: Mapping[str, ast.Module], packages: Iterable[str]) -> list[Import]:
    """Return every import between the modules of ``trees``, once each; ``packages`` are those that are a folder."""
    folders = set(packages)
    found = {
        Import(module, imported, for_types)
        for module, tree in trees.items()
        for node, for_types in _import_nodes(tree, for_types=False)
        for imported in _named(node, module if module in folders else module.rpartition(".")[0], trees)
        if imported != module
    }
    return sorted(found)


def circles(edges: Iterable[Import]) -> list[str]:
    """Return each group of modules that import one another in a circle, as one line of their names."""
    following: dict[str, set[str]] = {}
    for edge in edges:
        following.setdefault(edge.module, set()).add(edge.imported)
        following.setdefault(edge.imported, set())
    following = _without_ends(following)
    reached = {module: _reachable(module, following) for module in following}
    groups = {tuple(sorted(other for other in reached[module] if module in reached[other])) for module in following}
    return sorted(" - ".join(group) for group in groups if group)


def layers(settings: Path) -> list[Layers]:
    """Return the layers of every layers contract in ``settings``, one for each of its containers."""
    parser = ConfigParser()
    parser.read(settings, encoding="utf-8")
    sections = [parser[name] for name in parser.sections() if name.startswith(CONTRACT)]
    return [
        _layers_in(container, section.get("layers", "").split("\n"), section.get("ignore_imports", "").split("\n"))
        for section in sections
        if section.get("type") == "layers"
        for container in section.get("containers", "").split() or [""]
    ]


def against(edges: Iterable[Import], contracts: Sequence[Layers]) -> list[Import]:
    """Return the imports that some contract forbids; those for types alone count, as they do for the contracts."""
    return [edge for edge in edges if any(contract.forbids(edge) for contract in contracts)]


def _layers_in(container: str, rows: Sequence[str], ignored: Sequence[str]) -> Layers:
    written = [row.split("#")[0].strip() for row in rows]
    layer_of: dict[str, int] = {}
    closed = set()
    for layer, row in enumerate(row for row in written if row):
        children = [child.strip(" ()") for child in re.split(r"[|:]", row)]
        layer_of |= dict.fromkeys(children, layer)
        if ":" not in row:
            closed.add(layer)
    patterns = (row.split("#")[0].strip() for row in ignored)
    return Layers(container, layer_of, frozenset(closed), tuple(_pattern(row) for row in patterns if row))


def _pattern(row: str) -> re.Pattern[str]:
    return re.compile(re.escape(row).replace(r"\*\*", ".+").replace(r"\*", "[^.]+").replace(r"\ ", " "))


def _import_nodes(tree: ast.AST, *, for_types: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, for_types
        elif isinstance(node, ast.If) and ast.unparse(node.test) in IS_TYPING:
            yield from _import_nodes(ast.Module(node.body, []), for_types=True)
            yield from _import_nodes(ast.Module(node.orelse, []), for_types=for_types)
        elif not isinstance(node, ast.expr):
            yield from _import_nodes(node, for_types=for_types)


def _named(node: ast.Import | ast.ImportFrom, package: str, modules: Mapping[str, ast.Module]) -> Iterator[str]:
    """Give the modules that an import names: the file of a name, or the package that holds it."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in modules)
        return
    parents = package.split(".")
    above = ".".join(parents[: len(parents) - node.level + 1]) if node.level else ""
    origin = ".".join(filter(None, (above, node.module or "")))
    for alias in node.names:
        full = f"{origin}.{alias.name}"
        if full in modules or origin in modules:
            yield full if full in modules else origin


def _without_ends(following: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Take away, again and again, what imports nothing or is imported by nothing: no circle passes through it."""
    left = {module: set(imported) for module, imported in following.items()}
    while True:
        imported = set().union(*left.values()) if left else set()
        ends = {module for module in left if not left[module] or module not in imported}
        if not ends:
            return left
        left = {module: names - ends for module, names in left.items() if module not in ends}


def _reachable(module: str, following: Mapping[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = list(following[module])
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting.extend(following[name])
    return reached
