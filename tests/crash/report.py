"""`python -m tests.crash.report LEDGER`: what a run of the crash lab tried, written to docs/crash-lab.md.

Run by `make crash-lab` after its tests have passed: what is in the ledger was tried, and nothing was lost.
"""

from __future__ import annotations

import json
import platform
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BUGS = Path(__file__).with_name("bugs.md")
TARGET = ROOT / "docs" / "crash-lab.md"

Totals = dict[tuple[str, str], Counter[str]]
"""By part of the lab and store: how often each thing was tried."""

INTRODUCTION = """\
# The crash lab

Written by `make crash-lab`, which breaks stores on purpose and looks at what is left; it writes this page when all of
its tests have passed; what failed is repeated by `make crash-lab-rest` once it is mended. `make test` does a share of
it. A case that fails prints the one command that repeats it.

After each fault a fresh process holds the store against what its worker was told: what was acknowledged is there and
equal; what was in flight has happened whole or not at all; the history is a tree; `verify` finds nothing; no call whose
result was given is made again; and one more of each verb works. Where a line says that something *must* be lost, the
test fails unless it is: that is how the lab shows that it can see a loss.
"""


def totals(ledger: Iterable[str]) -> Totals:
    """The lines of a ledger, added up."""
    found: Totals = {}
    for line in ledger:
        noted = json.loads(line)
        found.setdefault((noted["part"], noted["store"]), Counter()).update(noted["counts"])
    return found


def page(found: Totals, bugs: str) -> str:
    """The page: what was tried, of each part and on each store, and the bugs that were found."""
    rows: list[str] = []
    for (part, store), counts in sorted(found.items()):
        what = ", ".join(f"{name}: {counts[name]:,}" for name in sorted(counts))
        together = "" if "lost" in counts else f"{counts.total():,}"
        rows.append(f"| {part} | {store} | {what} | {together} |")
    # What must be lost was tried to see that a loss is seen.
    everything = sum(counts.total() for counts in found.values() if "lost" not in counts)
    return "\n".join(
        [
            INTRODUCTION,
            "## What was tried",
            "",
            f"With Python {platform.python_version()} and SQLite {sqlite3.sqlite_version}. What was lost: nothing.",
            "",
            "| part | store | what | together |",
            "|---|---|---|---|",
            *rows,
            f"| all | | | {everything:,} |",
            "",
            "## Bugs found, and fixed",
            "",
            bugs.strip(),
            "",
        ]
    )


def main() -> None:
    ledger = Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
    TARGET.write_text(page(totals(ledger), BUGS.read_text(encoding="utf-8")), encoding="utf-8")
    sys.stdout.write(f"{TARGET.relative_to(ROOT)} was written\n")


if __name__ == "__main__":
    main()
