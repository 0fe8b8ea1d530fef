"""One specimen of every kind of tensor that torch (and NumPy) can put in front of a user, and what is true of it.

A specimen's sentences hold for exactly this one: the numbers in them are its own. A new kind is one more entry; every
test of `tests/collectors/test_zoo.py` then runs on it.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tests.support import zoo_classes

Look = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Specimen:
    """One kind.

    Attributes:
        make: Makes it; for one that only exists while something runs, calls the look it is given instead.
        says: What the panel has to say of it, as text.
        lives: Whether it can be held, so that it can be looked at after it was made.
    """

    make: Callable[..., Any]
    says: tuple[str, ...]
    lives: bool = True

    def visit(self, look: Look) -> Any:
        """Make it, let ``look`` look at it, and return what that returned."""
        with prototypes():
            if not self.lives:
                return self.make(look)
            x = self.make()
        return look(x)


@contextmanager
def prototypes() -> Iterator[None]:
    """Leave out what torch warns of when such tensors are made (not when they are looked at)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


DENSE = torch.tensor([[0, 1.5, 0, 2], [0, 0, 0, 0], [3, 0, 4, 0], [0, 0, 0, 5]])


def _coo(*, coalesced: bool = False) -> torch.Tensor:
    x = torch.sparse_coo_tensor([[0, 0, 1, 0], [1, 1, 2, 1]], [1.0, 2.0, 3.0, 4.0], (3, 4))
    return x.coalesce() if coalesced else x


def _band(size: int) -> torch.Tensor:
    at = torch.arange(size)
    return torch.sparse_coo_tensor(torch.stack([at, at.roll(1)]), at + 1.0, (size, size)).to_sparse_csr()


def _items() -> list[torch.Tensor]:
    return [torch.arange(6.0).view(2, 3), torch.arange(6.0, 18.0).view(4, 3)]


def _jagged_with_grad(*, leaf: bool = False) -> torch.Tensor:
    x = torch.nested.nested_tensor(_items(), layout=torch.jagged, requires_grad=True)
    y = x * 2
    y.values().sum().backward()
    return x if leaf else y


def _holes() -> torch.Tensor:
    lengths = torch.tensor([2, 3, 1])
    return torch.nested.narrow(torch.arange(12.0).view(3, 4), 1, torch.tensor([0, 1, 0]), lengths, layout=torch.jagged)


def _csr_meta() -> torch.Tensor:
    parts = (torch.zeros(5, dtype=torch.int64), torch.zeros(3, dtype=torch.int64), torch.zeros(3))
    return torch.sparse_csr_tensor(*(part.to("meta") for part in parts), (4, 4))


def _fake(*, symbolic: bool = False, sparse: bool = False) -> torch.Tensor:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    if symbolic:
        return FakeTensorMode(shape_env=ShapeEnv()).from_tensor(torch.ones(5, 7))
    with FakeTensorMode():
        return torch.ones(2, 3).to_sparse() if sparse else torch.ones(2, 3)


def _functional_python() -> torch.Tensor:
    from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode

    plain = torch.full((2, 2), 7.0)
    with FunctionalTensorMode():
        return FunctionalTensor.to_functional(plain)


def _in_vmap(look: Look) -> Any:
    seen: list[Any] = []
    torch.vmap(lambda x: seen.append(look(x)) or x, in_dims=1)(torch.arange(15.0).view(3, 5))
    return seen[0]


def _in_vmap_of_grad(look: Look) -> Any:
    seen: list[Any] = []
    torch.vmap(torch.func.grad(lambda x: (seen.append(look(x)), x.sum())[1]))(torch.ones(6, 2))
    return seen[0]


def _in_jvp(look: Look) -> Any:
    seen: list[Any] = []
    torch.func.jvp(lambda x: (seen.append(look(x)), x)[1], (torch.ones(4),), (torch.ones(4),))
    return seen[0]


def _in_functionalize(look: Look) -> Any:
    seen: list[Any] = []
    torch.func.functionalize(lambda x: (seen.append(look(x)), x * 2)[1])(torch.ones(9))
    return seen[0]


def _escaped() -> torch.Tensor:
    held: list[torch.Tensor] = []
    torch.vmap(lambda x: (held.append(x), x)[1])(torch.ones(3, 8))
    return held[0]


def _dual(look: Look) -> Any:
    from torch.autograd import forward_ad

    with forward_ad.dual_level():
        return look(forward_ad.make_dual(torch.ones(3), torch.tensor([0.5, 0.25, 0.125])))


