"""An agent that pays the invoices of a set, in the order of the set.

`python -m tests.runs.set_agent URL LOG DIES KEYS`
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import holdfast

INVOICES = frozenset({"ada", "bob", "cid", "dan", "eve"})


def main(url: str, log: Path, dies: int, *, has_keys: bool) -> None:
    @holdfast.tool(effect="irreversible")
    def pay(invoice: str) -> str:
        with log.open("a") as paid:
            paid.write(f"{invoice}\n")
        return f"receipt of {invoice}"

    with holdfast.open(url, durability="off") as hf:
        with hf.run("t", start={"invoices": INVOICES, "receipts": {}}) as run:
            for _ in run.steps():
                for count, invoice in enumerate(run.state["invoices"]):
                    receipt = run.tool(pay, {"invoice": invoice}, key=invoice if has_keys else None)
                    run.state["receipts"][invoice] = receipt
                    if count + 1 == dies:
                        os.kill(os.getpid(), signal.SIGKILL)
                run.finish(run.state["receipts"])
        sys.stdout.write(run.status)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), has_keys=sys.argv[4] == "keys")
