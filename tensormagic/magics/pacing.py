"""The options of ``%%tracegrad`` that say which steps are traced."""

from __future__ import annotations

import argparse

from IPython.core.error import UsageError

from tensormagic.api.running import Steps, pace_of
from tensormagic.errors import TraceError
from tensormagic.magics.arguments import Parser
from tensormagic.reports import Pace


def add_options(parser: Parser) -> None:
    """Give ``parser`` the options ``--budget``, ``--every`` and ``--steps``."""
    parser.add_argument(
        "--budget", metavar="SHARE", help="trace as many steps as fit into this share of the run's time: 5%%"
    )
    parser.add_argument("--every", metavar="N", help="trace one step in N, starting with the first")
    parser.add_argument(
        "--steps", metavar="A:B", help="trace the steps A to B, excluding B, as in a slice; steps count from 1"
    )


def pace(options: argparse.Namespace) -> Pace | None:
    """Return what the options ask for; None: every step.

    Raises:
        UsageError: says what was given, what was expected, and what to do.
    """
    try:
        return pace_of(_share(options.budget), _whole("--every", options.every), _slice(options.steps))
    except TraceError as error:
        raise UsageError(str(error)) from None


def given(options: argparse.Namespace) -> list[str]:
    """Return these options as they were typed."""
    typed = {"budget": options.budget, "every": options.every, "steps": options.steps}
    return [f"--{name} {value}" for name, value in typed.items() if value is not None]


def _share(text: str | None) -> float | None:
    if text is None:
        return None
    number, percent = text.strip().removesuffix("%"), text.strip().endswith("%")
    try:
        return float(number) / (100 if percent else 1)
    except ValueError:
        raise UsageError(f"--budget takes a share of the run's time, 5% or 0.05, but was given {text!r}") from None


def _whole(option: str, text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        raise UsageError(f"{option} takes a whole number, but was given {text!r}") from None


def _slice(text: str | None) -> Steps | None:
    if text is None:
        return None
    start, colon, stop = text.partition(":")
    try:
        ends = (int(start) if start.strip() else None, int(stop) if stop.strip() else None)
    except ValueError:
        colon = ""
    if not colon:
        raise UsageError(
            f"--steps takes two numbers, A:B, as in a slice, but was given {text!r}; 10:21 traces the steps 10 to 20"
        )
    return ends
