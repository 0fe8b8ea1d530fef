"""What a DataLoader was doing when it failed: the samples it put together, or what a worker process raised."""

from __future__ import annotations

import re
from collections.abc import Iterable
from types import TracebackType
from typing import Any, NamedTuple

from torch.utils.data import default_collate

from tensormagic.collectors.failures.failing_call import is_torch_file
from tensormagic.collectors.where.source import CellNumber, is_own_code, location_of, names_of
from tensormagic.reports import Gap, Location

COLLATE = "torch.utils.data.default_collate"
# What torch's ``ExceptionWrapper`` raises again here: of a worker, of the thread that pins memory, of a replica.
_ELSEWHERE = re.compile(r"Caught (?P<kind>\w+) in (?P<where>.+?)\.\nOriginal Traceback .*?:\n(?P<trace>.*)", re.DOTALL)
_TORCH_S = ("RuntimeError", "OutOfMemoryError")
_LINE = re.compile(r'^ *File "(.+)", line (\d+), in (.+)$', re.MULTILINE)


def samples_in(entries: Iterable[TracebackType]) -> Any:
    """Return the samples that torch gave the default collate function; None where it did not.

    A ``collate_fn`` of the user's may call that function too, with what it makes of the samples.
    """
    frames = (entry.tb_frame for entry in entries if entry.tb_frame.f_code is default_collate.__code__)
    first = next(frames, None)
    is_torch_s = first is not None and first.f_back is not None and is_torch_file(first.f_back.f_code.co_filename)
    return names_of(first)["batch"] if first is not None and is_torch_s else None


class Elsewhere(NamedTuple):
    """An exception that was raised in another process or thread, of which only the text has come here."""

    kind: str  # the name of its class
    message: str  # what it said there
    is_torch_s: bool  # whether torch refused something, rather than the user's own code
    inside: str  # the function of torch's that was running, where that says something
    stack: tuple[Location, ...]  # the user's lines there
    gap: Gap  # why there are no operands


def raised_elsewhere(message: str, cell_number: CellNumber | None) -> Elsewhere | None:
    """Return what an exception's text tells of one that was raised in another process; None where it tells of none."""
    found = _ELSEWHERE.match(message)
    if found is None:
        return None
    kind, trace = found["kind"], found["trace"]
    lines = _LINE.findall(trace)
    said = re.split(rf"^(?:\w+\.)*{kind}: ", trace, flags=re.MULTILINE)  # its module's name may stand before its own
    own = tuple(
        location_of(filename, int(line), "" if function == "<module>" else function, cell_number=cell_number)
        for filename, line, function in lines if is_own_code(filename)
    )  # fmt: skip
    functions = [function for *_, function in lines]
    collated = functions.index("default_collate") if "default_collate" in functions else 0
    raises = bool(lines) and is_own_code(lines[-1][0]) and re.search(r"\braise\b", own[-1].text)
    instead = "; with num_workers=0 it is made here" if "DataLoader" in found["where"] else ""
    return Elsewhere(
        kind,
        said[-1].strip() if len(said) > 1 else "",
        not raises and (kind in _TORCH_S or bool(lines and is_torch_file(lines[-1][0]))),
        COLLATE if collated and is_torch_file(lines[collated - 1][0]) else "",
        own,
        Gap("what the call was given", f"the call was made in {found['where']}{instead}"),
    )
