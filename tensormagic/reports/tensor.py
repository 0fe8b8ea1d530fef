"""What one tensor is: the report behind ``%tensor`` and `tensormagic.inspect`."""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from tensormagic.errors import ReportFormatError
from tensormagic.reports.aliases import Alias, HoldersReport
from tensormagic.reports.autograd import AutogradDetails
from tensormagic.reports.base import Gap, Report
from tensormagic.reports.ranks import Placed
from tensormagic.reports.storage import CopyVerdict, LayoutReport, StorageReport
from tensormagic.words import number_of_bytes


@dataclass(frozen=True, slots=True)
class BadSlice:
    """One index of a dimension whose slice holds NaN or infinities."""

    index: int  #: Which.
    nan: int  #: How many of its elements are NaN.
    inf: int  #: How many are infinite.


@dataclass(frozen=True, slots=True)
class LargeSlice:
    """One index of a dimension whose values are far larger than those of the others."""

    index: int  #: Which.
    ratio: float  #: Mean magnitude of its finite values, as a multiple of that of the median slice.


@dataclass(frozen=True, slots=True)
class DimensionSlices:
    """The slices along one dimension."""

    dim: int  #: Which dimension.
    size: int  #: How many slices there are.
    elements: int  #: How many elements a slice has.
    looked: int  #: How many of them were looked at for everything but NaN and infinities.
    cell_slices: int  #: How many slices a cell of the picture stands for.
    levels: tuple[float, ...]  #: The mean magnitude of each cell's largest slice, of its finite values, else NaN.
    cell_bad: tuple[int, ...]  #: For each cell how many elements are NaN or infinite.
    bad_count: int = 0  #: How many slices hold NaN or infinities.
    bad: tuple[BadSlice, ...] = ()  #: The first few of them.
    bad_exact: bool = True  #: Whether every element was looked at for NaN and infinities.
    zero_count: int = 0  #: How many slices are zero everywhere (of what was looked at).
    zero: tuple[int, ...] = ()  #: The first few of them.
    large: tuple[LargeSlice, ...] = ()  #: Slices far larger than the others, the largest first.


