"""What did not fit in a call that torch refused, worked out from its operands and from what torch said.

A message of torch names numbers; whose they are is found among the operands, and what is not found there is not
claimed. One table of what torch says, a subject a file; where none of its rows fits (a message of another version of
torch perhaps), the sizes, dtypes and devices of the operands are compared with the rule of the function itself.
"""

from __future__ import annotations

from tensormagic.diagnoses.mismatches.table import as_named, mismatch_of, rows, rule_of, tried_way

__all__ = ["as_named", "mismatch_of", "rows", "rule_of", "tried_way"]
