"""Hand-made reports of memory: a GPU after a step, a small session, ten thousand storages, nothing, hostile."""

from __future__ import annotations

from tensormagic import reports
from tensormagic.reports import (
    DeviceMemory,
    Finding,
    FreeableMemory,
    Holder,
    LiveStorage,
    Location,
    MemoryReport,
    ProcessUse,
)
from tests.reports.samples_memory import memory_report

KIB, MIB, GIB = 2**10, 2**20, 2**30
LOSSES = Location("<ipython-input-7>", 7, "losses.append(loss)", 7)


def storage(name: str, nbytes: int, category: reports.Category, *, device: str = "cuda:0", **facts) -> LiveStorage:
    """Return a float32 vector's storage."""
    kind = "module" if category in {"parameter", "buffer"} else "name"
    holders = facts.pop("holders", (Holder(name, kind, "tensor"),) if name else ())
    known = {"dtype": "float32", "shape": (nbytes // 4,), "holders": holders, "found": len(holders)}
    return LiveStorage(name, nbytes, device, category, **{**known, **facts})


def inside(path: str, nbytes: int, code: str = "") -> FreeableMemory:
    """Return what taking something out of a container frees."""
    return FreeableMemory(path, "item", nbytes, 1, nbytes, device_bytes={"cuda:0": nbytes}, code=code or f"del {path}")


def blocks() -> list[LiveStorage]:
    """A small transformer with Adam after a step: parameters, gradients, two moments, what a loss keeps."""
    sizes = {"attn.qkv.weight": 12 * MIB, "attn.out.weight": 4 * MIB, "mlp.up.weight": 16 * MIB,
             "mlp.down.weight": 16 * MIB, "norm1.weight": 4 * KIB, "norm1.bias": 4 * KIB, "attn.qkv.bias": 12 * KIB,
             "mlp.up.bias": 16 * KIB}  # fmt: skip
    found = [storage("gpt.embed.weight", 96 * MIB, "parameter")]
    for layer in range(6):
        for path, nbytes in sizes.items():
            name = f"gpt.blocks.{layer}.{path}"
            found.append(storage(name, nbytes, "parameter"))
            found.append(storage(f"{name}.grad", nbytes, "gradient"))
            found += [
                storage(f"opt.state[{name}]['{key}']", nbytes, "optimizer state") for key in ("exp_avg", "exp_avg_sq")
            ]
    return found


def gpt() -> MemoryReport:
    """A GPU that is two thirds full: a model with Adam, losses that keep their graphs, an output that is still held."""
    graph = [
        storage("", (40 - at) * MIB // 2, "saved for backward", location=LOSSES,
                holders=(Holder(f"graph of losses[{at}]: MulBackward0, saved as self", "graph", "tensor"),))
        for at in range(24)
    ]  # fmt: skip
    rest = [
        storage("batch['input_ids']", 3 * MIB, "input"),
        storage("gpt.mask", 8 * MIB, "buffer"),
        storage("Out[12]", 190 * MIB, "other",
                holders=tuple(Holder(path, "history", "tensor") for path in ("Out[12]", "_12", "_"))),
        storage("", 20 * MIB, "other"),
        storage("x", 6 * MIB, "input", device="cpu"),
        storage("y", 2 * MIB, "other", device="cpu"),
    ]  # fmt: skip
    storages = tuple(sorted([*blocks(), *graph, *rest], key=lambda one: -one.nbytes))
    live = {device: sum(one.nbytes for one in storages if one.device == device) for device in ("cuda:0", "cpu")}
    return MemoryReport(
        findings=(
            Finding("TM503", "warning", "`losses` keeps 24 autograd graphs alive, 693 MiB of saved tensors.", LOSSES,
                    {"graphs": 24, "bytes": 726663168}, "Store numbers: `losses.append(loss.item())`."),
            Finding("TM501", "note", "Only `Out[12]` keeps 190 MiB alive.", None, {}, "`%gpumem --free --yes`"),
        ),
        devices=(
            DeviceMemory("cuda:0", "NVIDIA RTX A2000", live=live["cuda:0"], storages=len(storages) - 2,
                         tensors=len(storages) + 30, allocated=live["cuda:0"] + 36 * MIB,
                         reserved=live["cuda:0"] + 700 * MIB, peak=3 * GIB,
                         largest_free=256 * MIB, free=2 * GIB, total=6 * GIB, context=310 * MIB,
                         others=(ProcessUse(3112, "python", 700 * MIB), ProcessUse(1200, "Xorg", None))),
            DeviceMemory("cpu", "", live=live["cpu"], storages=2, tensors=2, free=9 * GIB, total=16 * GIB,
                         process=900 * MIB),
        ),
        storages=storages,
        freeable=(
            FreeableMemory("opt", "name", 600 * MIB, 96, 900 * MIB, ("gpt",), code="del opt"),
            FreeableMemory("losses", "name", 693 * MIB, 24, 693 * MIB, code="del losses",
                    parts=(inside("losses", 693 * MIB, "losses.clear()"), inside("losses[0]", 96 * MIB))),
            FreeableMemory("cache", "name", 0, 0, 5 * MIB, ("trainer",), code="del cache",
                    parts=(inside("cache", 5 * MIB, "cache.clear()"),)),
            FreeableMemory("Out[12]", "history", 190 * MIB, 1, 190 * MIB, code="del Out[12], _12, _"),
            FreeableMemory("gpt", "name", 8 * MIB, 1, 800 * MIB, ("opt", "losses"), code="del gpt"),
            FreeableMemory("the last error (RuntimeError)", "traceback", 20 * MIB, 1, 20 * MIB),
            *(FreeableMemory(f"x{at}", "name", MIB // (at + 1), 1, MIB, code=f"del x{at}") for at in range(10)),
        ),
        looked=22_114,
    )  # fmt: skip


def small() -> MemoryReport:
    """Three tensors on the CPU."""
    storages = (
        storage("net.weight", 4 * KIB, "parameter", device="cpu", shape=(32, 32)),
        storage("x", 2 * KIB, "input", device="cpu", tensors=2),
        storage("net.bias", 128, "parameter", device="cpu", shape=(32,)),
    )
    live = sum(one.nbytes for one in storages)
    device = DeviceMemory("cpu", live=live, storages=3, tensors=4, free=9 * GIB, total=16 * GIB, process=412 * MIB)
    freeable = (
        FreeableMemory("net", "name", 4224, 2, 4224, code="del net"),
        FreeableMemory("x", "name", 2048, 1, 2048, code="del x"),
    )
    return MemoryReport(devices=(device,), storages=storages, freeable=freeable, looked=310)


def many() -> MemoryReport:
    """Ten thousand storages, the larger ones listed."""
    sizes = [4 * KIB + (at * 7919) % (96 * KIB) * 4 for at in range(10_000)]
    categories = ("parameter", "gradient", "optimizer state", "other")
    names = [f"pool.items[{at}].layers.{at % 12}.weight" if at % 3 else f"xs[{at}]" for at in range(10_000)]
    found = [storage(names[at], nbytes, categories[at % 4], device="cpu") for at, nbytes in enumerate(sizes)]
    ranked = sorted(found, key=lambda one: -one.nbytes)
    small = {category: [one for one in ranked[2000:] if one.category == category] for category in categories}
    rest = [
        LiveStorage("", sum(one.nbytes for one in same), "cpu", category, tensors=len(same))
        for category, same in small.items()
    ]
    live = sum(sizes)
    device = DeviceMemory(
        "cpu", live=live, storages=10_000, tensors=10_000, free=4 * GIB, total=16 * GIB, process=6 * GIB
    )
    return MemoryReport(devices=(device,), storages=tuple(ranked[:2000]), left_out=tuple(rest), looked=61_000)


FOUR = ("parameter", "gradient", "optimizer state", "buffer")
HUNDRED = tuple(
    storage(f"net.stages.{at // 10}.conv{at % 10}.weight", (120 - at) * 4 * KIB, FOUR[at % 4], device="cpu")
    for at in range(100)
)
SAMPLES = {
    "small": small(), "gpt": gpt(),
    # A hundred storages of one model.
    "hundred": MemoryReport(storages=HUNDRED, looked=4000, devices=(
        DeviceMemory("cpu", live=sum(one.nbytes for one in HUNDRED), storages=100, tensors=100, process=GIB),
    )),
    "many": many(),
    # A session without a tensor.
    "empty": MemoryReport(devices=(DeviceMemory("cpu", total=16 * GIB, free=9 * GIB, process=300 * MIB),), looked=12),
    "hostile": memory_report(),
}  # fmt: skip
