"""Writes CUDA memory snapshots without a GPU: a toy caching allocator that records what torch's would.

Field by field what ``torch.cuda.memory._snapshot`` returns (torch/csrc/cuda/Module.cpp and the docstring of
``torch.cuda.memory._snapshot``, torch 2.13): blocks rounded up to 512 bytes, events with what was asked for, a free in
two events, the innermost frame first. It keeps its own counts, so that a test can hold a report against them.
"""

from __future__ import annotations

from typing import Any

ROUND = 512
BEGIN = 0x7F3A_0000_0000
TIME = 1_763_700_000_000_000  # microseconds

CONDA = "/opt/conda/lib/python3.11"
TORCH = {"filename": f"{CONDA}/site-packages/torch/nn/modules/linear.py", "line": 134, "name": "forward"}
STANDARD = {"filename": f"{CONDA}/threading.py", "line": 982, "name": "run"}
C_PLUS_PLUS = {"filename": "??", "line": 0, "name": "at::native::empty_cuda(c10::ArrayRef<long>)"}
UNWIND = {"filename": "??", "line": 0, "name": "torch::unwind::unwind()"}


def frame(line: int, name: str = "forward", filename: str = "/home/ada/train.py") -> dict[str, Any]:
    """Return a frame of the user's own code."""
    return {"filename": filename, "line": line, "name": name}


def stack(line: int, *callers: int) -> list[dict[str, Any]]:
    """Return a stack whose innermost own line is ``line``, called from others, under torch's and C++'s frames."""
    return [UNWIND, C_PLUS_PLUS, TORCH, frame(line), *(frame(each, "<module>") for each in callers), STANDARD]


class ToyAllocator:
    """One device with one segment a pool of memory; blocks are laid one behind the other, and never reused."""

    def __init__(self, device: int = 0, segment: int = 2**24) -> None:
        """Begin with one segment that is free."""
        self.device, self.segment = device, segment
        self.events: list[dict[str, Any]] = []
        self.blocks: list[dict[str, Any]] = []
        self.live = self.peak = self.end = 0  # bytes asked for; where the next block begins
        self._event("segment_alloc", addr=BEGIN, size=segment, frames=[])

    def alloc(self, size: int, frames: list[dict[str, Any]], **more: Any) -> int:
        """Allocate; return the address."""
        rounded = -(-size // ROUND) * ROUND
        address = BEGIN + self.end
        self.end += rounded
        self.blocks.append({
            "address": address, "size": rounded, "requested_size": size, "state": "active_allocated", "frames": frames,
        })  # fmt: skip
        self._event("alloc", addr=address, size=size, frames=frames, **more)
        self.live += size
        self.peak = max(self.peak, self.live)
        return address

    def free(self, address: int, frames: list[dict[str, Any]] | None = None, *, completed: bool = True) -> None:
        """Free a block; it waits for a stream where the free is not completed.

        Without ``frames`` the events bear those of the allocation, as they do with ``context="alloc"``.
        """
        block = next(one for one in reversed(self.blocks) if one["address"] == address)
        size, where = block["requested_size"], {"frames": block["frames"] if frames is None else frames}
        self._event("free_requested", addr=address, size=size, **where)
        block["state"] = "active_pending_free"
        self.live -= size
        if completed:
            self._event("free_completed", addr=address, size=size, **where)
            block.update(state="inactive", frames=[], requested_size=0)

    def refuse(self, size: int, free: int, frames: list[dict[str, Any]]) -> None:
        """Run out of memory."""
        self.events.append(self._stamped({"action": "oom", "device_free": free, "size": size, "stream": 0,
                                          "frames": frames}))  # fmt: skip

    def snapshot(self, *, history: int | None = None, **more: Any) -> dict[str, Any]:
        """Return a snapshot; of the history the last ``history`` events, as torch's ring buffer keeps them."""
        self._event("snapshot", addr=0, size=0)
        rest = self.segment - sum(block["size"] for block in self.blocks)
        blocks = [*self.blocks]
        if rest:
            blocks.append({"address": BEGIN + self.segment - rest, "size": rest, "requested_size": 0,
                           "state": "inactive", "frames": []})  # fmt: skip
        segment = {
            "device": self.device, "address": BEGIN, "total_size": self.segment, "stream": 0, "segment_type": "large",
            "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": blocks,
            "allocated_size": _held(blocks, "active_allocated"),
            "active_size": _held(blocks, "active_allocated", "active_pending_free"),
            "requested_size": sum(block["requested_size"] for block in blocks),
        }  # fmt: skip
        events = self.events if history is None else self.events[len(self.events) - history :]
        traces: list[list[dict[str, Any]]] = [[] for _ in range(self.device + 1)]
        traces[self.device] = events
        settings = {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "expandable_segments": False,
                    "roundup_power2_divisions": {"1": 0}}  # fmt: skip
        return {"segments": [segment], "device_traces": traces, "allocator_settings": settings,
                "external_annotations": [], **more}  # fmt: skip

    def _event(self, action: str, **fields: Any) -> None:
        self.events.append(self._stamped({"action": action, "stream": 0, **fields}))

    def _stamped(self, event: dict[str, Any]) -> dict[str, Any]:
        return {"time_us": TIME + 1000 * len(self.events), "compile_context": "N/A", "user_metadata": "", **event}


def _held(blocks: list[dict[str, Any]], *states: str) -> int:
    return sum(block["size"] for block in blocks if block["state"] in states)
