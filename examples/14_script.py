"""The first example without a notebook: trains on real digits, breaks, and writes what was found as a page.

Run it with ``python examples/14_script.py [PAGE.html]``; it needs scikit-learn, for its digits.
"""

import sys

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import tensormagic as tm

torch.manual_seed(1)
pixels, labels = load_digits(return_X_y=True)
images = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
digits = torch.tensor(labels)

coarse = images[0, 0].t()[1:, ::2]
print(tm.inspect(coarse, name="coarse"))

net = nn.Sequential(
    nn.Conv2d(1, 32, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(32, 64, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(64 * 4 * 4, 10),
)
optimizer = torch.optim.Adam(net.parameters(), lr=0.003)

with tm.trace(title="softmax, then log") as trace:
    for step in range(92):
        rows = torch.randperm(len(images))[:64]
        temperature = max(0.95**step, 0.03)
        p = (net(images[rows]) / temperature).softmax(dim=1)
        log_p = p.log()  # at some step p holds a zero: F.log_softmax would not make it
        loss = F.nll_loss(log_p, digits[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

print(trace.report)
page = sys.argv[1] if len(sys.argv) > 1 else "first_light.html"
trace.report.save(page)
print(f"written to {page}")
