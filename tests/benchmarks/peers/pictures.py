"""What stays in a saved notebook: the picture of the same small network, by each tool, in bytes."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import tensormagic

_LOADED = re.compile(r"<(?:script|link|img)[^>]*(?:src|href)=[\"']https?://")


def network() -> tuple[nn.Sequential, torch.Tensor]:
    """Return eight small layers with a ReLU behind each, and what goes in."""
    torch.manual_seed(0)
    layers = [layer for _ in range(8) for layer in (nn.Linear(64, 64), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(64, 10)), torch.randn(8, 64)


def measure(peers: dict[str, Any]) -> dict[str, Any]:
    """Return the kilobytes of each tool's picture and whether it loads anything; why there is none, where not."""
    made = {name: draw for name, draw in drawers(peers).items() if name == "tensormagic" or name in peers}
    return {name: _picture(draw) for name, draw in made.items()}


def _picture(draw: Callable[[], str]) -> dict[str, Any]:
    try:
        text = draw()
    except Exception as error:
        return {"missing": f"{type(error).__name__}: {error}"[:160]}
    return {"kilobytes": round(len(text.encode()) / 1000), "loads": bool(_LOADED.search(text))}


def drawers(peers: dict[str, Any]) -> dict[str, Callable[[], str]]:
    """Return how each tool draws it, as the text of an SVG picture or of an HTML output."""
    net, inputs = network()

    def by_us() -> str:
        with tensormagic.trace() as watch:
            net(inputs).sum().backward()
        return str(watch.report._repr_mimebundle_()["text/html"])

    return {
        "tensormagic": by_us,
        "torchviz": lambda: _svg(peers["torchviz"].make_dot(net(inputs).sum())),
        "torchview": lambda: _svg(peers["torchview"].draw_graph(net, input_data=inputs).visual_graph),
        "torchvista": lambda: _page(lambda path: peers["torchvista"].trace_model(net, inputs, export_path=path)),
        "torchlens": lambda: _svg(peers["torchlens"].trace(net, inputs).draw(return_graph=True, vis_save_only=True)),
    }


def _svg(graph: Any) -> str:
    if shutil.which("dot") is None:
        raise FileNotFoundError("Graphviz is not installed")
    return str(graph.pipe("svg").decode())


def _page(write: Callable[[str], object]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "picture.html")
        write(str(path))
        return path.read_text(encoding="utf-8")
