"""One rank of many, in this process alone: torch's fake backend has collectives that reach nobody."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import tensormagic as tm

dist = torch.distributed
pytestmark = [
    pytest.mark.skipif(not dist.is_available(), reason="this torch has no processes to speak to"),
    pytest.mark.skipif(
        torch.__version__ < "2.13", reason="its collectives leave memory as it is that nobody has written"
    ),
]


@pytest.fixture
def world():
    """Begin a world of so many ranks; it ends with the test."""

    def begin(size, rank=0):
        dist.init_process_group("fake", rank=rank, world_size=size)

    yield begin
    dist.destroy_process_group()


def net():
    """Return a small model."""
    return nn.Sequential(nn.Linear(8, 16, bias=False), nn.ReLU(), nn.Linear(16, 16, bias=False))


def codes(model, optimizer, level="grad"):
    """Train for three steps; return the codes of what is found."""
    with tm.trace(level=level) as trace:
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(4, 8)).pow(2).sum().backward()
            optimizer.step()
    return [finding.code for finding in trace.report.findings], trace.report


@pytest.mark.parametrize("level", ["grad", "ops"])
@pytest.mark.parametrize("early", [True, False])
def test_an_optimizer_made_before_sharding(world, early, level):
    """It steps what FSDP has replaced; made after it, nothing is found."""
    from torch.distributed.fsdp import fully_shard

    world(2)
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1) if early else None
    fully_shard(model)
    optimizer = optimizer or torch.optim.SGD(model.parameters(), 0.1)
    found, report = codes(model, optimizer, level)
    assert found == (["TM911"] if early else [])
    if early:
        assert "fully_shard() replaced them" in report.findings[0].message


def test_a_model_that_was_made_again_is_told_as_such(world):
    """Of several processes, but not sharded."""
    world(2)
    optimizer = torch.optim.SGD(net().parameters(), 0.1)
    assert codes(net(), optimizer)[0] == ["TM604"]


@pytest.mark.parametrize("left_out", [True, False])
def test_a_large_parameter_that_lies_whole(world, left_out):
    """Beside one that is cut; not where the plan has a place for each."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

    world(4)
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("tp",))
    model = net()
    for layer, how in ((model[0], Shard(0)), (model[2], Replicate() if left_out else Shard(1))):
        layer.weight = nn.Parameter(distribute_tensor(layer.weight.detach(), mesh, [how]))
    with tm.trace() as trace:
        x = DTensor.from_local(torch.ones(4, 8), mesh, [Replicate()])
        model(x).sum().backward()
    assert [finding.code for finding in trace.report.findings] == (["TM912"] if left_out else [])
    if left_out:
        assert trace.report.findings[0].message == (
            "Each rank holds 1 of 2 DTensors whole, with 67 % of the elements: Sequential.2.weight is the largest."
        )


def sharded_inside(seen):
    """Return what is found where ``seen`` makes a loss of a product whose parts lie on two ranks."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    w = nn.Parameter(distribute_tensor(torch.ones(8, 4), mesh, [Shard(0)]))
    with tm.trace() as trace:
        for _ in range(2):
            seen(distribute_tensor(torch.ones(6, 8), mesh, [Shard(1)]) @ w).backward()
    report = trace.report
    assert tm.TraceReport.from_dict(report.to_dict()) == report
    return report


def test_a_part_of_a_sum_that_is_taken_for_the_whole(world):
    """``to_local()`` of a product of shards is what this rank adds to it; the line that took it is named."""
    world(2)
    report = sharded_inside(lambda y: y.to_local().pow(2).mean())
    (finding,) = report.findings
    assert (finding.code, finding.severity) == ("TM912", "warning")
    assert finding.message == (
        "The loss was computed from this rank's part of a sum over tp: to_local() of a DTensor whose placements are "
        "P(sum) returns what this rank adds to it."
    )
    assert finding.location is not None
    assert "test_fake_backend.py" in finding.location.label
    assert [one.over for one in report.parallel.partial_sums] == ["tp"]


def reduced_by_hand(y):
    """Add the parts up by a Function of its own, as Megatron does."""

    class Reduced(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x = x.clone()
            dist.all_reduce(x)
            return x

        @staticmethod
        def backward(ctx, grad):
            return grad

    return Reduced.apply(y.to_local()).pow(2).mean()


def reduced_in_place(y):
    """Add the parts up where they lie."""
    local = y.to_local().clone()
    dist.all_reduce(local)
    return local.pow(2).mean()


def given_back(y):
    """Make a DTensor of the part again, and of that the whole."""
    from torch.distributed.tensor import DTensor, Partial

    return DTensor.from_local(y.to_local(), y.device_mesh, [Partial()]).full_tensor().pow(2).mean()


def reduced_by_torch(y):
    """Add the parts up by torch's differentiable collective."""
    import torch.distributed.nn.functional as collectives

    return collectives.all_reduce(y.to_local()).pow(2).mean()


