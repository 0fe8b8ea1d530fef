"""``python -m tensormagic doctor``: what is installed, what is needed, and whether they fit."""

from __future__ import annotations

import argparse
import os
import platform
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from tensormagic import api
from tensormagic.collectors.requirements import NEWEST_TORCH, numbers_of, shows_widgets, small_step, torch_facts
from tensormagic.commands import Command
from tensormagic.errors import RequirementError
from tensormagic.words import error_text, number_of_bytes, plural

# What the package needs, as its own metadata say: one home for the bounds, which is pyproject.toml.

_REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*(?:>=\s*([0-9.]+))?[^;]*(?:;(.*))?$")
_EXTRA = re.compile(r"extra\s*==\s*[\"']([\w-]+)[\"']")
_SHOWN = (None, "lab")


@dataclass(frozen=True, slots=True)
class Needed:
    """A package that is needed."""

    name: str  # As pip knows it.
    oldest: str = ""  # The oldest version that will do; empty where any will.
    extra: str = ""  # Which extra asks for it; empty where all of it does not work without.


def needed() -> list[Needed]:
    """Return tensormagic itself, what it needs, and what its notebooks need; nothing more where it is not installed."""
    try:
        required = metadata.requires("tensormagic") or []
    except metadata.PackageNotFoundError:  # run from a folder of sources
        return []
    found = [parsed(line) for line in required]
    return [Needed("tensormagic"), *(one for one in found if one is not None and (one.extra or None) in _SHOWN)]


def parsed(requirement: str) -> Needed | None:
    """Return a line of a package's metadata; None where it is for other Pythons or is the package itself."""
    found = _REQUIREMENT.match(requirement)
    if found is None or found[1] == "tensormagic":
        return None
    marker = found[3] or ""
    extra = _EXTRA.search(marker)
    if "python_version" in marker:
        return None
    return Needed(found[1], found[2] or "", extra[1] if extra else "")


def is_older(version: str, oldest: str) -> bool:
    """Return whether one version comes before another, by their numbers."""
    return numbers_of(version) < numbers_of(oldest)


Status = Literal["ok", "note", "missing"]
_SIGNS: dict[Status, str] = {"ok": "\u2714", "note": "\u25cb", "missing": "\u2716"}
_WIDGETS = {
    "anywidget": "shows %%tracegrad while the cell runs",
    "@jupyter-widgets/jupyterlab-manager": "shows widgets in JupyterLab and Notebook",
}
# Environment variables by which hosts make themselves known, and what does not work there.
_COLAB = "live panels work: anywidget enables its widget manager"
_PLAIN = 'live panels may not show: %config TensorMagic.live = "html"'
_HOSTS = (
    ("COLAB_RELEASE_TAG", "Google Colab", _COLAB),
    ("KAGGLE_KERNEL_RUN_TYPE", "Kaggle", _PLAIN),
    ("DATABRICKS_RUNTIME_VERSION", "Databricks", _PLAIN),
    ("VSCODE_PID", "VS Code", "widgets come with its Jupyter extension; nothing to set up"),
    ("JPY_PARENT_PID", "a Jupyter kernel", "everything works if the checks above pass"),
)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str  # What.
    status: Status  # ``"ok"``; ``"note"``: works without; ``"missing"``: something does not work.
    described: str  # What was found.
    fix: str = ""  # What to do; empty where there is nothing to do.


def _doctor(_given: argparse.Namespace) -> int:
    """Print every check; the status is 1 where something that is needed does not work."""
    sections = {
        "packages": packages(),
        "torch": torch_checks(),
        "notebook": notebook_checks(),
        "tried out": tried_out(),
    }
    failed = False
    for section, checks in sections.items():
        print(f"\n{section}")
        for check in checks:
            failed = failed or check.status == "missing"
            print(f"  {_SIGNS[check.status]} {check.name:<36} {check.described}")
            if check.fix:
                print(f"    {'':<36} {check.fix}")
    print("\nsomething is missing: see above" if failed else "\neverything works")
    return int(failed)


