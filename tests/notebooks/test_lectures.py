"""Examples 09 to 19 show what their text says they show: each line here is a claim of the text, by example and cell."""

from __future__ import annotations

import pytest

from tests.support.kernel import ROOT

pytestmark = pytest.mark.notebook

SHOWN = {
    "09_special_tensors": {
        "coo": ["SPARSE COO 5 values", "indices 80 B, values 20 B", "dense would take 144 B"],
        "twice": ["1 + 10", "1 value repeats a place"],
        "csr": ["empty: row 2", "crow_indices"],
        "bytes": ["940 B on cpu", "coo Tensor (6, 6) float32 sparse_coo 100 B", "links Tensor (6, 6) float32 144 B"],
        "refused": ["there is no Tensor.exp for csr, which is sparse_csr", "works: csr.to_dense()"],
        "padded": ["mean 3.267", "zero 5"],
        "nested": ["(3, ragged)", "mean 4.9"],
        "quantized": ["integer 20 stands for (20 \u2212 10) \u00b7 0.02 = 0.2"],
        "complex": ["signal and real have 8 B in common"],
        "mirrored": ["conjugate view"],
        "meta": ["would take 3.6 TiB", "no memory and so no values"],
        "devices": ["TM801", "inputs is on cpu; net.weight and net.bias are on meta"],
        "gpus": ["GPUs:", "CUDA_VISIBLE_DEVICES:", "inputs same object 12 of 12"],
        "scalar": ["()", "stride ()"],
        "empty": ["sum 0.0 \u00b7 mean nan", "the tensor is empty"],
    },
    "10_modules_and_optimizers": {
        "kinds": ["parameters: weight head.weight head.bias buffers: mean state_dict: weight mean head.weight"],
        "table": ["scaled.offset", "scaled.scale"],
        "train": ["warning TM603", "scaled.scale requires a gradient, but is a plain tensor", "register_buffer"],
        "standing": ["scale: [1.0, 1.0, 1.0, 1.0]"],
        "list": ["TM605", "their 6 parameters", "nn.ModuleList"],
        "adam": ["exp_avg_sq", "88 B on cpu"],
        "stale": ["TM602", "optimizer steps 2 of the 4 parameters of body"],
        "tree": ["0 Linear (64, 8) 40", "2 Linear (64, 1) 9", "none"],
        "anew": ["error TM604"],
        "frozen": ["moved by a gradient of zero: 0.0"],
        "none": ["the parameter is frozen"],
        "tied": ["words.read.weight = words.write.weight"],
        "untied": ["TM609", "two Parameters that share one memory"],
        "step": ["TM607", "5 times in 10 steps"],
    },
    "11_clinic": {
        "vanish": ["TM403", "linear"],
        "vanish-accuracy": ["loss 0.693"],
        "vanish-healthy": ["0 findings"],
        "explode": ["TM401", "TM404", "it grows"],
        "explode-healthy": ["0 findings"],
        "dead": ["TM405", "gradient of exactly zero in all 40 backward passes"],
        "dead-healthy": ["before: 50% right", "0 findings"],
        "nan": ["TM402", "its input holds 8 zeros"],
        "nan-symptom": ["gradient: [nan, nan]"],
        "nan-healthy": ["0 findings"],
        "where": ["TM406"],
        "where-why": ["x.grad holds NaN"],
        "where-healthy": ["gradient: [0.0, 0.5, 0.25] \u00b7 0 findings"],
        "function": ["TM311", "its forward takes 2 arguments (x and factor)"],
        "function-cure": ["ScaleBackward", "saved_tensors[0]"],
        "hooks": ["thermometer tensor hook (cell", "valve tensor hook (cell"],
        "readings": ["in the middle: [20.0, 40.0, 60.0]", "at the leaf: [200.0, 400.0, 500.0]"],
    },
    "13_randomness": {
        "seeds": ["torch, CPU 42", "numpy.random probably the system's"],
        "drawn": ["torch, CPU 42 3 × 32 bits", "numpy.random 42 4 × 32 bits", "random 42 2 × 32 bits"],
        "step": ["uniform_ 4 times", "randperm, 32 values", "bernoulli_", "numpy.random: drew"],
        "compare": ["After 3 draws that are the same", "monday randperm, 64 values", "tuesday randint, 1 value"],
        "list": ["shuffling 7", "printing 8"],
        "unseeded": ["67280421310721", "forgotten never seeded"],
        "loader": ["torch, CPU: random_ 4 times", "an unnamed generator: randperm"],
        "owned": ["shuffling: random_ 2 times", "shuffling: randperm 4 times"],
    },
    "15_twenty_beliefs": {
        "b01": ["COPY (24 B copied) shares no memory with x"],
        "b02": ["VIEW shares all 6 elements of every_other", "not contiguous"],
        "b03": ["stride (1, 4)"],
        "b04": ["VIEW shares all 12 elements of left_half"],
        "b05": ["same object? False", "b \u2588\u2588\u2588 view of a"],
        "b06": ["the same place, twice: False", "first", "again"],
        "b07": ["()", "float32"],
        "b08": ["it was given sizes, not values", "nothing was written to this memory"],
        "b09": ["from_floats \u2588\u2588\u2588 shares memory with floats"],
        "b10": ["requires grad, not a leaf", "Its graph leads to 1 leaf: w"],
        "b11": ["requires_grad=False", "No operation that led to it was recorded"],
        "b12": ["leaf, requires grad"],
        "b13": ["error TM302", "detach: one of the variables", "data: no error, s.grad = [80.0, 80.0]"],
        "b14": ["AddmmBackward0"],
        "b15": ["small.weight.grad is None although a backward went through loss: it was cleared afterwards"],
        "b16": ["False False False", "The function F.dropout has no argument generator"],
        "b17": ["The padding modes are constant, reflect, replicate and circular"],
        "b18": ["The function quantile() takes no (Tensor, q=list)"],
        "b19": ["TM701", "numpy.random was probably seeded by the system"],
        "b20": ["generator 0 3 × 32 bits"],
    },
    "17_errors": {
        "reduction": ["TM804"],
        "quiet": ["TM105", "makes (32, 32) of (32, 1) and (32,)"],
        "gather": ["answers.unsqueeze(1)"],
        "device": ["TM801", "scores is on cpu; head.weight and head.bias are on meta"],
    },
    "19_several_questions": {
        "run": ["CELL 3, LINE 5: batch += 0.2 * torch.randn_like(batch) (2 findings about one line)",
                "Writing to batch changes 4096 of the 115 008 elements of images",
                "randn_like drew 28 times from a probably unseeded generator", "── gpumem ──", "── in-place writes ──",
                "── random numbers ──"],
        "parts": ["['TM201', 'TM701']", "28 steps; 2196 operations; 700 writes; 28 draws"],
        "mended": ["Nothing was found."],
        "nested": ["4 steps, 4 backward passes"],
        "step": ["KiB at the peak of the last step"],
    },
}  # fmt: skip


