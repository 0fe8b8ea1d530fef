"""Hand-made checks: one with all that can be found, one with nothing, and an awkward one."""

from __future__ import annotations

from dataclasses import replace

from tensormagic import reports
from tensormagic.diagnoses import diagnose
from tests.reports.samples import watch_report

MIB = 2**20


def line(number: int, text: str, function: str = "__init__") -> reports.Location:
    return reports.Location("<ipython-input-4>", number, text, 4, function)


def loose(name: str = "net.scale", **facts) -> reports.UnregisteredTensor:
    """Return a tensor that needs a gradient, which an optimizer of its siblings leaves out."""
    where = line(6, "self.scale = torch.ones(4, requires_grad=True)")
    known = {"requires_grad": True, "siblings": 2, "registered": 2, "method": "__init__", "location": where}
    return reports.UnregisteredTensor(name, "net", "net", (4,), "float32", "cpu", **{**known, **facts})


def hidden(name: str = "net.layers", **facts) -> reports.UnregisteredModules:
    """Return three layers in a list."""
    where = line(5, "self.layers = [nn.Linear(4, 4) for _ in range(3)]")
    known = {"modules": 3, "parameters": 6, "numel": 60, "registered": 2, "location": where}
    return reports.UnregisteredModules(name, "net", **{"container": "list", **known, **facts})


def stored(name: str = "losses", **facts) -> reports.StoredGraph:
    """Return six losses of a validation loop."""
    known = {
        "form": "items", "items": 6, "graphs": 6, "nodes": 30, "saved": 24, "nbytes": 24 * MIB, "scalars": True,
        "freed": False, "location": line(9, "losses.append(loss)", ""),
    }  # fmt: skip
    return reports.StoredGraph(name, **{**known, **facts})


def kept(place: str = "Out[5]", kind: str = "history", mib: int = 20, **facts) -> reports.RetainedMemory:
    """Return a large storage that has no name."""
    return reports.RetainedMemory((place,), kind, (mib, 2**18), "float32", "cpu", mib * MIB, **facts)


def growth(name: str = "features", tensors=(1, 2, 3, 4, 5), mib: int = 5) -> reports.Growth:
    """Return a list that grows by a tensor a run."""
    return reports.Growth(
        name, tensors, tuple(mib * MIB * (at + 1) for at in range(5)), line(2, f"{name}.append(x)", "")
    )


def found(**parts) -> reports.WatchReport:
    """Return a check with the findings that its parts give."""
    names = ("unregistered_tensors", "unregistered_modules", "untied")
    modules = reports.ModulesReport(**{name: parts.pop(name) for name in names if name in parts})
    known = {"looked": 1240, "tensors": 34, "storages": 20, "nbytes": 96 * MIB, **parts}
    report = reports.WatchReport(modules=modules, **known)
    return replace(report, findings=diagnose(report))


# One of each.
EVERYTHING = found(
    unregistered_tensors=(loose(), loose("net.mask", requires_grad=False)),
    unregistered_modules=(hidden(),),
    untied=(reports.UntiedPair("lm.emb.weight", "lm.head.weight", "lm", "one memory", numel=160),),
    retained=(kept(), kept("the last error (ValueError), local hidden of forward", "traceback",
                       location=line(12, "return self.second(hidden)", "forward"))),
    graphs=(stored(), stored("history['loss']", nbytes=0, freed=True, graphs=40, items=40)),
    growing=(growth(),),
    sizes=(reports.HeldSize("features", 5, 25 * MIB), reports.HeldSize("x", 1, MIB),
           reports.HeldSize("net.layers", 6, 240)),
)  # fmt: skip
SAMPLES = {"everything": EVERYTHING, "nothing": found(), "hostile": watch_report()}
