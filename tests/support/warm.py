"""Starts Python programs as forks of one process that has imported torch and IPython: a fresh process takes seconds.

That process has imported nothing of tensormagic, made no tensor, and has one thread. What tests how tensormagic is
imported, or needs a terminal, starts a process of its own.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import runpy
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.support import warm_client

# Two are not among them: ipywidgets, which speaks to the kernel in which it is imported, and numpy.random, whose seed
# would be the same in all forks.
IMPORTED = (
    "torch", "torch.distributed", "debugpy", "ipykernel.kernelapp", "ipykernel.zmqshell", "rich.console",
    "rich.text", "psygnal", "sqlite3",
)  # fmt: skip
ROOT = Path(__file__).resolve().parents[2]
_KERNEL = {"display_name": "Python 3", "language": "python", "metadata": {"debugger": True}}


@contextlib.contextmanager
def kernels() -> Iterator[None]:
    """Let what looks up the kernel ``python3`` find one that is such a fork; so do the processes started meanwhile."""
    if sys.platform != "linux":
        yield
        return
    before = os.environ.get("JUPYTER_PATH")
    os.environ["JUPYTER_PATH"] = os.pathsep.join(filter(None, (str(_kernel()), before)))
    yield
    os.environ.pop("JUPYTER_PATH")
    os.environ.update({} if before is None else {"JUPYTER_PATH": before})


def python() -> list[str]:
    """Return what stands before a program's arguments in place of `sys.executable`."""
    if sys.platform != "linux":
        return [sys.executable]
    return [sys.executable, "-I", "-S", warm_client.__file__, str(_started()[0] / "socket")]


def end() -> None:
    """End the process that forks, where it was started, and all forks."""
    if _started.cache_info().currsize:
        folder, process = _started()
        process.communicate()
        shutil.rmtree(folder)
        _started.cache_clear()


@cache
def _started() -> tuple[Path, subprocess.Popen[bytes]]:
    """Start the process that forks; it ends when its standard input does, and with it all forks.

    The folder's path is short: that of a socket has 100 characters at most.
    """
    folder = Path(tempfile.mkdtemp(prefix="tm"))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
        listener.listen(64)
        command = [sys.executable, "-m", __name__, str(listener.fileno())]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL}
        process = subprocess.Popen(
            command, **pipes, pass_fds=[listener.fileno()], cwd=ROOT, start_new_session=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # NumPy's import would start threads
        )  # fmt: skip
    return folder, process


def _kernel() -> Path:
    folder = _started()[0]
    file = folder / "kernels" / "python3" / "kernel.json"
    if not file.exists():
        file.parent.mkdir(parents=True)
        argv = [*python(), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        file.write_text(json.dumps({"argv": argv, **_KERNEL}), encoding="utf-8")
    return folder


class _Server:
    """Forks for each client that comes; tells it the fork's number and, when that has ended, its status."""

    def __init__(self, listener: socket.socket) -> None:
        self.waiting = selectors.DefaultSelector()
        self.clients: dict[int, socket.socket] = {}
        self._wait_for(listener, self._fork)
        self._wait_for(sys.stdin.buffer.raw, self._end)

    def serve(self) -> dict[str, Any]:
        """Answer until standard input ends; in a fork come back with what its client wants."""
        while True:
            for key, _ in self.waiting.select():
                if wanted := key.data(key.fileobj):
                    return wanted

    def _wait_for(self, source: Any, answer: Callable[[Any], Any]) -> None:
        self.waiting.register(source, selectors.EVENT_READ, answer)

    def _fork(self, listener: socket.socket) -> dict[str, Any] | None:
        client = listener.accept()[0]
        said, streams, *_ = socket.recv_fds(client, 1 << 16, 3)
        while not said.endswith(b"\0"):
            said += client.recv(1 << 16)
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
            self._close(client, *streams)
            return json.loads(said[:-1])
        with contextlib.suppress(OSError):  # the fork has done it, or has ended
            os.setpgid(pid, pid)
        for stream in streams:
            os.close(stream)
        self.clients[pid] = client
        self._wait_for(client, lambda _: self._kill(pid))
        self._wait_for(os.pidfd_open(pid), lambda ended: self._ended(pid, ended))
        client.sendall(b"%d\n" % pid)
        return None

    def _close(self, *more: Any) -> None:
        """Close, in a fork, what belongs to the process that forks."""
        open_here = [key.fileobj for key in self.waiting.get_map().values() if key.fd > 2]
        self.waiting.close()
        for one in (*open_here, *more):
            os.close(one) if isinstance(one, int) else one.close()

    def _kill(self, pid: int) -> None:
        """End a fork whose client is gone."""
        self.waiting.unregister(self.clients[pid])
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)

    def _ended(self, pid: int, descriptor: int) -> None:
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self.waiting.unregister(descriptor)
        os.close(descriptor)
        client = self.clients.pop(pid)
        with contextlib.suppress(OSError, KeyError):
            client.sendall(b"%d\n" % status)
            self.waiting.unregister(client)
        client.close()

    def _end(self, _: Any) -> None:
        for pid in self.clients:
            self._kill(pid)
        os._exit(0)


def _become(arguments: list[str], environment: dict[str, str], folder: str) -> None:
    """Run a program as ``python ARGUMENTS`` would."""
    import torch

    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    if threads := environment.get("OMP_NUM_THREADS"):
        torch.set_num_threads(int(threads))
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    first, *rest = arguments
    if first == "-m":
        sys.argv = rest
        sys.path[:] = [folder, *paths, *_LIBRARIES]
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path[:] = [str(Path(first).resolve().parent), *paths, *_LIBRARIES]
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    os.environ["JPY_PARENT_PID"] = str(os.getpid())  # as each kernel will find its parent; it is read by the import
    for name in IMPORTED:
        import_module(name)
    assert len([*Path("/proc/self/task").iterdir()]) == 1, "a process with threads must not fork"
    _LIBRARIES = [path for path in sys.path if path and path not in {str(ROOT), str(Path.cwd())}]
    gc.collect()
    gc.freeze()
    _become(**_Server(socket.socket(fileno=int(sys.argv[1]))).serve())
