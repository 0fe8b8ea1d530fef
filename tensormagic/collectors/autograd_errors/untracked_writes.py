"""What autograd does not check: writes it cannot see, through NumPy and through ``.data``."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from tensormagic.collectors.autograd_errors.backward_errors import Origin
from tensormagic.collectors.gradients.measures import bytes_at
from tensormagic.collectors.graphs.in_place import IN_PLACE, UntrackedWrites, WriteBook, WriteRecord, differs
from tensormagic.collectors.graphs.live_nodes import history_of, next_nodes
from tensormagic.collectors.graphs.nodes import op_name
from tensormagic.collectors.objects.children import has_history
from tensormagic.collectors.objects.identity import Marks
from tensormagic.collectors.quiet import quiet
from tensormagic.collectors.where.caller import sequence_number
from tensormagic.collectors.where.source import SourceLines, is_own_code, name_in
from tensormagic.reports.base import Gap, Location
from tensormagic.reports.failure import GradientRead
from tensormagic.words import error_text

# Who writes to ``a = x.detach().numpy()`` changes ``x`` and not its count of writes. NumPy does not report it, so the
# values are compared: where an array is handed out, and where a call makes a node of a tensor whose memory is an
# array's, a checksum is kept, of 32 KB at most (of more, evenly spread pieces). A backward that begins compares those
# that its graph is old enough for, and asks its nodes what they have saved only where one differs. Neither the array
# nor the tensor is kept, nor a copy.
MOST_SEEN = 64  # checksums that are kept; the oldest are forgotten first
MOST_FOLLOWED = 16  # arrays that calls are compared with
PIECE, PIECES = 1 << 11, 16  # bytes

# Of what these save only the signs count, and features that are scaled in place keep theirs.
_SIGNS_ALONE = ("Relu", "LeakyRelu", "Threshold", "Abs")
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})


class MemoryContents(NamedTuple):
    """What lay in a piece of memory when an array over it was handed out, or when nodes were made of it."""

    record: WriteRecord  # who handed out the array; its address is that of the piece
    memory: Any  # the storage, weak
    nbytes: int  # of the piece
    checksum: int  # of its bytes then
    first: int  # the lowest sequence number of a node whose saved tensor is compared with it,
    last: int  # and one past the highest

    def differs(self) -> bool:
        """Return whether something else lies there now; False where the memory was given back."""
        storage: Any = torch.UntypedStorage._new_with_weak_ptr(self.memory.cdata)  # keeps it meanwhile
        if storage is None:
            return False
        start, address = storage.data_ptr(), self.record.address
        is_there = start <= address and address + self.nbytes <= start + storage.nbytes()
        return is_there and checksum(address, self.nbytes) != self.checksum


def checksum(address: int, nbytes: int) -> int:
    """Return a checksum of memory on the CPU: of all of it, or of pieces where it is large."""
    if nbytes <= PIECE * PIECES:
        return zlib.crc32(memoryview(bytes_at(address))[:nbytes])
    found = 0
    for at in range(PIECES):
        start = address + (nbytes - PIECE) * at // (PIECES - 1)
        found = zlib.crc32(memoryview(bytes_at(start))[:PIECE], found)
    return found


class NumpyAliases:
    """The arrays over tensors' memory that a run knows of."""

    def __init__(self, sites: SourceLines) -> None:
        self._sites = sites
        self._seen: deque[MemoryContents] = deque(maxlen=MOST_SEEN)
        self._changed: list[MemoryContents] = []  # found by `concern`
        # By address, the arrays that are still there, or the storages over them, and who handed them out.
        self.marks = Marks(MOST_FOLLOWED)
        self.seconds, self.gap = 0.0, ""  # spent on what was used; why something could not be looked at

    def handed(self, call: str, given: Any, result: Any, frame: FrameType) -> None:
        """Note an array that was made of a tensor, or a tensor of an array, where the two share their memory."""
        array, x = (given, result) if isinstance(given, np.ndarray) else (result, given)
        if not isinstance(array, np.ndarray) or not _is_followable(x) or not array.flags.writeable:
            return
        address = x.data_ptr()
        if array.__array_interface__["data"][0] != address:
            return  # it is a copy
        start = sequence_number()
        record = WriteRecord(address, x._version, start, start, self._sites.of_frame(frame), call, blind=True)
        if array is result:  # of an array that was given nothing can have been saved before
            self._see(record, x, 0, start)
        # A weak reference to the user's own array would keep NumPy from resizing it.
        self.marks.put(array if array is result else x.untyped_storage(), record, address)

    def _see(self, record: WriteRecord, x: torch.Tensor, first: int, last: int) -> None:
        memory = StorageWeakRef(x.untyped_storage())  # type: ignore[no-untyped-call]
        self._seen.append(MemoryContents(record, memory, x.nbytes, checksum(record.address, x.nbytes), first, last))

    def used(self, made: tuple[int, int], args: tuple[Any, ...]) -> None:
        """Look whether a call that made nodes of these numbers was given an array's memory (0.4 µs). Never raises."""
        marks = self.marks
        try:
            for x in args:
                if type(x) in _PLAIN and x.data_ptr() in marks:
                    began = perf_counter()
                    with torch._C.DisableTorchFunction():
                        if _is_followable(x):
                            self._see(marks[x.data_ptr()].note, x, *made)
                    self.seconds += perf_counter() - began
        except RuntimeError:  # it stands for others, or has no memory of its own
            return
        except Exception as error:
            self.gap = error_text(error)

    def forget(self) -> None:
        """Forget everything."""
        self._seen.clear()
        self.marks.clear()

    def concern(self, numbers: Sequence[int]) -> bool:
        """Return whether anything that nodes with these numbers may have saved lies otherwise than it did."""
        if not self._seen or not len(numbers):
            return False
        oldest = min(numbers)
        self._changed = [one for one in self._seen if one.last > oldest and one.differs()]
        return bool(self._changed)

    def reaching(self, node: Any, number: int, saved: torch.Tensor) -> tuple[WriteRecord, ...]:
        """Return who handed out an array over the very piece of memory, which has changed since the node saved it."""
        if node.name().startswith(_SIGNS_ALONE) or not _is_followable(saved):
            return ()
        memory = saved.data_ptr(), saved.nbytes
        concerned = (one for one in self._changed if one.first <= number < one.last)
        return tuple(one.record for one in concerned if (one.record.address, one.nbytes) == memory)


