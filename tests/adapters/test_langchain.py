"""LangChain: the kill experiment, and what the middleware adds to an agent."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, ToolMessage, message_to_dict
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt
from pydantic import BaseModel

import holdfast
from holdfast import Holdfast, InvalidArgument
from holdfast.adapters.langchain import HoldfastMiddleware, HoldfastTools, run_durably
from holdfast.errors import Unfinished
from tests.adapters.frameworks import interrupted_and_resumed, refused, run_page
from tests.adapters.kill_contract import KillContract
from tests.adapters.kill_world import SCRIPTS, Use, World
from tests.adapters.langchain_agent import ScriptedModel


class TestKill(KillContract):
    PROGRAM = "tests.adapters.langchain_agent"

    def told(self, seen: Any) -> Any:
        return [json.loads(each) for each in seen]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a model that replies as given."""

    def make(*replies: list[Use] | str) -> ScriptedModel:
        monkeypatch.setitem(SCRIPTS, "given", list(replies))
        return ScriptedModel(world=World(tmp_path), script="given", seen=[])

    return make


def durable(model: Any, tools: Any = (), *, declare: Any = None, **options: Any) -> Any:
    others = options.pop("middleware", [])
    return create_agent(model, list(tools), middleware=[*others, HoldfastMiddleware(declare=declare)], **options)


async def twice(hf: Holdfast, make: Any) -> list[Any]:
    """Run an agent in a block that fails, and an equal one in a block that resumes the run."""
    return await interrupted_and_resumed(hf, lambda: make().ainvoke({"messages": [("user", "go")]}))


def plain(result: Any) -> Any:
    """The messages without ids that LangGraph makes."""
    return [message.model_dump(exclude={"id"}) for message in result["messages"]]


def models(tmp_path: Path) -> int:
    return len(World(tmp_path).lines("models"))


def test_outside_a_run_nothing_changes(model: Any, hf: Holdfast) -> None:
    assert durable(model("hello")).invoke({"messages": [("user", "hi")]})["messages"][-1].text == "hello"
    assert list(hf.threads()) == []


