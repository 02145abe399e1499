"""Write docs/trust/crash-lab.md: `python -m tests.crash.report HALF LEDGER` takes in the ledger of one half of the lab.

scripts/crash_lab.sh calls it after the tests of that half have passed, so nothing in the ledger was lost. The totals of
each half are kept in tests/crash/results, with the day on which it ran.
"""

from __future__ import annotations

import datetime as dt
import platform
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from tests.crash.ledger import lines_of

ROOT = Path(__file__).resolve().parent.parent.parent
BUGS = Path(__file__).with_name("bugs.md")
RESULTS = Path(__file__).with_name("results")
TARGET = ROOT / "docs" / "trust" / "crash-lab.md"

HALVES = {
    "stores": "Stores: saves and all other operations on threads",
    "runs": "Runs: durable execution, and interrupts",
}
"""The halves of the lab, and their titles."""

Totals = dict[str, dict[str, dict[str, int]]]
"""The number of cases of each kind, by part of the lab and store."""


class Half(msgspec.Struct, frozen=True):
    """What one half of the lab has tried, and when."""

    date: str
    python: str
    sqlite: str
    totals: Totals


INTRODUCTION = """\
# The crash lab

`make crash-lab` breaks stores on purpose and checks what is left. It has two halves, `make crash-lab-stores` and
`make crash-lab-runs`. Each writes its part of this page when all its tests have passed. If some failed, fix the cause
and run `make crash-lab-rest`, which does not repeat those that passed. `make test` runs a part of the lab. A failing
case prints the one command that repeats it.

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


def totals(notes: Iterable[dict[str, Any]]) -> Totals:
    """Add up the notes of a ledger."""
    found: dict[str, dict[str, Counter[str]]] = {}
    for noted in notes:
        found.setdefault(noted["part"], {}).setdefault(noted["store"], Counter()).update(noted["counts"])
    return {part: {store: dict(counts) for store, counts in stores.items()} for part, stores in found.items()}


def page(halves: dict[str, Half], bugs: str) -> str:
    """Return the page: the cases of each part on each store, and the bugs found."""
    lines = [INTRODUCTION]
    for name, half in halves.items():
        lines += [f"## {HALVES[name]}", "", *table(half), ""]
    return "\n".join([*lines, "## Bugs found and fixed", "", bugs.strip(), ""])


def table(half: Half) -> list[str]:
    """The lines about one half of the lab."""
    rows: list[str] = []
    everything = 0
    for part, stores in sorted(half.totals.items()):
        for store, counts in sorted(stores.items()):
            what = ", ".join(f"{name}: {counts[name]:,}" for name in sorted(counts))
            # Cases that must lose something only show that a loss is detected.
            number = 0 if "lost" in counts else sum(counts.values())
            everything += number
            rows.append(f"| {part} | {store} | {what} | {f'{number:,}' if number else ''} |")
    return [
        f"Run on {half.date} with Python {half.python} and SQLite {half.sqlite}.",
        'Nothing was lost, except in rows "expected loss".',
        "",
        "| part | store | cases | total |",
        "|---|---|---|---|",
        *rows,
        f"| all | | | {everything:,} |",
    ]


def main() -> None:
    name, ledger = sys.argv[1:]
    today = dt.datetime.now(dt.UTC).date().isoformat()
    half = Half(today, platform.python_version(), sqlite3.sqlite_version, totals(lines_of(Path(ledger))))
    written = msgspec.json.format(msgspec.json.encode(half, order="sorted"), indent=1)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_bytes(written + b"\n")
    halves = {each: RESULTS / f"{each}.json" for each in HALVES}
    known = {each: msgspec.json.decode(path.read_bytes(), type=Half) for each, path in halves.items() if path.exists()}
    TARGET.write_text(page(known, BUGS.read_text(encoding="utf-8")), encoding="utf-8")
    sys.stdout.write(f"{TARGET.relative_to(ROOT)} written\n")


if __name__ == "__main__":
    main()
