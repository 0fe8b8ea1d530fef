"""Every magic once: what an installation has to be able to do, whatever versions it is on."""

from __future__ import annotations

SETUP = "import torch; x = torch.ones(6); y = x[1:]; w = torch.ones(2, requires_grad=True)"
CELLS = (
    "%tensor x",
    "%tensors",
    "%model torch.nn.Linear(6, 2)(x)",
    "%aliases x",
    "%%aliases\ny.data.mul_(2)",
    "%%tracegrad --into run\nloss = (w * 2).sum()\nloss.backward()",
    "%gradgraph (w * w).sum()",
    "%why w",
    "%compare run run",
    "%ranks --help",
    "%gpumem",
    "%%gpumem\nz = x + 1",
    "%rng",
    "%%rng\ntorch.rand(2)",
    "%tensormagic",
    "%tensormagic check",
    "%tensormagic TM302",
)
