"""The elements of an index grid: one gather of what is shown, one transfer, then text and levels."""

from __future__ import annotations

import math

import torch

from tensormagic.collectors.geometry.grid import Cut
from tensormagic.collectors.quiet import quiet

Values = tuple[tuple[tuple[str, ...], ...], tuple[tuple[float, ...], ...]]
Element = bool | int | float | complex


def read_values(x: torch.Tensor, cut: Cut) -> Values:
    """Return the elements of a cut as short texts and as numbers to colour by, row by row."""
    if not (cut.rows and cut.columns):
        return (), ()
    with quiet():
        rows = _gather(x, cut).resolve_conj().resolve_neg().tolist()
    texts = tuple(tuple(text_of(value) for value in row) for row in rows)
    return texts, tuple(tuple(level_of(value) for value in row) for row in rows)


def _gather(x: torch.Tensor, cut: Cut) -> torch.Tensor:
    """Return a (rows, columns) tensor of the cut's elements, and touch no others."""
    index: list[int | torch.Tensor] = list(cut.fixed)
    if cut.row_dim is not None:
        index[cut.row_dim] = torch.tensor(cut.rows, dtype=torch.int64, device=x.device)[:, None]
    if cut.column_dim is not None:
        index[cut.column_dim] = torch.tensor(cut.columns, dtype=torch.int64, device=x.device)[None, :]
    return x[tuple(index)].reshape(len(cut.rows), len(cut.columns))


def text_of(value: Element) -> str:
    """Return an element as short text: ``15``, ``0.1``, ``nan``, ``True``, ``1+2j``."""
    if isinstance(value, complex):
        return f"{value.real:.3g}{value.imag:+.3g}j"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def level_of(value: Element) -> float:
    """Return an element as a number to colour by: of a complex one the magnitude."""
    return math.hypot(value.real, value.imag) if isinstance(value, complex) else float(value)
