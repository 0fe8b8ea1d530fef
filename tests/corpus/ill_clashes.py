"""Programs that torch refuses because of shapes, dtypes, devices and views (TM101, TM702, TM801, TM802, TM804)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tensormagic.reports import Report
from tests.corpus.cases import ill
from tests.corpus.no_gpu import explained as explained_without_gpu


def refused(program: Callable[[], object]) -> Report:
    """Return the explanation of the error that ends a program."""
    told = tm.explain()
    try:
        with told:
            program()
    except (RuntimeError, ValueError, TypeError, IndexError):
        return told.report
    raise AssertionError("nothing was refused")


# -- TM101 ---------------------------------------------------------------------------------------------------------


@ill("TM101", line="return heads.view(batch, length, 32)", subject="heads", says=(
    "The view of heads (2 × 4 × 5 × 8) as 2 × 5 × 32 would merge dimensions 2 and 3",
    "`heads.transpose(1, 2).view(batch, length, 32)`"))  # fmt: skip
def heads_put_together_without_moving_them_back():
    """Attention as tutorials write it, with the transpose before ``view`` forgotten."""

    def attend(x, batch, length):
        heads = x.view(batch, length, 4, 8).transpose(1, 2)
        return heads.view(batch, length, 32)

    return refused(lambda: attend(torch.randn(2, 5, 32), 2, 5))


@ill("TM101", line="return images.view(images.size(0), -1)", subject="images", says=(
    "would merge dimensions", "`images.reshape(images.size(0), -1)`"))  # fmt: skip
def images_turned_to_channels_last_and_flattened():
    def flatten(images):
        images = images.permute(0, 2, 3, 1)
        return images.view(images.size(0), -1)

    return refused(lambda: flatten(torch.randn(8, 3, 4, 4)))


@ill(
    "TM101",
    line="windows = series[:, :6].view(-1, 3)",
    says=("(4 × 6)", "the stride of dimension 0 is 10, not 6 × 1 = 6"),
)
def a_slice_of_columns_cut_into_windows():
    def program():
        series = torch.arange(40.0).view(4, 10)
        windows = series[:, :6].view(-1, 3)
        return windows.mean(1)

    return refused(program)


@ill("TM101", line="logits.view(-1, 7)", subject="logits", says=("15 × 7", "`logits.reshape(-1, 7)`"))
def a_sequence_transposed_for_the_loss():
    """The usual ``logits.view(-1, vocabulary)`` after batch and time were swapped."""

    def program():
        logits, words = torch.randn(5, 3, 7).transpose(0, 1), torch.randint(7, (15,))
        return F.cross_entropy(logits.view(-1, 7), words)

    return refused(program)


# -- TM702 ---------------------------------------------------------------------------------------------------------


@ill("TM702", line='return torch.randn(16, 8, generator=generator, device="cuda")', says=(
    "generator is on cpu, but the numbers should be on cuda", 'torch.Generator(device="cuda")'))  # fmt: skip
def noise_on_the_gpu_from_a_seeded_generator():
    """Diffusion scripts, with a generator made as for the CPU."""

    def noise():
        generator = torch.Generator().manual_seed(0)
        return torch.randn(16, 8, generator=generator, device="cuda")

    return explained_without_gpu(noise)


@ill("TM702", line="order = torch.randperm(10, generator=shuffling, device=device)", says=("shuffling is on cpu",))
def an_epoch_shuffled_on_the_gpu():
    def epoch(device="cuda"):
        shuffling = torch.Generator()
        shuffling.manual_seed(7)
        order = torch.randperm(10, generator=shuffling, device=device)
        return order.split(5)

    return explained_without_gpu(epoch)


@ill("TM702", line="return torch.rand(shape, generator=self.generator, device=self.device) < self.keep",
     says=("self.generator is on cpu",))  # fmt: skip
def masks_drawn_by_a_layer_that_owns_its_generator():
    class Masks(nn.Module):
        def __init__(self, device):
            super().__init__()
            self.keep, self.device, self.generator = 0.9, device, torch.Generator()

        def forward(self, shape):
            return torch.rand(shape, generator=self.generator, device=self.device) < self.keep

    masks = Masks("cuda")
    return explained_without_gpu(lambda: masks((4, 4)))


# -- TM801 ---------------------------------------------------------------------------------------------------------


@ill("TM801", line="return net(x)", says=("x is on cpu", "net.0.weight", "on meta", 'net.to_empty(device="cpu")'))
def a_model_built_on_the_meta_device_and_never_filled():
    """Large models are built so; the weights are loaded after, or forgotten."""
    with torch.device("meta"):
        net = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2))

    def program(x):
        return net(x)

    return refused(lambda: program(torch.randn(3, 8)))


@ill("TM801", line="return tokens + self.positions[: tokens.size(1)]", says=("self.positions", "meta"))
def a_plain_attribute_that_did_not_move_with_the_model():
    """Positions that are no buffer stay on the device they were made on."""

    class Embedded(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(20, 8)
            self.positions = torch.zeros(10, 8, device="meta")

        def forward(self, words):
            tokens = self.words(words)
            return tokens + self.positions[: tokens.size(1)]

    net = Embedded()
    return refused(lambda: net(torch.randint(20, (2, 5))))


@ill("TM801", line="return torch.cat([features, extra], dim=1)", subject="features",
     says=("features is on cpu; extra is on meta",))  # fmt: skip
def features_of_two_devices_joined():
    def join():
        features, extra = torch.randn(4, 3), torch.zeros(4, 2, device="meta")
        return torch.cat([features, extra], dim=1)

    return refused(join)


@ill("TM801", line="loss = F.mse_loss(prediction, target)", says=("target is on meta",))
def a_target_left_on_another_device():
    def program():
        net, x, target = nn.Linear(3, 1), torch.randn(5, 3), torch.zeros(5, 1, device="meta")
        prediction = net(x)
        loss = F.mse_loss(prediction, target)
        loss.backward()

    return refused(program)


# -- TM802 ---------------------------------------------------------------------------------------------------------


@ill("TM802", line="return net(x)", subject="x", says=(
    "x is float64 and net.weight is float32", "`x.float()` or `net.double()`"))  # fmt: skip
def data_from_numpy_into_a_linear_layer():
    net = nn.Linear(3, 2)

    def program():
        x = torch.from_numpy(np.random.default_rng(0).normal(size=(4, 3)))
        return net(x)

    return refused(program)


@ill("TM802", line="return F.cross_entropy(logits, labels)", subject="labels", says=(
    "labels is float32", "`labels.long()`"))  # fmt: skip
def labels_read_as_floats():
    def program():
        logits, labels = torch.randn(6, 3), torch.tensor([0.0, 1, 2, 0, 1, 2])
        return F.cross_entropy(logits, labels)

    return refused(program)


@ill("TM802", line="return criterion(logits, labels)", subject="labels", says=(
    "labels is int64", "`labels.argmax(1)` or `labels.float()`"))  # fmt: skip
def one_hot_labels_for_cross_entropy():
    """``F.one_hot`` gives whole numbers; of the shape of the logits, the loss takes probabilities."""
    criterion = nn.CrossEntropyLoss()

    def program(logits):
        labels = F.one_hot(torch.tensor([0, 2, 1]), 3)
        return criterion(logits, labels)

    return refused(lambda: program(torch.randn(3, 3)))


@ill("TM802", line="return conv(image)", subject="image", says=("image is uint8", "`image.float()`"))
def an_image_as_bytes_into_a_convolution():
    conv = nn.Conv2d(3, 4, 3)

    def program():
        image = torch.randint(256, (1, 3, 8, 8), dtype=torch.uint8)
        return conv(image)

    return refused(program)


@ill("TM802", line="return counts.mean()", subject="counts", says=("counts is int64", "`counts.float()`"))
def the_mean_of_counts():
    def program():
        counts = torch.bincount(torch.tensor([0, 1, 1, 3]))
        return counts.mean()

    return refused(program)


@ill("TM802", line="return embed(words)", subject="words", says=("words is float32", "`words.long()`"))
def words_as_floats_into_an_embedding():
    embed = nn.Embedding(10, 4)

    def program():
        words = torch.Tensor([1, 4, 2])
        return embed(words)

    return refused(program)


# -- TM804 ---------------------------------------------------------------------------------------------------------


class Classifier(nn.Module):
    """Two convolutions and a linear layer whose size was computed for another image."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 6, 5), nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = torch.flatten(x, 1)
        return self.fc1(x)


