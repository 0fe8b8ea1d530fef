"""Recurrent layers that take time first, and whose output is read as if the batch came first."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from tensormagic.collectors.calls.call_notes import Call, CallNotes

LAYERS = ("lstm", "gru", "rnn_tanh", "rnn_relu")
INDEXING = ("__getitem__",)
_MOST = 32


class Sequences:
    """What recurrent layers gave that take time first, by identity, as long as it lives."""

    def __init__(self) -> None:
        self.marks: dict[int, weakref.ref[torch.Tensor]] = {}

    def add(self, output: torch.Tensor) -> None:
        """Remember an output."""
        if len(self.marks) >= _MOST:
            del self.marks[next(iter(self.marks))]
        self.marks[id(output)] = weakref.ref(output)

    def has(self, x: object) -> bool:
        """Return whether it is one of these outputs."""
        mark = self.marks.get(id(x))
        return mark is not None and mark() is x


class NotesOfSequences(CallNotes):
    """Notes beside which the outputs of recurrent layers are remembered."""

    sequences: Sequences


def recurred(watch: NotesOfSequences, call: Call) -> None:
    """Remember the output of a recurrent layer that was built to take (time, batch, features)."""
    result: Any = call.result
    output = result[0] if isinstance(result, tuple) and result else None
    if isinstance(output, torch.Tensor) and output.dim() == 3 and call.args and call.args[-1] is False:
        watch.sequences.add(output)


def last_of_the_batch(watch: NotesOfSequences, call: Call) -> None:
    """Note ``output[:, -1]``: the last sample of the batch, where the layer takes time first."""
    if not watch.sequences.marks or len(call.args) < 2 or not watch.sequences.has(call.args[0]):
        return
    output, index = call.args[:2]
    if not isinstance(index, tuple) or len(index) not in {2, 3} or output.shape[1] < 2 or output.grad_fn is None:
        return
    whole = slice(None)
    rest = all(part == whole for part in index[2:] if isinstance(part, slice)) and len(index[2:]) < 2
    if isinstance(index[0], slice) and index[0] == whole and index[1] in (-1, output.shape[1] - 1) and rest:
        watch.note("last sample", call, operands=(output,))