def told(cell):
    """Return all that a cell shows, as text in one line."""
    parts = [one.get("text") or one.get("evalue") or one.get("data", {}).get("text/plain", "") for one in cell.outputs]
    return " ".join(" ".join(parts).split())


@pytest.mark.parametrize("name", SHOWN)
def test_what_the_text_claims_stands_in_the_output(run_example, name):
    """A changed output, or a changed example, makes the text beside it untrue: it is read again then."""
    cells = {cell.id: cell for cell in run_example(ROOT / "examples" / f"{name}.ipynb").notebook.cells}
    claims = [(cell, claim) for cell, claims in SHOWN[name].items() for claim in claims]
    assert [(cell, claim) for cell, claim in claims if claim not in told(cells[cell])] == []


@pytest.mark.parametrize("name", SHOWN)
def test_every_answer_stood_its_test(run_example, name):
    """Lectures have exercises, and the code of their answers has run without an error."""
    answers = [
        cell
        for cell in run_example(ROOT / "examples" / f"{name}.ipynb").notebook.cells
        if "answer" in cell.metadata.get("tags", [])
    ]
    assert [cell.source for cell in answers for output in cell.outputs if output.output_type == "error"] == []
    assert answers or name in {"15_twenty_beliefs", "17_errors", "19_several_questions"}
