"""Every example runs, cell by cell, in a real kernel: a new one is picked up by lying in ``examples/``."""

from __future__ import annotations

import re

import nbformat
import pytest

from tests.support.kernel import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.ipynb"))

pytestmark = pytest.mark.notebook


@pytest.fixture(scope="module", params=EXAMPLES, ids=lambda path: path.stem)
def example(request):
    """Return the path of one example."""
    return request.param


@pytest.fixture(scope="module")
def executed(example, run_example):
    """Return the example after a run, in a copy of its folder, and the files that the run left there."""
    after = run_example(example)
    return after.notebook, after.written


def outputs(notebook):
    """Return every output of the code cells, with its cell."""
    return [(cell, output) for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def test_an_example_is_committed_without_outputs(example):
    """Outputs are made, not kept: a diff of an example shows what was changed by hand."""
    notebook = nbformat.read(example, as_version=4)
    kept = [cell.source for cell, _ in outputs(notebook)]
    assert kept == []
    assert [cell.source for cell in notebook.cells if cell.get("execution_count")] == []


def test_an_example_has_one_title(example):
    """Its first line, and no other of that size: on the site a second one would be a lesson of its own."""
    texts = [cell.source for cell in nbformat.read(example, as_version=4).cells if cell.cell_type == "markdown"]
    plain = [re.sub(r"```.*?```", "", text, flags=re.DOTALL) for text in texts]
    assert [at for at, text in enumerate(plain) for _ in re.findall(r"^# ", text, re.MULTILINE)] == [0]
    assert plain[0].startswith("# ")


def test_an_example_runs(executed):
    """Every cell runs; one that is meant to fail carries the tag ``raises-exception`` and does."""
    notebook, _ = executed
    failed = {cell.id for cell, output in outputs(notebook) if output.output_type == "error"}
    meant = {cell.id for cell in notebook.cells if "raises-exception" in cell.metadata.get("tags", [])}
    assert failed == meant


def test_an_example_says_nothing_on_the_side(executed):
    """Nothing is written to the error stream: no warning, no lost traceback."""
    notebook, _ = executed
    said = [output.text for _, output in outputs(notebook) if output.get("name") == "stderr"]
    assert said == []


def test_every_shown_output_has_text(executed):
    """Each bundle can be read in a terminal too, and none is left that needs a kernel to be seen."""
    notebook, _ = executed
    bundles = [output.data for _, output in outputs(notebook) if "data" in output]
    assert [list(bundle) for bundle in bundles if "text/plain" not in bundle] == []
    assert [list(bundle) for bundle in bundles if "application/vnd.jupyter.widget-view+json" in bundle] == []


def test_an_example_leaves_no_files(executed):
    """A run writes nothing beside the notebook."""
    _, written = executed
    assert written == []


def test_an_executed_example_is_small(executed):
    """With all its outputs it stays under 2 MB: small enough to send."""
    notebook, _ = executed
    assert len(nbformat.writes(notebook)) < 2_000_000
