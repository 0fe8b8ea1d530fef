"""Every kind of tensor: its panel says what is true of it, in text and in HTML, and looking changes nothing."""

from __future__ import annotations

import gc
import json
import math
import re
import warnings
import weakref
from typing import Any

import pytest
import torch

from tensormagic import api
from tensormagic.collectors.kinds import kind as kind_module, study
from tensormagic.reports import TensorReport
from tests.support import zoo_classes
from tests.support.zoo import ZOO
from tests.views.markup_reader import Page
from tests.views.samples_tensor import as_html, as_svg, as_text

HTML_LIMIT = 100_000  # bytes of a panel

each_kind = pytest.mark.parametrize("kind", ZOO)


def look(x: Any) -> TensorReport:
    """The report of a specimen; a warning while looking is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return api.inspect(x, "x", namespace={})


@pytest.fixture(scope="module")
def reports() -> dict[str, TensorReport]:
    """The report of every specimen."""
    return {kind: specimen.visit(look) for kind, specimen in ZOO.items()}


def squeezed(text: str) -> str:
    """A text without spaces, which renderers choose themselves, and without the brackets around notes."""
    return "".join(char for char in text if char.isprintable() and char not in " ()\u00a0;:")


def test_the_zoo_is_large() -> None:
    """At least 40 kinds, each with something to say that no other one says."""
    assert len(ZOO) >= 40
    assert all(specimen.says for specimen in ZOO.values())


@each_kind
def test_text_says_what_is_true_of_it(reports: dict[str, TensorReport], kind: str) -> None:
    """Every sentence is in the terminal's panel, of which no line is wider than it may be."""
    text = as_text(reports[kind])
    read = squeezed(text).casefold()  # titles are in capitals
    assert [said for said in ZOO[kind].says if squeezed(said).casefold() not in read] == []
    assert max(map(len, text.split("\n"))) <= 100


@each_kind
def test_static_html_says_what_is_true_of_it(reports: dict[str, TensorReport], kind: str) -> None:
    """The same sentences stand in the notebook's panel without any script, which is well formed and not large."""
    html = as_html(reports[kind])
    page = Page(html)
    assert [said for said in ZOO[kind].says if squeezed(said) not in squeezed(page.text)] == []
    assert page.left_open == []
    assert len(html.encode()) < HTML_LIMIT


@each_kind
def test_report_survives_saving(reports: dict[str, TensorReport], kind: str) -> None:
    """Through JSON and back it is the same report, components and pictures of what is stored included."""
    report = reports[kind]
    assert TensorReport.from_dict(json.loads(json.dumps(report.to_dict(), allow_nan=False))) == report
    assert as_svg(report).startswith("<svg")


@each_kind
def test_every_gap_is_named(reports: dict[str, TensorReport], kind: str) -> None:
    """What cannot be read says why in plain words: no error of torch's own is passed on."""
    if kind == "dual" and torch.__version__ < "2.12":
        pytest.skip("its minimum and maximum cannot be asked for there")
    assert [gap.reason for gap in reports[kind].gaps if "Error" in gap.reason or "Warning" in gap.reason] == []


@pytest.mark.parametrize("kind", [kind for kind in ZOO if "class" in kind or "wrapper" in kind])
def test_no_code_of_its_class_is_run(kind: str) -> None:
    """Neither an override nor a dispatch nor a repr is called, not even one whose error would be swallowed."""
    zoo_classes.CALLS.clear()
    ZOO[kind].visit(look)
    assert zoo_classes.CALLS == []


def fingerprint(x: Any) -> list[Any]:
    """Version counter and bytes of a specimen and of everything that its kind says it is made of."""
    if not isinstance(x, torch.Tensor):
        return [x.tobytes(), x.flags.writeable]
    with torch._C.DisableTorchFunction(), torch._C._DisableFuncTorch():
        parts = [part.tensor for _, said in study(x).found for part in said.parts]
        return [_state(part) for part in (x, *parts)]


def _state(x: torch.Tensor) -> tuple[Any, ...]:
    version = None if x.is_inference() else x._version
    try:
        return version, x.untyped_storage().nbytes(), bytes(x.untyped_storage().tolist())
    except (RuntimeError, NotImplementedError):
        return version, None, None


