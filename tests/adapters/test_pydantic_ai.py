"""Pydantic AI: the kill experiment, and what its adapter adds to an agent."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    FunctionToolset,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    ModelRetry,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

import holdfast
from holdfast import Holdfast, InvalidArgument, current_call
from holdfast.adapters.pydantic_ai import HoldfastConversationStore, HoldfastDurability, run_durably
from tests.adapters.frameworks import STORES, interrupted_and_resumed, url_of
from tests.adapters.kill_contract import KillContract


class TestKill(KillContract):
    PROGRAM = "tests.adapters.pydantic_ai_agent"


def scripted(*replies: Any) -> FunctionModel:
    """A model that replies with these parts, by how many replies are in the messages."""

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        part = replies[sum(isinstance(message, ModelResponse) for message in messages)]
        return ModelResponse([part], usage=RequestUsage(input_tokens=10, output_tokens=2))

    return FunctionModel(model)


async def twice(hf: Holdfast, agent: Agent[None, Any]) -> list[Any]:
    """Run the agent in a block that fails, and again in one that resumes it."""
    return await interrupted_and_resumed(hf, lambda: agent.run("go"))


def test_outside_a_run_nothing_changes() -> None:
    agent = Agent(scripted(TextPart("hello")), name="a", capabilities=[HoldfastDurability()])
    assert asyncio.run(agent.run("hi")).output == "hello"


class Order(BaseModel):
    item: str
    amount: int


def test_results_and_usage_are_the_same_after_a_resume(hf: Holdfast) -> None:
    called: list[str] = []
    agent = Agent(
        scripted(ToolCallPart("find", {}, "c1"), TextPart("done")), name="a", capabilities=[HoldfastDurability()]
    )

    @agent.tool_plain
    def find() -> Order:
        call = current_call()
        assert call is not None
        called.append(call.idempotency_key)
        return Order(item="paper", amount=3)

    first, again = asyncio.run(twice(hf, agent))
    assert len(called) == 1
    assert first.usage.input_tokens == again.usage.input_tokens == 20
    returned = [
        part.content
        for result in (first, again)
        for message in result.all_messages()
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]
    assert returned[0] == returned[1]
    assert first.all_messages()[1] == again.all_messages()[1]
    assert [effect.name for effect in hf.effects("t")] == ["a", "find", "a"]


def test_control_flow_of_tools_is_recorded(hf: Holdfast) -> None:
    called: list[int] = []
    model = scripted(ToolCallPart("pick", {"n": 1}, "c1"), ToolCallPart("pick", {"n": 2}, "c2"), TextPart("done"))
    agent = Agent(model, name="a", capabilities=[HoldfastDurability()])

    @agent.tool_plain
    def pick(n: int) -> int:
        called.append(n)
        if n == 1:
            raise ModelRetry("take another one")
        return n

    first, again = asyncio.run(twice(hf, agent))
    assert called == [1, 2]
    for result in (first, again):
        parts = [part for message in result.all_messages() for part in message.parts]
        returned = [(part.content, part.outcome) for part in parts if isinstance(part, ToolReturnPart)]
        assert returned == [("take another one", "retried"), (2, "success")]
    assert [effect.status for effect in hf.effects("t") if effect.name == "pick"] == ["done", "done"]


def test_an_error_of_an_irreversible_tool_leaves_it_in_doubt(hf: Holdfast) -> None:
    agent = Agent(
        scripted(ToolCallPart("pay", {}, "c1"), TextPart("done")), name="a", capabilities=[HoldfastDurability()]
    )

    @agent.tool_plain
    def pay() -> None:
        raise ConnectionError("lost")

    async def main() -> str:
        async with hf.aio.run("t", start={}) as run:
            await agent.run("go")
        return run.status

    assert asyncio.run(main()) == "waiting"
    assert [question.name for question in hf.waiting()] == ["pay"]


def test_an_error_that_is_the_outcome_ends_the_agent_again(hf: Holdfast) -> None:
    called: list[str] = []
    durability: Any = HoldfastDurability(declare={"pay": {"errors": "outcome"}})
    agent = Agent(scripted(ToolCallPart("pay", {}, "c1")), name="a", capabilities=[durability])

    @agent.tool_plain
    def pay() -> None:
        called.append("pay")
        raise ConnectionError("lost")

    async def main() -> None:
        async with hf.aio.run("t", start={}):
            await agent.run("go")

    for _ in range(2):
        with pytest.raises(ConnectionError, match="lost"):
            asyncio.run(main())
    assert called == ["pay"]


def test_tools_of_a_toolset_and_a_conversation_of_turns(hf: Holdfast) -> None:
    def count(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([TextPart(f"{len(messages)} messages")])

    agent = Agent(
        FunctionModel(count), name="a", toolsets=[FunctionToolset(id="tools")], capabilities=[HoldfastDurability()]
    )

    async def main() -> list[Any]:
        turns = ("r1", "r2", "r2", "r1")
        return [await run_durably(hf, agent, "hi", thread="t", turn=turn) for turn in turns]

    assert asyncio.run(main()) == ["1 messages", "3 messages", "3 messages", "1 messages"]


def test_a_poisoned_thread_is_repaired_when_it_is_continued(hf: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    agent = Agent(scripted(None, TextPart("done")), name="a", capabilities=[HoldfastDurability()])
    asked: list[ModelMessage] = [
        ModelRequest([UserPromptPart("hi")]),
        ModelResponse([ToolCallPart("find", {}, "c1")]),
    ]
    hf.thread("t").save({"messages": ModelMessagesTypeAdapter.dump_python(asked, mode="json")})
    with caplog.at_level("WARNING", "holdfast"):
        assert asyncio.run(run_durably(hf, agent, "go on", thread="t")) == "done"
    assert "were repaired" in caplog.text
    checkpoints = [each for each in hf.thread("t").history() if each.trigger not in ("save", "finish")]
    assert len(hf.thread("t").load(checkpoints[-1]).state["messages"]) == 2  # the stored messages are as they were


def test_a_cancelled_agent_can_be_resumed(hf: Holdfast) -> None:
    called: list[str] = []
    model = scripted(ToolCallPart("pay", {}, "c1"), TextPart("done"))
    agent = Agent(model, name="a", capabilities=[HoldfastDurability()])
    is_called, may_end = asyncio.Event(), asyncio.Event()

    @agent.tool_plain
    async def pay() -> str:
        called.append("pay")
        is_called.set()
        await may_end.wait()
        return "paid"

    async def main() -> Any:
        task = asyncio.create_task(run_durably(hf, agent, "go", thread="t"))
        await is_called.wait()
        task.cancel()
        asyncio.get_running_loop().call_later(0.05, may_end.set)
        with pytest.raises(asyncio.CancelledError):
            await task
        return await run_durably(hf, agent, "go", thread="t")

    assert asyncio.run(main()) == "done"
    assert called == ["pay"]
    assert [effect.name for effect in hf.effects("t")] == ["a", "pay", "a"]


def test_run_durably_needs_the_capability(hf: Holdfast) -> None:
    agent = Agent(scripted(TextPart("hello")), name="a")
    with pytest.raises(UserError, match="HoldfastDurability"):
        asyncio.run(run_durably(hf, agent, "hi", thread="t"))


def test_toolsets_that_would_not_be_recorded_are_refused(hf: Holdfast) -> None:
    agent = Agent(scripted(TextPart("hello")), name="a", capabilities=[HoldfastDurability()])

    async def main() -> None:
        async with hf.aio.run("t", start={}):
            await agent.run("hi", toolsets=[FunctionToolset([len], id="late")])

    with pytest.raises(UserError, match="Holdfast"):
        asyncio.run(main())


def test_declarations_are_checked_at_once() -> None:
    with pytest.raises(InvalidArgument, match="declare: buy"):
        HoldfastDurability(declare={"buy": {"effect": "unknown"}})


def test_the_budget_counts_the_usage(hf: Holdfast) -> None:
    agent = Agent(
        scripted(ToolCallPart("pay", {}, "c1"), TextPart("done")), name="a", capabilities=[HoldfastDurability()]
    )

    @agent.tool_plain
    def pay() -> int:
        return 1

    async def main() -> None:
        async with hf.aio.run("t", start={}, guards=[holdfast.Budget(tokens=12)]):
            await agent.run("go")

    with pytest.raises(holdfast.Halted):
        asyncio.run(main())


# -- conversations ----------------------------------------------------------------------------------------------------


def test_an_async_handle_is_an_open_handle(hf: Holdfast) -> None:
    assert asyncio.run(HoldfastConversationStore(hf.aio).load("c")) is None


def test_a_conversation_that_another_process_has_continued_is_not_deleted(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Agent(scripted(TextPart("hello"), TextPart("again")), name="a")
    store, other = HoldfastConversationStore(hf), HoldfastConversationStore(hf)

    async def say() -> None:
        conversation = await other.load("c") or Conversation(conversation_id="c")
        await other.save(await agent.run("hi", conversation=conversation))

    asyncio.run(say())
    read = store._stored

    def overtaken(name: str) -> Any:
        found = read(name)
        asyncio.run(say())
        return found

    record = asyncio.run(store.read_record("c"))
    assert record is not None
    monkeypatch.setattr(store, "_stored", overtaken)
    with pytest.raises(ConversationConflict):
        asyncio.run(store.delete_record("c", expected_revision=record.revision))
    assert len(hf.thread("c").tail("messages")) == 4


@pytest.mark.parametrize("kind", STORES)
def test_conversations_are_kept_as_threads(tmp_path: Path, kind: str) -> None:
    def count(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([TextPart(f"{len(messages)} messages")], usage=RequestUsage(input_tokens=3))

    agent = Agent(FunctionModel(count), name="a")
    url = url_of(kind, tmp_path / "c")

    async def say(store: Any, name: str) -> str:
        conversation = await store.load(name) or Conversation(conversation_id=name)
        result = await agent.run("hi", conversation=conversation)
        await store.save(result, scope="me")
        return str(result.output)

    async def main() -> None:
        first = HoldfastConversationStore(url)
        assert await first.load("c") is None
        assert [await say(first, "c"), await say(first, "c")] == ["1 messages", "3 messages"]
        first.close()
        store = HoldfastConversationStore(url)  # another process
        assert await say(store, "c") == "5 messages"
        assert len(await store.load_entries("c", limit=2) or ()) == 2
        entries = await store.load_entries("c")
        assert entries is not None
        assert await store.read_entry(entries[2].id) == entries[2]
        await store.fork("c", new_conversation_id="d", from_entry=entries[1].id)
        assert await say(store, "d") == "3 messages"
        assert [record.conversation_id for record in await store.read_records(scope="me")] == ["d", "c"]
        assert await store.read_records(scope="you") == []
        loaded, other = await store.load("c"), await store.load("c")
        assert loaded is not None
        assert other is not None
        assert loaded.usage.input_tokens == 9
        await store.save(await agent.run("hi", conversation=loaded))
        with pytest.raises(ConversationConflict):
            await store.save(await agent.run("hi", conversation=other))
        await store.delete("c")
        assert await store.load("c") is None
        third = HoldfastConversationStore(url)
        fork = await third.load("d")  # it still has the entries of "c"
        third.close()
        assert fork is not None
        assert len(fork.messages) == 4
        with pytest.raises(LookupError):
            await store.read_entry("unknown")
        store.close()

    asyncio.run(main())
