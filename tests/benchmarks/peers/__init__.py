"""The comparison with other tools, measured: ``make peers`` installs them, runs this, and writes docs/comparison.md.

Every measured figure of that page comes from ``measured.json``, which a run leaves beside this file with its date and
the versions; a test holds the page to it. The peers are no requirement of the project: they are installed into an
environment of their own, one by one, and one that cannot be had is left out with the reason.
"""
