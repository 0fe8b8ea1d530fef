"""Every operator that torch tests itself with, and by brute force what its result has in common with its inputs.

The truth is worked out here from storages and explicit sets of bytes, by other means than the package's own.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator

import torch
from torch.utils._pytree import tree_leaves

from tensormagic.collectors.aliasing.copies import copy_or_view
from tensormagic.reports import Sharing

SAMPLES = 3  # sample inputs an operator
MOST_ELEMENTS = 3000  # sets of bytes are made for tensors up to this size
SHARING = {"same object", "overlap", "may overlap", "same storage"}


def operators() -> list:
    """Return torch's table of operators; importing it takes seconds."""
    from torch.testing._internal.common_methods_invocations import op_db

    return [op for op in op_db if torch.float32 in op.supported_dtypes("cpu")]


def mismatches(op) -> Iterator[str]:
    """Yield a sentence for each operand of each sample on which verdict and brute force differ."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for given, result in _runs(op):
            yield from _differences(op, given, result)


class CannotRunError(Exception):
    """An operator cannot be run on its sample inputs here."""


def _runs(op) -> list:
    try:
        samples = itertools.islice(op.sample_inputs("cpu", torch.float32), SAMPLES)
        given = [(sample.input, sample.args, sample.kwargs) for sample in samples]
        return [(each, op(each[0], *each[1], **each[2])) for each in given]
    except Exception as error:
        raise CannotRunError(f"{type(error).__name__}: {error}") from error


def _differences(op, given, result) -> Iterator[str]:
    inputs = {f"input {at}": leaf for at, leaf in enumerate(tree_leaves(given)) if isinstance(leaf, torch.Tensor)}
    for at, leaf in enumerate(tree_leaves(result)):
        if isinstance(leaf, torch.Tensor):
            for name, operand in inputs.items():
                (found,) = copy_or_view(leaf, {name: operand}).operands
                wrong = _wrong(found, leaf, operand)
                if wrong:
                    yield f"{op.full_name}: result {at} and {name}: {wrong}"


def _wrong(found: Sharing, result: torch.Tensor, operand: torch.Tensor) -> str:
    if (found.relation == "same object") != (result is operand):
        return f"{found.relation}, but identity is {result is operand}"
    one_storage = bool(storages(result) & storages(operand))
    if (found.relation in SHARING) != one_storage:
        return f"{found.relation}, but one storage is {one_storage}"
    mine, others = addresses(result), addresses(operand)
    if not one_storage or mine is None or others is None:
        return ""
    bytes_of_mine = {address + byte for address in mine for byte in range(result.element_size())}
    shared = sum(any(address + byte in bytes_of_mine for byte in range(operand.element_size())) for address in others)
    return "" if found.elements == shared else f"{found.elements} elements, but brute force finds {shared}"


def parts(x: torch.Tensor) -> list[torch.Tensor]:
    """Return the strided tensors that ``x`` consists of."""
    if x.layout == torch.sparse_coo:
        return [x._indices(), x._values()]
    if x.layout in {torch.sparse_csr, torch.sparse_bsr}:
        return [x.crow_indices(), x.col_indices(), x.values()]
    if x.layout in {torch.sparse_csc, torch.sparse_bsc}:
        return [x.ccol_indices(), x.row_indices(), x.values()]
    return [x.values()] if x.is_nested else [x]


def storages(x: torch.Tensor) -> set[int]:
    """Return what tells the storages of a tensor from others."""
    return {part.untyped_storage()._cdata for part in parts(x)}


def addresses(x: torch.Tensor) -> set[int] | None:
    """Return the first byte in the storage of every element; None for what is not strided, and for what is large."""
    if x.layout != torch.strided or x.is_nested or x.numel() > MOST_ELEMENTS:
        return None
    indices = itertools.product(*map(range, x.shape))
    offsets = (sum(at * step for at, step in zip(index, x.stride(), strict=True)) for index in indices)
    return {(x.storage_offset() + offset) * x.element_size() for offset in offsets}