@ill("TM804", line="return self.fc1(x)", subject="x", says=(
    "The last dimension of x (4 × 256) is 256, but net.fc1 takes 400 (in_features).",
    "`nn.Linear(in_features=256, out_features=10, bias=True)`"))  # fmt: skip
def a_flattened_image_of_another_size():
    """The tutorial's CIFAR-10 network, fed with images of 28 by 28."""
    net = Classifier()
    return refused(lambda: net(torch.randn(4, 3, 28, 28)))


@ill("TM804", line="return F.max_pool2d(conv(image), 2)", says=(
    "there are 28 of them, but conv takes 1", "`image.unsqueeze(1)`"))  # fmt: skip
def an_image_without_its_channel():
    """MNIST images come without a channel: a batch of them looks like one image of many channels."""
    conv = nn.Conv2d(1, 4, 3)

    def program(image):
        return F.max_pool2d(conv(image), 2)

    return refused(lambda: program(torch.randn(28, 28, 28)))


@ill("TM804", line="x = torch.cat([x, skip], dim=1)", says=(
    "x (1 × 8 × 14 × 14) and skip (1 × 8 × 15 × 15) differ in dimension 2 and dimension 3",))  # fmt: skip
def a_skip_connection_of_an_odd_image():
    """A U-Net halves 15 to 7 and doubles it to 14."""

    def program(image):
        skip = nn.Conv2d(3, 8, 3, padding=1)(image)
        x = F.interpolate(F.max_pool2d(skip, 2), scale_factor=2)
        x = torch.cat([x, skip], dim=1)
        return nn.Conv2d(16, 2, 1)(x)

    return refused(lambda: program(torch.randn(1, 3, 15, 15)))


