"""How a magic's line is cut: options wherever they stand, and expressions with spaces in them."""

from __future__ import annotations

import re
import warnings

import pytest
from IPython.core.error import UsageError

from tensormagic.magics import about
from tensormagic.magics.arguments import check_expression, expressions, pieces, unquoted
from tests.support.kernel import ROOT


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("", []),
        ("   x  ", ["x"]),
        ("x y", ["x", "y"]),
        ("x[0, 1] y", ["x[0, 1]", "y"]),
        ("f(a, b)[ : , 0 ]", ["f(a, b)[ : , 0 ]"]),
        ("d['a b'] y", ["d['a b']", "y"]),
        ('d["a (b"] y', ['d["a (b"]', "y"]),
        ("d['it\"s'] y", ["d['it\"s']", "y"]),
        ("{'k': x}['k']", ["{'k': x}['k']"]),
        ("x --save 'my file.html'", ["x", "--save", "'my file.html'"]),
        ("--figure x", ["--figure=", "x"]),
        ("--figure=storage x", ["--figure=storage", "x"]),
        ("x # why", ["x"]),
        ("x --save a#b.html", ["x", "--save", "a#b.html"]),
        ("d['#1'] # why", ["d['#1']"]),
        ("(x", ["(x"]),
    ],
)
def test_pieces(line, found):
    """White space cuts outside brackets and quotes; a comment ends the line."""
    assert pieces(line) == found


@pytest.mark.parametrize(
    ("parts", "found"),
    [
        ([], []),
        (["x", "y"], ["x", "y"]),
        (["a", "+", "b"], ["a + b"]),
        (["a", "+", "b", "c"], ["a + b", "c"]),
        (["a", "-b"], ["a -b"]),
        (["-a"], ["-a"]),
        (["x", "if", "y", "else", "z", "w"], ["x if y else z", "w"]),
        (["lambda", "t:", "t"], ["lambda t: t"]),
        (["not", "a"], ["not a"]),
        (["x", "(y)"], ["x (y)"]),
        (["f'{a}'", "b"], ["f'{a}'", "b"]),
        (["x,", "y"], ["x", "y"]),
        (["x,y", "z"], ["x", "y", "z"]),
        (["(x,", "y)"], ["(x, y)"]),
        (["x,"], ["x"]),
        (["f(x,", "y),", "z[0,", "1]"], ["f(x, y)", "z[0, 1]"]),
        (["x;"], ["x"]),
        (["x", ";"], ["x"]),
        (["net.0.weight", "-", "net.2.0.bias[0]"], ["net[0].weight - net[2][0].bias[0]"]),
        (["f(x).1.grad", "x*1.5"], ["f(x)[1].grad", "x*1.5"]),
    ],
)
def test_expressions(parts, found):
    """As many pieces as still make one Python expression belong together."""
    assert expressions(parts) == found


@pytest.mark.parametrize("parts", [["+"], ["x", "="], ["for"], ["(x"], ["a;", "b"], ["x.0x"]])
def test_what_is_no_expression_is_refused(parts):
    """The piece that begins none is named."""
    with pytest.raises(UsageError, match="is not a Python expression"):
        expressions(parts)


@pytest.mark.parametrize("text", ["await x", "(yield x)", "[await y for y in x]", "f(a=1, a=2)"])
def test_what_only_the_compiler_refuses_is_refused(text):
    """It can be parsed, but not run on a magic's line."""
    for check in (lambda: expressions(text.split()), lambda: check_expression(text)):
        with pytest.raises(UsageError, match=f"^'{re.escape(text)}' cannot be evaluated here: ") as refused:
            check()
        assert ("run it on its own line" in str(refused.value)) == ("await" in text)


