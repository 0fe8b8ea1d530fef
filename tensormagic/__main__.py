"""``python -m tensormagic``: the demo, the examples, saved reports, and what is missing on this machine."""

from __future__ import annotations

import sys

from tensormagic.commands import main
from tensormagic.views.text_canvas import never_raise

never_raise(sys.stdout)
sys.exit(main())
