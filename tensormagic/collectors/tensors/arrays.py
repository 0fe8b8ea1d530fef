"""What a NumPy array is, in the terms of a tensor: the same memory, seen by torch where torch can see it.

Nothing of a subclass is called: every attribute is read as `numpy.ndarray` has it. What torch has no word for
(negative strides, another byte order, strings, dates, records, objects) is explained, and shown by what is nearest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from tensormagic.collectors.aliasing.storage_aliases import array_base, owner_of, root_of
from tensormagic.collectors.kinds import study
from tensormagic.collectors.kinds.kind import MOST_COPIED
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.tensors.tensor import collect_tensor, reason_of
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
    """Return everything that is known about a NumPy array, and nothing of the array itself.

    Args:
        array: Any `numpy.ndarray`, of any subclass and dtype.
        name: What it is called.
        namespace: The user's names, to find who else shares its memory.
        besides: Not used: who keeps an array alive is not reported.
    """
    plain = np.ndarray.view(array, np.ndarray)
    others = {key: value for key, value in (namespace or {}).items() if value is not array or key != name}
    report = _seen_by_torch(plain, array, name, others)
    own = _kind(plain, array, name)
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
        same = numbers is not None and numbers.tensor.shape == subject.plain.shape
        return numbers.tensor.detach() if numbers is not None and same else subject.plain


def _owns(array: Any) -> bool:
    return bool(np.ndarray.flags.__get__(array).owndata)


def _role(array: Any, others: Mapping[str, object]) -> str:
    base = array_base(array)
    if base is None:
        return "owns its memory" if _owns(array) else "another object owns its memory"
    root = root_of(array)
    named = next((key for key, value in others.items() if value is base), "")
    named = named or next((key for key, value in others.items() if value is root), "")
    if named:
        return f"view of {named}"
    owner = owner_of(array)
    if owner is None:
        return "view (base has no name)"
    holder = next((key for key, value in others.items() if value is owner), "")
    return f"memory of {holder or f'a {type(owner).__name__}'}"


# -- as torch sees it ---------------------------------------------------------------------------------------------


def _seen_by_torch(plain: np.ndarray, array: Any, name: str, others: Mapping[str, object]) -> TensorReport:
    """Return the report of a tensor over the same memory; of an array that torch cannot wrap, its outline."""
    why = _why_not(plain)
    if not why:
        try:
            return collect_tensor(_over_root(plain, array), name=name, namespace=others)
        except (TypeError, ValueError, RuntimeError) as error:
            why = reason_of(error)
    return _outline(plain, name, why)


def _why_not(plain: np.ndarray) -> str:
    """Return why torch cannot wrap an array's memory; empty where it can."""
    if plain.dtype.kind in _WORDS:
        return f"torch has no dtype for NumPy's {plain.dtype}"
    if not plain.dtype.isnative:
        return f"torch only reads the machine's own byte order; this array is {_byte_order(plain.dtype)}"
    if plain.dtype.name in {"longdouble", "clongdouble", "float128", "complex256", "float96", "complex192"}:
        return f"torch has no dtype for NumPy's {plain.dtype}"
    if any(step < 0 for step in plain.strides):
        return "torch has no negative strides: torch.from_numpy() refuses it; a.copy() has positive ones"
    if any(step % max(plain.itemsize, 1) for step in plain.strides):
        return "its strides are not multiples of the element size, as torch requires"
    return ""


