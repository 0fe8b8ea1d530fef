"""Who keeps large storages alive in real code: TM205 where a small view does, nothing where it is meant or shared."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import tensormagic as tm

ROWS = 1200
WIDTH = 4096  # 1200 rows of 4096 floats: 18.75 MiB


def codes(tensor: torch.Tensor, name: str, space: dict) -> list[str]:
    """Return the codes about memory that is kept."""
    report = tm.inspect(tensor, name, namespace=space)
    return [found.code for found in report.findings if found.code == "TM205"]


def one_number_of_a_large_result():
    """The loss of one item, of losses that are gone."""
    first = torch.zeros(ROWS, WIDTH)[0, 0]
    return first, "first", {"first": first}


def rows_kept_in_a_list():
    """One row a step."""
    rows = [torch.zeros(ROWS, WIDTH)[7] for _ in range(2)]
    return rows[1], "rows[1]", {"rows": rows}


def a_transposed_column_in_an_object():
    """A view of a view, held as an attribute."""
    state = SimpleNamespace(column=torch.zeros(ROWS, WIDTH).t()[3])
    return state.column, "state.column", {"state": state}


def a_detached_slice():
    """detach() makes another tensor over the same storage."""
    kept = torch.zeros(ROWS, WIDTH, requires_grad=True).exp().detach()[:2]
    return kept, "kept", {"kept": kept}


def the_whole_is_named():
    """A row of a batch that is in use."""
    batch = torch.zeros(ROWS, WIDTH)
    row = batch[0]
    return row, "row", {"row": row, "batch": batch}


def the_whole_is_a_parameter():
    """One row of an embedding."""
    net = nn.Sequential(nn.Embedding(ROWS, WIDTH))
    row = net[0].weight[3]
    return row, "row", {"row": row, "net": net}


def the_whole_is_in_a_closure():
    """A function still needs the whole, though no name does."""
    whole = torch.zeros(ROWS, WIDTH)
    row = whole[0]

    def total():
        return whole.sum()

    return row, "row", {"row": row, "total": total}


def the_whole_is_held_by_something_without_a_name():
    """The whole itself in a local variable, as the base of the view."""
    whole = torch.zeros(ROWS, WIDTH)
    row = whole[0]
    return row, "row", {"row": row}, whole


def another_part_is_held_by_something_without_a_name():
    """A slice in a queue, say: torch counts one more tensor on the storage."""
    whole = torch.zeros(ROWS, WIDTH)
    return whole[0], "row", {"row": whole[0]}, whole[1]


def the_whole_is_saved_in_a_graph():
    """The backward of ``loss`` needs all of it."""
    weight = torch.zeros(ROWS, WIDTH, requires_grad=True)
    hidden = weight.exp()
    loss, row = hidden.square().sum(), hidden.detach()[0]
    return row, "row", {"row": row, "loss": loss, "weight": weight}


def two_views_share_the_storage():
    """Both have to be copied; whether that is meant cannot be known."""
    whole = torch.zeros(ROWS, WIDTH)
    return whole[0], "first", {"first": whole[0], "second": whole[1:]}


def memory_of_numpy():
    """An array may be mapped from a file: reading a row of it is the point."""
    row = torch.from_numpy(np.zeros((ROWS, WIDTH), dtype=np.float32))[0]
    return row, "row", {"row": row}


def a_buffer_that_shrank():
    """resize_ keeps the storage for the next time."""
    buffer = torch.zeros(ROWS, WIDTH)
    buffer.resize_(4)
    return buffer, "buffer", {"buffer": buffer}


def a_small_storage():
    """A view of a few kilobytes."""
    row = torch.zeros(64, 64)[0, :1]
    return row, "row", {"row": row}


def a_large_part():
    """A tenth of the storage is still read."""
    head = torch.zeros(ROWS, WIDTH)[: ROWS // 10]
    return head, "head", {"head": head}


def a_copy():
    """The remedy."""
    first = torch.zeros(ROWS, WIDTH)[0, 0].clone()
    return first, "first", {"first": first}


def an_expression_of_the_moment():
    """Nobody holds what ``%tensor make()[0]`` shows."""
    return torch.zeros(ROWS, WIDTH)[0], "make()[0]", {}


ILL = (
    one_number_of_a_large_result,
    rows_kept_in_a_list,
    a_transposed_column_in_an_object,
    a_detached_slice,
)
HEALTHY = (
    the_whole_is_named,
    the_whole_is_a_parameter,
    the_whole_is_in_a_closure,
    the_whole_is_held_by_something_without_a_name,
    another_part_is_held_by_something_without_a_name,
    the_whole_is_saved_in_a_graph,
    two_views_share_the_storage,
    memory_of_numpy,
    a_buffer_that_shrank,
    a_small_storage,
    a_large_part,
    a_copy,
    an_expression_of_the_moment,
)


@pytest.mark.parametrize("case", ILL, ids=lambda case: case.__name__)
def test_a_small_view_that_keeps_a_large_storage_is_found(case: Callable[[], tuple]):
    """Once, with the bytes, and with a remedy that works."""
    tensor, name, space = case()
    report = tm.inspect(tensor, name, namespace=space)
    (found,) = [each for each in report.findings if each.code == "TM205"]
    assert found.evidence["storage bytes"] == ROWS * WIDTH * 4
    assert found.evidence["bytes read"] == tensor.numel() * 4
    assert found.remedy.endswith(f"`{name} = {name}.clone()`")
    del tensor
    exec(found.remedy.split("`")[1], space)
    assert codes(eval(name, space), name, space) == []


@pytest.mark.parametrize("case", HEALTHY, ids=lambda case: case.__name__)
def test_what_is_meant_or_shared_is_left_alone(case: Callable[[], tuple]):
    """A false alarm costs more than a miss."""
    made = case()
    assert codes(*made[:3]) == []
