"""What a NumPy array is, in the terms of a tensor: the same memory, seen by torch where torch can see it.

Nothing of a subclass is called: every attribute is read as `numpy.ndarray` has it. What torch has no word for
(negative strides, another byte order, strings, dates, records, objects) is explained, and shown by what is nearest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from tensormagic.collectors.aliasing.storage_aliases import array_base, owner_of, root_of
from tensormagic.collectors.kinds import sizes_of, study
from tensormagic.collectors.kinds.kind import MOST_COPIED, counting
from tensormagic.collectors.objects.children import is_kind
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.tensors.statistics import statistics
from tensormagic.collectors.tensors.tensor import FEW, as_python, collect_briefly, collect_tensor, reason_of
from tensormagic.reports import Component, Fact, Gap, KindReport, TensorReport
from tensormagic.words import count, listed, number_of_bytes, plural

_MOST_FIELDS = 8
_MOST_LOOKED = 10_000  # items of an object array whose types are counted
_TEXT_LINES = 6
_WORDS = {"O": "objects", "U": "text", "T": "text", "S": "bytes", "V": "records", "M": "dates", "m": "durations"}


class _Interface:
    """An array's memory for NumPy to wrap anew: marked writeable, which spares torch's warning; nothing is written."""

    def __init__(self, array: np.ndarray) -> None:
        interface = dict(np.ndarray.__array_interface__.__get__(array))
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface
        self.keeps = array


def collect_array(
    array: Any,
    *,
    name: str = "array",
    namespace: Mapping[str, object] | None = None,
    besides: Iterable[object] = (),  # noqa: ARG001  (taken as for a tensor, whose holders are reported)
) -> TensorReport:
    """Return everything that is known about a NumPy array of any subclass and dtype, and nothing of the array itself.

    ``namespace`` are the user's names, to find who else shares its memory. Who keeps it alive is not reported.
    """
    plain = np.ndarray.view(array, np.ndarray)
    others = {key: value for key, value in (namespace or {}).items() if value is not array or key != name}
    why = _why_not(plain)
    report = None
    if not why:
        try:
            report = collect_tensor(_over_root(plain, array), name=name, namespace=others)
        except (TypeError, ValueError, RuntimeError) as error:
            why = reason_of(error)
    if report is None:  # the outline of an array that torch cannot wrap
        report = TensorReport(
            name=name, type_name="", role="", dtype="", shape=plain.shape, device="cpu", layout_name="strided",
            element_size=plain.itemsize, nbytes=plain.nbytes, numel=plain.size, version=None, is_view=False,
            data_text=_text(plain), gaps=(Gap("layout and statistics", why),),
        )  # fmt: skip
    mask = _mask(array)
    if mask is not None:
        report = _of_what_counts(report, plain, mask)
    summary, parts = _summary(plain, name), tuple(_components(plain, array, name))
    own = KindReport("numpy", "NumPy array", summary, _facts(plain, array), parts)
    return replace(
        report,
        type_name=type(array).__name__,
        role=_role(array, others),
        dtype=str(plain.dtype),
        is_view=array_base(array) is not None,
        version=None,
        flags={},
        autograd=None,
        holders=None,
        kinds=(own, *(kind for kind in report.kinds if kind.key in {"small_float", "unsigned"})),
    )


def elements_of(x: Any) -> torch.Tensor:
    """Return a plain tensor with the elements of a tensor or array; empty where torch has no word for them."""
    if np.ndarray in type(x).__mro__:
        plain = np.ndarray.view(x, np.ndarray)
        return torch.empty(0) if _why_not(plain) else _over_root(plain, x)
    with quiet(), torch._C._DisableFuncTorch():
        subject = study(x)
        numbers = subject.numbers
        same = numbers is not None and numbers.tensor.shape == sizes_of(subject.plain)
        return numbers.tensor.detach() if numbers is not None and same else subject.plain


def few_values(array: Any) -> str:
    """Return the values of an array that torch can wrap and that holds few, as Python writes them, else nothing.

    A masked one is ``--``, as NumPy prints it.
    """
    mask, plain = _mask(array), np.ndarray.view(array, np.ndarray)
    if mask is None:
        return collect_briefly(elements_of(array)).data_text
    if plain.size > FEW:
        return ""
    shown = plain.astype(object)
    shown[mask] = "--"
    return as_python(shown.tolist())


def _mask(array: Any) -> np.ndarray | None:
    """Return the mask of a masked array, True where an element does not count; None where all of them do."""
    mask = array._mask if is_kind(array, np.ma.MaskedArray) else None
    return mask if isinstance(mask, np.ndarray) and mask.dtype == np.bool_ and mask.any() else None


def _of_what_counts(report: TensorReport, plain: np.ndarray, mask: np.ndarray) -> TensorReport:
    """Return the report of a masked array, with the numbers and the text of its elements that count."""
    report = replace(report, data_text=_text(np.ma.array(plain, mask=mask), str), slices=())
    if report.statistics is None:
        return report
    if plain.size > MOST_COPIED:
        why = "the elements that count can only be had as a copy, which would be large"
        return replace(report, statistics=None, gaps=(*report.gaps, Gap("statistics", why)))
    found = statistics(torch.from_numpy(plain[~mask]))
    magnitudes = "the magnitudes of " if found.of_what == "magnitudes" else ""
    of_what = magnitudes + counting(plain.size - int(mask.sum()))
    places: dict[str, Any] = dict.fromkeys(("first_nan", "first_positive_infinity", "first_negative_infinity"))
    return replace(report, statistics=replace(found, of_what=of_what, **places))


def _role(array: Any, others: Mapping[str, object]) -> str:
    def name_of(wanted: object) -> str:
        return next((key for key, value in others.items() if value is wanted), "")

    base, owner = array_base(array), owner_of(array)
    if base is None:
        owns = np.ndarray.flags.__get__(array).owndata
        return "owns its memory" if owns else "another object owns its memory"
    if named := name_of(base) or name_of(root_of(array)):
        return f"view of {named}"
    return "view (base has no name)" if owner is None else f"memory of {name_of(owner) or f'a {type(owner).__name__}'}"


def _why_not(plain: np.ndarray) -> str:
    """Return why torch cannot wrap an array's memory; empty where it can."""
    if plain.dtype.kind in _WORDS:
        return f"torch has no dtype for NumPy's {plain.dtype}"
    if not plain.dtype.isnative:
        return f"torch only reads the machine's own byte order; this array is {_byte_order(plain.dtype)}"
    if plain.dtype.name in {"longdouble", "clongdouble", "float128", "complex256", "float96", "complex192"}:
        return f"torch has no dtype for NumPy's {plain.dtype}"
    if any(step < 0 for step in plain.strides):
        return "torch has no negative strides: torch.from_numpy() refuses it; its .copy() has positive ones"
    if any(step % max(plain.itemsize, 1) for step in plain.strides):
        return "its strides are not multiples of the element size, as torch requires"
    return ""


