"""What one tensor is: every section of a `TensorReport`, each of which may fail without taking the others along."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from operator import methodcaller
from typing import Any, TypeVar

import numpy as np
import torch
from torch import _tensor_str

from tensormagic.collectors.aliasing.aliases import AliasSearch, find_aliases, holders
from tensormagic.collectors.geometry.layout import NO_ROWS, Rows, layout, with_values
from tensormagic.collectors.geometry.strides import Memory
from tensormagic.collectors.kinds import Subject, study
from tensormagic.collectors.kinds.dtypes import BUFFER, buffer
from tensormagic.collectors.kinds.kind import ITSELF
from tensormagic.collectors.objects.children import BUFFERS
from tensormagic.collectors.objects.namespace import Walk, is_kind
from tensormagic.collectors.quiet import quiet, told
from tensormagic.collectors.tensors.autograd import autograd, autograd_details
from tensormagic.collectors.tensors.statistics import statistics, values
from tensormagic.reports import (
    AutogradReport,
    Component,
    DimensionSlices,
    Gap,
    KindReport,
    LayoutReport,
    Statistics,
    StorageReport,
    TensorReport,
)
from tensormagic.words import binding, count, error_text

_DATA_LINES = 6
_DATA_COLUMNS = 160
_REPR_THRESHOLD = 200  # torch's own is 1000, which it prints element by element; no more than six lines are kept
_EDGE_ITEMS = 3
FEW = 10  # values that stand in a line as they are
_MOST_READ = 2**22  # of a larger tensor a line shows a sample: it is printed at once
_MOST_DEPTH = 2  # components of components of a tensor are shown, theirs are not
_UNREAD = "its values are not in plain memory, or reading them would need a large copy"
_FLAGS = ("is_inference", "is_conj", "is_neg", "is_shared", "is_pinned")

Result = TypeVar("Result")


class _Sections:
    """Reads one section after the other; one that cannot be read leaves a gap instead."""

    def __init__(self) -> None:
        self.gaps: list[Gap] = []

    def read(self, section: str, look: Callable[[], Result], otherwise: Result) -> Result:
        """Return what ``look`` returns, or ``otherwise`` and a gap where it raises."""
        try:
            with np.errstate(all="ignore"):  # what the user asked NumPy to raise is about the user's own numbers
                return look()
        except Exception as error:  # showing never raises: whatever torch raises becomes a named gap
            self.gaps.append(Gap(section, reason_of(error)))
            return otherwise


def reason_of(error: BaseException) -> str:
    """Return an error as one line: which kind it is, and its first line."""
    return error_text(error).partition("\n")[0][:240]


def collect_tensor(
    x: torch.Tensor,
    *,
    name: str = "tensor",
    namespace: Mapping[str, object] | None = None,
    besides: Iterable[object] = (),
) -> TensorReport:
    """Return everything that is known about a tensor, and nothing of the tensor itself.

    Never raises for an odd tensor, never writes to it, draws no random numbers, leaves no warning, keeps no reference.
    Who else shares its memory is found in ``namespace``; ``besides`` are tensors that are alive only because they are
    inspected as well.
    """
    with quiet(), torch._C._DisableFuncTorch():
        known = namespace or {}
        return _collect(x, name, dict(known), besides=(*besides, known))


def collect_briefly(x: torch.Tensor) -> TensorReport:
    """Return what a line of text shows of a tensor: its numbers, its kind and its place in autograd, nothing else.

    As `collect_tensor` it never raises for an odd tensor and changes nothing. Nobody who shares or holds it is looked
    for, and its graph is not walked: a list of a thousand tensors is printed in little time.
    """
    with quiet(), torch._C._DisableFuncTorch():
        sections, subject = _Sections(), study(x)
        outline = _outline(x, subject, sections)
        return TensorReport(
            name="",
            role=subject.found[0][1].label if subject.found else "",
            version=None,
            is_view=False,
            data_text=sections.read("data", lambda: _few_values(subject), ""),
            statistics=_values(subject, sections, limit=_MOST_READ)[0],
            autograd=sections.read("autograd", lambda: _autograd_briefly(x), None),
            gaps=tuple(sections.gaps),
            **outline,
        )


def _outline(x: torch.Tensor, subject: Subject, sections: _Sections) -> dict[str, Any]:
    """Return the fields of a report that every tensor has."""
    nothing: tuple[int, ...] = ()
    numel = sections.read("numel", lambda: subject.numel, 0)
    element_size = sections.read("element size", x.element_size, 0)
    return {
        "type_name": type(x).__name__,
        "dtype": str(x.dtype).removeprefix("torch."),
        "shape": sections.read("shape", lambda: subject.shape, nothing),
        "device": sections.read("device", lambda: str(x.device), "unknown"),
        "layout_name": sections.read("layout", lambda: str(x.layout).removeprefix("torch."), "unknown"),
        "element_size": element_size,
        "nbytes": numel * element_size,
        "numel": numel,
    }


def _few_values(subject: Subject) -> str:
    """Return the values of a tensor that holds few, as Python writes them; empty where there are more."""
    numbers = subject.numbers
    if numbers is None or not 0 < numbers.tensor.numel() <= FEW or numbers.tensor.shape != subject.plain.shape:
        return ""
    return as_python(numbers.tensor.detach().tolist())


def as_python(values: Any) -> str:
    """Return numbers, or lists of them, as Python writes them, to four digits."""
    if isinstance(values, list):
        return f"[{', '.join(map(as_python, values))}]"
    return f"{values:.4g}" if isinstance(values, float | complex) else str(values)


def _autograd_briefly(x: torch.Tensor) -> AutogradReport:
    made_by = None if x.grad_fn is None else x.grad_fn.name()
    return AutogradReport(
        x.requires_grad, x.is_leaf, made_by, retains_grad=False, grad="unreadable", grad_shape=None, grad_norm=None,
        hooks=0, leaves=(), leaf_count=0, sentence="",
    )  # fmt: skip


def _collect(
    x: torch.Tensor, name: str, namespace: dict[str, object], *, besides: Iterable[object] = (), depth: int = 0
) -> TensorReport:
    sections, subject = _Sections(), study(x)
    outline = _outline(x, subject, sections)
    storage = sections.read("storage", lambda: _storage(subject.plain), None) if subject.strided else None
    shared = _shared(subject, name, namespace, sections)
    if outline["numel"] and subject.numbers is None:
        sections.gaps.append(Gap("values", subject.no_values or _UNREAD))
    numbers, by_slice = _values(subject, sections)
    state = sections.read("autograd", lambda: autograd(x, shared.names, name=name), None)
    details = None
    if state is not None:
        details = sections.read("autograd", lambda: autograd_details(x, shared.names, shared.named, name=name), None)
    flags, plain = _FLAGS if subject.strided else _FLAGS[:3], subject.plain  # only sometimes worth a line
    looked_at = (*besides, *subject.looked_at)
    return TensorReport(
        name=name,
        role=sections.read("role", lambda: _role(x, storage, shared.search), "unknown"),
        version=sections.read("version", lambda: None if x.is_inference() else x._version, None),
        is_view=sections.read("is_view", x._is_view, otherwise=False),
        flags={flag: str(answer) for flag in flags if (answer := told(partial(methodcaller(flag), plain), "")) != ""},
        data_text=sections.read("data", lambda: "" if subject.printed is None else data_text(subject.printed), ""),
        storage=storage,
        layout=_layout(subject, storage, shared, sections),
        statistics=numbers,
        slices=by_slice,
        autograd=state and replace(state, details=details),
        aliases=shared.search.aliases,
        aliases_searched=shared.looked,
        holders=sections.read("holders", lambda: holders(x, namespace, names=shared.names, besides=looked_at), None)
        if not depth
        else None,
        kinds=tuple(_kinds(subject, name, sections, depth=depth, registered=shared.buffers.get(id(x)))),
        gaps=tuple(sections.gaps),
        **outline,
    )


def _storage(x: torch.Tensor) -> StorageReport | None:
    memory, storage = Memory.of(x), x.untyped_storage()
    on_host = memory.device == "cpu" and memory.address != 0
    return StorageReport(
        memory.address, memory.nbytes, memory.nbytes // x.element_size(), str(x.device), storage.resizable(),
        shared=on_host and storage.is_shared(), pinned=on_host and bool(x.is_pinned()),
    )  # fmt: skip


def _values(
    subject: Subject, sections: _Sections, *, limit: int | None = None
) -> tuple[Statistics | None, tuple[DimensionSlices, ...]]:
    """Return numbers over the values, wherever they are, which the report says; slices only where they are its own.

    With a ``limit`` about so many elements are read, and no slices.
    """
    numbers = subject.numbers
    nothing: tuple[Statistics | None, tuple[DimensionSlices, ...]] = (None, ())
    if numbers is None:
        return nothing
    x = numbers.tensor
    found, slices = sections.read(
        "statistics", lambda: (statistics(x, limit=limit), ()) if limit else values(x), nothing
    )
    if found is None or not numbers.of_what:
        return found, slices
    magnitudes = "the magnitudes of " if found.of_what == "magnitudes" else ""
    found = replace(found, of_what=f"{magnitudes}{numbers.of_what}")
    if subject.strided and numbers.tensor.shape == subject.tensor.shape:
        return found, slices
    return replace(found, first_nan=None, first_positive_infinity=None, first_negative_infinity=None), ()


def _kinds(
    subject: Subject, name: str, sections: _Sections, *, depth: int, registered: bool | None
) -> Iterator[KindReport]:
    """Yield what each kind says, its components as reports of their own; of a registered buffer, that it is one."""
    if registered is not None and all(kind.key != BUFFER for kind, _ in subject.found):
        yield KindReport(BUFFER, "Buffer", buffer(saved=registered).summary)
    for kind, said in subject.found:
        if said.error is not None:
            sections.gaps.append(Gap(f"kind {kind.key}", reason_of(said.error)))
            continue
        parts = said.parts if depth < _MOST_DEPTH else ()
        components = tuple(
            Component(f"{name}{part.path}", part.role, _collect(part.tensor, f"{name}{part.path}", {}, depth=depth + 1))
            for part in parts
        )
        code = binding(name)
        facts = tuple(replace(fact, value=fact.value.replace(ITSELF, code)) for fact in said.facts)
        yield KindReport(
            kind.key, said.label, said.summary.replace(ITSELF, code), facts, components,
            map=said.map, stored=said.stored, reading=said.reading, stored_bytes=said.stored_bytes, placed=said.placed,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Shared:
    """What the namespace says about a tensor's memory. Holds tensors: never leaves this module."""

    search: AliasSearch  # who shares the storage
    named: list[tuple[str, Any]]  # everything that was found under a name
    names: dict[int, str]  # the first name of each tensor, by ``tensor._cdata``
    looked: int  # how many names and attributes were looked through
    buffers: dict[int, bool]  # as in `Walk`


