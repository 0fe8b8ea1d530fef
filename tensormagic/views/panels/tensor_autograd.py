"""A tensor's place in autograd, as nodes: why, hooks, the way to its leaves, what its node sends and keeps."""

from __future__ import annotations

from collections.abc import Sequence

from tensormagic.reports import BEYOND, NOTHING, AutogradDetails, Path, SavedState, TensorReport
from tensormagic.views.graph.words import formulas
from tensormagic.views.nodes import Cell, Column, Node, Section, Table, Words
from tensormagic.views.panels.why import PathPicture
from tensormagic.views.pictures.tensor_elements import name
from tensormagic.words import listed, plural, short_count, short_number, shortened, tuple_text

STATES = {
    "fine": "fine",
    "changed in place": "changed in place",
    "freed": "freed by an earlier backward()",
    "packed by a hook": "packed by your saved-tensor hook, which is not run to show it",
    "unreadable": "cannot be read",
}


def autograd_nodes(report: TensorReport) -> list[Node]:
    """Return what there is to say; nothing where autograd could not be read."""
    details = details_of(report)
    if details is None:
        return list(lines(report))
    way: list[Node] = []
    tables: list[Node] = []
    if details.path is not None:
        way.append(PathPicture(details.path, name(report)))
        rows = sent_rows(details.path)
        known = any(how for _, _, how in rows)  # else the formulas have no head
        tables.append(_table(("next functions", "to", "formula" if known else ""), rows))
    tables.append(_table(("saved tensors", "what", "state", "version counter"), saved_rows(details)))
    if broken(report):  # then the way to the failure is what matters
        tables = [Section("Next functions and saved tensors of its node", tables, folded=True)]
    return [*lines(report), *way, *tables]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    columns = [
        Column(title or "formula", look="name" if not at else "" if title else "silent")
        for at, title in enumerate(heads)
    ]
    return Table(columns, [[Words(first, "code"), *map(_cell, rest)] for first, *rest in rows])


def _cell(text: str) -> Cell:
    return Words(text, "strong") if text.startswith("changed in place") else text


def details_of(report: TensorReport) -> AutogradDetails | None:
    """Return the details, or None where there are none."""
    return report.autograd.details if report.autograd is not None else None


def broken(report: TensorReport) -> bool:
    """Return whether a backward from here can only fail: what its node needs was changed in place."""
    details = details_of(report)
    return details is not None and details.path is not None and bool(_modified_saved(details.path, "changed in place"))


def _modified_saved(path: Path, state: str) -> list[int]:
    return [place for place, node in enumerate(path.nodes) if node.saved == state]


def summary(report: TensorReport) -> str:
    """Return the closed disclosure's line: the node, how far it is to the leaves, and what is wrong."""
    details, autograd = details_of(report), report.autograd
    if autograd is None:
        return "not readable"
    parts = [autograd.grad_fn or ("leaf" if autograd.requires_grad else "no graph")]
    if details is None:
        return parts[0]
    if (path := details.path) is not None:
        nodes = plural(path.walked, "node") if path.complete else f"more than {short_count(path.walked)} nodes"
        parts.append(f"{nodes} to {plural(autograd.leaf_count, 'leaf', 'leaves')}")
    parts += [plural(len(details.hooks), "hook")] if details.hooks else []
    if details.path is not None:
        parts += ["a saved tensor was changed in place"] if broken(report) else []
        parts += ["its graph has been freed"] if _modified_saved(details.path, "freed") else []
    return ", ".join(parts)


def lines(report: TensorReport) -> tuple[str, ...]:
    """Return the place in autograd in sentences, with the reasons."""
    autograd, details = report.autograd, details_of(report)
    if autograd is None:
        return ()
    lines = [autograd.sentence.rstrip(".") + "."]
    if autograd.grad == "present":
        shape_text = tuple_text(autograd.grad_shape or ())
        norm = "" if autograd.grad_norm is None else f", norm {short_number(autograd.grad_norm)}"
        lines.append(f"`.grad` is a tensor of shape {shape_text}{norm}.")
    elif autograd.grad == "unreadable":
        lines.append("`.grad` cannot be read.")
    if autograd.leaf_count:
        leaves = listed(autograd.leaves, most=12, found=autograd.leaf_count)
        lines.append(f"Its graph leads to {plural(autograd.leaf_count, 'leaf', 'leaves')}: {leaves}.")
    lines += ["Its gradient is retained (retain_grad)."] if autograd.retains_grad else []
    lines += [f"{plural(autograd.hooks, 'tensor hook')} registered."] if autograd.hooks else []
    first, *rest = tuple(lines)
    if details is None:
        return (first, *rest)
    held = "is there" if autograd.grad == "present" else "is None"
    why = [f"{details.because[0].upper()}{details.because[1:]}."] if autograd.is_leaf else []
    why.append(f"`{name(report)}.grad` {held}: {details.grad_because}.")
    why += [line for line in rest if "hook" not in line]
    if autograd.grad_fn and details.output_number:
        why.append(f"It is output {details.output_number} of {autograd.grad_fn}.")
    if details.hooks:
        hooks = (
            f"`{shortened(hook.function, 40).replace('`', '')}` {hook.kind}"
            + (f" ({hook.place})" if hook.place else "")
            for hook in details.hooks
        )
        why.append(f"Hooks: {listed(hooks, most=6)}.")
    if details.path is None:
        return (first, *why)
    changed = [
        f"`backward()` would raise: a saved tensor was changed in place (saved by {node_words(details.path, place)})."
        for place in _modified_saved(details.path, "changed in place")[:1]
    ]
    freed = "its graph has been freed: an earlier `backward()` without `retain_graph=True` ran through it"
    again = [f"Another `backward()` would raise: {freed}."] if _modified_saved(details.path, "freed") else []
    return (*changed, first, *why, *again)


def saved_rows(details: AutogradDetails) -> tuple[tuple[str, str, str, str], ...]:
    """Return what the node keeps: slot, what it is, state, versions."""
    rows = []
    for saved in details.saved:
        size = f"{tuple_text(saved.shape)} {saved.dtype}" if saved.dtype else ""
        what, state = f"{saved.name} {size}".strip(), STATES.get(saved.state, saved.state)
        rows.append((saved.slot, what, state, _versions(saved)))
    return tuple(rows)


def _versions(saved: SavedState) -> str:
    if saved.version is None:
        return ""
    if saved.saved_version == saved.version:
        return f"version {saved.version}"
    return f"saved at version {saved.saved_version}, now {saved.version}"


def sent_rows(path: Path) -> tuple[tuple[str, str, str], ...]:
    """Return for each input of the tensor's own node where its gradient goes, and by which formula."""
    node = path.nodes[0]
    known = {NOTHING: "nothing: no gradient needed", BEYOND: "a node further away"}
    goes = zip(node.inputs, formulas(node.node, len(node.inputs)), strict=True)
    return tuple(
        (f"input {at}", known.get(to) or node_words(path, to), "" if to == NOTHING else how)
        for at, (to, how) in enumerate(goes)
    )


def node_words(path: Path, place: int) -> str:
    """Return a node in words: ``w, a leaf``, ``MulBackward0, which made y``."""
    node = path.nodes[place]
    if node.is_leaf:
        return f"{node.name or tuple_text(node.shape)}, a leaf"
    return f"{node.node}, which made {node.name}" if node.name else node.node
