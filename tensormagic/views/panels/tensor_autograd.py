"""A tensor's place in autograd, as nodes: why, hooks, the way to its leaves, what its node sends and keeps."""

from __future__ import annotations

from tensormagic.reports import BEYOND, NOTHING, AutogradDetails, Path, SavedState, TensorReport
from tensormagic.views.graph.words import formulas
from tensormagic.views.nodes import Cell, Column, Node, Section, Table, Words
from tensormagic.views.panels.why import PathPicture
from tensormagic.views.pictures.tensor_elements import name
from tensormagic.words import capitalised, listed, plural, short_count, short_number, shortened, tuple_text

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
        return [*lines(report)]
    way, tables = list[Node](), list[Node]()
    if details.path is not None:
        way.append(PathPicture(details.path, name(report)))
        rows = sent_rows(details.path)
        known = any(how for _, _, how in rows)  # else the formulas have no head
        heads = Column("next functions", look="name"), Column("to"), Column("formula", look="" if known else "silent")
        tables.append(Table(heads, [(Words(first, "code"), *rest) for first, *rest in rows]))
    saved = ("saved tensors", "what", "state", "version counter")
    columns = [Column(title, look="" if at else "name") for at, title in enumerate(saved)]
    tables.append(Table(columns, [*map(_saved, details.saved)]))
    if broken(report):  # then the way to the failure is what matters
        tables = [Section("Next functions and saved tensors of its node", tables, folded=True)]
    return [*lines(report), *way, *tables]


def _saved(saved: SavedState) -> tuple[Cell, ...]:
    """Return what the node keeps: slot, what it is, state, versions."""
    size = f"{tuple_text(saved.shape)} {saved.dtype}" if saved.dtype else ""
    state = STATES.get(saved.state, saved.state)
    versions = f"saved at version {saved.saved_version}, now {saved.version}"
    versions = f"version {saved.version}" if saved.saved_version == saved.version else versions
    return (
        Words(saved.slot, "code"), f"{saved.name} {size}".strip(),
        Words(state, "strong") if saved.state == "changed in place" else state,
        "" if saved.version is None else versions,
    )  # fmt: skip


def details_of(report: TensorReport) -> AutogradDetails | None:
    """Return the details, or None where there are none."""
    return report.autograd.details if report.autograd is not None else None


def broken(report: TensorReport) -> bool:
    """Return whether a backward from here can only fail: what its node needs was changed in place."""
    return bool(_nodes_saved(report, "changed in place"))


def _nodes_saved(report: TensorReport, state: str) -> list[str]:
    """Return the nodes on the way to the leaves of which a saved tensor is in that state."""
    details = details_of(report)
    path = details.path if details is not None else None
    return [] if path is None else [node_words(path, at) for at, node in enumerate(path.nodes) if node.saved == state]


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
    parts += ["a saved tensor was changed in place"] if broken(report) else []
    parts += ["its graph has been freed"] if _nodes_saved(report, "freed") else []
    return ", ".join(parts)


def lines(report: TensorReport) -> tuple[str, ...]:
    """Return the place in autograd in sentences, with the reasons."""
    autograd, details = report.autograd, details_of(report)
    if autograd is None:
        return ()
    first, hooks = autograd.sentence.rstrip(".") + ".", list[str]()
    grad: list[str] = []
    if autograd.grad == "present":
        norm = "" if autograd.grad_norm is None else f", norm {short_number(autograd.grad_norm)}"
        grad = [f"`.grad` is a tensor of shape {tuple_text(autograd.grad_shape or ())}{norm}."]
    elif autograd.grad == "unreadable":
        grad = ["`.grad` cannot be read."]
    if autograd.leaf_count:
        leaves = listed(autograd.leaves, most=12, found=autograd.leaf_count)
        grad.append(f"Its graph leads to {plural(autograd.leaf_count, 'leaf', 'leaves')}: {leaves}.")
    grad += ["Its gradient is retained (retain_grad)."] if autograd.retains_grad else []
    if details is None:
        hooks = [f"{plural(autograd.hooks, 'tensor hook')} registered."] if autograd.hooks else []
        return (first, *grad, *hooks)
    held = "is there" if autograd.grad == "present" else "is None"
    why = [f"{capitalised(details.because)}."] if autograd.is_leaf else []
    why += [f"`{name(report)}.grad` {held}: {details.grad_because}.", *grad]
    if autograd.grad_fn and details.output_number:
        why.append(f"It is output {details.output_number} of {autograd.grad_fn}.")
    for hook in details.hooks:
        place = f" ({hook.place})" if hook.place else ""
        hooks.append(f"`{shortened(hook.function, 40).replace('`', '')}` {hook.kind}{place}")
    why += [f"Hooks: {listed(hooks, most=6)}."] if hooks else []
    changed = [
        f"`backward()` would raise: a saved tensor was changed in place (saved by {node})."
        for node in _nodes_saved(report, "changed in place")[:1]
    ]
    freed = "its graph has been freed: an earlier `backward()` without `retain_graph=True` ran through it"
    again = [f"Another `backward()` would raise: {freed}."] if _nodes_saved(report, "freed") else []
    return (*changed, first, *why, *again)


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