def _distributed(look: Look, placements: Callable[[Any], list[Any]]) -> Any:
    import torch.distributed as dist
    from torch.distributed import tensor as dtensor
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=3, world_size=4, store=FakeStore())
    try:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model"))
        whole = torch.arange(24.0).view(4, 6)
        return look(dtensor.DTensor.from_local(whole[2:], mesh, placements(dtensor), run_check=False))
    finally:
        dist.destroy_process_group()


def _freed(left: int) -> torch.Tensor:
    x = torch.ones(4, 4)
    x.untyped_storage().resize_(left)
    return x


def _from_file() -> torch.Tensor:
    path = Path(tempfile.mkdtemp()) / "six.bin"
    np.arange(6, dtype="f4").tofile(path)
    return torch.from_file(str(path), shared=True, size=6)


def _memmap() -> np.ndarray:
    path = Path(tempfile.mkdtemp()) / "five.bin"
    np.arange(5, dtype="f8").tofile(path)
    return np.memmap(path, dtype="f8", mode="r")


def _read_only() -> np.ndarray:
    array = np.arange(4.0)
    array.flags.writeable = False
    return array


def _inference() -> torch.Tensor:
    with torch.inference_mode():
        return torch.ones(2)


def _packed(dtype: str, *numbers: int) -> torch.Tensor:
    """Return a tensor of bytes seen as another dtype."""
    return torch.tensor(numbers, dtype=torch.uint8).view(getattr(torch, dtype))


def _per_channel() -> torch.Tensor:
    scales, zeros = torch.tensor([0.1, 0.2]), torch.tensor([0, 1])
    return torch.quantize_per_channel(torch.ones(2, 3), scales, zeros, 0, torch.qint8)


