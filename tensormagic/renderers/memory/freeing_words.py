"""Sentences about what outputs and the last error keep, the same in every form."""

from __future__ import annotations

from tensormagic.renderers.memory.memory_words import release_notes
from tensormagic.reports import DeviceGain, FreeingReport, Release
from tensormagic.words import listed, number_of_bytes, plural

NOTHING = "Neither an output nor the last error keeps memory that nothing else does."
_HOW = "`%gpumem --free --yes` lets go of {}. Your own names, and what they lead to, stay as they are."
MOST_NAMED = 6


def lead(report: FreeingReport) -> str:
    """Return what there is, or what was done, in one sentence."""
    if not report.entries:
        return NOTHING
    if not report.dropped:
        keep = "keeps" if len(report.entries) == 1 else "keep"
        told = f"{_names(report)} {keep} {number_of_bytes(report.nbytes)} that nothing else does."
        return f"{told[0].upper()}{told[1:]}"
    return (
        f"Let go of {_names(report)}: {number_of_bytes(report.freed)} freed, in {plural(report.storages, 'storage')}"
        + (f", of {number_of_bytes(report.nbytes)} that were expected." if report.freed != report.nbytes else ".")
    )


def how(report: FreeingReport) -> str:
    """Return what to type to let go of it."""
    return _HOW.format("it" if len(report.entries) == 1 else "them")


def _names(report: FreeingReport) -> str:
    return listed((entry.name for entry in report.entries), most=MOST_NAMED)


def entry_words(entry: Release) -> tuple[str, str, str]:
    """Return what an entry is called, what it frees by itself, and why that is less than it leads to."""
    return entry.name, number_of_bytes(entry.nbytes), release_notes(entry)


def gain_words(gain: DeviceGain) -> str:
    """Return what a device's own figures say: ``cuda:0: allocated 24 MiB less, reserved 32 MiB less``."""
    figures = (("allocated", gain.allocated), ("reserved", gain.reserved), ("this process takes", gain.process))
    told = [f"{name} {_change(change)}" for name, change in figures if change is not None]
    return f"{gain.device}: {', '.join(told)}" if told else ""


def _change(less: int) -> str:
    if less == 0:
        return "as much as before"
    return f"{number_of_bytes(abs(less))} {'less' if less > 0 else 'more'}"
