"""Hand-made checks: one with all that can be found, one with nothing, and an awkward one."""

from __future__ import annotations

from dataclasses import replace

from tensormagic.diagnoses import diagnose
from tensormagic.reports import (
    Finding,
    Gap,
    Growth,
    HeldSize,
    KeptMemory,
    Location,
    ModulesReport,
    StoredGraph,
    UnregisteredModules,
    UnregisteredTensor,
    UntiedPair,
    WatchReport,
)

HOSTILE = '</script><script>alert("1")</script>&amp;\x1b[2J\u202e'
MIB = 2**20


def line(number: int, text: str, function: str = "__init__") -> Location:
    return Location("<ipython-input-4>", number, text, 4, function)


def loose(name: str = "net.scale", **facts) -> UnregisteredTensor:
    """Return a tensor that needs a gradient, which an optimizer of its siblings leaves out."""
    where = line(6, "self.scale = torch.ones(4, requires_grad=True)")
    known = {"requires_grad": True, "siblings": 2, "registered": 2, "method": "__init__", "location": where}
    return UnregisteredTensor(name, "net", "net", (4,), "float32", "cpu", **{**known, **facts})


def hidden(name: str = "net.layers", **facts) -> UnregisteredModules:
    """Return three layers in a list."""
    where = line(5, "self.layers = [nn.Linear(4, 4) for _ in range(3)]")
    known = {"modules": 3, "parameters": 6, "numel": 60, "registered": 2, "location": where}
    return UnregisteredModules(name, "net", **{"container": "list", **known, **facts})


def stored(name: str = "losses", **facts) -> StoredGraph:
    """Return six losses of a validation loop."""
    known = {
        "form": "items", "items": 6, "graphs": 6, "nodes": 30, "saved": 24, "nbytes": 24 * MIB, "scalars": True,
        "freed": False, "location": line(9, "losses.append(loss)", ""),
    }  # fmt: skip
    return StoredGraph(name, **{**known, **facts})


def kept(place: str = "Out[5]", kind: str = "history", mib: int = 20, **facts) -> KeptMemory:
    """Return a large storage that has no name."""
    return KeptMemory((place,), kind, (mib, 2**18), "float32", "cpu", mib * MIB, **facts)


def growth(name: str = "features", tensors=(1, 2, 3, 4, 5), mib: int = 5) -> Growth:
    """Return a list that grows by a tensor a run."""
    return Growth(name, tensors, tuple(mib * MIB * (at + 1) for at in range(5)), line(2, f"{name}.append(x)", ""))


def found(**parts) -> WatchReport:
    """Return a check with the findings that its parts give."""
    names = ("unregistered_tensors", "unregistered_modules", "untied")
    modules = ModulesReport(**{name: parts.pop(name) for name in names if name in parts})
    known = {"looked": 1240, "tensors": 34, "storages": 20, "nbytes": 96 * MIB, **parts}
    report = WatchReport(modules=modules, **known)
    return replace(report, findings=diagnose(report))


def everything() -> WatchReport:
    """One of each."""
    error = "the last error (ValueError), local hidden of forward"
    return found(
        unregistered_tensors=(loose(), loose("net.mask", requires_grad=False)),
        unregistered_modules=(hidden(),),
        untied=(UntiedPair("lm.emb.weight", "lm.head.weight", "lm", "one memory", numel=160),),
        kept=(kept(), kept(error, "traceback", location=line(12, "return self.second(hidden)", "forward"))),
        graphs=(stored(), stored("history['loss']", nbytes=0, freed=True, graphs=40, items=40)),
        growing=(growth(),),
        sizes=(HeldSize("features", 5, 25 * MIB), HeldSize("x", 1, MIB), HeldSize("net.layers", 6, 240)),
    )


def hostile() -> WatchReport:
    """Names that are markup, a finding for each severity, a look that was cut short."""
    findings = tuple(
        Finding("TM501", severity, HOSTILE, line(1, HOSTILE), {HOSTILE: 1}, HOSTILE)
        for severity in ("error", "warning", "note")
    )
    gaps = (Gap("names", HOSTILE),)
    return WatchReport(findings=findings, looked=20_000, sizes=(HeldSize(HOSTILE * 4, 1, 4),), gaps=gaps)


SAMPLES = {"everything": everything(), "nothing": found(), "hostile": hostile()}