def test_code_on_its_panel_has_its_name() -> None:
    """What a kind says to type is typed as it is: with the user's name for the tensor."""
    specimens = {kind: specimen.visit(lambda x: str(api.inspect(x, "theirs", namespace={})))
                 for kind, specimen in ZOO.items()}  # fmt: skip
    assert [kind for kind, text in specimens.items() if re.search(r"(?<![\w.])x[.\[]|\(x[,)]|\0", text)] == []
    assert squeezed("theirs.resolve_neg() copies 4 B") in squeezed(specimens["neg"])
    of_two = ZOO["neg"].visit(lambda x: str(api.inspect(x, "a * b", namespace={})))
    assert squeezed("(a * b).resolve_neg() copies 4 B") in squeezed(of_two)
    assert squeezed("torch.empty_like(theirs, device='cpu')") in squeezed(specimens["meta"])


@pytest.mark.parametrize("kind", [kind for kind in ZOO if "float8" in kind])
def test_the_step_at_1_is_the_gap_to_the_next_number(kind: str) -> None:
    """Numbers of a byte can be tried one by one; ``torch.finfo`` has a wrong one of float8_e5m2fnuz."""
    dtype = ZOO[kind].visit(lambda x: x.dtype)
    every = torch.arange(256, dtype=torch.uint8).view(dtype).float()
    facts = {fact.label: fact.value for one in ZOO[kind].visit(look).kinds for fact in one.facts}
    assert float(facts["step at 1"]) == (every[every > 1].min() - 1).item()


def test_values_that_are_nan_are_counted_among_those_stored() -> None:
    """A sparse tensor has more elements than it stores."""
    x = torch.sparse_coo_tensor(torch.tensor([[0, 1]]), torch.tensor([1.0, math.nan]), (5,), check_invariants=True)
    (finding,) = look(x).findings
    assert finding.message == "In x 1 of the 2 stored values is NaN."


@each_kind
def test_looking_changes_nothing(kind: str) -> None:
    """Version counters and bytes, of components too, and the random state are as before."""

    def compare(x: Any) -> None:
        before, state = fingerprint(x), torch.get_rng_state()
        look(x)
        assert fingerprint(x) == before
        assert torch.equal(torch.get_rng_state(), state)

    ZOO[kind].visit(compare)


@each_kind
def test_a_line_tells_of_it_and_changes_nothing(kind: str) -> None:
    """One line with the shape and the dtype; printed in it, version counters, bytes and the random state stay."""

    def compare(x: Any) -> None:
        zoo_classes.CALLS.clear()
        (line,) = api.tensor_lines(x, "x")
        assert zoo_classes.CALLS == []
        assert "\n" not in line
        assert line.startswith(f"x: {type(x).__name__} (")
        before, state = fingerprint(x), torch.get_rng_state()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            api.set_repr("line")
            try:
                printed = repr(x) if type(x).__repr__ is torch.Tensor.__repr__ else ""
            finally:
                api.set_repr("torch")
        assert printed in {"", line.removeprefix("x: ")}
        assert fingerprint(x) == before
        assert torch.equal(torch.get_rng_state(), state)

    ZOO[kind].visit(compare)


@pytest.mark.parametrize("kind", [kind for kind, specimen in ZOO.items() if specimen.lives])
def test_nothing_keeps_it(kind: str) -> None:
    """With the garbage collector off it dies with its last name, although its report lives on."""
    held: list[Any] = []
    ZOO[kind].visit(held.append)
    gone = weakref.ref(held[0])
    gc.disable()
    try:
        report = api.inspect(held[0], "x", namespace={"x": held[0], "list": [held[0]]})
        held.clear()
        assert gone() is None
        assert report.name == "x"
    finally:
        gc.enable()


def test_a_large_copy_is_not_made_to_read_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quantized tensor beyond the bound has no numbers, and a gap that says why; its facts are there."""
    monkeypatch.setattr(kind_module, "MOST_COPIED", 2)
    report = ZOO["quantized"].visit(look)
    assert report.statistics is None
    assert [gap.section for gap in report.gaps] == ["values"]
    assert "large copy" in report.gaps[0].reason
    assert report.kinds[0].facts[1].value == "0.1"