def packages() -> Iterator[Check]:
    """Yield Python, this package, and everything that it needs, against the oldest version that will do."""
    yield Check("Python", "ok", f"{platform.python_version()} ({sys.executable})")
    every = needed()
    if not every:
        yield Check("tensormagic", "note", "running from source, not installed", "pip install -e .")
    yield from map(_package, every)


def _package(one: Needed) -> Check:
    oldest = f" (needs {one.oldest} or newer)" if one.oldest else ""
    extra: Status = "note" if one.extra else "missing"
    wanted = f"tensormagic[{one.extra}]" if one.extra else one.name
    try:
        found = metadata.version(one.name)
    except metadata.PackageNotFoundError:
        return Check(one.name, extra, f"not installed{oldest}", f'pip install "{wanted}"')
    if one.oldest and is_older(found, one.oldest):
        return Check(one.name, extra, f"{found}{oldest}", f'pip install --upgrade "{one.name}>={one.oldest}"')
    if one.name == "torch" and numbers_of(found)[:2] > NEWEST_TORCH:
        tried = ".".join(map(str, NEWEST_TORCH))
        return Check(one.name, "note", f"{found} (newer than any that was tried)", f'pip install "torch=={tried}.*"')
    return Check(one.name, "ok", found)


def torch_checks() -> Iterator[Check]:
    """Yield what torch can use here."""
    try:
        facts = torch_facts()
    except Exception as error:  # noqa: BLE001  (a broken torch may raise anything when it is imported)
        yield Check("torch", "missing", f"cannot be imported: {error_text(error)}", "pip install torch")
        return
    absent = ("none", "this torch")
    for name, described in facts.items():
        yield Check(name, "note" if described.startswith(absent) else "ok", described)


def notebook_checks(folders: Callable[[], list[str]] | None = None) -> Iterator[Check]:
    """Yield whether live panels will show, and what is known of the host.

    ``folders`` gives those in which Jupyter looks for front-end extensions.
    """
    places = (folders or _extension_folders)()
    for name, use in _WIDGETS.items():
        there = next((place for place in places if (Path(place) / name / "package.json").is_file()), "")
        fix = "" if there else 'install it beside the server that runs JupyterLab: pip install "tensormagic[lab]"'
        yield Check(name, "ok" if there else "note", f"in {there}" if there else f"not found; it {use}", fix)
    if not shows_widgets():
        described = "not 8 or newer: a running cell is shown by pictures, a few a second"
        yield Check("ipywidgets", "note", described, "pip install --upgrade ipywidgets")
    for variable, host, described in _HOSTS:
        if variable in os.environ:
            yield Check(host, "note", described)


def _extension_folders() -> list[str]:
    try:
        from jupyter_core.paths import jupyter_path
    except ImportError:
        return []
    return [str(place) for place in jupyter_path("labextensions")]


def tried_out() -> Iterator[Check]:
    """Yield whether the main things work, by doing them on a small network."""
    yield _tried("inspecting a tensor", _look)
    yield _tried("a backward traced", _trace)


def _tried(name: str, action: Callable[[], str]) -> Check:
    try:
        return Check(name, "ok", action())
    except RequirementError as error:
        return Check(name, "missing", str(error))
    except Exception as error:  # noqa: BLE001  (what does not work here is what is asked)
        return Check(name, "missing", error_text(error), "please report this, with the output above")


def _look() -> str:
    report = api.inspect(small_step()(), "loss")
    return f"{report.name}: {report.dtype}, {number_of_bytes(report.nbytes)}"


def _trace() -> str:
    step = small_step()
    with api.trace(namespace={}) as trace:
        step()
    report = trace.report
    nodes = sum(len(graph.nodes) for graph in report.graphs)
    return f"{plural(nodes, 'node')}, {plural(len(report.passes), 'pass', 'passes')}"


COMMANDS = {"doctor": Command("report what works on this machine, what is missing, and how to fix it", None, _doctor)}
