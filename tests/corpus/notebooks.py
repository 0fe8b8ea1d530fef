"""A session that is watched cell by cell, for programs of the corpus that take more than one."""

from __future__ import annotations

from tensormagic import api
from tensormagic.reports import WatchReport


class Notebook:
    """Names, and the look that ``%tensormagic watch on`` takes after each cell."""

    def __init__(self):
        self.names: dict[str, object] = {"__file__": ""}
        self._watch = api.Watch(lambda _filename: None)
        self._watch.look({})

    def cell(self, **bound: object) -> WatchReport:
        """End a cell that has bound these names; returns what is found then."""
        self.names.update(bound)
        return self._watch.look(self.names)
