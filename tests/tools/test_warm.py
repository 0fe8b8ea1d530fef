"""Programs that tests start as forks of a process that has imported torch, and without that process."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from tests.support import warm_client

pytestmark = [pytest.mark.processes, pytest.mark.skipif(sys.platform != "linux", reason="forks are Linux's")]


@pytest.mark.parametrize("there", [False, True], ids=["nobody", "one that ended"])
def test_where_nobody_forks_a_program_is_a_process_of_its_own(tmp_path, there):
    """It gets its arguments, and its status is that of the client."""
    program, address = tmp_path / "program.py", tmp_path / "socket"
    program.write_text("import sys; print(sys.argv[1:]); sys.exit(3)")
    if there:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(address))
    command = [sys.executable, "-I", "-S", warm_client.__file__, str(address), str(program), "a", "b"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("['a', 'b']\n", 3)