def _is_followable(x: Any) -> bool:
    try:
        return (
            type(x) in _PLAIN and x.layout is torch.strided and x.is_cpu and not x.is_inference()
            and not x.is_neg() and not x.is_conj() and x.is_contiguous() and x.numel() > 0 and x.data_ptr() != 0
        )  # fmt: skip
    except RuntimeError:  # it stands for others, or has no memory of its own
        return False


# That ``.grad`` of what is no leaf and keeps none is None, and stays so, torch says once a process, in a warning. Only
# what the user's own lines read is noted, and only what was None.
MOST_READS = 64  # different ones
MOST_SEARCHED = 64  # nodes on the way to a leaf


class GradientReads:
    """The readings of a run; ``leaf_name`` gives the name of a leaf, empty where it has none."""

    def __init__(self, sites: SourceLines) -> None:
        self._sites = sites
        self.leaf_name: Callable[[torch.Tensor], str] | None = None
        # By the line, and the tensor's name there; with the number of the node that made it.
        self._found: dict[tuple[int | None, str], tuple[int, GradientRead]] = {}

    def see(self, tensor: Any, frame: FrameType, passes: int) -> None:
        """Look at a tensor whose ``.grad`` was read in ``frame`` and was None, after so many backward passes."""
        own = is_own_code(frame.f_code.co_filename) and torch._C._current_autograd_node() is None
        if not own or not has_history(tensor) or tensor.retains_grad:
            return
        place = self._sites.of_frame(frame), name_in(frame, tensor)
        if place not in self._found:
            if len(self._found) >= MOST_READS:
                return
            number, name = history_of(tensor)
            node: Any = tensor.grad_fn if number >= 0 else None
            for _ in range(MOST_SEARCHED):  # to the one leaf that it was made from in a straight line
                if node is None or hasattr(node, "variable"):
                    break
                targets = next_nodes(node)
                node = targets[0] if len(targets) == 1 else None
            leaf = getattr(node, "variable", None)
            called = self.leaf_name(leaf) if leaf is not None and self.leaf_name is not None else ""
            self._found[place] = number, GradientRead(
                name=place[1], op=op_name(name) if name else "", shape=tuple(tensor.shape), leaf=called,
                single=leaf is not None, passes=passes, count=0,
            )  # fmt: skip
        number, read = self._found[place]
        self._found[place] = number, replace(read, count=read.count + 1)

    def report(
        self, origin: Callable[[int], Origin], location: Callable[[int | None], Location | None]
    ) -> tuple[GradientRead, ...]:
        """Return the readings; ``origin`` is that of a node with a number, ``location`` a line by its site."""
        return tuple(
            replace(read, location=location(site), made=origin(number)[0])
            for (site, _), (number, read) in self._found.copy().items()
        )


# What the function mode remembers for autograd's sake, by function: one look-up a call, and no more for all others.
GETS_DATA: Final = "get data"
GETS_GRAD: Final = "get grad"
SETS_DATA: Final = "data"
SHARES: Final = "shares"
HOOKS: Final = "hooks"
MOST_HOOKED = 1 << 10  # nodes whose result has a hook, the last ones

_TENSOR: Any = torch.Tensor
_APART = frozenset({GETS_DATA, GETS_GRAD, SETS_DATA, SHARES, HOOKS})
_other_modes = torch._C._len_torch_function_stack

