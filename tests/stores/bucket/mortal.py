"""A run on a bucket in a process that kills itself before or after its n-th write request.

python -m tests.stores.bucket.mortal URL LEDGER N    N is 0 for a process that lives

The ledger is the outside world: a line per payment. A process that ends the run prints the number of its writes.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import obstore

import holdfast
from holdfast import Happened, NotDone, Run

LEDGER = Path(sys.argv[2]) if len(sys.argv) > 2 else Path()
ITEMS = ("paper", "ink")


class Life:
    """Counts write requests, and ends the process at one of two moments of each."""

    def __init__(self, at: int) -> None:
        self.count = 0
        self._at = at

    def tick(self) -> None:
        self.count += 1
        if self.count == self._at:
            os.kill(os.getpid(), signal.SIGKILL)

    def limited(self, write: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            self.tick()
            answer = write(*args, **options)
            self.tick()
            return answer

        return run


def paid() -> list[str]:
    return LEDGER.read_text("utf-8").splitlines() if LEDGER.exists() else []


def was_paid(what: str) -> Happened | NotDone:
    return Happened("paid") if what in paid() else NotDone()


@holdfast.tool(effect="irreversible", probe=was_paid, timeout=0.05, probe_after=0.1)
def pay(what: str) -> str:
    with LEDGER.open("a", encoding="utf-8") as ledger:
        ledger.write(f"{what}\n")
    return "paid"


def plan() -> list[str]:
    return list(ITEMS)


def work(run: Run) -> None:
    for _ in run.steps():
        if len(run.state) > len(ITEMS):
            run.finish("done")
            break
        items = run.model(plan)
        what = items[len(run.state) - 1]
        run.state.append([what, run.tool("pay", {"what": what}), "x" * 20_000])  # the text is a blob


def main() -> int:
    life = Life(int(sys.argv[3]))
    for name in ("put", "delete"):
        setattr(obstore, name, life.limited(getattr(obstore, name)))
    with holdfast.open(sys.argv[1]) as hf, hf.run("job", start=["list"], tools=[pay], lease=1.0) as run:
        work(run)
    sys.stdout.write(f"{life.count}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
