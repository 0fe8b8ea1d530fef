"""The check that runs after every test must itself be able to fail."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.support.leftovers import leftovers, snapshot


class _FunctionMode(TorchFunctionMode):
    pass


class _DispatchMode(TorchDispatchMode):
    pass


@contextmanager
def _global_hook():
    handle = torch.nn.modules.module.register_module_forward_hook(lambda *_: None)
    yield
    handle.remove()


@contextmanager
def _patched(owner, name, value):
    patch = pytest.MonkeyPatch()
    patch.setattr(owner, name, value, raising=False)
    yield
    patch.undo()


@contextmanager
def _thread():
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, name="tensormagic-sampler")
    thread.start()
    yield
    stop.set()
    thread.join()


CASES: dict[str, tuple[Callable[[], AbstractContextManager], str]] = {
    "function mode": (_FunctionMode, "torch function modes on the stack: 0 before, 1 after"),
    "dispatch mode": (_DispatchMode, "torch dispatch modes on the stack: 0 before, 1 after"),
    "saved-tensor hooks": (
        lambda: torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x),
        "saved-tensor hooks active: False before, True after",
    ),
    "grad mode": (torch.no_grad, "grad mode: True before, False after"),
    "inference mode": (torch.inference_mode, "inference mode: False before, True after"),
    "global module hook": (_global_hook, "torch.nn.modules.module._global_forward_hooks: 0 before, 1 after"),
    "patched method": (
        lambda: _patched(torch.Tensor, "backward", lambda self: None),
        "torch.Tensor.backward was replaced",
    ),
    "patched repr": (lambda: _patched(torch.Tensor, "__repr__", lambda self: ""), "torch.Tensor.__repr__ was replaced"),
    "added method": (
        lambda: _patched(torch.Tensor, "_repr_html_", lambda self: ""),
        "torch.Tensor._repr_html_ was added",
    ),
    "patched function": (
        lambda: _patched(torch.autograd, "backward", lambda *_: None),
        "torch.autograd.backward was replaced",
    ),
    "patched Function.apply": (
        lambda: _patched(torch.autograd.Function, "apply", classmethod(lambda *_: None)),
        "torch.autograd.function.Function.apply was replaced",
    ),
    "thread": (_thread, "thread still alive: tensormagic-sampler"),
}


@pytest.mark.parametrize("case", CASES)
def test_everything_left_behind_is_named(case):
    """Each kind of leftover is told in one sentence while it is there, and nothing is told once it is gone."""
    leave, sentence = CASES[case]
    before = snapshot()
    with leave():
        during = leftovers(before, snapshot())
    assert sentence in during
    assert leftovers(before, snapshot()) == []


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
def test_anomaly_mode_is_named():
    """Anomaly mode left on is told with its two switches."""
    before = snapshot()
    with torch.autograd.set_detect_anomaly(True):
        during = leftovers(before, snapshot())
    assert during == ["anomaly mode: (False, True) before, (True, True) after"]


def test_the_fixture_fails_a_test_that_leaves_a_mode(pytester_like_run):
    """A test that leaves grad mode off passes itself and is failed by the fixture, by name."""
    outcome = pytester_like_run(
        """
        import torch

        def test_careless():
            torch.set_grad_enabled(False)
        """
    )
    assert "1 passed, 1 error" in outcome
    assert "left behind by this test: grad mode: True before, False after" in outcome


@pytest.fixture
def pytester_like_run(tmp_path):
    """Return a function that runs a test file under this suite's conftest, in a process of its own."""
    import subprocess
    import sys
    import textwrap

    from tests.support.kernel import ROOT

    def run(source):
        (tmp_path / "test_case.py").write_text(textwrap.dedent(source))
        options = [
            "-c",
            str(ROOT / "setup.cfg"),
            "--rootdir",
            str(tmp_path),
            "-p",
            "tests.conftest",
            "-p",
            "no:cacheprovider",
        ]
        command = [sys.executable, "-m", "pytest", *options, str(tmp_path / "test_case.py")]
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False).stdout

    return run
