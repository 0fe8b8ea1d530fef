"""Models as trees: a small one after a run, a large one, hostile names."""

from __future__ import annotations

from tensormagic.reports import Gap, ModelReport, ModuleRow
from tests.reports.samples import HOSTILE, finding


def hostile() -> ModelReport:
    """Markup in every name."""
    row = ModuleRow(
        path=HOSTILE, type_name=HOSTILE, details=HOSTILE, depth=1, training=False, shapes=((1,),), calls=2,
        parameters=2, trainable=2, optimized=1, optimizers=(HOSTILE,), nbytes=8, gradient=float("nan"), update=1e-3,
    )  # fmt: skip
    return ModelReport(
        findings=(finding(),), model=HOSTILE, rows=(ModuleRow(path=HOSTILE, type_name=HOSTILE), row), modules=2,
        parameter_bytes=8, buffer_bytes=8, gradient_bytes=8, state_bytes=8, optimizers=(HOSTILE,), shapes_from="trace",
        gaps=(Gap("modules", HOSTILE),),
    )  # fmt: skip


SAMPLES = {
    # A part is frozen, a part is in no optimizer, one module is in another mode.
    "trained": ModelReport(
        model="net", modules=4, parameter_bytes=48_000, buffer_bytes=40, gradient_bytes=40_000, state_bytes=80_000,
        optimizers=("opt",), shapes_from="forward",
        rows=(
            ModuleRow(path="net", type_name="Net", shapes=((5, 10),), calls=1, parameters=12_000, trainable=10_000,
                      optimized=9_900, optimizers=("opt",), nbytes=48_040, gradient=0.48, update=None),
            ModuleRow(path="net.conv", type_name="Conv2d", details="1, 4, kernel_size=(3, 3), stride=(1, 1)", depth=1,
                      shapes=((5, 4, 6, 6),), calls=2, parameters=2_000, nbytes=8_000),
            ModuleRow(path="net.bn", type_name="BatchNorm2d", depth=1, training=False, shapes=((5, 4, 6, 6),),
                      parameters=100, trainable=100, nbytes=440, gradient=0.05),
            ModuleRow(path="net.lstm", type_name="LSTM", depth=1, shapes=((5, 1, 5),) * 5, parameters=9_900,
                      trainable=9_900, optimized=9_900, optimizers=("opt",), nbytes=39_600, gradient=0.47, update=0.02),
        ),
    ),
    # More modules than are shown.
    "large": ModelReport(
        model="net", modules=3401, parameter_bytes=28, gaps=(Gap("modules", "3000 of 3401 are deeper than 2 levels"),),
        rows=(ModuleRow(path="net", type_name="Net", parameters=7), *(
            ModuleRow(path=f"net.layers.{at}", type_name="Linear", depth=2, parameters=1) for at in range(400)
        )),
    ),
    # Lazy modules that have not run, beside parameters on the meta device.
    "unmade": ModelReport(
        model="net", modules=4, meta_bytes=64,
        rows=(
            ModuleRow(path="net", type_name="Sequential", parameters=16, trainable=16, unmade=3),
            ModuleRow(path="net.0", type_name="Linear", depth=1, parameters=16, trainable=16),
            ModuleRow(path="net.1", type_name="Sequential", depth=1, unmade=3),
            ModuleRow(path="net.1.0", type_name="LazyLinear", depth=2, unmade=3),
        ),
    ),
    "hostile": hostile(),
}  # fmt: skip