ZOO: dict[str, Specimen] = {
    # -- strided ------------------------------------------------------------------------------------------------
    "scalar": Specimen(lambda: torch.tensor(3.5), ("()", "3.5", "owns its storage")),
    "empty": Specimen(lambda: torch.empty(0, 3), ("(0, 3)", "0 elements")),
    "ten dimensions": Specimen(
        lambda: torch.arange(1024.0).view((2,) * 10), ("slice x[0, 0, 0, 0, 0, 0, 0, 0, :, :]",)
    ),
    "stride 0": Specimen(lambda: torch.arange(3.0).expand(4, 3), ("12 B stored, seen as 48 B", "TM202")),
    "overlapping": Specimen(lambda: torch.arange(10.0).as_strided((4, 4), (2, 1)), ("16 elements over 10 stored",)),
    "channels_last": Specimen(
        lambda: torch.randn(1, 2, 3, 4).to(memory_format=torch.channels_last),
        ("The 2 channels of one place are next to each other in memory (3 × 4)", "N, H, W, C"),
    ),
    "channels_last_3d": Specimen(
        lambda: torch.randn(1, 5, 2, 3, 4).to(memory_format=torch.channels_last_3d),
        ("The 5 channels of one place are next to each other in memory (2 × 3 × 4)", "N, D, H, W, C"),
    ),
    "parameter": Specimen(lambda: nn.Parameter(torch.ones(2)), ("Parameter", "trained: backward() fills its .grad")),
    "frozen parameter": Specimen(
        lambda: nn.Parameter(torch.ones(2), requires_grad=False), ("frozen: requires_grad is False",)
    ),
    "buffer": Specimen(lambda: nn.Buffer(torch.ones(2)), ("Buffer", "saved in state_dict()")),
    "passing buffer": Specimen(lambda: nn.Buffer(torch.ones(2), persistent=False), ("not saved in state_dict()",)),
    "conj": Specimen(lambda: torch.tensor([1 + 2j, 3 - 1j]).conj(), ("conjugate view", "x.resolve_conj() copies 16 B")),
    "neg": Specimen(lambda: torch.tensor([1 + 2j]).conj().imag, ("negative view", "x.resolve_neg() copies 4 B")),
    "inference": Specimen(_inference, ("Made under inference_mode", "no version counter")),
    "shared": Specimen(lambda: torch.ones(3).share_memory_(), ("Other processes that have it", "12 B")),
    "file": Specimen(_from_file, ("six.bin", "writes go to", "the file")),
    "freed": Specimen(lambda: _freed(0), ("Its storage was freed: 0 B are left of the 64 B", "reading would go")),
    "too small": Specimen(lambda: _freed(20), ("was made smaller: 20 B are left of the 64 B",)),
    "dual": Specimen(_dual, ("dual tensor", "x tangent", "the directional derivative of each element"), lives=False),
    # -- sparse -------------------------------------------------------------------------------------------------
    "coo": Specimen(
        lambda: _coo(coalesced=True), ("coalesced True", "density 17 % (2 of 12 elements)", "its index is [1, 2]")
    ),
    "coo one repeat": Specimen(
        lambda: torch.sparse_coo_tensor([[0, 0], [2, 2]], [1.0, 10.0], (2, 3)),
        ("1 value repeats a place: coalesce() adds them up and leaves 1", "1 + 10"),
    ),
    "coo uncoalesced": Specimen(_coo, ("2 values repeat a place: coalesce() adds them up and leaves 2", "1 + 2 + 4")),
    "coo hybrid": Specimen(
        lambda: torch.sparse_coo_tensor([[0, 2]], [[1.0, 2.0], [3.0, 4.0]], (3, 2)),
        ("each stored value is a tensor of (2,)", "[3, 4]"),
    ),
    "coo empty": Specimen(lambda: torch.zeros(3, 3).to_sparse(), ("0 values are stored", "density 0 %")),
    "csr": Specimen(
        DENSE.to_sparse_csr,
        ("row 2 owns places 2 to 3: crow_indices[2] = 2, crow_indices[3] = 4", "empty: row 1", "density 31 %"),
    ),
    "csc": Specimen(
        DENSE.to_sparse_csc, ("column 2 owns places 2 to 2", "row_indices[2] = 2, so [2, 2] is values[2] = 4")
    ),
    "bsr": Specimen(
        lambda: DENSE.to_sparse_bsr((2, 2)), ("4 blocks of 2 × 2", "block row 1 owns places 2 to 3", "4 0 / 0 5")
    ),
    "bsc": Specimen(lambda: DENSE.to_sparse_bsc((2, 2)), ("block column 1 owns places 2 to 3", "ccol_indices[1] = 2")),
    "csr batched": Specimen(
        lambda: torch.stack([DENSE, DENSE]).to_sparse_csr(),
        ("batch item [0] of (2,)", "stored values in each batch item"),
    ),
    "csr of zeros": Specimen(
        lambda: torch.zeros(3, 4).to_sparse_csr(), ("0 values are stored for a tensor of (3, 4)",)
    ),
    "csr meta": Specimen(
        _csr_meta, ("its values are not in plain memory", "3 values are stored for a tensor of (4, 4)", "meta")
    ),
    "coo with faulty indices": Specimen(
        lambda: torch.sparse_coo_tensor([[7, 1], [0, 0]], [1.0, 2.0], (2, 2), check_invariants=False),
        ("1 more have an index outside it",),
    ),
    "fake sparse": Specimen(lambda: _fake(sparse=True), ("fake tensor", "layout sparse_coo")),
    "zero tensor": Specimen(
        lambda: torch._efficientzerotensor((2, 3)), ("a gradient that is zero everywhere", "0 B stored")
    ),
    "nested nothing": Specimen(lambda: torch.nested.nested_tensor([]), ("0 items without known dimensions",)),
    "csr large": Specimen(
        lambda: _band(1000), ("1000 rows × 1000 columns; a cell is 32 × 32", "the first 16 of 1000 stored", "0.1 %")
    ),
    "mkldnn": Specimen(lambda: torch.ones(2, 3).to_mkldnn(), ("oneDNN's own layout", "the 6 values of a strided copy")),
    # -- nested -------------------------------------------------------------------------------------------------
    "nested": Specimen(
        lambda: torch.nested.nested_tensor(_items()),
        ("(2, ragged, 3)", "(2, 3) and (4, 3)", "storage offsets 0, 6", "padded to the largest: 96 B"),
    ),
    "nested transposed": Specimen(
        lambda: torch.nested.nested_tensor(_items()).transpose(1, 2),
        ("(2, 3, ragged)", "contiguous False", "strides (1, 3) and (1, 3)"),
    ),
    "jagged": Specimen(
        lambda: torch.nested.nested_tensor(_items(), layout=torch.jagged),
        ("2 items of different length along dimension 1", "item 1 is values[2:6]", "lengths 2 to 4, 3 on average"),
    ),
    "jagged nothing": Specimen(
        lambda: torch.nested.nested_tensor([torch.zeros(0, 2), torch.zeros(0, 2)], layout=torch.jagged),
        ("0 to 0, 0 on average", "0 of its 0 elements belong to an item"),
    ),
    "jagged with gradient": Specimen(_jagged_with_grad, ("made by", "(2, ragged, 3)", "requires grad, not a leaf")),
    "jagged leaf with gradient": Specimen(
        lambda: _jagged_with_grad(leaf=True), ("grad present", ".grad is a tensor of shape (2, -1, 3)")
    ),
    "jagged with holes": Specimen(
        _holes,
        ("6 of its 12 elements belong to an item", "item 1 is values[5:8]: offsets[1] = 5", "holes are not drawn"),
    ),
    # -- without numbers ----------------------------------------------------------------------------------------
    "meta": Specimen(lambda: torch.empty(30, 40, device="meta"), ("meta", "would take 4.7 KiB", "no memory")),
    "fake": Specimen(_fake, ("pretends to be on cpu", "would take 24 B")),
    "fake symbolic": Specimen(lambda: _fake(symbolic=True), ("symbols (s", "traced with (5, 7)", "would take 140 B")),
    "uninitialized parameter": Specimen(nn.UninitializedParameter, ("shape not known yet", "lazy module decides it")),
    "uninitialized buffer": Specimen(nn.parameter.UninitializedBuffer, ("uninitialized buffer", "shape not known yet")),
    # -- wrappers -----------------------------------------------------------------------------------------------
    "functional": Specimen(
        lambda: torch._to_functional_tensor(torch.full((2, 3), 6.0)), ("FunctionalTensorWrapper (C++)", "max 6")
    ),
    "functional python": Specimen(
        _functional_python, ("FunctionalTensor (Python), then FunctionalTensorWrapper (C++)",)
    ),
    "vmap": Specimen(
        _in_vmap, ("shape inside (3,)", "shape outside (3, 5)", "hides batch dimension 1 (size 5)"), lives=False
    ),
    "vmap of grad": Specimen(
        _in_vmap_of_grad, ("inside grad inside vmap", "shape outside (6, 2)", "levels 2"), lives=False
    ),
    "jvp": Specimen(_in_jvp, ("inside jvp", "with which jvp traces the computation"), lives=False),
    "functionalize": Specimen(_in_functionalize, ("inside functionalize", "shape outside (9,)"), lives=False),
    "escaped from vmap": Specimen(_escaped, ("escaped yes", "its vmap has ended", "shape outside (3, 8)")),
    "distributed": Specimen(
        lambda look: _distributed(look, lambda d: [d.Shard(0), d.Replicate()]),
        ("global shape (4, 6)", "local shard (2, 6)", "it is [2:4, 0:6]", "rank 3", "over model Replicate()", "max 23"),
        lives=False,
    ),
    "distributed partial": Specimen(
        lambda look: _distributed(look, lambda d: [d.Partial(), d.Replicate()]),
        ("Each process holds a partial result", "over data Partial(sum)"),
        lives=False,
    ),
    "masked": Specimen(
        lambda: torch.masked.masked_tensor(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([True, False, True])),
        ("2 of 3 elements count", "x.get_mask()", "the 2 elements that count"),
    ),
    "function subclass": Specimen(zoo_classes.loud, ("Loud is a tensor with memory of its own", "max 42")),
    "dispatch subclass": Specimen(zoo_classes.forbidding, ("through its __torch_dispatch__", "max 43")),
    "wrapper subclass": Specimen(
        zoo_classes.pair, ("around 2 inner tensors", "x.left", "x.right", "only its class knows")
    ),
    "wrapper of one": Specimen(
        zoo_classes.single, ("around 1 inner tensor", "the 3 values of its inner tensor only", "max 8")
    ),
    "wrapper with slots": Specimen(zoo_classes.slotted, ("inner tensors hidden", "x.hidden")),
    "wrapper of nothing": Specimen(zoo_classes.hollow, ("no inner tensor was found in it", "none found")),
    # -- quantized ----------------------------------------------------------------------------------------------
    "quantized": Specimen(
        lambda: torch.quantize_per_tensor(torch.tensor([0.0, 0.5, 1.0]), 0.1, 10, torch.quint8),
        ("integer 15 stands for (15 − 10) · 0.1 = 0.5", "zero point 10", "this takes 3 B"),
    ),
    "quantized per channel": Specimen(_per_channel, ("2 channels, each with its own scale", "channel axis 0")),
    "quantized packed": Specimen(
        lambda: torch.quantize_per_tensor(torch.tensor([0.0, 0.5, 1.0]), 0.1, 0, torch.quint4x2),
        ("two 4-bit integers in each byte",),
    ),
    # -- dtypes -------------------------------------------------------------------------------------------------
    "float16": Specimen(
        lambda: torch.ones(2, dtype=torch.float16), ("5 exponent and 10 fraction bits", "largest 6.55e+04")
    ),
    "bfloat16": Specimen(
        lambda: torch.ones(2, dtype=torch.bfloat16), ("the range of float32 with 8 significant bits",)
    ),
    "float8_e4m3fn": Specimen(
        lambda: torch.tensor([448.0]).to(torch.float8_e4m3fn), ("largest 448", "too large becomes NaN")
    ),
    "float8_e5m2": Specimen(lambda: torch.ones(2).to(torch.float8_e5m2), ("largest 5.734e+04", "float16 truncated")),
    "float8_e4m3fnuz": Specimen(lambda: torch.ones(2).to(torch.float8_e4m3fnuz), ("largest 240",)),
    "float8_e5m2fnuz": Specimen(lambda: torch.ones(2).to(torch.float8_e5m2fnuz), ("no negative zero", "e5m2fnuz")),
    "float8_e8m0fnu": Specimen(
        lambda: torch.tensor([0.25, 8.0]).to(torch.float8_e8m0fnu),
        ("8 exponent bits only", "powers of two only", "max 8"),
    ),
    "float4": Specimen(
        lambda: _packed("float4_e2m1fn_x2", 0x21, 0xF7), ("the 4 numbers in 2 bytes", "min −6", "max 6", "±1.5")
    ),
    "complex32": Specimen(lambda: torch.ones(2, dtype=torch.complex32), ("Two half-precision numbers per element",)),
    "uint16": Specimen(
        lambda: torch.tensor([1, 65535], dtype=torch.uint16), ("Unsigned integers of 16 bits", "max 65535")
    ),
    "uint64": Specimen(lambda: torch.tensor([1], dtype=torch.uint64), ("largest 18446744073709551615",)),
    "int4": Specimen(lambda: _packed("int4", 7, 8), ("Integers of 4 bits, -8 to 7", "min −8", "max 7")),
    "uint3": Specimen(lambda: _packed("uint3", 7, 9), ("Integers of 3 bits, 0 to 7", "min 1", "max 7")),
    "bits8": Specimen(lambda: _packed("bits8", 200, 3), ("Opaque bits, 8 bits each", "max 200")),
    "bits2x4": Specimen(lambda: _packed("bits2x4", 1, 2), ("4 fields of 2 bits each in a byte",)),
    "bits16": Specimen(lambda: _packed("bits16", 1, 2, 3, 4), ("Opaque bits, 16 bits each", "max 1027")),
    "bool": Specimen(lambda: torch.tensor([True, False, True]), ("bool", "max 1", "zero 1")),
    # -- NumPy --------------------------------------------------------------------------------------------------
    "array": Specimen(
        lambda: np.arange(24, dtype="f4").reshape(4, 6)[1:3, ::2],
        ("strides in bytes (24, 8) (in elements: (6, 2))", "storage offset 6", "an array of shape (24,)"),
    ),
    "array read-only": Specimen(_read_only, ("which is read-only", "writeable False")),
    "array backwards": Specimen(
        lambda: np.arange(12.0).reshape(3, 4)[::-1], ("its .copy() has positive ones", "(-32, 8)", "x[::-1, :]")
    ),
    "array big-endian": Specimen(
        lambda: np.arange(4, dtype=">f8"), ("this array is big-endian", "a copy in the machine's byte order")
    ),
    "array of objects": Specimen(
        lambda: np.array([1, "a", None, 2], dtype=object), ("refers to 2 int, 1 str, 1 NoneType",)
    ),
    "array of records": Specimen(
        lambda: np.zeros(3, dtype=[("a", "i4"), ("b", "f8")]), ("2 fields in 12 B: a and b", "x['b']")
    ),
    "array of dates": Specimen(
        lambda: np.array(["1970-01-03"], dtype="M8[D]"),
        ("torch has no dtype for NumPy's datetime64[D]", "D since 1970"),
    ),
    "array of text": Specimen(lambda: np.array(["ab", "c"]), ("torch has no dtype for NumPy's <U2", "8 B an element")),
    "array of long doubles": Specimen(lambda: np.arange(3, dtype="g") + 0.5, ("0.5, 1.5, 2.5",)),
    "array masked": Specimen(
        lambda: np.ma.masked_array([1.0, 2.0], mask=[False, True]),
        ("x.mask", "True where an element does not count", "max 1", "of the 1 element that counts"),
    ),
    "array mapped": Specimen(_memmap, ("five.bin", "opened 'r'", "max 4")),
    "array 0-d": Specimen(lambda: np.array(2.5), ("NumPy array", "()", "2.5")),
    "array of another class": Specimen(
        zoo_classes.rude, ("its own code is not run", "class tests.support.zoo_classes.Rude")
    ),
}