def _shared(subject: Subject, name: str, namespace: dict[str, object], sections: _Sections) -> _Shared:
    walk, x = Walk(namespace), subject.tensor
    nothing: list[tuple[str, Any]] = []
    met = sections.read("aliases", lambda: list(walk.named(torch.Tensor, np.ndarray, *BUFFERS)), nothing)
    found = [pair for pair in met if is_kind(pair[1], torch.Tensor, np.ndarray)]
    buffers = [pair for pair in met if not is_kind(pair[1], torch.Tensor, np.ndarray)]
    # The path `net[0].weight` that was typed and the name `net.0.weight` are the same name of the same tensor.
    dotted = partial(re.sub, r"\[(\d+)\]", r".\1")
    named = [(name if item is x and dotted(label) == dotted(name) else label, item) for label, item in found]
    names = {item._cdata: label for label, item in reversed(named) if is_kind(item, torch.Tensor)}
    search = AliasSearch()
    if subject.strided:
        search = sections.read("aliases", lambda: find_aliases(x, [*named, *buffers], name=name), search)
    if walk.gap:
        sections.gaps.append(Gap("aliases", walk.gap))
    if search.found > len(search.aliases):
        listed = f"{count(len(search.aliases))} of the {count(search.found)}"
        sections.gaps.append(Gap("aliases", f"{listed} objects that share its storage are listed"))
    return _Shared(search, named, names, walk.looked, walk.buffers)