def _over_root(plain: np.ndarray, array: Any) -> torch.Tensor:
    """Return a tensor over an array's memory, placed in the memory of the array that owns it where that is whole."""
    tensor = torch.from_numpy(np.asarray(_Interface(plain)))
    root = np.ndarray.view(root_of(array), np.ndarray)
    start = plain.ctypes.data - root.ctypes.data
    inside = 0 <= start <= root.nbytes - tensor.untyped_storage().nbytes() and start % max(plain.itemsize, 1) == 0
    if not (inside and root.dtype.kind not in _WORDS and (root.flags.c_contiguous or root.flags.f_contiguous)):
        return tensor
    whole = np.asarray(_Interface(root)).ravel(order="K").view(np.uint8)
    storage = torch.from_numpy(whole).untyped_storage()
    empty = torch.empty(0, dtype=tensor.dtype)
    return empty.set_(storage, start // plain.itemsize, tensor.shape, tensor.stride())


def _text(plain: np.ndarray, told: Callable[[np.ndarray], str] = np.array_repr) -> str:
    """Return values as NumPy prints them; not of objects, whose own code would do the printing."""
    if plain.dtype.hasobject:
        return ""
    with np.printoptions(threshold=200, edgeitems=3, linewidth=100):
        lines = told(plain).splitlines()
    return "\n".join(lines if len(lines) <= _TEXT_LINES else [*lines[: _TEXT_LINES - 1], "…"])


def _summary(plain: np.ndarray, name: str) -> str:
    shared = f"torch.from_numpy({name})"
    if why := _why_not(plain):
        return f"Not a tensor, and torch cannot share its memory: {why}."
    if not plain.flags.writeable:
        return f"Not a tensor. {shared} shares its memory, which is read-only: writing to it is undefined."
    unseen = "its version counter does not see writes to the array"
    return f"Not a tensor, but {shared} makes one that shares its memory; {unseen}."


def _facts(plain: np.ndarray, array: Any) -> tuple[Fact, ...]:
    flags, size = plain.flags, max(plain.itemsize, 1)
    steps = ", ".join(f"{step / size:g}" for step in plain.strides)
    if flags.c_contiguous:
        order = "C and Fortran" if flags.f_contiguous else "C (last index fastest)"
    else:
        order = "Fortran (first index fastest)" if flags.f_contiguous else "neither"
    dtype, nbytes = plain.dtype, number_of_bytes(plain.dtype.itemsize)
    says = f"{_WORDS[dtype.kind]}, {nbytes} an element" if dtype.kind in _WORDS else str(dtype)
    if dtype.names is not None:
        says = f"{plural(len(dtype.names), 'field')} in {nbytes}: {listed(dtype.names, most=_MOST_FIELDS)}"
    facts = [
        Fact("dtype", dtype.str if dtype.names is None else "structured", says),
        Fact("strides in bytes", str(plain.strides), f"in elements: ({steps})" if plain.strides else ""),
        Fact("order", order, "of its elements in memory"),
        Fact("owns its data", str(bool(np.ndarray.flags.__get__(array).owndata)), _owner_note(array)),
        Fact("writeable", str(bool(flags.writeable)), "" if flags.aligned else "and not aligned"),
        Fact("byte order", _byte_order(plain.dtype)),
    ]
    if dtype.kind == "O":  # the objects are asked for nothing
        kinds = Counter(type(item).__name__ for item in plain.reshape(-1)[:_MOST_LOOKED].tolist())
        words = ", ".join(f"{count(number)} {kind}" for kind, number in kinds.most_common(4))
        facts.append(Fact("refers to", f"{words}{', …' * (len(kinds) > 4)}", "Python objects somewhere else"))
    if type(array) is not np.ndarray:
        facts.append(Fact("class", f"{type(array).__module__}.{type(array).__qualname__}", "its own code is not run"))
    if isinstance(array, np.memmap):
        facts.append(Fact("file", str(array.filename), f"opened {array.mode!r}"))
    return tuple(facts)


def _owner_note(array: Any) -> str:
    if array_base(array) is None:
        return ""
    root = root_of(array)
    owner = root if (other := array_base(root)) is None else other
    if np.ndarray in type(owner).__mro__:
        return f"its base is an array of shape {np.ndarray.shape.__get__(owner)}"
    return f"its base is a {type(owner).__module__}.{type(owner).__qualname__}".replace("builtins.", "")


def _byte_order(dtype: np.dtype) -> str:
    orders = {"<": "little-endian", ">": "big-endian", "|": "not applicable"}
    little = np.dtype(np.int32).newbyteorder("<").isnative
    return orders.get(dtype.byteorder, f"native ({'little' if little else 'big'}-endian)")


def _components(plain: np.ndarray, array: Any, name: str) -> Iterator[Component]:
    """Yield what is nearest to an array that torch cannot wrap, and what belongs to it besides."""
    for path, role, part in _nearest(plain, name) if _why_not(plain) else ():
        yield Component(path, role, collect_array(part, name=path))
    if isinstance(array, np.ma.MaskedArray) and isinstance(mask := array._mask, np.ndarray):  # type: ignore[attr-defined]
        path = f"{name}.mask"
        yield Component(path, "True where an element does not count", collect_array(mask, name=path))


def _nearest(plain: np.ndarray, name: str) -> Iterator[tuple[str, str, np.ndarray]]:
    """Yield arrays of the same elements that torch can see, in place where that is enough, else as a copy."""
    dtype = plain.dtype
    for field in (dtype.names or ())[:_MOST_FIELDS]:
        part = plain[field]
        odd = bool(_why_not(part)) and part.dtype.kind not in _WORDS and part.dtype.isnative
        copied = odd and part.size <= MOST_COPIED
        role = "a field, copied: torch cannot wrap its elements in place" if copied else "a field, in place"
        yield f"{name}[{field!r}]", role, part.copy() if copied else part
    if dtype.kind in "Mm" and dtype.isnative:
        since = "since 1970" if dtype.kind == "M" else "of duration"
        role = f"the same memory as integers: {np.datetime_data(dtype)[0]} {since}"
        yield f"{name}.view('i8')", role, plain.view(np.int64)
    if dtype.kind in _WORDS:
        return
    turned = tuple(slice(None, None, -1) if step < 0 else slice(None) for step in plain.strides)
    if dtype.isnative and not _why_not(plain[turned]):
        index = ", ".join("::-1" if one.step else ":" for one in turned)
        yield f"{name}[{index}]", "the same memory, read forwards", plain[turned]
    elif plain.size <= MOST_COPIED and not dtype.isnative:
        native = dtype.newbyteorder("=")
        asked = native.name if native.names is None else native.descr
        yield f"{name}.astype({asked!r})", "a copy in the machine's byte order", plain.astype(native)
    elif plain.size <= MOST_COPIED:
        wide = np.dtype({"c": np.complex128, "f": np.float64}.get(dtype.kind, dtype))
        yield f"{name}.astype({wide.name!r})", "a copy with a dtype that torch supports", plain.astype(wide)