@dataclass(frozen=True, slots=True)
class ImageFrame:
    """One image."""

    label: str  #: The index that gives it, as in ``x[0, 3]``: ``"0, 3"``; empty where the whole tensor is one image.
    width: int  #: Pixels across.
    height: int  #: Pixels down.
    #: Base64 of zlib-compressed bytes, row by row, for each pixel its levels (one, or red, green and blue) and its
    #: opacity: 255, or 0 where it is NaN or infinite.
    pixels: str = field(metadata={"encoded": True})

    def unpacked(self) -> bytes:
        """Return the pixels' bytes.

        Raises:
            ReportFormatError: where they are not as many as width and height say; no more are unpacked.
        """
        most = 4 * self.width * self.height
        try:
            found = zlib.decompressobj().decompress(base64.b64decode(self.pixels, validate=True), max(most, 0) + 1)
        except (ValueError, zlib.error) as error:
            raise ReportFormatError(f"the pixels of a picture cannot be read: {error}") from error
        if min(self.width, self.height) < 1 or len(found) not in {most // 2, most}:
            raise ReportFormatError("a picture has other pixels than its width and height say")
        return found


@dataclass(frozen=True, slots=True)
class SignalLine:
    """One signal, in as many columns as are drawn."""

    label: str  #: The index that gives it; empty where the whole tensor is one signal.
    low: tuple[float, ...]  #: Smallest finite value of each column; NaN where there is none.
    high: tuple[float, ...]  #: Largest finite value of each column.
    bad: tuple[int, ...]  #: How many values of each column are NaN or infinite.


Scaling = Literal["bytes", "truth", "unit", "shown"]


@dataclass(frozen=True, slots=True)
class TensorPicture:
    """A tensor as a picture."""

    #: How the dimensions were taken: ``"(N, C, H, W)"``, ``"(H, W)"``, ``"(T)"``; ``"[0]"`` before it for each
    #: dimension of which only the first index is shown.
    reading: str
    channels: int  #: 3 for colour, 1 for grey; 0 for signals.
    low: float  #: The value drawn black, or at the foot.
    high: float  #: The value drawn white, or at the top.
    #: Why these two: ``"bytes"`` and ``"truth"`` for uint8 and bool, ``"unit"`` for values that lie between 0 and 1,
    #: ``"shown"`` for the smallest and largest shown.
    scale: Scaling
    images: tuple[ImageFrame, ...] = ()  #: Where it was read as images.
    lines: tuple[SignalLine, ...] = ()  #: Where it was read as signals.
    of: int = 1  #: How many images or signals there are.
    step: int = 1  #: Every how-manieth pixel is shown; for signals how many values a column stands for.
    size: tuple[int, ...] = ()  #: Height and width of an image, or length of a signal, of which this is what is shown.
    bad: int = 0  #: How many of the values shown are NaN or infinite.


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that is true of this kind: what it is called, its value as text, and what to know about it."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class StoredLine:
    """One array of a kind that stores only some elements, cut to the stored elements that are listed."""

    name: str
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """Stored elements that belong to one row, column or item: from ``start`` to ``stop`` (exclusive)."""

    label: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class StoredList:
    """The first stored elements, one column each, as they lie in memory."""

    count: int  #: How many stored elements there are.
    shown: int  #: How many are listed: the first ones.
    lines: tuple[StoredLine, ...]  #: The arrays, each with a text for every element listed.
    groups: tuple[StoredGroup, ...] = ()  #: Which row, column or item owns which run of them, where there are runs.
    group_name: str = ""  #: The array that says so: ``"crow_indices"``, ``"offsets"``.
    example: int | None = None  #: The place whose way is explained step by step (`KindReport.reading`); else None.


NOT_STORED, OUTSIDE = -1, -2


@dataclass(frozen=True, slots=True)
class StoredMap:
    """A picture of which cells of a matrix, or of rows of different lengths, are stored."""

    row_name: str  #: What a row is: ``"row"``, ``"item"``.
    column_name: str  #: What a column is: ``"column"``, ``"position"``.
    row_count: int  #: How many rows there are.
    column_count: int  #: How many columns there are.
    row_step: int  #: Rows in one drawn row; 1 where each has its own.
    column_step: int  #: Columns in one drawn column.
    counts: tuple[tuple[int, ...], ...]  #: For each drawn cell how many stored elements lie in it.
    #: For each drawn cell the place of its stored element (its last, where there are several) among the stored ones,
    #: `NOT_STORED`, or `OUTSIDE` where a row has ended. Empty where cells are joined.
    places: tuple[tuple[int, ...], ...] = ()
    texts: tuple[tuple[str, ...], ...] = ()  #: For each drawn cell its value as text; empty where cells are joined.
    title: str = ""  #: What is drawn, where it is not simply everything: ``"batch item 0 of 4"``.
    sampled: int = 0  #: How many of the stored elements were looked at, where not all were; else 0.


@dataclass(frozen=True, slots=True)
class Statistics:
    """Numbers over a tensor's elements. NaN and infinities are counted and left out of the rest."""

    count: int  #: Elements looked at.
    of: int  #: Elements there are; more than ``count`` where the tensor was sampled.
    finite: int  #: How many are finite.
    nan: int  #: How many are NaN.
    positive_infinity: int  #: How many are +Inf.
    negative_infinity: int  #: How many are -Inf.
    zero: int  #: How many are exactly zero.
    minimum: int | float | None  #: Smallest finite value, exact for integers; None (as all that follow) if nothing is.
    maximum: int | float | None  #: Largest finite value.
    mean: float | None  #: Of the finite values, accumulated in float64.
    std: float | None  #: Of the finite values, divisor n - 1; None for fewer than two.
    norm: float | None  #: Euclidean norm of the finite values.
    #: n + 1 bin edges from minimum to maximum; empty where nothing is finite. Few whole numbers have a bin each, with
    #: edges half-way between them; a constant has one bin around it.
    histogram_edges: tuple[float, ...] = ()
    histogram_counts: tuple[int, ...] = ()  #: n counts.
    sampling: str = ""  #: How ``count`` was chosen, in words; empty where everything was read.
    of_what: str = "values"  #: What the numbers are of: ``"values"``, or ``"magnitudes"`` for complex tensors.
    first_nan: tuple[int, ...] | None = None  #: Index of the first NaN found, or None.
    first_positive_infinity: tuple[int, ...] | None = None  #: Index of the first +Inf found, or None.
    first_negative_infinity: tuple[int, ...] | None = None  #: Index of the first -Inf found, or None.
    #: Of how many elements ``zero`` and the histogram are, where those were sampled while all else is of all ``count``;
    #: None where they are of ``count`` as well.
    sampled: int | None = None


@dataclass(frozen=True, slots=True)
class AutogradReport:
    """A tensor's place in autograd."""

    requires_grad: bool  #: The flag.
    is_leaf: bool  #: The flag.
    grad_fn: str | None  #: Name of the node that made it (``"MmBackward0"``), or None.
    retains_grad: bool  #: Whether ``.grad`` will be kept although it is not a leaf.
    #: ``"none"``, ``"present"`` or ``"unreadable"``: the state of ``.grad``, read without the warning that torch gives
    #: for a non-leaf.
    grad: str
    grad_shape: tuple[int, ...] | None  #: Shape of ``.grad`` where present.
    grad_norm: float | None  #: Euclidean norm of ``.grad`` where present and readable.
    hooks: int  #: How many tensor hooks are registered on it.
    leaves: tuple[str, ...]  #: Names, or ``"(8, 3) leaf"``, of the leaves its graph leads to, at most a few.
    leaf_count: int  #: How many leaves there are.
    sentence: str  #: The state in one sentence, e.g. "a leaf that requires grad: backward() will fill x.grad".
    details: AutogradDetails | None = None  #: What is behind it: hooks, saved tensors, the way to the leaves.


@dataclass(frozen=True, slots=True)
class Component:
    """A tensor inside the tensor."""

    name: str  #: How a user reaches it, e.g. ``"x.crow_indices()"``.
    role: str  #: What it is for, in one sentence.
    report: TensorReport  #: The tensor itself, without a search for who shares it.


@dataclass(frozen=True, slots=True)
class KindReport:
    """One kind that a tensor is of: sparse, nested, fake, distributed …, and where its numbers really lie.

    There is one for what holds the numbers (at most one), and one for each further trait that is worth a sentence
    (parameter, conjugate view, shared memory, an unusual dtype). All are plain text and numbers, made by
    `tensormagic.collectors.kinds`; a new kind needs no change here and none in a renderer.
    """

    key: str  #: Its name in the table of kinds: ``"sparse_csr"``, ``"vmap"``, ``"parameter"``.
    label: str  #: What to call it on a badge: ``"CSR"``, ``"conjugate view"``.
    summary: str  #: What that means for this tensor, in one sentence.
    facts: tuple[Fact, ...] = ()  #: What is known of it, in the order to show.
    components: tuple[Component, ...] = ()  #: The tensors it is made of.
    map: StoredMap | None = None  #: Which cells are stored, where that is a matrix or rows.
    stored: StoredList | None = None  #: The stored elements as they lie in memory.
    reading: tuple[str, ...] = ()  #: How one element is found, step by step, with its numbers.
    stored_bytes: int | None = None  #: What it really takes, where that is not its elements times their size.
    placed: Placed | None = None  #: How it is spread over ranks.


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorReport(Report):
    """Everything that is known about one tensor, without the tensor."""

    kind_name: ClassVar[str] = "tensor"

    name: str  #: The expression or name it was inspected under.
    type_name: str  #: Its Python class: ``"Tensor"``, ``"Parameter"``.
    #: ``"owns its storage"``, ``"view of a"``, ``"view (base has no name)"``, ``"shares its storage with a"``,
    #: ``"its memory belongs to buf"`` where a buffer was wrapped.
    role: str
    dtype: str  #: Without the ``torch.`` prefix.
    shape: tuple[int, ...]  #: Sizes; -1 for one that differs from item to item (nested tensors).
    device: str  #: As torch writes it.
    layout_name: str  #: ``"strided"``, ``"sparse_coo"`` …, without the prefix.
    element_size: int  #: Bytes an element.
    nbytes: int  #: numel · element_size.
    numel: int  #: Number of elements.
    version: int | None  #: The version counter; None for inference tensors, which have none.
    is_view: bool  #: Whether autograd sees it as a view.
    #: Other attributes worth listing, name → text (``"is_conj": "False"``), in the order to show.
    flags: dict[str, str] = field(default_factory=dict)
    data_text: str = ""  #: ``x.data`` as torch prints it, cut to a few lines.
    storage: StorageReport | None = None  #: The buffer; None where there is none.
    layout: LayoutReport | None = None  #: Where each index lies; None for layouts that are not strided.
    statistics: Statistics | None = None  #: Numbers over the values; None where values cannot be read.
    autograd: AutogradReport | None = None  #: Its place in autograd.
    aliases: tuple[Alias, ...] = ()  #: Who shares its storage, nearest relation first.
    aliases_searched: int = 0  #: How many names and attributes were looked through to find them.
    #: Its values slice by slice, for each dimension that has several slices of several elements.
    slices: tuple[DimensionSlices, ...] = ()
    picture: TensorPicture | None = None  #: It as images or signals, where a picture was asked for.
    gaps: tuple[Gap, ...] = ()  #: What could not be read, and why.
    verdict: CopyVerdict | None = None  #: Whether it shares memory with what its expression read; None for a name.
    holders: HoldersReport | None = None  #: Who keeps it and its storage alive; None where not searched.
    kinds: tuple[KindReport, ...] = ()  #: What sort of tensor it is, what holds its numbers first; empty if plain.

    @property
    def metadata(self) -> dict[str, str]:
        """Every attribute as text, the eight that tutorials name first, in the order to show."""
        autograd, layout = self.autograd, self.layout
        if autograd is None or autograd.grad == "unreadable":
            grad = "not readable"
        else:
            grad = "None" if autograd.grad == "none" else f"tensor of shape {autograd.grad_shape}"
        rows = {
            "data": self.data_text.splitlines()[0] if self.data_text else "not readable",
            "dtype": f"torch.{self.dtype}",
            "shape": str(self.shape),
            "device": self.device,
            "requires_grad": str(autograd.requires_grad) if autograd else "not readable",
            "grad": grad,
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

    def check(self) -> None:
        """Raise ReportFormatError where a part does not fit the others."""
        for image in self.picture.images if self.picture is not None else ():
            image.unpacked()