def _role(x: torch.Tensor, storage: StorageReport | None, search: AliasSearch) -> str:
    if storage is None:
        return "has no storage of its own"
    if x._is_view():
        whole = _whole(x, storage, search)
        return f"view of {whole}" if whole else "view (base has no name)"
    other = next((alias.name for alias in search.aliases if alias.relation == "same storage"), search.owner)
    if other and other == search.owner and search.is_buffer:
        return f"its memory belongs to {other}"
    return f"shares its storage with {other}" if other else "owns its storage"


def _whole(x: torch.Tensor, storage: StorageReport, search: AliasSearch) -> str:
    """Return the name a view is a view of: its base, or another view that is the whole base under a name."""
    named = [alias for alias in search.aliases if alias.relation == "base" and not alias.name.endswith("._base")]
    if not named and x.numel() < storage.elements:
        sisters = (alias for alias in search.aliases if alias.relation == "view of the same base")
        named = [alias for alias in sisters if alias.of_elements == storage.elements and alias.overlap == "yes"]
    return named[0].name if named else ""


def _layout(
    subject: Subject, storage: StorageReport | None, shared: _Shared, sections: _Sections
) -> LayoutReport | None:
    if storage is None:
        return None
    x, numbers = subject.plain, subject.numbers
    shape, stride = tuple(int(size) for size in x.shape), tuple(int(step) for step in x.stride())
    sizes = {"storage_elements": storage.elements, "element_size": x.element_size()}
    rows = sections.read("layout", lambda: _rows(x, storage, shared), NO_ROWS)
    laid = sections.read("layout", lambda: layout(shape, stride, int(x.storage_offset()), rows=rows, **sizes), None)
    if not laid or numbers is None or numbers.tensor.shape != x.shape:
        return laid
    filled = sections.read("values", lambda: with_values(laid.grid, numbers.tensor), laid.grid)
    return replace(laid, grid=filled)


