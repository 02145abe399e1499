"""The orders that runs handle, and the script of the model. Everything follows from an order's number."""

from __future__ import annotations

from random import Random
from typing import Any, Final, Literal

import msgspec

Tool = Literal["look_up", "reserve", "charge", "post", "notify"]

SHELF: Final = {"paper": 4, "ink": 11, "stamps": 1, "lamp": 35, "chair": 120}
TOOLS: Final[dict[Tool, str]] = {
    "look_up": "read",
    "reserve": "idempotent",
    "charge": "irreversible, probed",
    "post": "irreversible, asked about",
    "notify": "irreversible, given up",
}


class Call(msgspec.Struct, frozen=True):
    """A tool call that an order needs. `what` distinguishes calls of the same tool."""

    tool: Tool
    what: str

    @property
    def name(self) -> str:
        """Its name in the ledger."""
        return f"{self.tool} {self.what}"


def thread_of(order: int) -> str:
    return f"order-{order:04}"


def price_of(order: int) -> int:
    return sum(SHELF[item] for item in items_of(order))


def items_of(order: int) -> list[str]:
    random = Random(f"order {order}")  # noqa: S311 - nothing secret
    return random.sample(list(SHELF), random.randint(1, 3))


def script_of(order: int) -> list[list[Call]]:
    """The calls of each turn of the model. The last turn has none."""
    items = items_of(order)
    return [
        [Call("look_up", item) for item in items],
        [*(Call("reserve", item) for item in items), Call("charge", f"{price_of(order)}")],
        [Call("post", "invoice"), Call("notify", "shipped")],
        [],
    ]


def result_of(order: int) -> str:
    return f"order {order} is done: {price_of(order)} charged"


def task_of(order: int) -> dict[str, Any]:
    """The start state of a run."""
    return {"messages": [{"role": "user", "order": order}]}


def reply_to(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The next reply of the model. The same messages always get the same reply."""
    order: int = messages[0]["order"]
    turn = turn_of(messages)
    calls = [{"id": f"call_{n}", "name": call.tool, "what": call.what} for n, call in enumerate(script_of(order)[turn])]
    return {"role": "assistant", "content": "" if calls else result_of(order), "calls": calls}


def turn_of(messages: list[dict[str, Any]]) -> int:
    return sum(message["role"] == "assistant" for message in messages)
