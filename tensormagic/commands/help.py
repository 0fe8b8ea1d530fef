"""``python -m tensormagic help TM302``: a page of the documentation, without a network."""

from __future__ import annotations

import argparse

from tensormagic import api

HELP = "show a page of the documentation: a magic, a finding, a recipe; without a topic, list the pages"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument("topic", nargs="*", help="a page: tracegrad, TM302, how it works")


def run(given: argparse.Namespace) -> int:
    """Show the page, or list the topics.

    Raises:
        UnknownTopicError: where there is no page on it; says which are near.
    """
    if given.topic:
        api.print_page(api.help_page(" ".join(given.topic), "python -m tensormagic help").text)
    else:
        print(api.help_index())
    return 0
