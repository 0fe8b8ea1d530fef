"""Code whose loss is given what it makes itself (TM608), or a target that it does not take (TM626)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import tensormagic as tm
from tests.corpus.cases import ill
from tests.corpus.data import batches, train_classifier


@ill("TM608", severity="warning", line="loss = F.cross_entropy(net(images.flatten(1) if flat else images), classes)",
     says=("cross_entropy applies softmax itself", "already the result of softmax", "below 1.46 with 10 classes"),
     )  # fmt: skip
def a_classifier_that_ends_in_softmax():
    """As many first tutorials have it, brought over from another framework."""
    net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10), nn.Softmax(dim=1))
    with tm.trace(namespace={"net": net}) as trace:
        train_classifier(net, flat=True, steps=4)
    return trace.report


class Detector(nn.Module):
    """Gives probabilities."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(64, 16), nn.Linear(16, 1)

    def forward(self, x):
        return torch.sigmoid(self.head(self.body(x).relu()))


@ill("TM608", severity="warning", line="loss = criterion(out.squeeze(1), (classes == 3).float())",
     related=("return torch.sigmoid(self.head(self.body(x).relu()))",), subject="out.squeeze(1)",
     says=("applies sigmoid itself", "every probability is above 0.5", "`BCELoss`"))  # fmt: skip
def a_detector_with_two_sigmoids():
    net, criterion = Detector(), nn.BCEWithLogitsLoss()
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(4):
            out = net(images.flatten(1))
            loss = criterion(out.squeeze(1), (classes == 3).float())
            loss.backward()
    return trace.report


@ill("TM608", severity="warning", line="loss = F.nll_loss(probabilities, classes)", subject="probabilities",
     related=("probabilities = F.softmax(net(images.flatten(1)), dim=1)",),
     says=("takes log-probabilities, and probabilities is the result of softmax", "`log_softmax`"))  # fmt: skip
def a_likelihood_without_a_logarithm():
    """The loss is negative, and falls to -1."""
    net = nn.Linear(64, 10)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(4):
            probabilities = F.softmax(net(images.flatten(1)), dim=1)
            loss = F.nll_loss(probabilities, classes)
            loss.backward()
    return trace.report


@ill(
    "TM608",
    severity="warning",
    line="loss = F.nll_loss(scores, classes)",
    subject="scores",
    related=("scores = net(images.flatten(1))",),
    says=("the loss has no lower bound", "Use `cross_entropy`"),
)
def a_likelihood_of_scores():
    """The loss falls and falls, and the classes are not learned."""
    net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(4):
            scores = net(images.flatten(1))
            loss = F.nll_loss(scores, classes)
            loss.backward()
    return trace.report


@ill(
    "TM608",
    severity="warning",
    line="loss = criterion(net(images), classes)",
    says=("net(images) is what a layer made",),
)
def a_map_of_scores_and_the_likelihood():
    """A segmentation without log_softmax: a class for each pixel."""
    net, criterion = nn.Conv2d(1, 2, 3, padding=1), nn.NLLLoss()
    with tm.trace(namespace={"net": net}) as trace:
        for pixels, _ in batches(3):
            images = pixels.reshape(-1, 1, 8, 8)
            classes = (images > 0.5).long().squeeze(1)
            loss = criterion(net(images), classes)
            loss.backward()
    return trace.report


@ill("TM608", severity="note", line="loss = criterion(net(images.flatten(1)), classes)",
     says=("is already the result of log_softmax", "the result is right"))  # fmt: skip
def log_softmax_twice():
    """Does no harm: log_softmax of log_softmax is itself."""
    net, criterion = nn.Sequential(nn.Linear(64, 10), nn.LogSoftmax(dim=1)), nn.CrossEntropyLoss()
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3):
            loss = criterion(net(images.flatten(1)), classes)
            loss.backward()
    return trace.report


@ill("TM608", severity="warning", line="loss = F.binary_cross_entropy(p, wanted)", subject="p",
     says=("sigmoid and then sigmoid were applied",))  # fmt: skip
