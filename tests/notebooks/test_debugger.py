"""Jupyter's debugger in a cell that a magic follows: breakpoints stop it there, at the line that the notebook shows."""

from __future__ import annotations

import contextlib
import queue
import time

import pytest
from jupyter_client.manager import KernelManager

from tensormagic.commands.headless import sockets_in_files
from tests.support.kernel import jupyter_environment

BODY = "w = torch.ones(3, requires_grad=True)\nloss = (w * 2).sum()\nloss.backward()\nw.grad"
AT = "loss.backward()"


class Debugged:
    """A kernel with a debugger in it, and what a front end says to it."""

    def __init__(self, manager):
        self.client = manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)
        self.asked = 0

    def ask(self, command, **arguments):
        """Ask the debugger, and return the body of its answer."""
        self.asked += 1
        content = {"type": "request", "seq": self.asked, "command": command, "arguments": arguments}
        message = self.client.session.msg("debug_request", content)
        self.client.control_channel.send(message)
        while (answer := self.client.control_channel.get_msg(timeout=60))["parent_header"].get("msg_id") != message[
            "header"
        ]["msg_id"]:
            pass
        assert answer["content"]["success"], answer["content"]
        return answer["content"].get("body", {})

    def run(self, code, line):
        """Run a cell with a breakpoint at a line; return the execution, and the path under which the cell is known."""
        path = self.ask("dumpCell", code=code)["sourcePath"]
        self.ask("setBreakpoints", source={"path": path}, breakpoints=[{"line": line}], sourceModified=False)
        self.ask("configurationDone")
        return self.client.execute(code), path

    def messages(self, seconds=60):
        """Yield the kind and the content of what the kernel publishes, and of which execution it is."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with contextlib.suppress(queue.Empty):
                message = self.client.get_iopub_msg(timeout=1)
                yield message["msg_type"], message["content"], message["parent_header"].get("msg_id")

    def until(self, execution, *, stops):
        """Wait until a cell stops at a breakpoint, or has run; return the event, and what the cell showed."""
        shown = []
        for kind, content, of in self.messages():
            if stops and kind == "debug_event" and content["event"] == "stopped":
                return content["body"], shown
            if of == execution:
                shown.append((kind, content))
                if kind == "status" and content["execution_state"] == "idle":
                    return None, shown
        raise AssertionError(shown)


@pytest.fixture(scope="module")
def debugged(tmp_path_factory):
    """Yield a kernel in which the extension and the debugger are on."""
    folder = tmp_path_factory.mktemp("debugger")
    with sockets_in_files() as config:
        manager = KernelManager(config=config, kernel_name="python3")
        manager.start_kernel(cwd=str(folder), env=jupyter_environment(folder))
        try:
            kernel = Debugged(manager)
            # Before the debugger, which follows every line of what is imported.
            kernel.until(kernel.client.execute("%load_ext tensormagic\nimport torch"), stops=False)
            kernel.ask("initialize", clientID="test", adapterID="", pathFormat="path", linesStartAt1=True)
            kernel.ask("attach")
            yield kernel
            kernel.client.stop_channels()
        finally:
            manager.shutdown_kernel(now=True)


@pytest.mark.parametrize("magic", ["%%tracegrad", "%%gpumem", "%%aliases", "%%rng", "%%tracegrad --memory --writes"])
def test_a_breakpoint_in_a_followed_cell_stops_it(debugged, magic):
    """The line that the user clicked on is reached, and the cell runs on to its end from there."""
    code = f"{magic}\n{BODY}"
    line = code.split("\n").index(AT) + 1
    execution, path = debugged.run(code, line)
    stopped, _ = debugged.until(execution, stops=True)
    assert stopped is not None, "the cell ran past its breakpoint"
    frame = debugged.ask("stackTrace", threadId=stopped["threadId"])["stackFrames"][0]
    assert (frame["source"]["path"], frame["line"]) == (path, line)
    debugged.ask("continue", threadId=stopped["threadId"])
    _, shown = debugged.until(execution, stops=False)
    assert not [content for kind, content in shown if kind == "error"]
    assert [content for kind, content in shown if kind == "execute_result"]


def test_at_a_breakpoint_the_panel_shows_the_run_up_to_there(debugged):
    """What draws it goes on while everything else is stopped; and a line with several calls stops once."""
    debugged.until(debugged.client.execute("%config TensorMagic.live = 'html'"), stops=False)
    code = "%%tracegrad\nfor _ in range(3):\n    w = torch.ones(3, requires_grad=True)\n    (w * 2).sum().backward()"
    execution, _ = debugged.run(code, 4)
    for _ in range(2):
        stopped, _ = debugged.until(execution, stops=True)
        debugged.ask("continue", threadId=stopped["threadId"])
    stopped, shown = None, False
    for kind, content, _ in debugged.messages():  # the panel may be drawn before the line stops, or after
        if kind == "debug_event" and content["event"] == "stopped":
            stopped = content["body"]
        shown = shown or (kind == "update_display_data" and "2 backward passes" in content["data"]["text/plain"])
        if stopped and shown:
            break
    assert shown
    debugged.ask("continue", threadId=stopped["threadId"])
    debugged.until(execution, stops=False)
