"""Files that were edited after they were loaded: lines are those that they have now, or said to be older."""

from __future__ import annotations

import ast
import contextlib
import importlib
import linecache
import os
import sys
import textwrap
import time

import pytest
import torch

import tensormagic as tm
from tensormagic.api.diagnosing import explain_error
from tensormagic.collectors.where import source
from tensormagic.collectors.where.source import SourceLines

NET = '''
import torch

def outer(x, *, double=False):
    """Two lines

    of documentation.
    """
    def inner(y):
        with torch.no_grad():
            frames.append(sys._getframe())
            return torch.neg(y)
    if (double
            and x is not None):
        x = 2 * x
    values = [inner(each) for each in (x, x)]
    return values

class Net(torch.nn.Module):
    def forward(self, x):
        frames.append(sys._getframe()); return x.detach() * 2
'''


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Return a module in a file, and a function that edits the file."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(source, "_SECONDS", 0)
    path, edits = tmp_path / "edited_net.py", []

    def edit(text):
        path.write_text(text)
        edits.append(text)
        then = time.time() + 2 * len(edits)  # no two edits within a tick of the file system's clock
        os.utime(path, (then, then))

    edit(NET)
    importlib.invalidate_caches()
    made = importlib.import_module("edited_net")
    made.sys, made.frames = sys, []
    yield made, edit
    del sys.modules["edited_net"]


def as_autoreloaded(module, text, *names):
    """Give functions of a module the code that IPython's autoreload makes of a text; methods as ``"Net.forward"``."""
    tree = ast.parse(text)
    for name in names:
        body, owner = tree.body, module
        *classes, last = name.split(".")
        for each in classes:
            body = next(node.body for node in body if getattr(node, "name", "") == each)
            owner = getattr(owner, each)
        node = next(node for node in body if getattr(node, "name", "") == last)
        alone = textwrap.dedent(ast.unparse(node))
        if classes:
            alone = "class __autoreload_class__:\n" + textwrap.indent(alone, "    ")
        made = {}
        exec(compile(alone, module.__file__, "exec", dont_inherit=True), vars(module), made)
        new = getattr(made["__autoreload_class__"], last) if classes else made[last]
        getattr(owner, last).__code__ = new.__code__


def lines_met(module):
    """Return the lines that the functions ran at, as a report has them, by the name of the function."""
    x, sites = torch.ones(2), SourceLines()
    module.frames.clear()
    here = {}

    def look(frame, event, _):
        if event == "line" and frame.f_code.co_filename == module.__file__:
            place = sites.location(sites.at_frame(frame))
            here.setdefault(frame.f_code.co_name, []).append((place.line, place.text))
        return look

    before = sys.gettrace()
    sys.settrace(look)
    try:
        module.outer(x)
        module.Net()(x)
    finally:
        sys.settrace(before)
    return here, sites.gaps()


def lines_in_file(found, text):
    """Return whether every line that was met is that of the text, and stands in the function that it was met in."""
    every = text.split("\n")
    return all(every[line - 1].strip() == said for lines in found.values() for line, said in lines)


def test_a_file_that_nobody_edited(module):
    """Nothing is looked for."""
    found, gaps = lines_met(module[0])
    assert lines_in_file(found, NET)
    assert {"outer", "inner", "forward"} <= found.keys()
    assert gaps == ()


@pytest.mark.parametrize("above", ["", "# one\n# two\n\n\n"])
def test_lines_of_what_autoreload_compiled(module, above):
    """They are those of the file, in functions inside and in methods, too."""
    made, edit = module
    before, _ = lines_met(made)
    text = NET.replace("import torch\n", f"import torch\n{above}", 1).replace("2 * x", "x + x")
    edit(text)
    as_autoreloaded(made, text, "outer", "Net.forward")
    assert made.outer.__code__.co_firstlineno == 1
    assert made.Net.forward.__code__.co_firstlineno == 2
    found, gaps = lines_met(made)
    assert lines_in_file(found, text)
    assert gaps == ()
    shift = above.count("\n")
    for name in ("inner", "forward"):
        assert {line for line, _ in found[name]} == {line + shift for line, _ in before[name]}


def test_ipythons_own_autoreload(module):
    """As it is used: with the file on disk and the module that it patches."""
    reloading = pytest.importorskip("IPython.extensions.deduperreload.deduperreload", reason="since IPython 9")
    made, edit = module
    reloader = reloading.DeduperReloader()
    reloader.update_sources()
    text = NET.replace("\nclass Net", "\n# a comment more\nclass Net").replace(
        "x.detach() * 2", "torch.neg(x.detach())"
    )
    edit(text)
    assert reloader.maybe_reload_module(made)
    assert made.Net.forward.__code__.co_firstlineno < 3, "IPython gives its lines now: what is checked here can go"
    found, gaps = lines_met(made)
    assert lines_in_file({"forward": found["forward"]}, text)
    assert found["forward"][0][1].endswith("return torch.neg(x.detach())")
    assert gaps == ()


