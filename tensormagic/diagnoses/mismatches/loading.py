"""Samples of a dataset that a DataLoader cannot put together into a batch."""

from __future__ import annotations

import re

from tensormagic.diagnoses.mismatches.call import Call, Given, mismatch, unlike
from tensormagic.diagnoses.mismatches.table import Messages
from tensormagic.reports import Mismatch
from tensormagic.words import count

says = Messages(globals())

COLLATE = "default_collate"
_RULE = "Without a `collate_fn` a DataLoader stacks the samples of a batch, which must have one shape"


says.table(r"""
default_collate: batch must contain .*; found <class '(?P<kind>[^']+)'>
    with what: "None" if kind == "NoneType" else article(kind.rpartition(".")[2])
    with instead: "a number or a tensor" if kind == "NoneType" else "tensors or numbers"
    with image: "`torchvision.transforms.functional.to_tensor(image)`" if kind.startswith("PIL.") else instead
    argument: A sample of the batch holds {what}, and a DataLoader puts together tensors, NumPy arrays, numbers,
        strings, lists and dicts: {returned(image)}.

default_collate: batch must contain .*; found (?P<dtype>[<>|]?[SU]\d+|object)
    with what: "Python objects" if dtype == "object" else "text"
    argument: An array in a sample of the batch holds {what}, from which no tensor can be made: {returned("numbers")}.

expected Tensor as element {at} in argument \d+, but got (?P<kind>[\w.]+)
    if: call.report.inside.endswith(COLLATE)
    with given: [one for one in call.given if one.place.endswith(f"[{at}]")]
    with whole: [one for one in given if one.operand.name == f"batch[{at}]"]
    with what: "None" if kind == "NoneType" else article(kind.rpartition(".")[2])
    argument: Every sample of a batch must hold the same, and sample {at} {"is" if whole else "holds"} {what}:
        {returned("tensors for every sample")}.
    parts: one is {what} must be Tensor for one in given

each element in list of batch should be of equal size
    argument: Lists in the samples of one batch must have one length:
        {returned("tensors that are padded to one length")}.

^'(?P<key>[^']*)'$
    if: call.report.error_type == "KeyError" and call.report.inside.endswith(COLLATE)
    argument: Dicts in the samples of one batch must have the same keys, and one has no '{key}':
        {returned("the same keys for every sample")}.

object of type '(?P<kind>\w+)' has no len\(\)
    if: call.report.function == "torch.utils.data.DataLoader" or call.report.call.startswith("len(")
    argument: What samples are drawn from has to say how many there are, and {article(kind)} does not: its class needs a
        method __len__.

num_samples should be a positive integer value, but got num_samples=0
    argument: The dataset is empty: no samples can be drawn from it. Look at the folder or the list that it was made of.

(?P<one>\w+) option is mutually exclusive with (?P<other>[\w, ]+)
    argument: The argument {one} replaces {other}: give only one of them.

DataLoader with IterableDataset: expected unspecified (?P<name>\w+) option
    argument: An IterableDataset gives its samples in its own order, so there is nothing that {name} could choose: leave
        it out.

Sum of input lengths does not equal the length of the input dataset
    argument: The lengths of the parts must add up to that of the dataset; fractions such as [0.8, 0.2] always do.

DataLoader worker \(pid.*?\) exited unexpectedly
    if: call.report.unimportable
    with names: listed(f"`{name}`" for name in call.report.unimportable)
    argument: Worker processes begin without this session and cannot import {names}, defined in a cell: move the
        definition to a file and import it from there. On Linux, multiprocessing_context="fork" works, too.
    maybe: DataLoader(…, num_workers=0)

DataLoader worker \(pid.*?\) (?:is killed by signal: (?P<signal>[\w ]+)|exited unexpectedly)
    with why: {"Killed": " The system kills processes when memory runs out.",
        "Bus error": " Workers hand batches over in shared memory, /dev/shm: a bus error means that it is full."}
    with how: "without an error of Python's" if signal else "by itself; what it printed may tell why"
    argument: A worker process ended {how}: with num_workers=0 the samples are made here, where
        the error is seen.{why.get(signal, "")}

attempt has been made to start a new process before the\s+current process has finished its bootstrapping phase
    argument: A process that is started imports the program again, and would start processes itself: what starts them
        stands below if __name__ == "__main__".

Cannot re-initialize CUDA in forked subprocess
    argument: A process that is forked cannot use CUDA after its parent has: make tensors on the GPU outside of the
        dataset, or start the processes with spawn.
    maybe: DataLoader(…, multiprocessing_context="spawn")

prefetch_factor option could only be specified in multiprocessing
    argument: Only worker processes load batches ahead: give num_workers, or leave out prefetch_factor.

'DataLoader' object is not (?:subscriptable|an iterator)
    argument: A DataLoader gives batches in a loop, and is not a list or iterator itself.
    maybe: next(iter({anything.code}))

'_IncompatibleKeys' object
    argument: The method load_state_dict changes the model itself and returns the names that did not fit: leave out the
        assignment of its result.
""")


@says(r"stack expects each tensor to be equal size, but got \[{first:shape}\] at entry 0 and \[{other:shape}\]")
def _of_several_shapes(call: Call, first: tuple[int, ...], other: tuple[int, ...]) -> Mismatch | None:
    if not call.report.inside.endswith(COLLATE):
        return None
    members = [one for one in call.tensors if one.place]  # the first of many; none are known of a worker process
    if not (wrong := [one for one in members if one.shape != members[0].shape]):
        return mismatch("shape", f"{_RULE}: one has the shape {first}, another {other}.")
    more = f", and {'at least ' if call.report.gaps else ''}{count(len(wrong) - 1)} more differ" if wrong[1:] else ""
    parts = [
        one.size(at, members[0][at]) if one.ndim == members[0].ndim else one.dims(members[0].ndim)
        for one in wrong for at in unlike(one.shape, members[0].shape)[:1] or [0]
    ]  # fmt: skip
    return mismatch("shape", f"{_RULE}: {members[0]} and {wrong[0]}{more}.", *parts, maybe=_ways(members))


def _ways(members: list[Given]) -> list[str]:
    """Return the function that pads sequences, where they differ in nothing but their length.

    It pads all fields of a sample that have a length: labels of words are as many as the words.
    """
    field = re.fullmatch(r"batch\[\d+\]((?:\[\d+\])?)", members[0].operand.name)
    if field is None or not members[0].ndim or len({one.shape[1:] for one in members}) > 1:
        return []
    if not field[1]:
        return ["collate_fn=lambda batch: nn.utils.rnn.pad_sequence(batch, batch_first=True)"]
    each = (
        "nn.utils.rnn.pad_sequence(field, batch_first=True) if torch.is_tensor(field[0]) and field[0].ndim "
        "else torch.utils.data.default_collate(field)"
    )
    return [f"collate_fn=lambda batch: [{each} for field in zip(*batch)]"]


def returned(what: str) -> str:
    """Return what a dataset, or a function that collates, is to do instead."""
    return f"return {what} from the dataset's `__getitem__`, or give the DataLoader a `collate_fn` that does it"
