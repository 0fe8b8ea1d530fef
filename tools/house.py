"""How large the package is, and how far a reader has to walk in it: ``make house``.

Everything is read from the code; only the last part runs something (``tools/house_walk.py``, in a process of its own).
``--write`` also refreshes the table in CONTRIBUTING.md, where the figures stand beside their targets.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # for `python tools/house.py`

from tools.house_imports import against, circles, imports, layers  # noqa: E402 (needs the path above)

LONG_FUNCTION, LONG_FILE, SMALL_FUNCTION = 50, 500, 3
SHOWN = 10
BEGIN, END = "<!-- house: tools/house.py --write -->", "<!-- /house -->"
Function = ast.FunctionDef | ast.AsyncFunctionDef

# What a file is about: the first row that has a pattern for its path in the package.
SUBJECTS: Mapping[str, str] = {
    "refused calls": "*/failures/* */mismatches/* */failure.*",
    "trace: the viewer (JavaScript)": "*/static/trace/* */trace_viewer.css",
    "page plumbing": "*/shared_assets.py */theme.py */markup.py",
    "export, figures, terminal, aria": "*/export* */slide* */print.css */files.py */figures*"
    " */terminal.py */text_canvas.py",
    "memory: CUDA snapshots": "*snapshot*",
    "memory: what del frees": "*/memory/roots.py */memory/flow.py */memory/freed.py */memory/references.py"
    " */free_history*",
    "memory: a run": "*/memory_run* */gpumem_cell.py */timeline_* */out_of_memory* */track.js",
    "memory: now": "*/live_memory* */collectors/memory/* */gpumem.py */reports/memory.py */panels/memory.py"
    " */pictures/treemap.py */pictures/timeline*.py */memory/live.js */memory*.css */leaks.py",
    "session watch": "*/session/* */watch*",
    "aliases, writes, overlay": "*alias* *write* *written* *overlay* */sharing* */clash*",
    "rng": "*/rng* *draws* */generators.py */mersenne.py",
    "why": "*/why* */gradient_facts.py",
    "compare": "*/comparisons/* *compar*",
    "trace: sampling of steps": "*/step_sampling.py */sampled_trace.py",
    "trace: operations": "*/ops/* */ops* *_ops.css",
    "trace: detached graphs": "*cut* */detachment/*",
    "trace: autograd errors": "*fault* */autograd_errors/*",
    "trace: gradients": "*/gradients/* */gradient_health.py */not_finite.py */zero_gradients.py",
    "trace: training loop": "*/training* */optimizers.py */losses.py",
    "trace: calls": "*/calls/* *_calls.py",
    "trace: graphs": "*/graphs/* */graph/* */graph* */gradgraph.py */autograd_formulas.py",
    "names and lines": "*/where/* */objects/* *holders*",
    "trace: the run": "*/runs/* */hooks/*",
    "trace: panel and document": "*/page/document.py */page/columns.py */trace* */live* */sampler.py */forward.py",
    "strides and storage": "*/geometry/* */storage.py",
    "tensor": "*/tensor* */kind* */picture.py */autograd.py",
    "commands": "*/commands/*",
    "diagnoses, other": "*/diagnoses/*",
    "reports, other": "*/reports/*",
    "views, other": "*/views/*",
    "magics and api, other": "*/magics/* */api/*",
    "shared": "*",
}


@dataclass(frozen=True)
class File:
    """One file of the package: ``path`` starts with the package's name, ``code`` counts neither blanks nor comments."""

    path: str
    lines: int
    code: int
    tree: ast.Module | None = None

    @property
    def module(self) -> str:
        """What ``import`` calls it."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def subject(self) -> str:
        """What it is about, from the table above."""
        return next(name for name, row in SUBJECTS.items() if any(fnmatch(self.path, one) for one in row.split()))


@dataclass(frozen=True)
class House:
    """What is read from the code of one package; ``walks`` is what running it adds, empty where nothing was run."""

    files: list[File]
    circles: list[str]
    circles_for_types: list[str]
    against: list[str]
    long_functions: list[str]
    small_functions: list[str]
    walks: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def python(self) -> list[File]:
        """The Python files."""
        return [file for file in self.files if file.tree is not None]

    @property
    def long_files(self) -> list[str]:
        """The Python files of more than 500 lines."""
        return [f"{file.path}: {file.lines} lines" for file in self.python if file.lines > LONG_FILE]


# The rows of the table in CONTRIBUTING.md: what is counted, how, and how many there may be at last.
MEASURES: Mapping[str, tuple[Callable[[House], int | None], str]] = {
    "Python files in the package": (lambda house: len(house.python), "at most 330"),
    "lines of Python": (lambda house: sum(file.lines for file in house.python), ""),
    "lines of Python code, without docstrings, comments and blanks": (
        lambda house: sum(file.code for file in house.python),
        "",
    ),
    "files that `%tensor x` takes": (lambda house: _files(house, "%tensor x"), "at most 60"),
    "files that `%rng` takes": (lambda house: _files(house, "%rng"), ""),
    "files that `%%tracegrad` takes, one step": (lambda house: _files(house, "%%tracegrad"), "at most 93"),
    "files that `%%gpumem` takes, one step": (lambda house: _files(house, "%%gpumem"), ""),
    "files that a refused call takes": (lambda house: _files(house, "refused call"), "at most 30"),
    "import circles": (lambda house: len(house.circles), "0"),
    "import circles, imports for types counted": (lambda house: len(house.circles_for_types), "0"),
    "imports against the layers": (lambda house: len(house.against), "0"),
    "functions over 50 lines": (lambda house: len(house.long_functions), "0"),
    "files over 500 lines": (lambda house: len(house.long_files), "0"),
    "private functions used once, of three lines or less": (lambda house: len(house.small_functions), "fewer"),
}


def measure(package: Path, settings: Path) -> House:
    """Read ``package``, and its layers from the import contracts in ``settings``."""
    files = [_read(path, package) for path in sorted(package.rglob("*")) if path.suffix in {".py", ".js", ".css"}]
    trees = {file.module: file.tree for file in files if file.tree is not None}
    edges = imports(trees, [file.module for file in files if file.path.endswith("/__init__.py")])
    return House(
        files,
        circles(edge for edge in edges if not edge.for_types),
        circles(edges),
        [f"{edge.module} imports {edge.imported}" for edge in against(edges, layers(settings))],
        [place for file in files for place in _long_functions(file)],
        list(_small_functions(files)),
    )


def functions(tree: ast.AST) -> Iterator[Function]:
    """Give every function of ``tree``, methods and inner ones too."""
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def body_lines(function: Function) -> int:
    """Return how many lines the body of ``function`` has, without its docstring."""
    body = function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def _read(path: Path, package: Path) -> File:
    text = path.read_text(encoding="utf-8")
    name = path.relative_to(package.parent).as_posix()
    tree = ast.parse(text) if path.suffix == ".py" else None
    return File(name, len(text.splitlines()), _code_lines(text, tree), tree)


def _code_lines(text: str, tree: ast.Module | None) -> int:
    """Count the lines that are neither blank nor a comment nor (Python) in a docstring."""
    stripped = [line.strip() for line in text.splitlines()]
    if tree is None:
        return sum(bool(line) and not line.startswith(("//", "/*", "*")) for line in stripped)
    documented = {number for node in ast.walk(tree) for number in _docstring_lines(node)}
    return sum(
        bool(line) and not line.startswith("#") and number not in documented
        for number, line in enumerate(stripped, start=1)
    )


def _docstring_lines(node: ast.AST) -> Iterable[int]:
    if not isinstance(node, ast.Module | ast.ClassDef | Function) or ast.get_docstring(node, clean=False) is None:
        return ()
    return range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)


def _long_functions(file: File) -> Iterator[str]:
    for function in functions(file.tree) if file.tree else ():
        if (lines := body_lines(function)) > LONG_FUNCTION:
            yield f"{file.path}:{function.lineno} {function.name}: {lines} lines"


def _small_functions(files: Iterable[File]) -> Iterator[str]:
    """Give the private functions of three lines or less whose name is once in the package, in a call: inline them.

    What has a decorator, yields, or shares its name with a function or an attribute elsewhere, cannot go inline.
    """
    trees = {file.path: file.tree for file in files if file.tree is not None}
    methods = Counter(one.name for tree in trees.values() for one in _methods(tree))
    attributes = {
        path: Counter(n.attr for n in ast.walk(t) if isinstance(n, ast.Attribute)) for path, t in trees.items()
    }
    everywhere: Counter[str] = sum(attributes.values(), Counter())
    for path, tree in trees.items():
        names = Counter(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
        calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
        called = {_called(call) for call in calls if not _is_inherited(call)}
        defined = Counter(function.name for function in functions(tree))
        own = {id(method) for method in _methods(tree)}
        for function in functions(tree):
            name = function.name
            known = methods[name] == 1 and everywhere[name] == attributes[path][name] if id(function) in own else True
            uses = names[name] + attributes[path][name]
            if known and uses == 1 and defined[name] == 1 and name in called and _could_go_inline(function):
                yield f"{path}:{function.lineno} {name}"


def _attributes(tree: ast.AST) -> Counter[str]:
    return Counter(node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute))


def _methods(tree: ast.AST) -> Iterator[Function]:
    classes = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return (node for one in classes for node in one.body if isinstance(node, Function))


def _called(function: ast.expr) -> str | None:
    return getattr(function, "attr", getattr(function, "id", None))


def _is_inherited(call: ast.expr) -> bool:
    """Return whether it is a method of a base class, which another overrides: ``super().name``."""
    return isinstance(call, ast.Attribute) and isinstance(call.value, ast.Call) and _called(call.value.func) == "super"


def _could_go_inline(function: Function) -> bool:
    private = function.name.startswith("_") and not function.name.endswith("_")  # IPython asks for `_repr_html_`
    yields = any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(function))
    return private and not yields and not function.decorator_list and body_lines(function) <= SMALL_FUNCTION


def _files(house: House, use: str) -> int | None:
    return house.walks.get(use, {}).get("files")


def walks(root: Path = ROOT) -> dict[str, dict[str, int]]:
    """Run one use of each magic in a process of its own and return what files and functions it takes."""
    command = [sys.executable, "-m", "tools.house_walk"]
    return dict(json.loads(subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout))


def table(house: House) -> str:
    """Return the table of CONTRIBUTING.md: every measure, today and at last."""
    counted = ((name, count(house), target) for name, (count, target) in MEASURES.items())
    rows = (f"| {name} | {'' if today is None else f'{today:,}'} | {target} |" for name, today, target in counted)
    return "\n".join(["| | today | target |", "|---|--:|--:|", *rows])


def with_table(page: str, written: str) -> str:
    """Return ``page`` with ``written`` between its two marks.

    Raises:
        ValueError: One of the marks is missing.
    """
    before, begins, rest = page.partition(BEGIN)
    _, ends, after = rest.partition(END)
    if not (begins and ends):
        raise ValueError(f"the page has no {BEGIN} … {END}")
    return f"{before}{BEGIN}\n{written}\n{END}{after}"


def _printed(house: House, most: int) -> Iterator[str]:
    for title, key in (("package", _package), ("subject", lambda file: file.subject)):
        yield f"{title:36}{'files':>6}{'lines':>8}{'code':>8}"
        groups: defaultdict[str, list[File]] = defaultdict(list)
        for file in house.files:
            groups[key(file)].append(file)
        for name, files in sorted(groups.items(), key=lambda row: -sum(file.lines for file in row[1])):
            yield f"{name:36}{len(files):6}{sum(f.lines for f in files):8}{sum(f.code for f in files):8}"
        yield ""
    yield from _listed("import circles", house.circles, most)
    yield from _listed("import circles, imports for types counted", house.circles_for_types, most)
    yield from _listed("imports against the layers", house.against, most)
    yield from _listed("functions over 50 lines", house.long_functions, most)
    yield from _listed("files over 500 lines", house.long_files, most)
    yield from _listed("private functions used once, of three lines or less", house.small_functions, most)
    for use, taken in house.walks.items():
        yield f"{use:36}{taken['files']:6} files{taken['functions']:8} functions"


def _package(file: File) -> str:
    folders = file.path.split("/")[:-1]
    suffix = "" if file.tree else " (JavaScript, CSS)"
    return "/".join(folders[:3] if folders[1:2] == ["collectors"] else folders[:2]) + suffix


def _listed(title: str, places: list[str], most: int) -> Iterator[str]:
    yield f"{title}: {len(places)}"
    yield from (f"    {place}" for place in places[:most])
    if len(places) > most:
        yield f"    and {len(places) - most} more (--all)"


def main() -> None:
    """Print everything; with ``--write`` also refresh the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="refresh the table in CONTRIBUTING.md")
    parser.add_argument("--all", action="store_true", help="list every place, not the first ten of a kind")
    asked = parser.parse_args()
    house = measure(ROOT / "tensormagic", ROOT / "setup.cfg")
    house = replace(house, walks=walks())
    print("\n".join(_printed(house, sys.maxsize if asked.all else SHOWN)))
    if asked.write:
        page = ROOT / "CONTRIBUTING.md"
        page.write_text(with_table(page.read_text(encoding="utf-8"), table(house)), encoding="utf-8")


if __name__ == "__main__":
    main()
