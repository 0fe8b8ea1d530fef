"""Making a large graph smaller: what repeats is found."""

from __future__ import annotations

from random import Random

import pytest

from tensormagic.views.graph.folding import _equal_to_later


@pytest.mark.parametrize("period", [1, 2, 3, 7, 96])
@pytest.mark.parametrize("kinds", [2, 3, 256])
def test_equal_tokens_are_found_the_quick_way_as_the_plain_way(period, kinds):
    """Tokens of one byte are compared as two large numbers: the same answer as one by one."""
    random = Random(period * kinds)
    tokens = [random.randrange(kinds) for _ in range(300)]
    plain = bytes(int(one == later) for one, later in zip(tokens, tokens[period:], strict=False))
    assert _equal_to_later(tokens, period) == _equal_to_later(bytes(tokens), period) == plain
