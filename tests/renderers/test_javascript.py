"""How scripts are made small: what may go, what must stay, and that the result is still the same program."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import tensormagic.renderers
from tensormagic.renderers.assets import script, static
from tensormagic.renderers.basics.javascript import minified
from tensormagic.renderers.trace import trace_html
from tests.support.missing import missing

STATIC = Path(tensormagic.renderers.__file__).parent / "static"
SCRIPTS = sorted(file.name for file in STATIC.glob("*.js"))


@pytest.mark.parametrize(
    ("source", "small"),
    [
        ("const wide = 1; // a comment\nuse(wide);", "const tt=1;use(tt);"),
        ("function f({ wide, high: tall }) {\n  return wide * tall;\n}", "function tt({wide:e,high:t}){return e*t}"),
        ("class A {\n  open = 0;\n  grow(by) {\n    this.open = by;\n  }\n}", "class tt{open=0;grow(t){this.open=t}}"),
        ("const f = (row) => `a ${row.name} b ${row}`;", "const tt=t=>`a ${t.name} b ${t}`;"),
        ("const odd = (text) => text.split(/[/ ]+/g).length / 2;", "const tt=t=>t.split(/[/ ]+/g).length/2;"),
        ("let a = b + +c;\nlet d = e - -f;", "let tt=b+ +c;let te=e- -f;"),
        ("const f = () => {}\nconst g = 1;", "const tt=()=>{}\nconst te=1;"),
        ("for (;;) {\n  f();\n  while (g());\n}", "for(;;){f();while(g());}"),
        ("const f = () => {\n  g();\n};", "const tt=()=>{g()};"),
        ("f([, ,], [1, 2,], (row) => row,);", "f([,,],[1,2],t=>t);"),
        ("const f = async (row) => row;", "const tt=async(t)=>t;"),
        ("for (const [key, value] of pairs) say({ key, [value]: key });", "for(const[t,e]of pairs)say({key:t,[e]:t});"),
    ],
    ids=[
        "names", "patterns", "members", "templates", "regex", "signs", "lines", "empty bodies", "semicolons", "commas",
        "words", "shorthand",
    ],
)  # fmt: skip
def test_what_goes_and_what_stays(source: str, small: str) -> None:
    """Spaces and the names of variables go; properties, keys, members, strings and what nothing declares stay."""
    assert minified(source) == small


def test_names_that_others_use_stay() -> None:
    """A name in ``keep`` is not touched, and nothing else is called so."""
    assert minified("function mount(host) { return host; }", keep=("mount",)) == "function mount(t){return t}"


def test_what_is_no_javascript_is_refused() -> None:
    """An open string says where it stands."""
    with pytest.raises(ValueError, match='no JavaScript that this can read: "\'open"'):
        minified("const a = 'open")


@pytest.mark.parametrize("name", [*SCRIPTS, "the trace viewer"])
def test_every_script_is_still_one(name: str, tmp_path: Path) -> None:
    """Node reads each small script without complaint, and it is a quarter smaller at least."""
    node = shutil.which("node") or missing("no node: it checks the syntax of the small scripts")
    plain, small = (
        (trace_html.viewer_source(), trace_html.viewer_module())
        if name not in SCRIPTS
        else (static(name), script(name))
    )
    file = tmp_path / ("small.mjs" if name not in SCRIPTS else "small.js")
    file.write_text(small, encoding="utf-8")
    checked = subprocess.run([node, "--check", file], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert len(small) < 0.8 * len(plain)
