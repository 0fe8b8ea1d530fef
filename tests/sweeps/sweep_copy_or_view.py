"""Copy or view, for every operator of torch's own test table on the CPU: ``make sweep``. Takes some minutes."""

from __future__ import annotations

import pytest
import torch

from tests.support.operators import CannotRunError, mismatches, operators


@pytest.mark.sweep
def test_every_operator_of_torch():
    """The verdict is what storages and explicit sets of bytes say; prints how many operators passed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        every, failed, skipped = operators(), {}, {}
        for op in every:
            try:
                found = list(mismatches(op))
            except CannotRunError as error:
                skipped[op.full_name] = str(error)
                continue
            if found:
                failed[op.full_name] = found
    print(f"\ncopy or view: {len(every) - len(failed) - len(skipped)} of {len(every)} operators agree with brute force")
    print("\n".join(f"did not run: {name}: {reason:.100}" for name, reason in skipped.items()))
    assert failed == {}
