"""Which memory a tensor's storage is, read without touching the memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of a storage.

    Attributes:
        identity: Of torch's storage object; the same for all tensors that have this storage.
        device: As torch writes it.
        address: Of the first byte; 0 where there is no memory (meta and fake tensors).
        nbytes: Size.
    """

    identity: int
    device: str
    address: int
    nbytes: int

    @classmethod
    def of(cls, x: torch.Tensor) -> Memory:
        """Return the memory of a tensor's storage. Raises where the tensor has none."""
        storage = x.untyped_storage()
        return cls(storage._cdata, str(storage.device), _address(x, storage), storage.nbytes())

    def shift(self, other: Memory) -> int | None:
        """Return how many bytes after this memory the other one starts; None where they have no byte in common.

        Two storage objects can lie over the same memory: each ``torch.from_numpy(a)`` makes a new one.
        """
        if other.identity == self.identity:
            return 0
        if other.device != self.device or not self.address or not other.address:
            return None
        apart = other.address - self.address
        return apart if -other.nbytes < apart < self.nbytes else None


def _address(x: torch.Tensor, storage: torch.UntypedStorage) -> int:
    """Return the address of a storage. Asking a copy-on-write storage for it in the plain way would copy it."""
    if storage.device.type == "meta":
        return 0
    core: Any = torch._C
    if core._is_cow_tensor(x):
        return int(core._data_address(x)) - int(x.storage_offset()) * x.element_size()
    return storage.data_ptr()