def _over_root(plain: np.ndarray, array: Any) -> torch.Tensor:
    """Return a tensor over an array's memory, placed in the memory of the array that owns it where that is whole."""
    tensor = torch.from_numpy(np.asarray(_Interface(plain)))
    root = np.ndarray.view(root_of(array), np.ndarray)
    start = _address(plain) - _address(root)
    fits = (
        root.nbytes >= start + tensor.untyped_storage().nbytes() and start >= 0 and start % max(plain.itemsize, 1) == 0
    )
    if not (fits and root.dtype.kind not in _WORDS and (root.flags.c_contiguous or root.flags.f_contiguous)):
        return tensor
    whole = np.asarray(_Interface(root)).ravel(order="K").view(np.uint8)
    storage = torch.from_numpy(whole).untyped_storage()
    empty = torch.empty(0, dtype=tensor.dtype)
    return empty.set_(storage, start // plain.itemsize, tensor.shape, tensor.stride())


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def _outline(plain: np.ndarray, name: str, why: str) -> TensorReport:
    return TensorReport(
        name=name,
        type_name="ndarray",
        role="",
        dtype=str(plain.dtype),
        shape=plain.shape,
        device="cpu",
        layout_name="strided",
        element_size=plain.itemsize,
        nbytes=plain.nbytes,
        numel=plain.size,
        version=None,
        is_view=False,
        data_text=_text(plain),
        gaps=(Gap("layout and statistics", why),),
    )


def _text(plain: np.ndarray) -> str:
    """Return values as NumPy prints them; not of objects, whose own code would do the printing."""
    if plain.dtype.hasobject:
        return ""
    with np.printoptions(threshold=200, edgeitems=3, linewidth=100):
        lines = np.array_repr(plain).splitlines()
    return "\n".join(lines if len(lines) <= _TEXT_LINES else [*lines[: _TEXT_LINES - 1], "…"])


# -- as NumPy has it ----------------------------------------------------------------------------------------------


def _kind(plain: np.ndarray, array: Any, name: str) -> KindReport:
    return KindReport(
        key="numpy",
        label="NumPy array",
        summary=_summary(plain, name),
        facts=(*_facts(plain, array), *_class_facts(array)),
        components=_components(plain, array, name),
    )


def _summary(plain: np.ndarray, name: str) -> str:
    why = _why_not(plain)
    if why:
        return f"Not a tensor, and torch cannot share its memory: {why}."
    if not plain.flags.writeable:
        return (
            f"Not a tensor. torch.from_numpy({name}) shares its memory, which is read-only: writing to it is undefined."
        )
    return (
        f"Not a tensor, but torch.from_numpy({name}) makes one that shares its memory; its version counter does not "
        "see writes to the array."
    )


def _facts(plain: np.ndarray, array: Any) -> tuple[Fact, ...]:
    flags, size = plain.flags, max(plain.itemsize, 1)
    steps = ", ".join(f"{step / size:g}" for step in plain.strides)
    return (
        Fact("dtype", plain.dtype.str if plain.dtype.names is None else "structured", _dtype_note(plain.dtype)),
        Fact("strides in bytes", str(plain.strides), f"in elements: ({steps})" if plain.strides else ""),
        Fact("order", _order(flags), "of its elements in memory"),
        Fact("owns its data", str(_owns(array)), _owner_note(array)),
        Fact("writeable", str(bool(flags.writeable)), "" if flags.aligned else "and not aligned"),
        Fact("byte order", _byte_order(plain.dtype)),
        *(
            (Fact("refers to", _object_types(plain), "Python objects somewhere else"),)
            if plain.dtype.kind == "O"
            else ()
        ),
    )


def _dtype_note(dtype: np.dtype) -> str:
    if dtype.names is not None:
        fields = plural(len(dtype.names), "field")
        return f"{fields} in {number_of_bytes(dtype.itemsize)}: {listed(dtype.names, most=_MOST_FIELDS)}"
    word = _WORDS.get(dtype.kind, "")
    return f"{word}, {number_of_bytes(dtype.itemsize)} an element" if word else str(dtype)


def _order(flags: Any) -> str:
    if flags.c_contiguous and flags.f_contiguous:
        return "C and Fortran"
    return (
        "C (last index fastest)"
        if flags.c_contiguous
        else "Fortran (first index fastest)"
        if flags.f_contiguous
        else "neither"
    )


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


def _class_facts(array: Any) -> tuple[Fact, ...]:
    if type(array) is np.ndarray:
        return ()
    facts = [Fact("class", f"{type(array).__module__}.{type(array).__qualname__}", "its own code is not run")]
    if isinstance(array, np.memmap):
        facts.append(Fact("file", str(array.filename), f"opened {array.mode!r}"))
    return tuple(facts)


def _components(plain: np.ndarray, array: Any, name: str) -> tuple[Component, ...]:
    """Return what is nearest to an array that torch cannot wrap, and what belongs to it besides."""
    parts = [*_nearest(plain, name)]
    if isinstance(array, np.ma.MaskedArray) and isinstance(array._mask, np.ndarray):  # type: ignore[attr-defined]
        parts.append((f"{name}.mask", "True where an element does not count", array._mask))  # type: ignore[attr-defined]
    return tuple(Component(path, role, collect_array(part, name=path)) for path, role, part in parts)


def _nearest(plain: np.ndarray, name: str) -> list[tuple[str, str, np.ndarray]]:
    if not _why_not(plain):
        return []
    if plain.dtype.names is not None:
        return [_field(plain, name, field) for field in plain.dtype.names[:_MOST_FIELDS]]
    if plain.dtype.kind in "Mm" and plain.dtype.isnative:
        unit = np.datetime_data(plain.dtype)[0]
        role = f"the same memory as integers: {unit} {'since 1970' if plain.dtype.kind == 'M' else 'of duration'}"
        return [(f"{name}.view('i8')", role, plain.view(np.int64))]
    if plain.dtype.kind == "O":
        return []
    return _numeric(plain, name) if plain.dtype.kind not in _WORDS else []


def _field(plain: np.ndarray, name: str, field: str) -> tuple[str, str, np.ndarray]:
    part = plain[field]
    copied = bool(_why_not(part)) and part.dtype.kind not in _WORDS and part.dtype.isnative and part.size <= MOST_COPIED
    role = "a field, copied: torch cannot wrap its elements in place" if copied else "a field, in place"
    return f"{name}[{field!r}]", role, part.copy() if copied else part


def _numeric(plain: np.ndarray, name: str) -> list[tuple[str, str, np.ndarray]]:
    """Return an array of numbers in a way that torch can see: turned round where that is enough, else as a copy."""
    turned = tuple(slice(None, None, -1) if step < 0 else slice(None) for step in plain.strides)
    backwards = plain[turned]
    if plain.dtype.isnative and not _why_not(backwards):
        index = ", ".join("::-1" if one.step else ":" for one in turned)
        return [(f"{name}[{index}]", "the same memory, read forwards", backwards)]
    if plain.size > MOST_COPIED:
        return []
    if not plain.dtype.isnative:
        return [
            (
                f"{name}.astype(native)",
                "a copy in the machine's byte order",
                plain.astype(plain.dtype.newbyteorder("=")),
            )
        ]
    wide = np.complex128 if plain.dtype.kind == "c" else np.float64 if plain.dtype.kind == "f" else plain.dtype
    return [(f"{name}.astype({np.dtype(wide).name!r})", "a copy with a dtype that torch supports", plain.astype(wide))]


def _object_types(plain: np.ndarray) -> str:
    """Return which types an object array refers to, with their numbers, without asking the objects for anything."""
    items = plain.reshape(-1)[:_MOST_LOOKED].tolist()
    counts = Counter(type(item).__name__ for item in items)
    words = ", ".join(f"{count(number)} {kind}" for kind, number in counts.most_common(4))
    return f"{words}{', …' if len(counts) > 4 else ''}"
