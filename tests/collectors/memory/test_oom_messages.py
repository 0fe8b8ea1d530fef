"""Messages of out-of-memory errors, as torch 2.10 to 2.13 and others write them, tell device and bytes."""

from __future__ import annotations

import pytest
import torch

from tensormagic.collectors.failures.failures import out_of_memory_of

KIB, MIB, GIB = 2**10, 2**20, 2**30
DOCS = "(https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"


def size(value: float, unit: int) -> int:
    """Return bytes, rounded as the reader does."""
    return int(value * unit + 0.5)


CASES = {
    # torch 2.10 to 2.13: c10/cuda/CUDACachingAllocator.cpp
    "CUDA": (
        ("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 1 has a total capacity of 14.74 GiB of which 10.55 GiB "
         "is free. Process 2345 has 4.19 GiB memory in use. Of the allocated memory 3.98 GiB is allocated by PyTorch, "
         "and 106.19 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try "
         f"setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation {DOCS}"),
        ("cuda:1", 20 * GIB, size(10.55, GIB), size(14.74, GIB), size(3.98, GIB), size(106.19, MIB)),
    ),
    "CUDA with private pools and a limit": (
        ("CUDA out of memory. Tried to allocate 764.00 MiB. GPU 0 has a total capacity of 47.37 GiB of which "
         "442.88 MiB is free. Including non-PyTorch memory, this process has 46.90 GiB memory in use. 40.00 GiB "
         "allowed; Of the allocated memory 42.40 GiB is allocated by PyTorch, with 20.00 MiB allocated in private "
         "pools (e.g., CUDA Graphs), and 3.24 GiB is reserved by PyTorch but unallocated."),
        ("cuda:0", 764 * MIB, size(442.88, MIB), size(47.37, GIB), size(42.40, GIB), size(3.24, GIB)),
    ),
    "CUDA with nothing free": (
        ("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 8.00 GiB of which 0 bytes is "
         "free. Of the allocated memory 14.51 GiB is allocated by PyTorch, and 15.90 MiB is reserved by PyTorch but "
         "unallocated."),
        ("cuda:0", 20 * MIB, 0, 8 * GIB, size(14.51, GIB), size(15.90, MIB)),
    ),
    "ROCm": (
        ("HIP out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 23.98 GiB of which 1.00 "
         "GiB is free. Of the allocated memory 20.00 GiB is allocated by PyTorch, and 0 bytes is reserved by "
         "PyTorch but unallocated."),
        ("cuda:0", 512 * MIB, GIB, size(23.98, GIB), 20 * GIB, 0),
    ),
    "XPU": (  # c10/xpu/XPUCachingAllocator.cpp
        ("XPU out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 15.91 GiB of which 2.00 GiB is "
         "free. Of the allocated memory 12.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but "
         "unallocated. Please use `empty_cache` to release all unoccupied cached memory."),
        ("xpu:0", 4 * GIB, 2 * GIB, size(15.91, GIB), 12 * GIB, GIB),
    ),
    "MPS": (  # aten/src/ATen/mps/MPSAllocator.mm
        ("MPS backend out of memory (MPS allocated: 42.25 GiB, other allocations: 720.00 KiB, max allowed: 42.50 GiB). "
         "Tried to allocate 384.00 MiB on shared pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit "
         "for memory allocations (may cause system failure)."),
        ("mps:0", 384 * MIB, 256 * MIB - 720 * KIB, size(42.5, GIB), size(42.25, GIB), None),
    ),
    "MPS without a limit, in older units": (
        ("MPS backend out of memory (MPS allocated: 17.50 GB, other allocations: 613.56 MB). Tried to allocate "
         "192.00 MB on private pool."),
        ("mps:0", 192 * MIB, None, None, size(17.5, GIB), None),
    ),
    "CPU": (  # c10/core/impl/alloc_cpu.cpp
        ("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
         "allocate 1125899906842624 bytes. Error code 12 (Cannot allocate memory)"),
        ("cpu", 2**50, None, None, None, None),
    ),
    "CPU on Windows": (
        ("[enforce fail at alloc_cpu.cpp:80] data. DefaultCPUAllocator: not enough memory: you tried to allocate "
         "4194304 bytes."),
        ("cpu", 4 * MIB, None, None, None, None),
    ),
    "shared memory": (
        "unable to mmap 1048576 bytes from file </torch_17_1234_0>: Cannot allocate memory (12)",
        ("cpu", MIB, None, None, None, None),
    ),
    "NumPy": (
        "Unable to allocate 7.45 GiB for an array with shape (1000000000,) and data type float64",
        ("cpu", size(7.45, GIB), None, None, None, None),
    ),
    "the driver": (
        "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call",
        ("cuda", None, None, None, None, None),
    ),
    "cuBLAS": (
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        ("cuda", None, None, None, None, None),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_each_backends_message_is_read(case):
    """Device, bytes asked for, free, in all, in use and in reserve, as the message has them."""
    message, expected = CASES[case]
    told = out_of_memory_of(RuntimeError(message))
    assert (told.device, told.asked, told.free, told.total, told.allocated, told.reserved) == expected
    assert told.message == message


@pytest.mark.parametrize(
    "message",
    [
        "",
        "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)",
        "Storage size calculation overflowed with sizes=[4611686018427387904]",
        "CUDA error: an illegal memory access was encountered",
        "unable to mmap 10 bytes from file <x>: Permission denied (13)",
        "I ran out of memory tricks",
    ],
)
def test_other_messages_are_none(message):
    """What only sounds like it is left alone."""
    assert out_of_memory_of(RuntimeError(message)) is None


def test_the_type_alone_is_enough():
    """A `MemoryError` without a message is one all the same; how much was asked for is not known."""
    told = out_of_memory_of(MemoryError())
    assert (told.device, told.asked, told.message) == ("cpu", None, "")


def test_the_table_of_the_asynchronous_allocator():
    """``PYTORCH_ALLOC_CONF=backend:cudaMallocAsync`` writes lines of its own, and may leave all of them out."""
    first = "Allocation on device 1 would exceed allowed memory. (out of memory)"
    table = (
        f"{first}\nCurrently allocated     : 9.43 GiB\nRequested               : 640.00 MiB\n"
        "Device limit            : 11.59 GiB\nFree (according to CUDA): 7.12 MiB\n"
        "PyTorch limit (set by user-supplied memory fraction)\n                        : 17179869184.00 GiB"
    )
    told = out_of_memory_of(RuntimeError(table))
    assert (told.device, told.asked, told.reserved) == ("cuda:1", 640 * 2**20, None)
    assert (told.free, told.total) == (int(7.12 * 2**20 + 0.5), int(11.59 * 2**30 + 0.5))
    assert told.allocated == int(9.43 * 2**30 + 0.5)
    told = out_of_memory_of(RuntimeError(first))
    assert (told.device, told.asked) == ("cuda:1", None)


def test_an_error_of_the_device_whose_message_tells_nothing_is_not_the_cpus():
    """``torch.OutOfMemoryError`` is raised for devices alone, whatever it says."""
    assert out_of_memory_of(torch.OutOfMemoryError("too much")).device == "cuda"
    assert out_of_memory_of(MemoryError()).device == "cpu"