def _rows(x: torch.Tensor, storage: StorageReport, shared: _Shared) -> Rows:
    """Return the rows of the first tensor that is the whole storage in order and has rows: the base, or x itself."""
    whole = _whole(x, storage, shared.search)
    bases = [(label, item) for label, item in shared.named if label == whole]
    own = [(label, item) for label, item in shared.named if item is x]
    for label, item in bases[:1] + own[:1]:
        same = item.dim() > 1 and item.element_size() == x.element_size() and item.storage_offset() == 0
        if same and item.is_contiguous() and item.numel() == storage.elements > 0:
            return item.numel() // item.shape[0], label
    return NO_ROWS


def data_text(x: torch.Tensor) -> str:
    """Return the values as torch prints them, cut to a few lines; long ones summarised however torch is set up."""
    plain = x.detach()
    long = plain.numel() > _REPR_THRESHOLD and _tensor_str.PRINT_OPTS.threshold > _REPR_THRESHOLD
    with _tensor_str.printoptions(threshold=_REPR_THRESHOLD, edgeitems=_EDGE_ITEMS) if long else nullcontext():
        own = type(plain).__repr__ is not torch.Tensor.__repr__  # else `tensormagic.set_repr` may have set another
        text: str = repr(plain) if own else _tensor_str._str(plain)  # type: ignore[no-untyped-call]
    lines = [line if len(line) <= _DATA_COLUMNS else line[: _DATA_COLUMNS - 1] + "…" for line in text.splitlines()]
    return "\n".join(lines if len(lines) <= _DATA_LINES else [*lines[: _DATA_LINES - 1], "…"])
