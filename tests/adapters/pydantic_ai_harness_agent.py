"""An agent with the step persistence of Pydantic AI's harness that looks up and buys, and whose process may be killed.

python -m tests.adapters.pydantic_ai_harness_agent URL LEDGER WHERE    WHERE: "tool", "model" or "event"

"event" is in a durable run of Holdfast: the process is killed when the tool call has been stored as an event.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai_harness import StepPersistence

import holdfast
from holdfast.adapters.pydantic_ai import HoldfastDurability, HoldfastStepStore, run_durably

CONVERSATION = "order"
OPERATIONS = (
    *("registration_id", "register_run", "append_event"),
    *("save_snapshot", "record_tool_effect", "finish_tool_effect"),
)
DURABILITY: HoldfastDurability[Any] = HoldfastDurability(
    declare={f"step_persistence.{name}": {"effect": "idempotent"} for name in OPERATIONS}
)


def killing(store: HoldfastStepStore) -> HoldfastStepStore:
    """A store that kills the process when it has stored that a tool was called."""
    append = store.append_event

    async def append_event(event: Any) -> None:
        await append(event)
        if event.kind == "tool_call_completed":
            os.kill(os.getpid(), signal.SIGKILL)

    store.append_event = append_event  # type: ignore[method-assign]
    return store


def shop(store: HoldfastStepStore, ledger: Path, where: str = "", *, is_durable: bool = False) -> Agent[None, str]:
    """An agent that calls look_up, then buy, and writes every call to the ledger before it may be killed in it."""
    replies: list[Any] = [ToolCallPart("look_up", {}, "c1"), ToolCallPart("buy", {}, "c2"), TextPart("bought")]

    def written(line: str, *, is_last: bool) -> None:
        with ledger.open("a") as file:
            file.write(f"{line}\n")
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        count = sum(isinstance(message, ModelResponse) for message in messages)
        written(f"model {count}", is_last=where == "model" and count == 1)
        return ModelResponse([replies[count]])

    capabilities: list[Any] = [*([DURABILITY] if is_durable else []), StepPersistence(store=store)]
    agent = Agent(FunctionModel(model), name="clerk", capabilities=capabilities)

    @agent.tool_plain
    def look_up() -> str:
        written("look_up", is_last=False)
        return "paper"

    @agent.tool_plain
    def buy() -> str:
        written("buy", is_last=where == "tool")
        return "done"

    return agent


if __name__ == "__main__":
    url, path, place = sys.argv[1:]
    if place == "event":
        hf = holdfast.open(url)
        durable = shop(killing(HoldfastStepStore(hf)), Path(path), is_durable=True)
        asyncio.run(run_durably(hf, durable, "Buy paper", thread=CONVERSATION))
    else:
        asyncio.run(shop(HoldfastStepStore(url), Path(path), place).run("Buy paper", conversation_id=CONVERSATION))