_SHARING = (_TENSOR.numpy, _TENSOR.__array__, torch.as_tensor, torch.asarray)
NOTED: Final[dict[Any, str]] = {
    **IN_PLACE, _TENSOR.data.__get__: GETS_DATA, _TENSOR.grad.__get__: GETS_GRAD, **dict.fromkeys(_SHARING, SHARES),
    _TENSOR.register_hook: HOOKS, _TENSOR.register_post_accumulate_grad_hook: HOOKS,
}  # fmt: skip


class AutogradWatch:
    """What is remembered of a run's calls."""

    def __init__(self, sites: SourceLines) -> None:
        self.writes = WriteBook(sites)
        self.blind = UntrackedWrites()
        self.arrays = NumpyAliases(sites)
        self.reads = GradientReads(sites)
        # Sequence numbers of the nodes that made tensors on which the code has put a hook → the line that did.
        self.hooked: dict[int, int | None] = {}
        # The code of hooks that were put on leaves → the line that did.
        self.hooked_leaves: dict[CodeType, int | None] = {}
        self._sites = sites
        self.passes = 0  # backward passes so far
        self.stepping = False  # whether a step of an optimizer runs, of whose calls nothing is noted
        self.seconds = 0.0  # spent here, but for plain writes: some 0.7 µs each
        self._changes = False
        self._gap = ""

    @property
    def own_seconds(self) -> float:
        """How long all of it took."""
        return self.seconds + self.arrays.seconds

    def see(self, noted: str, call: tuple[Any, Any, Any], result: Any, start: int, frame: FrameType) -> None:
        """Note a call that was made: function, arguments, keywords; ``start`` as in `WriteRecord`. Never raises."""
        args = call[1]
        if args and type(args[0]) in _PLAIN and noted not in _APART and not self.blind.live and not _other_modes():
            self.writes.note(noted, args[0], start, frame)
            return
        began = perf_counter()
        with self._never_raising():
            self._see(noted, call, result, start, frame)
        self.seconds += perf_counter() - began

    @contextmanager
    def _never_raising(self) -> Iterator[None]:
        try:
            with torch._C.DisableTorchFunction():  # neither this mode nor one of the user's is to see what is asked
                yield
        except Exception as error:
            self._gap = error_text(error)

    def _see(self, noted: str, call: tuple[Any, Any, Any], result: Any, start: int, frame: FrameType) -> None:
        function, args, kwargs = call
        if noted == SHARES:
            name = function.__name__.replace("__array__", "asarray")
            self.arrays.handed(name, args[0] if args else None, result, frame)
        elif noted == GETS_GRAD:
            self.reads.see(args[0], frame, self.passes)
        elif noted == GETS_DATA:
            self.blind.got_data(result)
        elif noted == HOOKS:
            if (node := args[0].grad_fn) is not None:
                self.hooked[node._sequence_nr()] = self._sites.of_frame(frame)
            elif len(self.hooked_leaves) < MOST_HOOKED and type(args[-1]) in {FunctionType, MethodType}:
                self.hooked_leaves[args[-1].__code__] = self._sites.of_frame(frame)
            if len(self.hooked) > MOST_HOOKED:
                del self.hooked[next(iter(self.hooked))]
        elif noted != SETS_DATA or self._changes:
            target: Any = args[0] if args else next(iter(kwargs.values()), None)
            blind = noted == SETS_DATA or self.blind.is_untracked(target)
            self.writes.note(noted, target, start, frame, blind)
            if blind and (record := self.writes.last) is not None:
                with quiet():
                    self.blind.add(record, target, args[1] if noted == "__setitem__" else None)

    def before_setting(self, args: tuple[Any, ...]) -> None:
        """Look at ``x.data = y`` before it is done: whether it changes what x holds. Never raises."""
        self._changes = False
        with self._never_raising(), quiet():
            self._changes = differs(*args)

    def see_out(self, call: tuple[Any, Any, Any], start: int, frame: FrameType) -> None:
        """Note a call that was given ``out=``. Never raises."""
        function, _, kwargs = call
        self.see(str(getattr(function, "__name__", "out")), (function, (kwargs["out"],), {}), None, start, frame)

    def step_begins(self, *, plain: bool) -> None:
        """Say that an optimizer's step begins: what a plain one writes, without a closure, is not noted one by one."""
        self.stepping = plain

    def step_ends(self, optimizer: Any) -> None:
        """Say that it ended."""
        self.stepping = False
        with self._never_raising():
            self.writes.note_step(optimizer)

    def pass_begins(self) -> None:
        """Say that a backward begins: whatever step had begun has failed, or runs a closure."""
        self.stepping = False
        self.passes += 1

    def forget(self) -> None:
        """Forget what calls did: they go by unseen from now on."""
        self.writes.forget()
        self.blind.forget()
        self.arrays.forget()
        self.stepping = False

    def gaps(self) -> tuple[Gap, ...]:
        """Return what could not be noted."""
        gap = self._gap or self.arrays.gap
        return (Gap("calls", f"some in-place writes could not be recorded: {gap}"),) if gap else ()