def test_a_file_that_was_not_loaded_again(module):
    """What only moved is found where it is now; of what was rewritten no line is shown, and that is said once."""
    made, edit = module
    text = NET.replace("import torch\n", "import torch\n\n# moved\n", 1).replace("x.detach() * 2", "x * 3")
    edit(text)
    found, gaps = lines_met(made)
    assert lines_in_file({"outer": found["outer"], "inner": found["inner"]}, text)
    assert all(said for _, said in found["inner"])
    assert {said for _, said in found["forward"]} == {""}
    (gap,) = gaps
    assert "edited_net.py does not have the code that runs" in gap.reason


@pytest.mark.parametrize("text", ["import torch\n\nclass Net(", "", "\0"])
def test_a_file_in_the_middle_of_an_edit(module, text):
    """No line of it is shown."""
    made, edit = module
    edit(text)
    found, gaps = lines_met(made)
    assert {said for lines in found.values() for _, said in lines} == {""}
    assert len(gaps) == 1


def test_a_text_of_another_kind_under_the_name_of_a_file(tmp_path):
    """Notebooks that are imported: the file holds JSON, no line of which is one of the code's."""
    path = tmp_path / "lesson.ipynb"
    path.write_text('{"cells": [\n  {"source": "def f(frames, sys):"},\n  null\n]}\n')
    os.utime(path, (1, 1))
    names = {}
    exec(compile("\n\ndef f(look):\n    return look(1)\n", str(path), "exec"), names)
    sites = SourceLines()
    place = sites.location(names["f"](lambda depth: sites.at_frame(sys._getframe(depth))))
    assert (place.line, place.text) == (4, "")
    assert "does not have the code that runs" in sites.gaps()[0].reason


def test_two_functions_alike_are_told_apart_by_their_names_or_not_at_all(module):
    """Autoreload leaves no class in the name of a method: then no line is shown. A file that only moved has it."""
    made, edit = module
    twins = f"{NET}\nclass Twin(torch.nn.Module):\n{NET.rpartition('(torch.nn.Module):' + chr(10))[2]}"
    edit(twins)
    found, gaps = lines_met(made)
    if sys.version_info >= (3, 11):  # before, code has no qualified name
        assert lines_in_file(found, twins)
        assert gaps == ()
    as_autoreloaded(made, twins, "Net.forward")
    found, gaps = lines_met(made)
    assert {said for _, said in found["forward"]} == {""}
    assert len(gaps) == 1


def test_a_cell_that_the_debugger_wrote_to_a_file_is_as_python_knows_it(tmp_path):
    """The file has the text as it was typed, magics included; the cell's lines are those that IPython gave Python."""
    path = tmp_path / "123.py"
    path.write_text("%%tracegrad\nvalue = 1\n")
    code = compile("# %%tracegrad\ndef f():\n    return 1\n", str(path), "exec").co_consts[0]
    lines = ["# %%tracegrad\n", "def f():\n", "    return 1\n"]
    linecache.cache[str(path)] = (sum(map(len, lines)), None, lines, str(path))
    try:
        assert source.in_file(code) == (code, 0)
        assert not source.is_gone(code)
    finally:
        del linecache.cache[str(path)]


def test_findings_and_refused_calls_of_an_edited_file(module):
    """A trace and an explained error say the lines of the file, or that it was edited."""
    made, edit = module
    net = made.Net()
    net.inner = torch.nn.Linear(3, 2)
    text = NET.replace(
        "        frames.append(sys._getframe()); return x.detach() * 2",
        "        # it has a layer now\n        h = self.inner(x).detach()\n        return h * self.scale",
    )
    edit(text)
    as_autoreloaded(made, text, "Net.forward")
    net.scale = torch.ones(2, requires_grad=True)
    with tm.trace() as trace:
        net(torch.ones(1, 3)).sum().backward()
    (cut,) = (cut for graph in trace.report.graphs for cut in graph.cuts)
    assert trace.report.locations[cut.location].text == "h = self.inner(x).detach()"
    with pytest.raises(RuntimeError) as caught:
        net(torch.ones(1, 4))
    report = explain_error(caught.value)
    assert report.location.text == "h = self.inner(x).detach()"
    if sys.version_info >= (3, 11):
        assert report.call == "self.inner(x)"
    assert not [gap for gap in report.gaps if gap.section == "lines"]
    edit(text.replace("h * self.scale", "h"))
    with pytest.raises(RuntimeError) as caught:
        net(torch.ones(1, 4))
    report = explain_error(caught.value)
    assert (report.location.text, report.call) == ("", "")
    assert [gap for gap in report.gaps if "does not have the code that runs" in gap.reason]
    with tm.trace() as trace, contextlib.suppress(RuntimeError):
        net(torch.ones(1, 3)).sum().backward()
    assert [gap.section for gap in trace.report.gaps] == ["lines"]
