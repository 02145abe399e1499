"""The agent of the fleet's workers: it handles an order, with tools of every effect class.

    holdfast worker examples.fleet.agent:handlers --tools examples.fleet.agent:tools --store …

The services it calls are slow. They write their effects to the ledger, in the folder FLEET_LEDGER.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import holdfast
from examples.fleet.ledger import Ledger
from examples.fleet.orders import SHELF, Call, Tool, reply_to, thread_of, turn_of
from holdfast import Happened, NotDone, Run

TIMEOUT: Final = 3.0  # timeout of a call of a service, in seconds
PAUSED: Final = 4.0  # a worker may be stopped for so long inside a call, and then finish it

ledger = Ledger(Path(os.environ.get("FLEET_LEDGER", ".")))


# -- tools: each declares its effect on the world, and what to do if its outcome is unknown ----------------------------


@holdfast.tool(effect="read")
def look_up(order: int, what: str) -> int:
    ledger.write(thread_of(order), "called", Call("look_up", what).name)
    _takes(order, "look_up", what, 0.01)
    return SHELF[what]


@holdfast.tool(effect="idempotent", timeout=TIMEOUT)
def reserve(order: int, what: str, idempotency_key: str) -> str:
    """Reserve an item. The warehouse treats all requests with one key as one."""
    _act(order, "reserve", what, idempotency_key)
    return "reserved"


def was_charged(order: int, what: str) -> Happened | NotDone:
    """The probe: ask the bank whether a payment was made."""
    call = Call("charge", what).name
    happened = ledger.happened(thread_of(order), call)
    ledger.write(thread_of(order), "looked", call, text="happened" if happened else "not done")
    return Happened("charged") if happened else NotDone()


@holdfast.tool(effect="irreversible", probe=was_charged, timeout=TIMEOUT, probe_after=PAUSED + TIMEOUT)
def charge(order: int, what: str, idempotency_key: str) -> str:
    """Take money. A repeated call takes it again, whatever the key."""
    _act(order, "charge", what, idempotency_key)
    return "charged"


@holdfast.tool(effect="irreversible", in_doubt="ask", timeout=TIMEOUT)
def post(order: int, what: str) -> str:
    """Post a letter. There is no way to check whether it was posted, so in doubt a person decides."""
    _act(order, "post", what)
    return "posted"


@holdfast.tool(effect="irreversible", in_doubt="give_up", timeout=TIMEOUT)
def notify(order: int, what: str) -> str:
    """Send a message. Losing it is better than sending it twice."""
    _act(order, "notify", what)
    return "notified"


def _act(order: int, tool: Tool, what: str, key: str = "") -> None:
    """Call a service: wait for the request to arrive, change the world, wait for the answer."""
    call = Call(tool, what).name
    ledger.write(thread_of(order), "called", call, key=key)
    _takes(order, tool, what, 0.06)
    ledger.write(thread_of(order), "acted", call, key=key)
    _takes(order, tool, what, 0.06)


def _takes(order: int, tool: str, what: str, seconds: float) -> None:
    time.sleep(seconds * Random(f"{order} {tool} {what}").uniform(0.3, 1.7))  # noqa: S311 - nothing secret


# -- the model and the loop: this code does not handle crashes ---------------------------------------------------------


def ask_model(*, messages: list[dict[str, Any]]) -> dict[str, Any]:
    order, turn = messages[0]["order"], turn_of(messages)
    ledger.write(thread_of(order), "called", f"model {turn}")
    _takes(order, "model", f"{turn}", 0.03)
    return reply_to(messages)


def work(run: Run) -> None:
    order: int = run.state["messages"][0]["order"]
    with _noted(run):
        for _ in run.steps():
            turn = turn_of(run.state["messages"])
            reply = run.model(ask_model, messages=run.state["messages"])
            ledger.write(run.thread, "heard", f"model {turn}")
            run.state["messages"].append(reply)
            if not reply["calls"]:
                run.finish(reply["content"])
                break
            for call in reply["calls"]:
                result = run.tool(call["name"], {"order": order, "what": call["what"]}, key=call["id"])
                ledger.write(run.thread, "heard", Call(call["name"], call["what"]).name, text=f"{result}")
                run.state["messages"].append({"role": "tool", "id": call["id"], "content": result})


@contextmanager
def _noted(run: Run) -> Generator[None]:
    """Records that this worker has the run, and how it left it. A killed process records nothing."""
    ledger.write(run.thread, "claimed")
    how = "finished"
    try:
        yield
    except Exception as error:
        how = f"failed: {type(error).__name__}"
        raise
    except BaseException:
        how = "parked"  # the run waits for an answer, or its worker was stopped
        raise
    finally:
        ledger.write(run.thread, "left", text=how)


handlers: dict[str, Callable[[Run], Any]] = {"orders": work}
tools: list[Callable[..., Any]] = [look_up, reserve, charge, post, notify]
