"""What one tensor is: the report behind ``%tensor`` and `tensormagic.inspect`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from tensormagic.reports.aliases import Alias
from tensormagic.reports.autograd import AutogradDetails
from tensormagic.reports.base import Report
from tensormagic.reports.finding import Gap
from tensormagic.reports.holders import HoldersReport
from tensormagic.reports.kinds import Fact, StoredList, StoredMap
from tensormagic.reports.picture import TensorPicture
from tensormagic.reports.slices import DimensionSlices
from tensormagic.reports.storage import LayoutReport, StorageReport
from tensormagic.reports.verdict import CopyVerdict
from tensormagic.words import number_of_bytes


@dataclass(frozen=True, slots=True)
class Statistics:
    """Numbers over a tensor's elements. NaN and infinities are counted and left out of the rest.

    Attributes:
        count: Elements looked at.
        of: Elements there are; more than ``count`` where the tensor was sampled.
        sampling: How ``count`` was chosen, in words; empty where everything was read.
        finite: How many are finite.
        nan: How many are NaN.
        positive_infinity: How many are +Inf.
        negative_infinity: How many are -Inf.
        zero: How many are exactly zero.
        minimum: Smallest finite value, an exact int for integers; None where nothing is finite (as for all that
            follow).
        maximum: Largest finite value.
        mean: Of the finite values, accumulated in float64.
        std: Of the finite values, divisor n - 1; None for fewer than two.
        norm: Euclidean norm of the finite values.
        histogram_edges: n + 1 bin edges from minimum to maximum; empty where nothing is finite. Few whole numbers
            have a bin each, with edges half-way between them; a constant has one bin around it.
        histogram_counts: n counts.
        of_what: What the numbers are of: ``"values"``, or ``"magnitudes"`` for complex tensors.
        first_nan: Index of the first NaN found, or None.
        first_positive_infinity: Index of the first +Inf found, or None.
        first_negative_infinity: Index of the first -Inf found, or None.
        sampled: Of how many elements ``zero`` and the histogram are, where those were sampled while all else is of
            all ``count``; None where they are of ``count`` as well.
    """

    count: int
    of: int
    finite: int
    nan: int
    positive_infinity: int
    negative_infinity: int
    zero: int
    minimum: int | float | None
    maximum: int | float | None
    mean: float | None
    std: float | None
    norm: float | None
    histogram_edges: tuple[float, ...] = ()
    histogram_counts: tuple[int, ...] = ()
    sampling: str = ""
    of_what: str = "values"
    first_nan: tuple[int, ...] | None = None
    first_positive_infinity: tuple[int, ...] | None = None
    first_negative_infinity: tuple[int, ...] | None = None
    sampled: int | None = None


@dataclass(frozen=True, slots=True)
class AutogradReport:
    """A tensor's place in autograd.

    Attributes:
        requires_grad: The flag.
        is_leaf: The flag.
        grad_fn: Name of the node that made it (``"MmBackward0"``), or None.
        retains_grad: Whether ``.grad`` will be kept although it is no leaf.
        grad: ``"none"``, ``"present"`` or ``"unreadable"``: the state of ``.grad``, read without the warning that
            torch gives for a non-leaf.
        grad_shape: Shape of ``.grad`` where present.
        grad_norm: Euclidean norm of ``.grad`` where present and readable.
        hooks: How many tensor hooks are registered on it.
        leaves: Names (or ``"(8, 3) leaf"`` where there is none) of the leaves its graph leads to, at most a few.
        leaf_count: How many leaves there are.
        sentence: The state in one sentence, e.g. "a leaf that requires grad: backward() will fill x.grad".
        details: What stands behind it: hooks, saved tensors, the way to the leaves.
    """

    requires_grad: bool
    is_leaf: bool
    grad_fn: str | None
    retains_grad: bool
    grad: str
    grad_shape: tuple[int, ...] | None
    grad_norm: float | None
    hooks: int
    leaves: tuple[str, ...]
    leaf_count: int
    sentence: str
    details: AutogradDetails | None = None


@dataclass(frozen=True, slots=True)
class Component:
    """A tensor inside the tensor.

    Attributes:
        name: How a person reaches it, e.g. ``"x.crow_indices()"``.
        role: What it is for, in one sentence.
        report: The tensor itself, without a search for who shares it.
    """

    name: str
    role: str
    report: TensorReport


@dataclass(frozen=True, slots=True)
class KindReport:
    """One kind that a tensor is of: sparse, nested, fake, distributed …, and where its numbers really lie.

    There is one for what holds the numbers (at most one), and one for each further trait that is worth a sentence
    (parameter, conjugate view, shared memory, an unusual dtype). All are plain text and numbers, made by
    `tensormagic.collectors.kinds`; a new kind needs no change here and none in a renderer.

    Attributes:
        key: Its name in the table of kinds: ``"sparse_csr"``, ``"vmap"``, ``"parameter"``.
        label: What to call it on a badge: ``"CSR"``, ``"conjugate view"``.
        summary: What that means for this tensor, in one sentence.
        facts: What is known of it, in the order to show.
        components: The tensors it is made of.
        map: Which cells are stored, where that is a matrix or rows.
        stored: The stored elements as they lie in memory.
        reading: How one element is found, step by step, with its numbers.
        stored_bytes: What it really takes, where that is not its elements times their size.
    """

    key: str
    label: str
    summary: str
    facts: tuple[Fact, ...] = ()
    components: tuple[Component, ...] = ()
    map: StoredMap | None = None
    stored: StoredList | None = None
    reading: tuple[str, ...] = ()
    stored_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorReport(Report):
    """Everything that is known about one tensor, without the tensor.

    Attributes:
        name: The expression or name it was inspected under.
        type_name: Its Python class: ``"Tensor"``, ``"Parameter"``.
        role: ``"owns its storage"``, ``"view of a"``, ``"view (base has no name)"``, ``"shares its storage with a"``.
        dtype: Without the ``torch.`` prefix.
        shape: Sizes; -1 for one that differs from item to item (nested tensors).
        device: As torch writes it.
        layout_name: ``"strided"``, ``"sparse_coo"`` …, without the prefix.
        element_size: Bytes an element.
        nbytes: numel · element_size.
        numel: Number of elements.
        version: The version counter; None for inference tensors, which have none.
        is_view: Whether autograd sees it as a view.
        flags: Other attributes worth listing, name → text (``"is_conj": "False"``), in the order to show.
        data_text: ``x.data`` as torch prints it, cut to a few lines.
        storage: The buffer; None where there is none.
        layout: Where each index lies; None for layouts that are not strided.
        statistics: Numbers over the values; None where values cannot be read.
        autograd: Its place in autograd.
        aliases: Who shares its storage, nearest relation first.
        aliases_searched: How many names and attributes were looked through to find them.
        slices: Its values slice by slice, for each dimension that has several slices of several elements.
        picture: It as images or signals, where a picture was asked for.
        gaps: What could not be read, and why.
        holders: Who keeps it and its storage alive; None where nobody was looked for.
        verdict: Whether it shares memory with the operands of the expression that made it; None for a plain name.
        kinds: What sort of tensor it is, what holds its numbers first; empty for a plain strided one.
    """

    kind_name: ClassVar[str] = "tensor"

    name: str
    type_name: str
    role: str
    dtype: str
    shape: tuple[int, ...]
    device: str
    layout_name: str
    element_size: int
    nbytes: int
    numel: int
    version: int | None
    is_view: bool
    flags: dict[str, str] = field(default_factory=dict)
    data_text: str = ""
    storage: StorageReport | None = None
    layout: LayoutReport | None = None
    statistics: Statistics | None = None
    autograd: AutogradReport | None = None
    aliases: tuple[Alias, ...] = ()
    aliases_searched: int = 0
    slices: tuple[DimensionSlices, ...] = ()
    picture: TensorPicture | None = None
    gaps: tuple[Gap, ...] = ()
    verdict: CopyVerdict | None = None
    holders: HoldersReport | None = None
    kinds: tuple[KindReport, ...] = ()

    @property
    def metadata(self) -> dict[str, str]:
        """Every attribute as text, the eight that tutorials name first, in the order to show."""
        autograd, layout = self.autograd, self.layout
        rows = {
            "data": self.data_text.splitlines()[0] if self.data_text else "not readable",
            "dtype": f"torch.{self.dtype}",
            "shape": str(self.shape),
            "device": self.device,
            "requires_grad": str(autograd.requires_grad) if autograd else "not readable",
            "grad": _grad_text(autograd),
            "grad_fn": str(autograd.grad_fn) if autograd else "not readable",
            "is_leaf": str(autograd.is_leaf) if autograd else "not readable",
            "ndim": str(len(self.shape)),
            "numel": str(self.numel),
            "layout": f"torch.{self.layout_name}",
            "stride": str(layout.stride) if layout else "none",
            "storage_offset": str(layout.storage_offset) if layout else "none",
            "element size": number_of_bytes(self.element_size),
            "bytes": number_of_bytes(self.nbytes),
            "storage bytes": number_of_bytes(self.storage.nbytes) if self.storage else "none",
            "storage address": f"{self.storage.address:#x}" if self.storage else "none",
            "version": "none" if self.version is None else str(self.version),
            "is view": str(self.is_view),
        }
        return rows | self.flags


def _grad_text(autograd: AutogradReport | None) -> str:
    if autograd is None or autograd.grad == "unreadable":
        return "not readable"
    return "None" if autograd.grad == "none" else f"tensor of shape {autograd.grad_shape}"