def a_sigmoid_in_the_model_and_one_before_the_loss():
    net = Detector()
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3):
            wanted = (classes > 4).float()[:, None]
            p = torch.sigmoid(net(images.flatten(1)))
            loss = F.binary_cross_entropy(p, wanted)
            loss.backward()
    return trace.report


@ill("TM608", severity="warning", line="loss = F.cross_entropy(logits[mask], tags.reshape(-1)[mask])",
     says=("logits[mask] is already the result of softmax", "below 1.04 with 6 classes"))  # fmt: skip
def a_tagger_whose_masked_scores_are_probabilities():
    """The softmax lies behind a view and a mask."""
    table, tags = nn.Embedding(20, 6), torch.randint(0, 6, (4, 5))
    words = torch.randint(0, 20, (4, 5))
    mask = torch.arange(20) % 5 < 4
    with tm.trace(namespace={"table": table}) as trace:
        for _ in range(3):
            logits = table(words).softmax(-1).view(-1, 6)
            loss = F.cross_entropy(logits[mask], tags.reshape(-1)[mask])
            loss.backward()
    return trace.report


def spoken():
    """Return sounds, twelve steps of three, and the four letters that each stands for."""
    return torch.randn(12, 3, 4), torch.randint(1, 6, (3, 4)), (12,) * 3, (4,) * 3


@ill("TM608", severity="warning", line="loss = F.ctc_loss(head(h), letters, steps, lengths)",
     says=("head(h) is what a layer made", "the loss has no lower bound", "`head(h).log_softmax(-1)`"))  # fmt: skip
def letters_of_raw_scores():
    rnn, head = nn.GRU(4, 16), nn.Linear(16, 6)
    with tm.trace(namespace={"rnn": rnn, "head": head}) as trace:
        for _ in range(3):
            sounds, letters, steps, lengths = spoken()
            h, _ = rnn(sounds)
            loss = F.ctc_loss(head(h), letters, steps, lengths)
            loss.backward()
    return trace.report


@ill("TM608", severity="warning", line="loss = criterion(scores, letters, torch.tensor(steps), torch.tensor(lengths))",
     related=("scores = head(h.transpose(0, 1)).float()",), says=("scores is what a layer made",))  # fmt: skip
def letters_of_raw_scores_with_time_second():
    """What the layer is given does not lie in one piece: it is a product, to which the bias is added."""
    rnn, head, criterion = nn.GRU(4, 16, batch_first=True), nn.Linear(16, 6), nn.CTCLoss(zero_infinity=True)
    with tm.trace(namespace={"rnn": rnn, "head": head}) as trace:
        for _ in range(3):
            sounds, letters, steps, lengths = spoken()
            h, _ = rnn(sounds.transpose(0, 1))
            scores = head(h.transpose(0, 1)).float()
            loss = criterion(scores, letters, torch.tensor(steps), torch.tensor(lengths))
            loss.backward()
    return trace.report


@ill("TM608", severity="warning", line="loss = F.ctc_loss(p.transpose(0, 1), letters, steps, lengths)",
     related=("p = head(sounds.transpose(0, 1)).softmax(-1)",), says=("is the result of softmax",))  # fmt: skip
def letters_of_probabilities():
    head = nn.Linear(4, 6)
    with tm.trace(namespace={"head": head}) as trace:
        for _ in range(3):
            sounds, letters, steps, lengths = spoken()
            p = head(sounds.transpose(0, 1)).softmax(-1)
            loss = F.ctc_loss(p.transpose(0, 1), letters, steps, lengths)
            loss.backward()
    return trace.report


@ill("TM626", severity="warning", line="loss = criterion(net(x), y)", subject="y",
     says=("y has \u22121 and 1", "the loss has no lower bound", "`(y + 1) / 2`"))  # fmt: skip