@ill("TM804", line="return scores.masked_fill(mask == 0, -1e9)", says=("scores (2 × 4 × 6 × 6)", "6 against 5"))
def a_mask_of_another_length():
    def program():
        scores, mask = torch.randn(2, 4, 6, 6), torch.tril(torch.ones(5, 5))
        return scores.masked_fill(mask == 0, -1e9)

    return refused(program)


@ill("TM804", line="_, hidden = lstm(batch, hidden)", says=("batch is 3", "has 8 in dimension 1"))
def the_hidden_state_of_a_full_batch_for_the_last_one():
    """The last batch of an epoch is smaller."""
    lstm = nn.LSTM(5, 6)

    def epoch():
        hidden = (torch.zeros(1, 8, 6), torch.zeros(1, 8, 6))
        for batch in (torch.randn(4, 8, 5), torch.randn(4, 3, 5)):
            _, hidden = lstm(batch, hidden)

    return refused(epoch)


@ill("TM804", line="loss = criterion(net(x), y)", says=("The target has the shape of the input", "`y.unsqueeze(1)`"))
def targets_without_the_last_dimension():
    net, criterion = nn.Linear(3, 1), nn.BCEWithLogitsLoss()

    def program(x, y):
        loss = criterion(net(x), y)
        loss.backward()

    return refused(lambda: program(torch.randn(5, 3), torch.ones(5)))


@ill("TM804", line="return x @ weights", subject="x", says=(
    "The last dimension of x (5 × 3) is 3, but the first dimension of weights (4 × 3) is 4",
    "`x @ weights.T`"))  # fmt: skip
def weights_the_wrong_way_round():
    def program():
        x, weights = torch.randn(5, 3), torch.randn(4, 3)
        return x @ weights

    return refused(program)


@ill("TM804", line="return (images - mean) / std", says=(
    "images (2 × 3 × 8 × 8) and mean (3) have 8 against 3 in the last dimension", "`mean.view(-1, 1, 1)`"))  # fmt: skip
def the_mean_of_each_channel():
    def program(images):
        mean, std = torch.tensor([0.5, 0.4, 0.3]), torch.ones(3)
        return (images - mean) / std

    return refused(lambda: program(torch.rand(2, 3, 8, 8)))


@ill("TM804", line="hidden = self.recurrent(self.embed(word), hidden)", says=(
    "Input and hidden state must have the same batch size", "hidden (1 × 8)"))  # fmt: skip
def a_hidden_state_made_for_one_sentence():
    """Within a traced training step: the finding is one about the run."""

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.recurrent = nn.Embedding(12, 4), nn.GRUCell(4, 8)

        def forward(self, words):
            hidden = torch.zeros(1, 8)
            for word in words:
                hidden = self.recurrent(self.embed(word), hidden)
            return hidden

    net = Tagger()
    trace = tm.trace(namespace={"net": net})
    with contextlib.suppress(RuntimeError), trace:
        net(torch.randint(12, (5, 3))).sum().backward()
    return trace.report


@ill("TM804", line="x = x.view(-1, 16 * 5 * 5)", subject="x", says=("cannot be divided by the 400",))
def a_view_to_a_size_computed_for_another_image():
    def program(x):
        x = x.view(-1, 16 * 5 * 5)
        return nn.Linear(400, 10)(x)

    return refused(lambda: program(torch.randn(2, 16, 4, 4)))


@ill("TM804", line="return -rows[torch.arange(32), labels].log().mean()", says=(
    "`torch.arange(32)` (32) and labels (200) do not", "`rows[torch.arange(len(labels)), labels]`"))  # fmt: skip
def the_rows_of_a_small_batch_counted_by_hand():
    """The loss of a lecture, whose 32 examples have become all of them."""

    def loss(rows, labels):
        return -rows[torch.arange(32), labels].log().mean()

    return refused(lambda: loss(torch.rand(200, 27), torch.randint(0, 27, (200,))))
