"""Classes and indices that are not there (TM807): on the CPU an IndexError, on a GPU the end of all work on it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.corpus.cases import ill
from tests.corpus.refusals import refused


@ill("TM807", severity="error", line="return F.cross_entropy(net(x), labels)", subject="labels", says=("labels - 1",))
def classes_that_are_counted_from_one():
    """pytorch/pytorch#1204, #44355: on a GPU "device-side assert triggered", at some later line."""
    net, x = nn.Linear(4, 3), torch.randn(6, 4)
    labels = torch.tensor([1, 2, 3, 1, 2, 3])

    def loss():
        return F.cross_entropy(net(x), labels)

    return refused(loss, net=net, labels=labels)


@ill("TM807", severity="error", line="F.nll_loss(scores, mask)", subject="mask", says=("255",))
def a_border_class_that_nobody_ignores():
    """pytorch/pytorch#1204: Pascal VOC marks borders with 255, and the loss has to be told so."""
    net, image = nn.Conv2d(3, 4, 1), torch.randn(2, 3, 5, 5)
    mask = torch.zeros(2, 5, 5, dtype=torch.long)
    mask[:, 0] = 255

    def step():
        scores = F.log_softmax(net(image), 1)
        F.nll_loss(scores, mask).backward()

    return refused(step, net=net, mask=mask)


@ill("TM807", severity="error", line="return words(ids).mean(1)", subject="ids", says=("nn.Embedding(12",))
def a_token_that_was_added_to_the_tokenizer_alone():
    """huggingface/transformers#1062, #12763: the tokenizer got new words, and the table of embeddings did not."""
    words, ids = nn.Embedding(10, 4), torch.tensor([[1, 2, 11], [0, 10, 9]])

    def forward():
        return words(ids).mean(1)

    return refused(forward, words=words, ids=ids)