def two_classes_as_a_perceptron_has_them():
    """The loss falls and falls."""
    x = torch.randn(64, 6)
    y, net = torch.sign(x[:, :1]), nn.Linear(6, 1)
    criterion, optimizer = nn.BCEWithLogitsLoss(), torch.optim.Adam(net.parameters(), lr=0.01)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(6):
            loss = criterion(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return trace.report


@ill("TM626", severity="warning", line="each = F.binary_cross_entropy_with_logits(", subject="y.bfloat16()",
     says=("y.bfloat16() has \u22121 and 1",))  # fmt: skip
def two_classes_and_a_loss_for_each():
    """Averaged by hand, in bfloat16; there is no label of 0 in any batch."""
    net = nn.Linear(6, 1)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            x = torch.randn(16, 6)
            y = x[:, :1].sign()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                each = F.binary_cross_entropy_with_logits(net(x), y.bfloat16(), reduction="none")
            each.float().mean().backward()
    return trace.report


@ill("TM626", severity="warning", line="loss = F.binary_cross_entropy_with_logits(out, masks)", subject="masks",
     says=("masks has 0 and 255", "`masks / 255`"))  # fmt: skip
def masks_as_they_are_read_from_files():
    net = nn.Conv2d(1, 1, 3, padding=1)
    with tm.trace(namespace={"net": net}) as trace:
        for images, _ in batches(3, 8):
            masks = (images > 0.5) * 255.0
            out = net(images)
            loss = F.binary_cross_entropy_with_logits(out, masks)
            loss.backward()
    return trace.report


@ill("TM626", severity="warning", line="loss = F.binary_cross_entropy_with_logits(out, assays)", subject="assays",
     says=("has \u22121, 0 and 1", "`keep = assays != -1`", "(out[keep], assays[keep])`"))  # fmt: skip
def labels_that_are_missing():
    """The mean counts them as any other."""
    net, assays = nn.Linear(6, 5), torch.arange(80.0).reshape(16, 5) % 3 - 1
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            out = net(torch.randn(16, 6))
            loss = F.binary_cross_entropy_with_logits(out, assays)
            loss.backward()
    return trace.report


@ill("TM626", severity="warning", line="loss = F.binary_cross_entropy_with_logits(decoder(code), x, reduction=",
     subject="x", says=("x goes from", "For values of any size: `F.mse_loss`"))  # fmt: skip
def pixels_that_are_standardised():
    encoder, decoder = nn.Linear(64, 8), nn.Linear(8, 64)
    with tm.trace(namespace={"encoder": encoder, "decoder": decoder}) as trace:
        for images, _ in batches(3):
            x = (images.flatten(1) - 0.3) / 0.2
            code = encoder(x).relu()
            loss = F.binary_cross_entropy_with_logits(decoder(code), x, reduction="sum")
            loss.backward()
    return trace.report


@ill("TM626", severity="warning", line="loss = criterion(net(images.flatten(1)), topics)", subject="topics",
     says=("multilabel_soft_margin_loss takes targets from 0 to 1", "`(topics + 1) / 2`"))  # fmt: skip
def topics_of_both_signs():
    net, criterion = nn.Linear(64, 10), nn.MultiLabelSoftMarginLoss()
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3):
            topics = 2 * F.one_hot(classes, 10) - 1
            loss = criterion(net(images.flatten(1)), topics)
            loss.backward()
    return trace.report


@ill("TM626", severity="warning", line="loss = F.cross_entropy(net(x), told)", subject="told",
     says=("takes classes or probabilities, and told goes from \u2212", "`told.softmax(dim=1)`"))  # fmt: skip
def a_student_that_is_given_the_scores_of_its_teacher():
    """Distillation: the teacher's scores have to become probabilities first."""
    teacher, net = nn.Linear(64, 10), nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    with tm.trace(namespace={"net": net}) as trace:
        for images, _ in batches(3):
            x = images.flatten(1)
            with torch.no_grad():
                told = 4 * teacher(x)
            loss = F.cross_entropy(net(x), told)
            loss.backward()
    return trace.report


@ill("TM626", severity="warning", line="loss = F.cross_entropy(wanted, out)", subject="out",
     says=("wanted, given as scores, has no gradient, and out has one", "`F.cross_entropy(out, wanted)`"))  # fmt: skip
