"""Fixtures for every test, and the check after every test that nothing was left behind in torch."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch
from hypothesis import HealthCheck, settings
from IPython.core.interactiveshell import InteractiveShell

from tests.support import warm
from tests.support.kernel import notebook_of, run_notebook
from tests.support.leftovers import leftovers, snapshot
from tests.support.shell import difference, private_shell, shell_state
from tests.support.simulated_device import simulated
from tests.support.workers import SlowFilesFirst, in_order

__all__ = ["simulated"]

# A busy machine makes no example wrong. In continuous integration the examples are the same each time: new ones are for
# whoever can look into what they find.
settings.register_profile(
    "tensormagic", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="CI" in os.environ
)
settings.load_profile("tensormagic")

# What a folder's tests need, so that they can be left out.
MARKS = {"tests/browser/": pytest.mark.browser, "tests/notebooks/": pytest.mark.notebook,
         "tests/corpus/": pytest.mark.corpus}  # fmt: skip
# These start kernels, build a wheel or the documentation site: not for `make quick`.
SLOW_FIXTURES = {"run_cells", "installed", "wheel", "site"}


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Fail the test after which torch stands otherwise than before it."""
    before = snapshot()
    yield
    left = leftovers(before, snapshot())
    assert not left, "left behind by this test: " + "; ".join(left)


@pytest.fixture(autouse=True, scope="module")
def few_objects() -> None:
    """Leave what is alive before a file's tests, all modules among it, out of the garbage collector's rounds.

    Nothing thaws it: through a million objects a round takes a third of a second, and tests ask for thousands.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def no_garbage() -> None:
    """Free what earlier tests left in cycles: storages that die in the midst of a run are part of its bytes."""
    gc.collect()


@pytest.fixture(autouse=True)
def same_seed() -> None:
    """Start every test from the same seed: a finding (TM701) says what draws without one, whichever test ran before.

    ``torch.manual_seed`` would keep a traceback for each device type that is not there: a millisecond a test.
    """
    torch.default_generator.manual_seed(0)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(0)


@pytest.fixture
def bare_shell(tmp_path: Path) -> Iterator[InteractiveShell]:
    """A fresh IPython shell without the extension; displays are kept in ``shell.display_pub.outputs``."""
    with private_shell(tmp_path / "ipython") as shell:
        yield shell


@pytest.fixture
def shell(bare_shell: InteractiveShell) -> Iterator[InteractiveShell]:
    """A fresh IPython shell with tensormagic loaded; after the test it is unloaded, and the shell must be as before.

    Names that the test itself puts into the namespace are left out of that comparison.
    """
    before = shell_state(bare_shell)
    bare_shell.extension_manager.load_extension("tensormagic")
    loaded = set(bare_shell.user_ns)
    yield bare_shell
    bare_shell.extension_manager.unload_extension("tensormagic")
    after = shell_state(bare_shell)
    added_by_load = loaded - before["namespace"].keys()
    assert not added_by_load, f"loading put names into the namespace: {sorted(added_by_load)}"
    del before["namespace"], after["namespace"]
    left = difference(before, after)
    assert not left, "unloading left the shell changed: " + "; ".join(left)


@pytest.fixture
def run_cells(tmp_path: Path) -> Callable[..., nbformat.NotebookNode]:
    """Return a function that runs cells in a fresh kernel: ``run_cells("x = 1", "x", allow_errors=False)``."""

    def run(*cells: str, allow_errors: bool = False) -> nbformat.NotebookNode:
        return run_notebook(notebook_of(*cells), tmp_path, allow_errors=allow_errors)

    return run


def pytest_unconfigure() -> None:
    """End what starts the kernels."""
    warm.end()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests by where they are, and put them into the order in which workers are given them."""
    for item in items:
        for folder, mark in MARKS.items():
            if item.nodeid.startswith(folder):
                item.add_marker(mark)
        if SLOW_FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.notebook)
    items[:] = in_order(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> SlowFilesFirst:
    """Spread the tests as `SlowFilesFirst` does, where there is more than one worker."""
    config.option.loadscopereorder = False  # the order is that of `in_order`
    return SlowFilesFirst(config, log)
