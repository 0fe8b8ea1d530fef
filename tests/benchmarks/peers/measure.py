"""Runs in the peers' environment: prints all that was measured as one line of JSON."""

from __future__ import annotations

import contextlib
import io
import json
import os
import platform
import sys
import warnings
from datetime import datetime, timezone
from importlib import import_module, metadata
from typing import Any

import torch

from tests.benchmarks.peers import costs, graphs, looks, pictures
from tests.benchmarks.peers.environment import wanted


def peers() -> tuple[dict[str, Any], dict[str, str]]:
    """Return the peers that can be imported, and what kept the others from it."""
    there, absent = {}, {}
    for name in (requirement.partition("==")[0] for requirement in wanted()):
        there[name], absent[name] = _imported(name.replace("-", "_"))
    return {name: one for name, one in there.items() if one}, {name: why for name, why in absent.items() if why}


def _imported(module: str) -> tuple[Any, str]:
    try:
        return import_module(module), ""
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"


def main() -> None:
    """Measure, and print."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    there, absent = peers()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        measured = {
            "tensors": looks.measure(there),
            "graphs": graphs.measure(there),
            "pictures": pictures.measure(there),
            "costs": costs.measure(there),
        }
    print(json.dumps(_pass_context(there) | {"absent": absent} | measured), file=sys.stdout)


def _pass_context(there: dict[str, Any]) -> dict[str, Any]:
    return {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "python": platform.python_version(),
        "torch": torch.__version__.partition("+")[0],
        "cores": os.cpu_count(),
        "versions": {name: metadata.version(name) for name in there},
    }


if __name__ == "__main__":
    main()
