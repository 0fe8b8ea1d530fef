"""Small random programs that make, change, share and let go of tensors, and an independent count of what is alive.

The count knows nothing of names: a dispatch mode sees every storage that is made, and keeps a weak reference of torch's
own to each. What has not expired at the end is alive, and its bytes are what it says itself.
"""

from __future__ import annotations

import gc
import weakref
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Count(TorchDispatchMode):
    """Every storage of a result or an argument, once, held weakly."""

    def __init__(self):
        super().__init__()
        self._storages, self.arrays = {}, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for x in tree_leaves((args, kwargs, result)):
            if isinstance(x, torch.Tensor):
                self.add(x)
        return result

    def add(self, x):
        """Count a tensor's storages, too."""
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch(), torch.no_grad():
            for storage in map(torch.Tensor.untyped_storage, pieces(x)):
                if storage._cdata not in self._storages:
                    self._storages[storage._cdata] = storage._weak_ref()

    @property
    def storages(self):
        """The bytes of each storage that is alive, by its identity."""
        return {key: storage.nbytes() for key, storage in self.alive()}

    def alive(self):
        """Yield each storage that is alive, with its identity."""
        every = {key: torch.UntypedStorage._new_with_weak_ptr(weak) for key, weak in self._storages.items()}
        yield from ((key, storage) for key, storage in every.items() if storage is not None)


def pieces(x):
    """Return what a tensor is made of."""
    if x.layout is torch.sparse_coo:
        return x._indices(), x._values()
    return (x.crow_indices(), x.col_indices(), x.values()) if x.layout is torch.sparse_csr else (x,)


@contextmanager
def counted():
    """Count what is made inside."""
    with Count() as count:
        yield count
    gc.collect()


class Program:
    """Names, and what one step of a random program does to them. Each step takes three numbers."""

    def __init__(self, count):
        self.names, self._count, self._made = {}, count, 0

    def run(self, steps):
        """Run steps: pairs of a step's number and three numbers."""
        for step, numbers in steps:
            STEPS[step % len(STEPS)](self, *numbers)

    def bind(self, value):
        """Give something the next name."""
        self._made += 1
        self.names[f"x{self._made}"] = value

    def pick(self, number, kind=torch.Tensor):
        """Return one of the values of a kind, or None; of tensors one that is strided."""
        every = [value for value in self.names.values() if isinstance(value, kind)]
        every = [x for x in every if kind is not torch.Tensor or x.layout is torch.strided]
        return every[number % len(every)] if every else None

    def make(self, a, b, _c):
        """Make a tensor; some collect gradients."""
        self.bind(torch.zeros(a % 7, b % 5 + 1, requires_grad=a % 2 == 0))

    def view(self, a, b, _c):
        """Look at a part of one."""
        x = self.pick(a)
        if x is not None and x.dim() and x.shape[0]:
            self.bind((x[b % x.shape[0] :], x.t() if x.dim() == 2 else x, x.detach())[b % 3])

    def compute(self, a, b, _c):
        """Compute with one: the graph keeps what it needs."""
        x = self.pick(a)
        if x is not None:
            self.bind((torch.exp, torch.sin, torch.sum, torch.relu)[b % 4](x * x))

    def resize(self, a, b, _c):
        """Give one another size, in place."""
        x = self.pick(a)
        if x is not None and not x.requires_grad and not x._is_view() and x.untyped_storage().resizable():
            x.resize_(b % 40)

    def set(self, a, b, _c):
        """Put one over another one's storage."""
        x, y = self.pick(a), self.pick(b)
        if x is not None and not (x.requires_grad or y.requires_grad or x._is_view()):
            x.set_(y)

    def array(self, a, b, _c):
        """Share an array with NumPy, twice, the second time a part of it."""
        values = np.zeros(a % 9 + 2, dtype=np.float32)
        self._count.arrays.append(weakref.ref(values))
        for x in (torch.from_numpy(values), torch.from_numpy(values[b % 2 :])):
            self._count.add(x)
            self.bind(x)

    def net(self, a, b, _c):
        """Make a model and its optimizer, and take a step."""
        net = nn.Sequential(nn.Linear(a % 4 + 1, 3), nn.BatchNorm1d(3), nn.Tanh())
        kind = (torch.optim.SGD, torch.optim.Adam)[b % 2]
        optimizer = kind(net.parameters(), lr=0.1)
        net(torch.zeros(2, a % 4 + 1)).sum().backward()
        optimizer.step()
        self.bind(net)
        self.bind(optimizer)

    def apply(self, a, _b, c):
        """Run a model and keep the loss, or several in a list."""
        net = self.pick(a, nn.Module)
        if net is not None:
            losses = [net(torch.ones(2, net[0].in_features)).square().sum() for _ in range(c % 3 + 1)]
            self.bind(losses if c % 2 else losses[0])

    def backward(self, a, _b, _c):
        """Go backward from one, once; its graph is freed."""
        x = self.pick(a)
        if x is not None and x.grad_fn is not None:
            try:
                x.sum().backward()
            except RuntimeError:  # a backward went through here before
                return

    def put_away(self, a, b, _c):
        """Put some into a dictionary and a closure."""
        x, y = self.pick(a), self.pick(b)
        if x is not None:
            self.bind({"x": x, "more": [y, (x,)]})
            self.bind(lambda: y)

    def sparse(self, a, b, _c):
        """Make a tensor that lies in several storages."""
        dense = torch.eye(a % 5 + 1)
        self.bind((dense.to_sparse(), dense.to_sparse_csr())[b % 2])

    def delete(self, a, _b, _c):
        """Let go of a name."""
        if self.names:
            del self.names[list(self.names)[a % len(self.names)]]

    def cycle(self, a, _b, _c):
        """Make a tensor that nothing leads to once its name is gone, but for itself."""
        x = torch.zeros(a % 5 + 1)
        x.itself = x
        x.another = torch.zeros(3)


STEPS = (
    Program.make, Program.view, Program.compute, Program.resize, Program.set, Program.array, Program.net,
    Program.apply, Program.backward, Program.put_away, Program.sparse, Program.delete, Program.cycle,
)  # fmt: skip
