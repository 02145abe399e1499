"""The totals of a crash lab: each part notes what it tried, and `tests.crash.report` adds it up."""

from __future__ import annotations

import json
import os
from pathlib import Path


def note(part: str, store: str, **counts: int) -> None:
    """Append what a part of the lab tried on a store to the file that $HOLDFAST_LAB_LEDGER names, if it names one."""
    path = os.environ.get("HOLDFAST_LAB_LEDGER")
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"part": part, "store": store, "counts": counts}) + "\n")
