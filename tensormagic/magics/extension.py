"""What ``%load_ext tensormagic`` adds to a shell, and what ``%unload_ext`` takes away again.

Loading imports what a shell needs of a magic before it is used: its name, its settings, its completion. The rest is
imported by the first line that uses it, or in a notebook by `tensormagic.magics.preloading`.

Everything that loading does is put on one stack as it is done, with what undoes it.
"""

from __future__ import annotations

import functools
import io
import sys
import tokenize
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from IPython.core import magic
from IPython.core.magic import Magics, line_cell_magic, line_magic, magics_class, no_var_expand
from traitlets import Bool, Enum, TraitError, Unicode, default, observe, validate
from traitlets.config import Config

from tensormagic import api
from tensormagic.collectors.requirements import require_torch, shows_widgets
from tensormagic.errors import RequirementError, SettingError
from tensormagic.magics import about, completion, frames, live_output, preloading, shared_assets, watching


def _silenced(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function``, a magic, returning None for a line or cell that ends with a semicolon."""

    @functools.wraps(function)
    def run(magics: Any, line: str, cell: str | None = None) -> Any:
        __tracebackhide__ = "__ipython_bottom__"
        value = function(magics, line, cell)
        return None if _ends_with_semicolon(line if cell is None else cell) else value

    return run


def _ends_with_semicolon(code: str) -> bool:
    blank = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER}
    try:
        found = [one.string for one in tokenize.generate_tokens(io.StringIO(code).readline) if one.type not in blank]
    except (tokenize.TokenError, SyntaxError):  # with a line for the system's shell, which is no Python
        return False
    return found[-1:] == [";"]


# IPython 8.10 and later silence such a magic themselves, once it is marked.
output_can_be_silenced: Callable[[Any], Any] = getattr(magic, "output_can_be_silenced", _silenced)

_LOADED: dict[int, ExitStack] = {}


def _asks(key: str, of_cell: str = "") -> Callable[[Callable[[Any, str], None]], Any]:
    """Return what makes a magic of a method, which is its name and its help: one of `about.MAGICS`.

    ``of_cell`` is what is asked above a cell.
    """

    def made(described: Callable[[Any, str], None]) -> Any:
        @functools.wraps(described)
        def run(magics: Any, line: str, cell: str | None = None) -> Any:
            __tracebackhide__ = "__ipython_bottom__"
            if cell is None:
                return frames.run_line(magics.shell, line, about.magic(key))
            return frames.run_cell(magics.shell, line, cell, about.magic(of_cell), live=magics.live)

        del run.__wrapped__  # IPython 7 calls a magic by its signature: this one's, which has a cell
        return no_var_expand(output_can_be_silenced(line_cell_magic(run)) if of_cell else line_magic(run))

    return made


@magics_class
class TensorMagic(Magics):
    """The magics and their settings: ``%config TensorMagic``."""

    live = Enum(
        ("widget", "html", "off"),
        default_value="widget",
        help="How %%tracegrad and %%gpumem show a running cell: a widget (needs anywidget on the server), static HTML "
        "a few times a second (also where ipywidgets is older than 8, except in Colab), or only when it has ended.",
    ).tag(config=True)

    viewer = Enum(
        shared_assets.MODES,
        default_value="auto",
        help="Which outputs carry the code of the interactive panels: one per notebook (once), each output (each), or "
        "one if the front end shows a notebook on one page, as JupyterLab, Notebook 7 and VS Code do (auto).",
    ).tag(config=True)

    ignore = Unicode(
        help='Codes of findings to silence: "TM105, TM7"; the first digits select a '
        "family. On a single line: a comment # tm: ignore[TM105].",
    ).tag(config=True)

    explain = Bool(
        default_value=False, help="Whether PyTorch errors are explained below the traceback, in any cell."
    ).tag(config=True)

    watch = Bool(
        default_value=False,
        help="Whether to check memory and modules after each cell; silent unless something is wrong.",
    ).tag(config=True)

    @default("live")
    def _live_here(self) -> str:
        return "widget" if shows_widgets() else "html"

    def __init__(self, shell: Any, **settings: Any) -> None:
        self.watcher = watching.Watcher(shell)
        super().__init__(shell=shell, **settings)
        self.watcher.switch(on=self.watch)

    @observe("watch")
    def _switch_watch(self, change: Any) -> None:
        self.watcher.switch(on=change["new"])

    @validate("ignore")
    def _check_ignore(self, proposal: Any) -> str:
        value: str = proposal["value"]
        try:
            api.ignore(value)
        except SettingError as error:
            raise TraitError(str(error)) from None
        return value

    @_asks("tensor")
    def tensor(self, line: str) -> None:
        """Show a tensor: shape, strides, storage, aliases, values and autograd state.

        %tensor x                 one tensor
        %tensor x, y.t()          several, and what they share
        %tensor net.fc.weight     of a model; %tensor net lists all
        %tensor x --line          in one line
        %tensor x --at 1,:,3,:    another slice; %tensor --help lists the options
        """

    @_asks("tensors")
    def tensors(self, line: str) -> None:
        """List every tensor you have.

        %tensors            all of them, by the memory they take
        %tensors x batch    those in what has these names; %tensors --help lists the options
        """

    @_asks("model")
    def model(self, line: str) -> None:
        """Show a model as a tree: parameters, memory, mode, optimizer, gradients.

        %model net       as it is, with what the last traced run saw of it
        %model net(x)    runs that, and shows what shape each module made; %model --help lists the options
        """

    @_asks("aliases", "writes")
    def aliases(self, line: str) -> None:
        """Show which tensors share memory; as a cell magic, which other names its in-place writes change.

        %aliases           all tensors that share memory
        %aliases x net     only what these names share
        %%aliases          alone in the first line of a cell; %aliases --help lists the options
        """

    @_asks("gradgraph")
    def gradgraph(self, line: str) -> None:
        """Draw the backward graph that leads to a tensor, before any backward.

        %gradgraph loss            the operations that backward will visit, and what is saved for it
        %gradgraph net(x).sum()    of an expression; %gradgraph --help lists the options
        """

    @no_var_expand
    @output_can_be_silenced
    @line_cell_magic
    def tracegrad(self, line: str, cell: str | None = None) -> Any:
        """Run the cell and draw its backward graph; report what went wrong, on which line, and how to fix it.

        %%tracegrad                alone in the first line of a cell, the code below it
        %%tracegrad --forward      measures what the forward makes as well
        %%tracegrad --into run     binds the report to a name
        %tracegrad                 shows the last run again; %%tracegrad --help lists the options
        """
        __tracebackhide__ = "__ipython_bottom__"
        from tensormagic.magics import tracegrad

        return tracegrad.run(self.shell, line, cell, live=self.live)

    @_asks("rng", "rng")
    def rng(self, line: str) -> None:
        """Show every random generator; as a cell magic, which line draws from which generator.

        %rng      seeds, and how many numbers were drawn
        %%rng     alone in the first line of a cell; %rng --help lists the options
        """

    @_asks("why")
    def why(self, line: str) -> None:
        """Explain why a gradient is None, zero, NaN, or unexpectedly large or small.

        %why net.fc1.weight    one parameter
        %why net               all parameters of a model, by reason
        %why                   the last PyTorch error: the call that was refused, and a fix
        %why x --loss loss     towards this loss; %why --help lists the options
        """

    @_asks("compare")
    def compare(self, line: str) -> None:
        """Compare two traced runs: where two trainings diverge.

        %compare good bad    runs that %%tracegrad --into NAME bound; %compare --help lists the options
        """

    @_asks("ranks")
    def ranks(self, line: str) -> None:
        """Compare the ranks of a run: what differs, on which rank, and from which step on.

        %ranks runs/a    the folder that every rank was given: tensormagic.trace(ranks="runs/a")
        %ranks reports   a list of their trace reports; %ranks --help lists the options
        """

    @_asks("gpumem", "gpumem_cell")
    def gpumem(self, line: str) -> None:
        """Show what uses memory and what keeps it alive; as a cell magic, which line allocates how much.

        %gpumem            all tensors of this process
        %gpumem net x      only what these names reach
        %%gpumem           alone in the first line of a cell; %gpumem --help lists the options
        """

    @no_var_expand
    @line_magic
    def tensormagic(self, line: str) -> None:
        """List the magics and settings; show a page of help; switch something on or off.

        %tensormagic help tracegrad    a page of help
        %tensormagic TM302             the page of a finding; %tensormagic zero_grad searches all pages
        %tensormagic explain on        explains PyTorch errors below their traceback
        """
        about.run(self, line)


def load(shell: Any) -> None:
    """Add the magics to ``shell``; loading twice is the same as once. Prints one line where torch is missing."""
    if id(shell) in _LOADED:
        return
    try:
        require_torch()
    except RequirementError as error:
        print(error)  # noqa: T201  (one line, instead of a traceback)
        return
    with ExitStack() as stack:
        magics = _made(shell)
        shell.register_magics(magics)
        stack.callback(_forget, shell, magics)
        stack.callback(frames.leave_python_alone(shell, magics.magics["line"]))
        stack.callback(magics.watcher.switch, on=False)
        stack.callback(frames.install_formatters(shell))
        stack.callback(completion.install(shell))
        stack.callback(frames.install(shell, magics))
        stack.callback(shared_assets.install(shell, lambda: str(magics.viewer)))
        api.install_display(frames.show)
        stack.callback(_show_as_text_again)
        stack.callback(live_output.forget, shell)
        if frames.is_notebook(shell):
            stack.callback(preloading.preload_soon())
        _LOADED[id(shell)] = stack.pop_all()


def _made(shell: Any) -> TensorMagic:
    """Return the magics with the settings of ``shell``; without them where one is wrong, and one line says so."""
    known = list(shell.configurables)
    try:
        return TensorMagic(shell)
    except TraitError as error:
        print(f"the settings of tensormagic are left out: {error}")  # noqa: T201  (one line, instead of a traceback)
    shell.configurables[:] = known  # the first try is among them
    return TensorMagic(shell, config=Config())


def unload(shell: Any) -> None:
    """Leave ``shell`` as it was before `load`."""
    stack = _LOADED.pop(id(shell), None)
    if stack is not None:
        stack.close()


def _show_as_text_again() -> None:
    if not _LOADED:  # another shell of this process may still want to be shown more
        api.install_display(None)
        if "tensormagic.api.diagnosing" in sys.modules:  # else nothing was silenced, and unloading imports nothing
            api.ignore("")
        if "tensormagic.api.looking" in sys.modules:  # likewise: nobody asked for lines
            api.set_repr("torch")


def _forget(shell: Any, magics: TensorMagic) -> None:
    manager = shell.magics_manager
    for kind, names in magics.magics.items():
        for name in names:
            if getattr(manager.magics[kind].get(name), "__self__", None) is magics:
                del manager.magics[kind][name]
    manager.registry.pop(type(magics).__name__, None)
    if magics in shell.configurables:
        shell.configurables.remove(magics)
