"""``python -m tensormagic``: the demo, the examples, saved reports, and what is missing on this machine."""

from __future__ import annotations

import sys

from tensormagic import api
from tensormagic.commands import main

api.print_anywhere()
sys.exit(main())
