"""Write docs/crash-lab.md from the ledgers of a crash lab run: `python -m tests.crash.report LEDGER...`.

`make crash-lab` calls it after its tests have passed, so nothing in the ledgers was lost.
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
"""The number of cases of each kind, by part of the lab and store."""

INTRODUCTION = """\
# The crash lab

`make crash-lab` breaks stores on purpose and checks what is left. It writes this page when all its tests have passed.
If some failed, fix the cause and run `make crash-lab-rest`, which repeats only those. `make test` runs a part of the
lab. A failing case prints the one command that repeats it.

After each fault a new process compares the store with what its worker had acknowledged. Everything acknowledged is
there and equal. Everything in flight happened completely or not at all. The history is a tree. `verify` finds nothing.
No call with a recorded result is made again. One more of each operation works. In the rows "expected loss" the test
fails if nothing is lost. This shows that the lab can detect a loss.

Names in the table:

- *once*, *lasting*: one system call fails; this one and all later ones of its kind fail.
- *nothing*: a write reports 0 bytes written. *unreadable*: a read fails with EIO.
- *(verbs)*: the program uses every operation. *twice*: the process that resumes the run is killed, too.
- After a power cut, of what was not synced: *dropped*: nothing is there. *hollow*: files without bytes. *zeros*: files
  of the right length, filled with zeros. *nameless*: bytes, but no new names. *torn*: any mixture, sector by sector.
"""


def totals(ledger: Iterable[str]) -> Totals:
    """Add up the lines of a ledger."""
    found: Totals = {}
    for line in ledger:
        noted = json.loads(line)
        found.setdefault((noted["part"], noted["store"]), Counter()).update(noted["counts"])
    return found


def page(found: Totals, bugs: str) -> str:
    """Return the page: the cases of each part on each store, and the bugs found."""
    rows: list[str] = []
    for (part, store), counts in sorted(found.items()):
        what = ", ".join(f"{name}: {counts[name]:,}" for name in sorted(counts))
        together = "" if "lost" in counts else f"{counts.total():,}"
        rows.append(f"| {part} | {store} | {what} | {together} |")
    # Cases that must lose something only show that a loss is detected.
    everything = sum(counts.total() for counts in found.values() if "lost" not in counts)
    return "\n".join(
        [
            INTRODUCTION,
            "## Cases",
            "",
            f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}.",
            'Nothing was lost, except in the rows "expected loss".',
            "",
            "| part | store | cases | total |",
            "|---|---|---|---|",
            *rows,
            f"| all | | | {everything:,} |",
            "",
            "## Bugs found and fixed",
            "",
            bugs.strip(),
            "",
        ]
    )


def main() -> None:
    lines = [line for path in sys.argv[1:] for line in Path(path).read_text(encoding="utf-8").splitlines()]
    TARGET.write_text(page(totals(lines), BUGS.read_text(encoding="utf-8")), encoding="utf-8")
    sys.stdout.write(f"{TARGET.relative_to(ROOT)} written\n")


if __name__ == "__main__":
    main()