def test_cutting_a_line_warns_of_nothing():
    """Python's warnings on an expression are for whoever evaluates it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert expressions(["x", "is", "1"]) == ["x is 1"]


def parse(line):
    return about.magic("tensor").parser().parse_line(line)


def test_options_stand_anywhere():
    """Before, between and after the expressions."""
    options = parse("--text a --into r b --save f.html")
    assert (options.expression, options.text, options.into, options.save) == (["a", "b"], True, "r", ["f.html"])


@pytest.mark.parametrize(
    ("line", "kind"), [("a", None), ("a --figure", ""), ("--figure a", ""), ("a --figure=storage", "storage")]
)
def test_the_kind_of_a_figure(line, kind):
    """A bare --figure is the default kind and takes no expression for its value."""
    options = about.magic("tensor").given(line)
    assert (options.expression, options.figure) == (["a"], kind)


@pytest.mark.parametrize("line", ["-a", "-a.t()", "a -b", "-2*a"])
def test_a_minus_sign_is_no_option(line):
    """Unary minus begins an expression."""
    assert expressions(parse(line).expression) == [line]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("a --colour", "unrecognized arguments: --colour"),
        ("a --sav x.html", "unrecognized arguments: --sav"),
        ("a --save", "argument --save: expected one argument"),
        ("a --text=yes", "argument --text: ignored explicit argument"),
    ],
)
def test_a_wrong_option_gives_the_usage_line(line, words):
    """The message, the usage line, and where more is told; options are never guessed from their beginning."""
    with pytest.raises(UsageError) as raised:
        parse(line)
    message = str(raised.value)
    assert words in message
    assert "usage: %tensor [--text]" in message
    assert message.endswith("%tensor --help lists the options")


def test_the_choices_of_live():
    """A wrong choice lists the right ones."""
    with pytest.raises(UsageError, match=r"widget.*html.*off"):
        about.magic("tracegrad").parser().parse_line("--live maybe")


@pytest.mark.parametrize("name", ["1x", "a.b", "a b", "for", "", "x[0]"])
def test_into_takes_a_name(name):
    """What cannot be bound is refused, keywords included."""
    with pytest.raises(UsageError, match="--into takes a name"):
        about.magic("tensor").given(f'a --into="{name}"' if " " in name else f"a --into={name}")


@pytest.mark.parametrize(
    ("given", "path"), [("'a b.html'", "a b.html"), ('"x"', "x"), ("x", "x"), ("'x", "'x"), ("'", "'"), (None, None)]
)
def test_unquoted(given, path):
    """Quotes round a file name are the user's, not the file's."""
    assert unquoted(given) == path


def test_a_cell_magic_is_called_by_its_own_name():
    """Where help is to be had is said with both percent signs."""
    with pytest.raises(UsageError, match=r"(?m)^%%tracegrad --help lists the options$"):
        about.magic("tracegrad").parser().parse_line("--nope")


def test_every_magic_has_the_name_by_which_it_is_known_before_it_is_imported():
    """The table by which Tab completes without importing anything says what each magic says itself."""
    assert list(about.MAGICS.values()) == [about.magic(key).name for key in about.MAGICS]


@pytest.mark.parametrize(("key", "made"), [(key, about.magic(key)) for key in about.MAGICS], ids=list(about.MAGICS))
def test_the_help_names_the_figures_and_files_that_there_are(key, made):
    """Of the report that the magic makes, and no others; no option where there is no figure."""
    page = ROOT / "docs" / "magics" / f"{'aliases_cell' if key == 'writes' else key}.md"
    rows = {
        row.split("|")[1].strip().strip("`").split()[0]: row
        for row in page.read_text().split("\n")
        if row.startswith("| `--")
    }
    told = " ".join(made.parser().format_help().split())
    assert set(re.findall(r"[.](html|json|svg|txt)\b", rows["--save"])) == set(
        re.findall(r" [.](html|json|svg|txt)\b", told)
    )
    assert ("--figure" in told) == ("--figure" in rows)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--pictur x", "--pictur; did you mean --picture?"),
        ("x --dmis=0,1", "did you mean --dims?"),
        ("x --colour", "--colour\n"),
    ],
)
def test_a_slip_in_an_option(line, told):
    """The one that is near is named; where none is, none."""
    with pytest.raises(UsageError, match=re.escape(told)):
        about.magic("tensor").parser().parse_line(line)