def targets_first_and_scores_second():
    """Both are floats of the same shape, so it runs."""
    net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3):
            wanted = F.one_hot(classes, 10).float()
            out = net(images.flatten(1))
            loss = F.cross_entropy(wanted, out)
            loss.backward()
    return trace.report


@ill("TM626", severity="warning", line="loss = criterion(real, critic(images.flatten(1)))", also=("TM402", "TM405"),
     subject="critic(images.flatten(1))", says=("real, given as scores, has no gradient",))  # fmt: skip
def a_discriminator_with_labels_first():
    critic, criterion = nn.Sequential(nn.Linear(64, 1), nn.Sigmoid()), nn.BCELoss()
    with tm.trace(namespace={"critic": critic}) as trace:
        for images, _ in batches(3):
            real = torch.ones(len(images), 1)
            loss = criterion(real, critic(images.flatten(1)))
            loss.backward()
    return trace.report


@ill("TM626", severity="warning", line="loss = criterion(net(a), net(b), same)", subject="same",
     says=("takes targets of 1 and \u22121", "pairs of 0 count nothing", "`2 * same - 1`"))  # fmt: skip
def twins_whose_different_pairs_are_zero():
    net, criterion = nn.Linear(8, 8), nn.CosineEmbeddingLoss(margin=0.2)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            a, b, same = torch.randn(32, 8), torch.randn(32, 8), torch.randint(0, 2, (32,))
            loss = criterion(net(a), net(b), same)
            loss.backward()
    return trace.report


@ill("TM626", severity="warning", line="loss = F.margin_ranking_loss(net(a), net(b), first, margin=0.1)",
     subject="first", says=("first has 0 and 1", "`2 * first.float() - 1`"))  # fmt: skip
def pairs_that_are_ranked_one_by_one():
    """No single pair shows it: all labels of the line do."""
    net = nn.Linear(8, 1)
    with tm.trace(namespace={"net": net}) as trace:
        for number in range(16):
            a, b = torch.randn(1, 8), torch.randn(1, 8)
            first = torch.tensor([[number % 2]], dtype=torch.uint8)
            loss = F.margin_ranking_loss(net(a), net(b), first, margin=0.1)
            loss.backward()
    return trace.report


@ill("TM626", severity="warning", line="loss = F.hinge_embedding_loss(distances, same == 1)", subject="same == 1",
     says=("what has 0 is drawn together", "`2 * (same == 1).float() - 1`"))  # fmt: skip
def distances_and_a_comparison():
    net = nn.Linear(8, 8)
    with tm.trace(namespace={"net": net}) as trace:
        for _ in range(3):
            same = torch.randint(0, 2, (32,))
            distances = (net(torch.randn(32, 8)) - net(torch.randn(32, 8))).norm(dim=1)
            loss = F.hinge_embedding_loss(distances, same == 1)
            loss.backward()
    return trace.report


@ill("TM626", severity="warning", line="loss = nn.SoftMarginLoss()(net(images.flatten(1)), wanted)", subject="wanted",
     says=("has the same loss whatever its score", "`2 * wanted - 1`"))  # fmt: skip
def a_logistic_loss_with_labels_of_zero():
    net = nn.Linear(64, 1)
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3):
            wanted = (classes[:, None] > 4).double()
            loss = nn.SoftMarginLoss()(net(images.flatten(1)), wanted)
            loss.backward()
    return trace.report


@ill("TM626", severity="warning", line="loss = criterion(net(images.flatten(1)), visits)", subject="visits",
     says=("poisson_nll_loss takes counts", "below 0, the best rate is 0 for all"))  # fmt: skip
def counts_that_are_standardised():
    net, criterion = nn.Linear(64, 1), nn.PoissonNLLLoss()
    with tm.trace(namespace={"net": net}) as trace:
        for images, classes in batches(3):
            visits = (classes[:, None] - 4.5) / 2.9
            loss = criterion(net(images.flatten(1)), visits)
            loss.backward()
    return trace.report
