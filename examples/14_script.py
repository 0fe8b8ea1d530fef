"""Everything without a notebook: an ordinary training program that asks four questions about itself.

It reads handwritten digits, once with a mistake that PyTorch does not mention, and once without:

* before: will a second run give the same numbers? (``tm.rng``)
* during: what did backward do, and on which line did it go wrong? (``tm.trace``)
* afterwards: what is different without the mistake? (``tm.compare``)
* in the end: what lies in memory, and what of it does nobody need? (``tm.memory``, ``tm.check``)

Run it with ``python 14_script.py [PAGE.html]``; it needs scikit-learn, for its digits, and some ten seconds.
"""

import shutil
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from textwrap import fill

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import tensormagic as tm

STEPS = 92
Trained = tuple[nn.Module, torch.optim.Optimizer, list[torch.Tensor]]


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Return 1797 images of 8 × 8 pixels, and which digit each of them is."""
    pixels, labels = load_digits(return_X_y=True)
    return torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16, torch.tensor(labels)


def network() -> nn.Sequential:
    """Return a small convolutional network."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 10),
    )


def softmax_then_log(scores: torch.Tensor) -> torch.Tensor:
    """Return logarithms of probabilities the way that goes wrong: at some step a probability is rounded to zero."""
    p = scores.softmax(dim=1)
    return p.log()


def log_softmax(scores: torch.Tensor) -> torch.Tensor:
    """Return the same without ever making the probability."""
    return F.log_softmax(scores, dim=1)


def batches(images: torch.Tensor, labels: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield batches of 64, drawn at random, for ever."""
    while True:
        rows = torch.randperm(len(images))[:64]
        yield images[rows], labels[rows]


def train(
    log_probabilities: Callable[[torch.Tensor], torch.Tensor], images: torch.Tensor, labels: torch.Tensor
) -> Trained:
    """Train a new network, always from the same seed; returns it, its optimizer and the loss of every step."""
    torch.manual_seed(1)
    net, losses = network(), []
    optimizer = torch.optim.Adam(net.parameters(), lr=0.003)
    for step, (inputs, targets) in enumerate(islice(batches(images, labels), STEPS)):
        temperature = max(0.95**step, 0.03)  # sharpens the probabilities as training goes on
        loss = F.nll_loss(log_probabilities(net(inputs) / temperature), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss)  # one mistake more, of another kind: tm.check finds it in the end
    return net, optimizer, losses


def headline(question: str) -> None:
    """Print a question above its answer."""
    print(f"\n\n{question}\n{'=' * len(question)}\n")


def tell(finding: tm.Finding) -> None:
    """Print a finding: what is wrong, the line, and what to do."""
    width = shutil.get_terminal_size().columns
    print(fill(f"{finding.code} {finding.severity}: {finding.message}", width))
    if finding.location:
        print(f"  {finding.location.text}")
    print(fill(finding.remedy, width, initial_indent="  ", subsequent_indent="  "))


torch.set_num_threads(1)  # tensors this small are quicker in one thread
images, labels = digits()

headline("Will a second run give the same numbers?")
torch.manual_seed(0)
for generator in tm.rng().generators:
    told = f"seed {generator.seed}" if generator.seeding == "chosen" else "not seeded by us"
    print(f"{generator.name:14} {told}")

headline("What did backward do?")
with tm.trace(title="softmax, then log") as broken:
    train(softmax_then_log, images, labels)
for finding in broken.report.findings:
    tell(finding)
page = sys.argv[1] if len(sys.argv) > 1 else "14_script.html"
broken.report.save(page)
print(f"\nThe whole graph, to be opened in a browser: {page}")

headline("What is different without the mistake?")
with tm.trace(title="log_softmax") as mended:
    net, optimizer, losses = train(log_softmax, images, labels)
tm.show(tm.compare(broken, mended))  # as wide as the terminal
with torch.no_grad():
    print(f"\n{(net(images).argmax(1) == labels).float().mean():.0%} of the digits are read right")

headline("What lies in memory, and what of it does nobody need?")
tm.show(tm.memory({"net": net, "optimizer": optimizer, "images": images}))
for finding in tm.check({"net": net, "optimizer": optimizer, "losses": losses}).findings:
    print()
    tell(finding)