def reduced_functionally(y):
    """Add the parts up by a functional collective."""
    from torch.distributed._functional_collectives import all_reduce

    return all_reduce(y.to_local(), "sum", y.device_mesh.get_group()).pow(2).mean()


@pytest.mark.parametrize(
    "seen",
    [
        lambda y: y.full_tensor().pow(2).mean(),
        lambda y: y.pow(2).mean().full_tensor(),
        lambda y: (y.to_local().detach().sum() * 0 + y.full_tensor()).pow(2).mean(),  # looked at, and not learned from
        reduced_by_hand, reduced_in_place, given_back, reduced_by_torch, reduced_functionally,
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning", "ignore:c10d..allreduce_:UserWarning")
def test_parts_that_are_added_up_are_no_fault(world, seen):
    """By DTensor itself, by a collective of torch's, or by hand."""
    world(2)
    assert sharded_inside(seen).findings == ()


def replicated(model, **options):
    """Wrap a model; what its ranks reduce stays as it is: there is nobody to add it to."""
    from torch.nn.parallel import DistributedDataParallel

    def hook(_state, bucket):
        done = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    wrapper = DistributedDataParallel(model, **options)
    wrapper.register_comm_hook(None, hook)
    return wrapper


def wrapped(sharded):
    """Return a small model that 1,024 ranks train: each has all of it, or a sixteenth."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    if not sharded:
        return replicated(net())
    return fully_shard(net(), mesh=init_device_mesh("cpu", (64, 16), mesh_dim_names=("replicate", "shard")))


@pytest.mark.parametrize("sharded", [False, True])
def test_two_ranks_of_a_thousand_write_and_are_compared(tmp_path, sharded):
    """Real objects on 1,024 ranks: what each of the two writes knows all of them."""
    for rank in (0, 777):
        dist.init_process_group("fake", rank=rank, world_size=1024)
        model = wrapped(sharded)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with tm.trace(ranks=tmp_path):
            model(torch.ones(4, 8)).pow(2).sum().backward()
            optimizer.step()
        del model, optimizer
        dist.destroy_process_group()
    report = tm.ranks(tmp_path)
    assert [(one.rank, one.steps, one.state) for one in report.ranks] == [(0, 1, "finished"), (777, 1, "finished")]
    assert report.world_size == 1024
    assert "of 1024 left no report" in str(report)
    same = [tuple(range(rank % 16, 1024, 16)) if sharded else tuple(range(1024)) for rank in (0, 777)]
    assert [one.replicas for one in report.ranks] == same
    if sharded:
        # Of the second rank torch has the place of the first: in one process it keeps what it knows of a mesh.
        assert report.ranks[0].coordinate == (("replicate", 0), ("shard", 0))
        assert {one.mesh_sizes for one in report.spread} == {(64, 16)}
        assert len({box.start for box in report.spread[0].boxes()}) == 16


@pytest.mark.parametrize("other", ["tp", "pp", "cp"])
def test_groups_beside_that_of_the_data_are_known(world, tmp_path, other):
    """Ranks of tensor, pipeline or context parallelism may be given the same: of their data nothing is said."""
    from torch.distributed.device_mesh import init_device_mesh

    world(8, rank=3)
    mesh = init_device_mesh("cpu", (4, 2), mesh_dim_names=("dp", other))
    model = replicated(net(), process_group=mesh["dp"].get_group())
    with tm.trace(ranks=tmp_path):
        model(torch.ones(4, 8)).pow(2).sum().backward()
    (rank,) = tm.ranks(tmp_path).ranks
    assert (rank.replicas, rank.shares) == ((1, 3, 5, 7), ())


@pytest.mark.parametrize(("name", "shares"), [("dp", tuple(range(8))), ("dp_cp", ()), ("cp", ())])
def test_a_mesh_of_fsdp_that_is_not_of_data_alone(world, tmp_path, name, shares):
    """Named for context parallelism, too: its ranks have parts of the same."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    world(8, rank=3)
    model = fully_shard(net(), mesh=init_device_mesh("cpu", (8,), mesh_dim_names=(name,)))
    with tm.trace(ranks=tmp_path):
        model(torch.ones(4, 8)).pow(2).sum().backward()
    (rank,) = tm.ranks(tmp_path).ranks
    assert rank.shares == shares
