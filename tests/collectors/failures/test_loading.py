"""Errors of a DataLoader: samples that make no batch, here and in worker processes; the suggested functions run."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, default_collate

from tensormagic.api.diagnosing import explain_error


def report_of(samples, **options):
    """Return what is known of the error of a loader that puts four samples together."""
    with pytest.raises(Exception) as caught:
        list(DataLoader(samples, batch_size=4, **options))
    return explain_error(caught.value)


WORDS = [torch.ones(length) for length in (2, 3, 4, 4)]
PAIRS = [(word, 1) for word in WORDS]
SECOND = [(1, word, "text") for word in WORDS]
IMAGES = [(torch.ones(3, size, 8), 0) for size in (8, 9, 8, 8)]
NAMED = [{"x": word} for word in WORDS]


@pytest.mark.parametrize(
    ("samples", "first", "shapes"),
    [(WORDS, "batch[0] (2) and batch[1] (3), and 2 more differ.", [(4, 4)]),
     (PAIRS, "batch[0][0] (2) and batch[1][0] (3), and 2 more differ.", [(4, 4), (4,)]),
     (SECOND, "batch[0][1] (2) and batch[1][1] (3), and 2 more differ.", [(4,), (4, 4)])],
)  # fmt: skip
def test_samples_of_several_lengths_are_named_and_the_function_that_pads_them_works(samples, first, shapes):
    report = report_of(samples)
    (found,) = report.findings
    assert (found.code, report.inside) == ("TM804", "torch.utils.data.default_collate")
    assert found.message.endswith(f"which must have one shape: {first}")
    (way,) = report.mismatch.maybe
    collate = eval(way.removeprefix("collate_fn="), {"torch": torch, "nn": nn})
    (batch,) = DataLoader(samples, batch_size=4, collate_fn=collate)
    fields = [batch] if isinstance(batch, torch.Tensor) else batch
    assert [tuple(one.shape) for one in fields if isinstance(one, torch.Tensor)] == shapes


def test_a_field_that_has_another_length_for_the_same_reason_is_padded_too():
    """Labels of words are as many as the words: a function that padded the words alone would fail on them."""
    tagged = [(word, word.long(), "text", 1.0) for word in WORDS]
    (way,) = report_of(tagged).mismatch.maybe
    collate = eval(way.removeprefix("collate_fn="), {"torch": torch, "nn": nn})
    ((words, tags, _, numbers),) = DataLoader(tagged, batch_size=4, collate_fn=collate)
    assert (words.shape, tags.shape, numbers.shape) == ((4, 4), (4, 4), (4,))


def test_of_many_samples_only_the_first_are_known():
    """And where those are of one shape, the message of torch tells of the other."""
    (found,) = report_of([torch.ones(length) for length in range(100)]).findings
    assert found.message.endswith("batch[0] (0) and batch[1] (1), and 2 more differ.")
    with pytest.raises(RuntimeError) as caught:
        list(DataLoader([torch.ones(length) for length in range(100)], batch_size=100))
    assert explain_error(caught.value).findings[0].message.endswith("and batch[1] (1), and at least 22 more differ.")
    with pytest.raises(RuntimeError) as caught:
        list(DataLoader([*[torch.ones(4)] * 99, torch.ones(5)], batch_size=100))
    assert explain_error(caught.value).mismatch.rule.endswith("one has the shape (4,), another (5,).")


def test_a_function_of_the_user_s_that_calls_the_default_one_is_not_called_missing():
    """What it gives that function are no samples: ``batch[0]`` is a pair here."""
    report = report_of(PAIRS, collate_fn=lambda batch: default_collate([one[0] for one in batch]))
    assert report.mismatch.rule.startswith("A stack takes tensors of one shape: batch[0][0] (2) and batch[1][0] (3)")


@pytest.mark.parametrize(("samples", "name"), [(IMAGES, "batch[1][0] (3 × 9 × 8)."), (NAMED, "batch[1]['x'] (3), and")])
def test_what_cannot_be_padded_by_one_function_is_given_one_shape_in_the_dataset(samples, name):
    (found,) = report_of(samples).findings
    assert name in found.message
    assert found.remedy.startswith("Give every sample one shape in the dataset's `__getitem__`")


@pytest.mark.parametrize(
    ("samples", "rule"),
    [([(1, None)] * 4, "A sample of the batch holds None, and a DataLoader puts together tensors"),
     ([object()] * 4, "A sample of the batch holds an object, and"),
     ([[1.0] * length for length in (2, 3, 2, 2)], "Lists in the samples of one batch must have one length: return"),
     ([{"x": 1, "y": 2}, {"x": 1}] * 2, "Dicts in the samples of one batch must have the same keys, and one has no"),
     ([np.array(["a"])] * 4, "An array in a sample of the batch holds text, from which no tensor can be made: return"),
     ([np.array([None])] * 4, "An array in a sample of the batch holds Python objects, from which no tensor can")],
)  # fmt: skip
def test_samples_of_which_no_batch_can_be_made(samples, rule):
    report = report_of(samples)
    assert report.mismatch.rule.startswith(rule)
    assert "`__getitem__`, or give the DataLoader a `collate_fn`" in report.mismatch.rule


class Broken:
    """A dataset whose own code refuses a product, or is wrong in a way that is not torch's."""

    def __init__(self, *, product: bool | None) -> None:
        self.product = product

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.product is None:
            raise RuntimeError("no such picture")
        return torch.ones(2, 3) @ torch.ones(2, 3) if self.product else {"a": torch.ones(1)}["b"]


