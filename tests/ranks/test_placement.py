"""Which rank holds which part of a DTensor: the same as torch's own function says, for every rank of a mesh."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch

import tensormagic as tm
from tensormagic.reports import Placed
from tensormagic.views.pictures.placement import PlacementGrid, groups_of

dist = torch.distributed
pytestmark = [
    pytest.mark.skipif(not dist.is_available(), reason="this torch has no processes to speak to"),
    pytest.mark.skipif(torch.__version__ < "2.11", reason="torch's own function takes a place in the mesh there"),
]


@pytest.fixture
def mesh():
    """Make a mesh of so many ranks a dimension; the world ends with the test."""
    from torch.distributed.device_mesh import init_device_mesh

    def make(sizes, names=("dp", "tp", "pp")):
        dist.init_process_group("fake", rank=0, world_size=math.prod(sizes))
        return init_device_mesh("cpu", sizes, mesh_dim_names=names[: len(sizes)])

    yield make
    dist.destroy_process_group()


def placed_of(x):
    """Return what is said of a DTensor."""
    (kind,) = [kind for kind in tm.inspect(x, name="x").kinds if kind.key == "dtensor"]
    return kind.placed


def as_torch_says(x):
    """Return where each rank's part begins and how large it is, by a function of torch's."""
    from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset as where

    sizes = tuple(x.device_mesh.mesh.shape)
    for place in product(*map(range, sizes)):
        size, start = where(tuple(x.shape), sizes, lambda dim, place=place: place[dim], x.placements)
        yield int(x.device_mesh.mesh[place]), tuple(map(int, start)), tuple(map(int, size))


def cases():
    """Return shapes, meshes and placements: uneven, empty, several cuts of one dimension, none."""
    from torch.distributed.tensor import Partial, Replicate, Shard

    yield (8, 6), (2, 2), [Shard(0), Shard(1)]
    yield (8, 6), (2, 2), [Replicate(), Shard(0)]
    yield (8, 6), (2, 2), [Shard(0), Shard(0)]
    yield (5, 3), (4,), [Shard(0)]
    yield (3, 3), (4,), [Shard(0)]
    yield (4, 3, 6), (2, 2), [Shard(2), Shard(0)]
    yield (4,), (4,), [Replicate()]
    yield (), (2, 2), [Replicate(), Replicate()]
    yield (6, 5), (3,), [Partial()]
    yield (7, 5, 4), (2, 3, 2), [Shard(0), Shard(1), Shard(0)]
    yield (0, 4), (2,), [Shard(0)]


@pytest.mark.parametrize("at", range(11))
def test_boxes_are_those_of_torch(mesh, at):
    """For every rank, from one: nobody is asked. What is empty begins anywhere."""
    from torch.distributed.tensor import DTensor, Partial, distribute_tensor

    shape, sizes, placements = list(cases())[at]
    given = mesh(sizes)
    if any(isinstance(one, Partial) for one in placements):
        x = DTensor.from_local(torch.ones(shape), given, placements)
    else:
        x = distribute_tensor(torch.ones(shape), given, placements)
    mine = [(box.rank, box.start, box.size) for box in placed_of(x).boxes()]
    for one, other in zip(mine, as_torch_says(x), strict=True):
        assert one[0] == other[0]
        assert one[2] == other[2]
        assert one[1] == other[1] or not math.prod(one[2])


def test_fsdp_over_tensor_parallelism(mesh):
    """Its cut is made after the other one: the order of the ranks is not that of the mesh."""
    from torch import nn
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    given = mesh((2, 2))
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))
    parallelize_module(model, given["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model, mesh=given["dp"])
    for parameter in model.parameters():
        found = [(box.rank, box.start, box.size) for box in placed_of(parameter).boxes()]
        assert found == list(as_torch_says(parameter))
    first = placed_of(model[0].weight)
    assert [ranks for _, ranks in sorted(first.holders().items())] == [[0], [2], [1], [3]]


def test_a_mesh_of_a_thousand_ranks(mesh):
    """Larger than this process: the panel of such a tensor stays small in every form, and asks nobody."""
    from torch.distributed.tensor import Shard, distribute_tensor

    given = mesh((64, 16))
    x = distribute_tensor(torch.zeros(640, 320), given, [Shard(0), Shard(1)])
    report = tm.inspect(x, name="x")
    placed = placed_of(x)
    assert len(placed.holders()) == 1024
    assert next(iter(placed.boxes())).size == (10, 20)
    assert "dp = 64, tp = 16" in str(report)
    assert len(report._repr_html_()) < 80_000
    assert [(box.rank, box.start, box.size) for box in placed.boxes()] == list(as_torch_says(x))


SQUARE = Placed(
    name="w", shape=(8, 6), placements=("S(0)", "S(1)"), mesh_names=("dp", "tp"), mesh_sizes=(2, 2),
    mesh_ranks=(0, 1, 2, 3),
)  # fmt: skip


def test_the_grid_in_characters():
    """Rows and columns say which elements, cells which ranks."""
    assert list(PlacementGrid(SQUARE).text(80)) == [
        "       0:3 3:6",
        "      ┌───┬───┐",
        " 0:4  │  0│  1│",
        " 4:8  │  2│  3│",
        "      └───┴───┘",
        "  (8, 6) on mesh dp = 2, tp = 2; dp: S(0), tp: S(1); a rank holds 12 elements,",
        "  25 % of all (down: dimension 0, across: dimension 1)",
    ]


def test_what_is_partial_whole_and_empty_is_said():
    """In words, in every form."""
    partial = Placed(
        name="x", shape=(4,), placements=("P(sum)",), mesh_names=("tp",), mesh_sizes=(2,), mesh_ranks=(0, 1)
    )
    assert "over tp these are parts of a sum that is still to be taken" in PlacementGrid(partial).sentence
    whole = Placed(name="x", shape=(4,), placements=("R",), mesh_sizes=(3,), mesh_ranks=(0, 1, 2))
    assert "each piece is on 3 ranks" in PlacementGrid(whole).html()
    empty = Placed(name="x", shape=(3, 3), placements=("S(0)",), mesh_sizes=(4,), mesh_ranks=(0, 1, 2, 3))
    assert "rank 3 holds nothing" in PlacementGrid(empty).sentence


def test_tensors_that_are_spread_alike_are_one_group():
    """The largest of each stands for it."""
    small = Placed(name="b", shape=(8, 2), placements=("S(0)", "S(1)"), mesh_names=("dp", "tp"), mesh_sizes=(2, 2),
                   mesh_ranks=(0, 1, 2, 3))  # fmt: skip
    whole = Placed(name="c", shape=(90, 9), placements=("R",), mesh_sizes=(2,), mesh_ranks=(0, 1))
    assert [[one.name for one in group] for group in groups_of((small, whole, SQUARE))] == [["c"], ["w", "b"]]
