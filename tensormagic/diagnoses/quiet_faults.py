"""TM302, TM307: what autograd lets pass although it is wrong: writes it cannot see, and gradients that nobody keeps."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tensormagic.diagnoses.backward_failures import lines, place_of, saver, tensor_name
from tensormagic.diagnoses.deeds import assigned, deed, update_by_hand
from tensormagic.reports import Finding, Location, TraceReport
from tensormagic.reports.backward_faults import GradientRead, SavedWrite, SpoiltTensor
from tensormagic.reports.finding import Scalar
from tensormagic.words import listed, plural

# A line that only asks whether there is a gradient.
_ASKS = re.compile(
    r"\.grad\s+is\b|\b(hasattr|getattr)\(|\b(if|elif|while|and|or|not)\s+[\w.\[\]]+\.grad\s*(:|\)|and\b|or\b|else\b)"
)

_DATA = (
    "Change it after backward, or make a new tensor; under `with torch.no_grad():` and without `.data` autograd would "
    "have noticed, and raised."
)
_ARRAY = "Change the array after backward, or change a copy of it: `.copy()`."


def changed_unseen(report: TraceReport) -> Iterator[Finding]:
    """TM302: a saved tensor was changed in a way that autograd cannot see: what backward computed is wrong."""
    told: dict[tuple[Location | None, str], list[SpoiltTensor]] = {}
    for spoilt in report.quiet.unseen if report.quiet is not None else ():
        told.setdefault((spoilt.writes[0].location, spoilt.writes[0].call), []).append(spoilt)
    yield from map(_unseen, told.values())


def _unseen(same: list[SpoiltTensor]) -> Finding:
    """Return the finding about what one line changed: the first that backward came to, and how many more."""
    spoilt, first = same[0], same[0].writes[0]
    names = list(dict.fromkeys(_name(each, first) for each in same))
    more = f" (and {plural(len(names) - 1, 'other tensor')})" if len(names) > 1 else ""
    how, what_hides, remedy = _by(first)
    seen: dict[str, Scalar] = {} if first.kind == "array" else {"writes seen": spoilt.writes_seen}
    return Finding(
        code="TM302",
        severity="error",
        message=f"{names[0]}{more} was changed {how} after {saver(spoilt)} had saved it for backward, and {what_hides} "
        f"hides that from autograd: the gradients that came through {spoilt.op} are wrong.",
        location=first.location or spoilt.location,
        evidence={"tensors": len(names), **seen, "shape": str(spoilt.shape)},
        remedy=remedy,
        subject=spoilt.op if " " in names[0] else names[0],
        node=place_of(spoilt),
        related=lines((f"saved by {spoilt.op}", spoilt.location), ("backward", spoilt.backward)),
    )


def _name(spoilt: SpoiltTensor, write: SavedWrite) -> str:
    """Return what a tensor is called that was changed; one that was made of an array, as the line says that made it."""
    made = assigned(write.location) if write.call == "as_tensor" and not spoilt.name else []
    return made[0] if len(made) == 1 else tensor_name(spoilt, write)


def _by(write: SavedWrite) -> tuple[str, str, str]:
    """Return how a write came about, what hides it, and what to do."""
    if write.kind == "array":
        return f"through the NumPy array of {deed(write)}", "NumPy", _ARRAY
    return f"by {deed(write)}", "`.data`", _DATA


def gradient_of_non_leaf(report: TraceReport) -> Iterator[Finding]:
    """TM307: ``.grad`` was read of a tensor that is no leaf, where it is always None.

    A note where there was no backward yet: then it is None of a leaf as well. Lines that ask whether there is a
    gradient are left alone.
    """
    for read in report.quiet.reads if report.quiet is not None else ():
        if read.location is None or not _ASKS.search(read.location.text):
            yield _non_leaf(read)


def _non_leaf(read: GradientRead) -> Finding:
    name = read.name or listed(assigned(read.made)[:1])
    made = f"{read.op} made it" if read.op else "an operation made it"
    times = f" ({plural(read.count, 'time')})" if read.count > 1 else ""
    code = name if name and name.isidentifier() else "x"
    return Finding(
        code="TM307",
        severity="warning" if read.passes else "note",
        message=f"The .grad of {name or f'a tensor {read.shape}'} is read and is None{times}: it is no leaf, {made}, "
        "and backward keeps gradients of leaves only.",
        location=read.location,
        evidence={"backward passes before": read.passes, "times": read.count},
        remedy=_update_in_place(read, code)
        or f"Ask for it before backward: `{code}.retain_grad()`.{_about_the_leaf(read, code)}",
        subject=name,
        related=lines(("made here", read.made)),
    )


def _update_in_place(read: GradientRead, code: str) -> str:
    """Return what to do where an update by hand made it: ``w = w - lr * w.grad`` makes a new tensor."""
    update = update_by_hand(read.made.text if read.made is not None else "")
    if not update.startswith(f"{code} "):
        return ""
    return f"Change the leaf in place, so that it stays one: `with torch.no_grad(): {update}`."


def _about_the_leaf(read: GradientRead, code: str) -> str:
    """Return what to do about the leaf, where the tensor is little else: scaled, converted, copied."""
    if read.leaf:
        return f" If you meant the leaf that it was made from: `{read.leaf}.grad`."
    if read.single:
        return f" If {code} is to be the leaf, ask for its gradient last: `{code} = {code}.detach().requires_grad_()`."
    return ""
