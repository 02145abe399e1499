"""An agent of 40 steps. Killed in step 38, right after it charged a card, it resumes at step 39.

    DIE=1 python examples/forty_steps.py
    python examples/forty_steps.py

Each model call and each charge is printed when it is made. The second process prints only what the first has not done.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import holdfast


def think(step: int) -> str:
    print(f"step {step}: the model is asked", flush=True)
    return f"thought {step}"


@holdfast.tool(effect="irreversible")
def charge(order: int, cents: int) -> str:
    print(f"the card is charged: {cents} cents for order {order}", flush=True)
    with Path("charges.txt").open("a", encoding="utf-8") as bank:
        bank.write(f"order {order}: {cents}\n")
    return "charged"


def main() -> None:
    with holdfast.open("forty.db") as hf, hf.run("order-42", start={"thoughts": []}) as run:
        for step in run.steps():
            run.state["thoughts"].append(run.model(think, step))
            if step == 38:
                run.tool(charge, {"order": 42, "cents": 1999})
                if "DIE" in os.environ:
                    os.kill(os.getpid(), signal.SIGKILL)
            if step == 40:
                run.finish(f"{len(run.state['thoughts'])} steps")
                break
    print(run.status, run.result)


if __name__ == "__main__":
    main()