def test_results_are_the_same_after_a_resume(hf: Holdfast, model: Any, tmp_path: Path) -> None:
    called: list[str] = []

    class Counted(AgentState[Any]):
        n: int

    @tool(response_format="content_and_artifact")
    def find(name: str) -> tuple[str, Any]:
        """Find."""
        called.append(name)
        return "found", {"bytes": b"\x00"}

    @tool
    def count(tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Count, in the state of the graph."""
        called.append("count")
        return Command(update={"n": 7, "messages": [ToolMessage("counted", tool_call_id=tool_call_id)]})

    made = model([Use("find", {"name": "x"}, "c1"), Use("count", {}, "c2")], "done")
    results = asyncio.run(twice(hf, lambda: durable(made, [find, count], state_schema=Counted)))
    assert sorted(called) == ["count", "x"]
    assert models(tmp_path) == 2
    assert plain(results[0]) == plain(results[1])
    assert results[1]["n"] == 7
    assert results[1]["messages"][1].id == results[0]["messages"][1].id  # of the model's reply
    assert results[1]["messages"][-1].usage_metadata["input_tokens"] == 10
    first, *tools, last = [effect.name for effect in hf.effects("t")]
    assert (first, sorted(tools), last) == ("agent", ["count", "find"], "agent")


class Order(BaseModel):
    item: str


def test_structured_output(hf: Holdfast, model: Any) -> None:
    make: Any = lambda: durable(model([Use("Order", {"item": "ink"}, "c1")]), response_format=ToolStrategy(Order))  # noqa: E731
    results = asyncio.run(twice(hf, make))
    assert [result["structured_response"] for result in results] == [Order(item="ink")] * 2
    assert asyncio.run(run_durably(hf, make(), "go", thread="u")) == {"item": "ink"}


def test_other_middleware_is_called_each_time(hf: Holdfast, model: Any) -> None:
    calls: list[str] = []

    class Watch(AgentMiddleware[Any, Any, Any]):
        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            calls.append(request.tool_call["name"])
            return await handler(request)

    @tool
    def noop() -> str:
        """Nothing."""
        return "ok"

    results = asyncio.run(
        twice(hf, lambda: durable(model([Use("noop", {}, "c1")], "done"), [noop], middleware=[Watch()]))
    )
    assert plain(results[0]) == plain(results[1])
    assert calls == ["noop", "noop"]


def test_an_interrupt_in_a_tool(hf: Holdfast, model: Any, tmp_path: Path) -> None:
    @tool
    def ask(what: str) -> str:
        """Ask twice."""
        first, second = interrupt(f"{what}?"), interrupt("sure?")
        World(tmp_path).note("ledger", f"{first} {second}")
        return f"{first} {second}"

    def agent() -> Any:
        return durable(model([Use("ask", {"what": "colour"}, "c1")], "done"), [ask], checkpointer=InMemorySaver())

    for name, payload, answer in (("interrupt 1", "colour?", "red"), ("interrupt 2", "sure?", "yes")):
        with pytest.raises(Unfinished):
            asyncio.run(run_durably(hf, agent(), "go", thread="t"))
        assert [(question.name, question.payload) for question in hf.waiting()] == [(name, payload)]
        hf.answer("t", name, answer)
    assert asyncio.run(run_durably(hf, agent(), "go", thread="t")) == "done"
    assert World(tmp_path).lines("ledger") == ["red yes"]
    assert models(tmp_path) == 2


def test_two_approvals_are_asked_at_once(hf: Holdfast, model: Any, tmp_path: Path) -> None:
    @tool
    def pay(item: str) -> str:
        """Pay."""
        return World(tmp_path).pay(item)

    made = model([Use("pay", {"item": "ink"}, "c1"), Use("pay", {"item": "pen"}, "c2")], "done")
    options: Any = {
        "middleware": [HumanInTheLoopMiddleware(interrupt_on={"pay": True})],
        "checkpointer": InMemorySaver(),
    }
    agent = durable(made, [pay], **options)
    with pytest.raises(Unfinished):
        asyncio.run(run_durably(hf, agent, "go", thread="t"))
    assert {question.name for question in hf.waiting()} == {"approve c1", "approve c2"}
    hf.answer("t", "approve c1", True)
    hf.answer("t", "approve c2", "no pens")
    assert asyncio.run(run_durably(hf, agent, "go", thread="t")) == "done"
    assert World(tmp_path).lines("ledger") == ["ink"]
    assert "no pens" in str(made.seen)


def test_equal_calls_have_their_own_approvals(hf: Holdfast, model: Any, tmp_path: Path) -> None:
    @tool
    def pay(item: str) -> str:
        """Pay."""
        return World(tmp_path).pay(item)

    options: Any = {
        "middleware": [HumanInTheLoopMiddleware(interrupt_on={"pay": True})],
        "checkpointer": InMemorySaver(),
    }
    agent = durable(
        model([Use("pay", {"item": "ink"}, "p1"), Use("pay", {"item": "ink"}, "p1")], "done"), [pay], **options
    )
    with pytest.raises(Unfinished):
        asyncio.run(run_durably(hf, agent, "go", thread="t"))
    assert {question.name for question in hf.waiting()} == {"approve p1", "approve p1 (2)"}
    hf.answer("t", "approve p1", True)
    hf.answer("t", "approve p1 (2)", "one is enough")
    assert asyncio.run(run_durably(hf, agent, "go", thread="t")) == "done"


def test_errors_of_tools(hf: Holdfast, model: Any, tmp_path: Path) -> None:
    """An error ends an agent, unless middleware makes a result of it: then it is declared as the outcome."""

    class Handled(AgentMiddleware[Any, Any, Any]):
        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            try:
                return await handler(request)
            except ConnectionError as error:
                return ToolMessage(f"error: {error}", tool_call_id=request.tool_call["id"])

    @tool
    def pay() -> str:
        """Pay."""
        World(tmp_path).note("ledger", "x")
        raise ConnectionError("lost")

    options: Any = {"middleware": [Handled()], "declare": {"pay": {"errors": "outcome"}}}
    made = model([Use("pay", {}, "c1")], "done")
    results = asyncio.run(twice(hf, lambda: durable(made, [pay], **options)))
    assert plain(results[0]) == plain(results[1])
    assert World(tmp_path).lines("ledger") == ["x"]
    with pytest.raises(Unfinished):
        asyncio.run(run_durably(hf, durable(made, [pay]), "go", thread="u"))
    assert [question.name for question in hf.waiting()] == ["pay"]


def test_the_budget_counts_the_usage(hf: Holdfast, model: Any) -> None:
    @tool
    def noop() -> str:
        """Nothing."""
        return ""

    agent = durable(model([Use("noop", {}, "c1")], "done"), [noop])
    with (
        pytest.raises(holdfast.Halted, match="budget of 12 tokens"),
        hf.run("t", start={}, guards=[holdfast.Budget(tokens=12)]),
    ):
        agent.invoke({"messages": [("user", "go")]})


def test_a_cancelled_agent_can_be_resumed(hf: Holdfast, model: Any, tmp_path: Path) -> None:
    started = asyncio.Event()

    @tool
    async def slow() -> str:
        """Slow."""
        if not started.is_set():
            started.set()
            await asyncio.sleep(600)
        return "slept"

    async def main() -> Any:
        declare = {"slow": {"effect": "idempotent"}}
        agent = durable(model([Use("slow", {}, "c1")], "done"), [slow], declare=declare)
        task = asyncio.create_task(run_durably(hf, agent, "go", thread="t"))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await run_durably(hf, agent, "go", thread="t")

    assert asyncio.run(main()) == "done"
    assert models(tmp_path) == 2


def test_a_conversation_of_turns(hf: Holdfast, model: Any) -> None:
    agent = durable(model("reply to r1", "reply to r2"))

    async def main() -> list[Any]:
        return [
            await run_durably(hf, agent, f"question {turn}", thread="t", turn=turn) for turn in ("r1", "r2", "r2", "r1")
        ]

    assert asyncio.run(main()) == ["reply to r1", "reply to r2", "reply to r2", "reply to r1"]
    head = hf.thread("t").latest()
    assert head is not None
    assert [message["type"] for message in head.state["messages"]] == ["human", "ai"] * 2


def test_a_poisoned_thread_is_repaired_when_it_is_continued(
    hf: Holdfast, model: Any, caplog: pytest.LogCaptureFixture
) -> None:
    call = {"name": "buy", "args": {}, "id": "c9"}
    poisoned = [ToolMessage("x", tool_call_id="c8"), AIMessage("", tool_calls=[call, {**call, "id": "c7"}])]
    hf.thread("t").save(
        {"messages": [message_to_dict(each) for each in [*poisoned, ToolMessage("y", tool_call_id="c9")]]}
    )
    made = model("before", "done")
    assert asyncio.run(run_durably(hf, durable(made, []), "hello", thread="t", turn="2")) == "done"
    assert "call 'c7' has no result" in caplog.text
    assert "the result of call 'c8' has no call" in caplog.text
    stored = [each["data"] for each in hf.thread("t").latest().state["messages"]]  # type: ignore[union-attr]
    assert [each.get("tool_call_id") for each in stored] == [None, "c7", "c9", None, None]


def test_wrong_declarations_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="declare: buy"):
        HoldfastMiddleware(declare={"buy": {"effect": "x"}})


def test_the_middleware_of_the_langgraph_adapter_is_here_too() -> None:
    from holdfast.adapters.langgraph.middleware import HoldfastTools as Same

    assert HoldfastTools is Same


def test_another_version_is_refused() -> None:
    assert "pip install 'holdfast[langchain]'" in refused("langchain", None)
    assert "from 1.4 to before 2, and 2.0 is installed" in refused("langchain", "2.0")


def test_the_page(tmp_path: Path) -> None:
    run_page("langchain.md", tmp_path)