@pytest.mark.processes
def test_of_an_error_in_a_worker_process_the_text_is_read():
    """Its own message and the user's line there, and no page of traceback; of the user's own errors nothing is said."""
    report = report_of(IMAGES, num_workers=1)
    assert report.error.startswith("stack expects each tensor to be equal size")
    assert report.mismatch.rule.endswith("which must have one shape: one has the shape (3, 8, 8), another (3, 9, 8).")
    assert report.gaps[0].reason == (
        "the call was made in DataLoader worker process 0; with num_workers=0 it is made here")  # fmt: skip
    report = report_of(Broken(product=True), num_workers=1)
    assert report.error.endswith("mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)")
    assert "torch.ones(2, 3) @ torch.ones(2, 3)" in report.location.text
    assert report_of(Broken(product=False), num_workers=1) is None
    assert report_of(Broken(product=None), num_workers=1) is None


@pytest.mark.processes
def test_what_a_worker_process_cannot_be_given_is_named():
    """The error is raised in the standard library, for what torch hands to it."""
    options = {"num_workers": 1, "multiprocessing_context": "spawn"}
    rule = report_of(WORDS, collate_fn=lambda batch: batch, **options).mismatch.rule
    assert rule.startswith("Files and other processes refer to functions and classes by name, and a lambda cannot")
    assert rule.endswith("define it with def or class at the top of a module.")


def test_memory_that_ran_out_in_a_replica_is_memory_that_ran_out():
    """Torch writes the class's module there, which is not in its name."""
    said = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 15.00 GiB"
    text = (f"Caught OutOfMemoryError in replica 1 on device 1.\nOriginal Traceback (most recent call last):\n"
            f'  File "{__file__}", line 9, in forward\n    x @ x\ntorch.OutOfMemoryError: {said}\n')  # fmt: skip
    with pytest.raises(torch.OutOfMemoryError) as caught:
        raise torch.OutOfMemoryError(text)
    report = explain_error(caught.value)
    assert (report.error, report.location.line) == (said, 9)
    assert report.out_of_memory.asked == 2 << 30


_IN_A_CELL = """
import torch
from functools import partial
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset
from tensormagic.api.diagnosing import explain_error
class Noisy(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, at):
        return torch.ones(3)
def scaled(samples):
    return torch.stack(samples) * 2
for method in ("fork", "spawn", "forkserver"):
    try:
        list(DataLoader(Subset(Noisy(), [0]), 4, num_workers=1, multiprocessing_context=method, collate_fn=scaled))
        print(method)
    except RuntimeError as error:
        print(method, explain_error(error).mismatch.rule)
noisy = TensorDataset(torch.ones(4, 3))
noisy.transforms = [partial(scaled)]
try:
    list(DataLoader(noisy, num_workers=1, multiprocessing_context="spawn"))
except RuntimeError as error:
    print(explain_error(error).unimportable)
try:
    list(DataLoader(torch.ones(4), num_workers=1, multiprocessing_context="spawn", collate_fn=lambda samples: samples))
except Exception as error:
    print(explain_error(error).mismatch.rule)
"""


def test_what_only_a_cell_defines_is_named_where_workers_begin_anew():
    """As they do by default from Python 3.14 on: the message says no more than that they ended."""
    ran = subprocess.run([sys.executable, "-c", _IN_A_CELL], capture_output=True, text=True, check=True)
    told = (
        "Worker processes begin without this session and cannot import `scaled` and `Noisy`, defined in a cell: move "
        'the definition to a file and import it from there. On Linux, multiprocessing_context="fork" works, too.'
    )
    *by_method, inside, of_lambda = ran.stdout.splitlines()
    assert by_method == ["fork", f"spawn {told}", f"forkserver {told}"]
    assert inside == "('scaled',)"
    assert of_lambda.startswith("Files and other processes refer to functions and classes by name, and a lambda cannot")
