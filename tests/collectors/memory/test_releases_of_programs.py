"""What would be freed is what is freed: over random programs, measured by weak references to storages."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings, strategies as st

from tensormagic.collectors.memory.freed import collect_freeable
from tests.collectors.memory.freeing_programs import freed_by, programs, quick_collections, run


@pytest.fixture(scope="module", autouse=True)
def _quick() -> None:
    quick_collections()


@pytest.mark.corpus
@given(programs(), st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
def test_what_is_promised_is_freed(source: str, random: Random) -> None:
    """Bytes of a few names, of names that go together and of items are freed to the byte in a fresh run."""
    note(source)
    namespace, storages = run(source)
    found = {one.name: one for one in collect_freeable(namespace).freeable}
    names = [name for name in namespace if name.startswith("v")]
    del namespace, storages
    for name in random.sample(names, min(len(names), 2)):
        promised = found[name].nbytes if name in found else 0
        assert (name, freed_by(source, name)) == (name, promised)
    for together in [name for name in found if "," in name][:1]:
        assert (together, freed_by(source, *together.split(", "))) == (together, found[together].nbytes)
    parts = [part for one in found.values() for part in one.parts]
    for part in random.sample(parts, min(len(parts), 1)):
        assert (part.code, freed_by(source, code=part.code)) == (part.code, part.nbytes)
