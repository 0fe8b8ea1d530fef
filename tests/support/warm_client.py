"""Stands in for a Python program that `tests.support.warm` runs as a fork: ``warm_client.py SOCKET ARGUMENTS``.

It hands over its arguments, environment, folder and streams, hands on the signals that it gets, and ends as the program
ends. Run with ``python -I -S`` it costs a hundredth of a second. Where nobody forks it becomes the program itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys

HANDED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Client:
    """One program, as the one who started it sees it."""

    def __init__(self, address: str, arguments: list[str]) -> None:
        self.pid = 0
        self.early: list[int] = []
        for number in HANDED_ON:
            signal.signal(number, self.hand_on)
        self.connection = socket.socket(socket.AF_UNIX)
        self.connection.connect(address)
        wanted = json.dumps({"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd()})  # noqa: PTH109
        socket.send_fds(self.connection, [wanted.encode() + b"\0"], [0, 1, 2])

    def hand_on(self, number: int, frame: object) -> None:
        """Send the program and its children a signal; one that comes before there is a program waits for it."""
        del frame
        if not self.pid:
            self.early.append(number)
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def status(self) -> int:
        """Wait until the program has ended; return its status, as ``subprocess`` gives it.

        Raises:
            ConnectionError: where nobody forks: here that process would have had threads, for example.
        """
        with self.connection.makefile() as answers:
            if not (answer := answers.readline()):
                raise ConnectionError
            self.pid = int(answer)
            for number in self.early:
                self.hand_on(number, None)
            return int(answers.readline())


if __name__ == "__main__":
    try:
        status = Client(sys.argv[1], sys.argv[2:]).status()
    except (ConnectionError, FileNotFoundError):  # then it is a process of its own
        os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
    if status < 0:
        with contextlib.suppress(OSError):  # SIGKILL is not to be changed
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)
