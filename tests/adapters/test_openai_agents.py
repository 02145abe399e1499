"""OpenAI Agents SDK: the kill experiment, the session, and what `durable` adds to an agent."""

from __future__ import annotations

import ast
import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest

os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"

from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrail,
    RunConfig,
    Runner,
    Session,
    SessionSettings,
    SQLiteSession,
    ToolOutputText,
    function_tool,
    handoff,
)
from agents.exceptions import AgentsException, UserError
from agents.testing import ScriptedModel, assistant_message, function_call
from agents.tool import LocalShellTool
from openai.types.responses import Response, ResponseFailedEvent

import holdfast
from holdfast import Holdfast, InvalidArgument
from holdfast.adapters.openai_agents import HoldfastSession, durable, run_durably
from holdfast.adapters.openai_items import repaired_items
from holdfast.adapters.seam import turns
from holdfast.errors import Closed, EffectsAhead, Unfinished
from tests.adapters.frameworks import STORES, Stop, interrupted_and_resumed, url_of
from tests.adapters.kill_contract import KillContract
from tests.adapters.kill_world import World, killed_and_resumed, start
from tests.adapters.openai_agents_agent import agent_of


class TestKill(KillContract):
    PROGRAM = "tests.adapters.openai_agents_agent"
    ALONE: ClassVar = ["second 0", "second 1", "second 1", "second 2"]

    def told(self, seen: Any) -> Any:
        return [ast.literal_eval(each) for each in seen]

    def test_call_ids_may_repeat(self, world: Path) -> None:
        """The SDK itself refuses call ids that repeat."""
        ended = start(self.PROGRAM, world, "same ids", "probe")
        assert "Model reused a completed tool call ID" in ended.stderr

    def test_a_hand_off(self, world: Path) -> None:
        found = killed_and_resumed(self.PROGRAM, world, "hand-off", "probe")
        assert (found.status, found.result, found.ledger) == ("completed", "bought", ["paper"])
        assert found.models == ["hand-off 0", "second 1", "second 2"]


async def twice(hf: Holdfast, agents: list[Agent[Any]], **options: Any) -> list[Any]:
    """Run an agent in a block that fails, and an equal one in a block that resumes the run."""
    left = iter(agents)
    return await interrupted_and_resumed(hf, lambda: Runner.run(next(left), "go", **options))


def test_outside_a_run_nothing_changes() -> None:
    agent = durable(Agent(name="a", model=ScriptedModel([[assistant_message("hello")]])))
    assert asyncio.run(Runner.run(agent, "hi")).final_output == "hello"


@pytest.mark.parametrize("is_in_run", [False, True])
def test_a_stream_that_is_left_is_closed_at_once(hf: Holdfast, is_in_run: bool) -> None:
    states: list[str] = []

    class Streaming(ScriptedModel):  # type: ignore[misc]
        async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            try:
                yield "first"
                yield "second"
            finally:
                states.append("closed")

    async def leave() -> None:
        model: Any = durable(Agent(name="a", model=Streaming([]))).model
        stream = model.stream_response(None, "go")
        assert await anext(stream) == "first"
        await stream.aclose()
        states.append("left")

    async def main() -> None:
        if is_in_run:
            async with hf.aio.run("t", start={}):
                await leave()
        else:
            await leave()

    asyncio.run(main())
    assert states == ["closed", "left"]


def test_results_are_the_same_after_a_resume(hf: Holdfast) -> None:
    called: list[str] = []

    @function_tool
    def find(name: str) -> ToolOutputText:
        called.append(name)
        return ToolOutputText(text="found")

    @function_tool
    def fail() -> str:
        called.append("fail")
        raise ValueError("no such item")

    script = [[function_call("find", {"name": "x"}, call_id="c1"), function_call("fail", {}, call_id="c2")]]
    first = Agent(name="a", model=ScriptedModel([*script, [assistant_message("done")]]), tools=[find, fail])
    again = Agent(name="a", model=ScriptedModel([]), tools=[find, fail])
    results = asyncio.run(twice(hf, [durable(first), durable(again)]))
    assert sorted(called) == ["fail", "x"]  # they run at the same time
    assert results[0].to_input_list() == results[1].to_input_list()
    assert "error occurred" in str(results[1].to_input_list())  # the outcome that the SDK makes of an exception
    first_call, *tools, last = [effect.name for effect in hf.effects("t")]
    assert (first_call, sorted(tools), last) == ("a", ["fail", "find"], "a")


def test_an_error_in_doubt_waits_although_the_sdk_hides_it(hf: Holdfast) -> None:
    @function_tool
    def pay() -> str:
        raise ConnectionError("lost")

    model = ScriptedModel([[function_call("pay", {}, call_id="c1")], [assistant_message("done")]])
    agent = durable(Agent(name="a", model=model, tools=[pay]), declare={"pay": {"errors": "doubt"}})

    async def main() -> str:
        async with hf.aio.run("t", start={}) as run:
            await Runner.run(agent, "go")
        return run.status

    assert asyncio.run(main()) == "waiting"
    assert [question.name for question in hf.waiting()] == ["pay"]


def test_an_error_that_ends_the_agent_can_be_the_outcome(hf: Holdfast) -> None:
    called: list[str] = []

    @function_tool(failure_error_function=None)
    def pay() -> str:
        called.append("pay")
        raise KeyError("lost")

    async def main(*, is_last: bool) -> None:
        model = ScriptedModel([[function_call("pay", {}, call_id="c1")], [assistant_message("done")]])
        agent = durable(Agent(name="a", model=model, tools=[pay]), declare={"pay": {"errors": "outcome"}})
        async with hf.aio.run("t", start={}) as run:
            with pytest.raises(UserError, match="lost"):
                await Runner.run(agent, "go")
            if not is_last:
                raise Stop
            await run.finish()

    with pytest.raises(Stop):
        asyncio.run(main(is_last=False))
    asyncio.run(main(is_last=True))
    assert called == ["pay"]


def test_a_timeout_is_the_outcome_of_a_call(hf: Holdfast) -> None:
    @function_tool(timeout=0.05)
    async def slow() -> str:
        await asyncio.sleep(3600)
        return "late"

    script = [[function_call("slow", {}, call_id="c1")], [assistant_message("done")]]
    first = Agent(name="a", model=ScriptedModel(script), tools=[slow])
    again = Agent(name="a", model=ScriptedModel([]), tools=[slow])
    results = asyncio.run(twice(hf, [durable(first), durable(again)]))
    assert results[0].to_input_list() == results[1].to_input_list()
    assert "timed out after 0.05 seconds" in str(results[1].to_input_list())
    outside = Agent(name="a", model=ScriptedModel(script), tools=[slow])
    assert "timed out" in str(asyncio.run(Runner.run(durable(outside), "go")).to_input_list())


def test_a_timeout_leaves_a_call_in_doubt_if_errors_do(hf: Holdfast) -> None:
    @function_tool(timeout=0.05)
    async def pay() -> str:
        await asyncio.sleep(3600)
        return "late"

    model = ScriptedModel([[function_call("pay", {}, call_id="c1")]])
    agent = durable(Agent(name="a", model=model, tools=[pay]), declare={"pay": {"errors": "doubt"}})

    async def main() -> str:
        async with hf.aio.run("t", start={}) as run:
            await Runner.run(agent, "go")
        return run.status

    assert asyncio.run(main()) == "waiting"
    assert [question.name for question in hf.waiting()] == ["pay"]


def test_calls_of_two_agents_with_one_id_have_their_own_approvals(hf: Holdfast) -> None:
    paid: list[str] = []

    @function_tool(needs_approval=True)
    def pay(item: str) -> str:
        paid.append(item)
        return f"paid {item}"

    def agent() -> Agent[Any]:
        def helper(name: str, item: str) -> Any:
            script = [[function_call("pay", {"item": item}, call_id="p1")], [assistant_message("ok")]]
            return durable(Agent(name=name, model=ScriptedModel(script), tools=[pay])).as_tool(name, "helps")

        calls = [function_call(name, {"input": "x"}, call_id=name) for name in ("one", "two")]
        model = ScriptedModel([calls, [assistant_message("all")]])
        return Agent(name="top", model=model, tools=[helper("one", "ink"), helper("two", "gold")])

    with pytest.raises(Unfinished):
        asyncio.run(run_durably(hf, agent(), "go", thread="t"))
    names = {question.payload["arguments"]["item"]: question.name for question in hf.waiting()}
    assert set(names) == {"ink", "gold"}
    hf.answer("t", names["ink"], True)
    hf.answer("t", names["gold"], "too expensive")
    assert asyncio.run(run_durably(hf, agent(), "go", thread="t")) == "all"
    assert paid == ["ink"]


def test_hand_offs_in_a_circle_and_handoff_objects(hf: Holdfast) -> None:
    one, two = Agent(name="one", model=ScriptedModel([])), Agent(name="two", model=ScriptedModel([]))
    one.handoffs, two.handoffs = [handoff(two)], [one]
    made = durable(one)
    assert made is not one
    assert one.model is not made.model
    assert asyncio.run(_target(made.handoffs[0])).handoffs[0] is made


async def _target(handed: Any) -> Any:
    return await handed.on_invoke_handoff(None, "")


def test_a_guardrail_runs_beside_the_model(hf: Holdfast) -> None:
    def agent() -> Agent[Any]:
        judge = durable(Agent(name="judge", model=ScriptedModel([[assistant_message("fine")]])))

        async def check(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
            result = await Runner.run(judge, "judge this")
            return GuardrailFunctionOutput(output_info=result.final_output, tripwire_triggered=False)

        model = ScriptedModel([[assistant_message("done")]])
        return durable(Agent(name="a", model=model, input_guardrails=[InputGuardrail(check)]))

    results = asyncio.run(twice(hf, [agent(), agent()]))
    assert [result.final_output for result in results] == ["done", "done"]
    assert sorted(effect.name for effect in hf.effects("t")) == ["a", "judge"]


def test_tools_of_an_mcp_server(hf: Holdfast) -> None:
    from agents.mcp import MCPServer
    from mcp.types import CallToolResult, TextContent, Tool

    called: list[str] = []

    class Server(MCPServer):  # type: ignore[misc]
        name = "shop"

        async def connect(self) -> None: ...
        async def cleanup(self) -> None: ...
        async def list_tools(self, *args: Any) -> Any:
            schema = {"type": "object", "properties": {}}
            try:
                return [Tool(name="stock", inputSchema=schema)]
            except Exception:  # noqa: BLE001 - the names of the fields differ between versions
                return [Tool(name="stock", input_schema=schema)]

        async def call_tool(self, tool_name: str, *args: Any, **kwargs: Any) -> Any:
            called.append(tool_name)
            return CallToolResult(content=[TextContent(type="text", text="7")])

        async def list_prompts(self) -> Any: ...
        async def get_prompt(self, *args: Any, **kwargs: Any) -> Any: ...

    def agent() -> Agent[Any]:
        model = ScriptedModel([[function_call("stock", {}, call_id="c1")], [assistant_message("done")]])
        return durable(Agent(name="a", model=model, mcp_servers=[Server()]))

    results = asyncio.run(twice(hf, [agent(), agent()]))
    assert called == ["stock"]
    assert results[0].to_input_list() == results[1].to_input_list()
    assert [effect.name for effect in hf.effects("t")] == ["a", "stock", "a"]


def test_what_would_not_be_recorded_is_refused() -> None:
    plain = Agent(name="sub", model=ScriptedModel([]))
    with pytest.raises(InvalidArgument, match=r"durable\(agent\)\.as_tool"):
        durable(Agent(name="a", tools=[plain.as_tool("sub", "")]))
    with pytest.raises(InvalidArgument, match="LocalShellTool cannot be made durable"):
        durable(Agent(name="a", tools=[LocalShellTool(executor=lambda request: "")]))
    with pytest.raises(InvalidArgument, match="declare: buy"):
        durable(plain, declare={"buy": {"effect": "x"}})


def test_a_conversation_of_turns(hf: Holdfast) -> None:
    async def main() -> list[Any]:
        results = []
        for turn in ("r1", "r2", "r2", "r1"):
            agent = Agent(name="a", model=ScriptedModel([[assistant_message(f"reply to {turn}")]]))
            results.append(await run_durably(hf, agent, f"question {turn}", thread="t", turn=turn))
        return results

    assert asyncio.run(main()) == ["reply to r1", "reply to r2", "reply to r2", "reply to r1"]
    head = hf.thread("t").latest()
    assert head is not None
    assert [item.get("role") for item in head.state["messages"]] == ["user", "assistant"] * 2


def test_a_turn_after_a_hand_off_continues_with_that_agent(hf: Holdfast) -> None:
    def agent() -> Agent[Any]:
        script = [[function_call("look", {}, call_id="c1")], [assistant_message("from the buyer")]]
        buyer = Agent(name="buyer", model=ScriptedModel(script), tools=[look])
        handed = [function_call("transfer_to_buyer", {}, call_id="h1")]
        return Agent(
            name="clerk", model=ScriptedModel([handed, [assistant_message("from the clerk")]]), handoffs=[buyer]
        )

    async def main() -> tuple[Any, Any]:
        first = await run_durably(hf, agent(), "go", thread="t")
        last = next(each for each in hf.thread("t").history() if each.trigger == "save")
        assert hf.thread("t").load(last).state["agent"] == "buyer"
        hf.thread("t").fork("f", at=last)
        continued = agent()
        continued.handoffs[0].model = ScriptedModel([[assistant_message("again from the buyer")]])
        return first, await run_durably(hf, continued, None, thread="f")

    assert asyncio.run(main()) == ("from the buyer", "again from the buyer")


@function_tool
def look() -> str:
    return "seen"


def test_a_conversation_without_messages_cannot_be_continued(hf: Holdfast) -> None:
    with pytest.raises(InvalidArgument, match="has no messages to continue from"):
        asyncio.run(run_durably(hf, Agent(name="a", model=ScriptedModel([])), None, thread="t"))


def test_each_turn_of_an_own_block_is_a_step(hf: Holdfast) -> None:
    script = [[function_call("look", {}, call_id="c1")], [assistant_message("done")]]

    async def main() -> None:
        async with hf.aio.run("t", start={"messages": []}) as run:
            async for _ in run.steps():
                with turns():
                    agent = durable(Agent(name="a", model=ScriptedModel(script), tools=[look]))
                    result = await Runner.run(agent, run.state["messages"] or "go")
                await run.finish(result.final_output)

    asyncio.run(main())
    saved = [each for each in hf.thread("t").history() if each.trigger == "save"]
    types = [item.get("type") for item in hf.thread("t").load(saved[0]).state["messages"]]
    assert types == [None, "function_call", "function_call_output"]


def test_the_model_of_a_run_config_is_recorded(hf: Holdfast) -> None:
    async def main(*reply: Any) -> Any:
        config = RunConfig(model=ScriptedModel(list(reply)))
        agent = Agent(name="a", model=ScriptedModel([]))
        return await run_durably(hf, agent, "go", thread="t", run_config=config)

    assert asyncio.run(main([assistant_message("done")])) == "done"
    assert [effect.name for effect in hf.effects("t")] == ["a"]
    other, config = durable(Agent(name="a", model=ScriptedModel([]))), RunConfig(model=ScriptedModel([]))
    with pytest.raises(InvalidArgument, match=r"run_config\.model"):
        asyncio.run(run_durably(hf, other, "go", thread="u", run_config=config))


def test_a_clone_of_a_durable_agent_is_durable(hf: Holdfast) -> None:
    agent = durable(Agent(name="a", model=ScriptedModel([[assistant_message("done")]]))).clone(instructions="Be short.")

    async def main() -> None:
        async with hf.aio.run("t", start={}):
            await Runner.run(agent, "go")

    asyncio.run(main())
    assert [effect.name for effect in hf.effects("t")] == ["a"]


def test_a_session_has_the_history_of_run_durably(hf: Holdfast) -> None:
    async def main() -> None:
        for turn in ("r1", "r2"):
            agent = Agent(name="a", model=ScriptedModel([[assistant_message(f"reply to {turn}")]]))
            await run_durably(hf, agent, turn, thread="t", turn=turn, session=HoldfastSession("chat", hf))

    asyncio.run(main())
    assert [item.get("role") for item in hf.thread("chat").tail("messages")] == ["user", "assistant"] * 2


def test_a_poisoned_thread_is_repaired_when_it_is_continued(hf: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
    hf.thread("t").save({"messages": [{"role": "user", "content": "hi"}, call]})
    agent = Agent(name="a", model=ScriptedModel([[assistant_message("done")]]))
    with caplog.at_level("WARNING", "holdfast"):
        assert asyncio.run(run_durably(hf, agent, "go on", thread="t")) == "done"
    assert "call 'c1' has no output" in caplog.text


def test_a_response_that_failed_is_asked_for_again(hf: Holdfast) -> None:
    class Failing(ScriptedModel):  # type: ignore[misc]
        async def stream_response(self, *args: Any, **kwargs: Any) -> Any:
            fields: Any = {"id": "r", "created_at": 0, "model": "m", "object": "response", "output": [], "tools": []}
            response = Response(**fields, parallel_tool_calls=True, tool_choice="auto", status="failed")
            yield ResponseFailedEvent(type="response.failed", response=response, sequence_number=1)

    async def main(model: Any) -> Any:
        async with hf.aio.run("t", start={}) as run:
            result = Runner.run_streamed(durable(Agent(name="a", model=model)), "go")
            async for _ in result.stream_events():
                pass
            await run.finish(result.final_output)
        return run.result

    with pytest.raises((ConnectionError, AgentsException)):
        asyncio.run(main(Failing([])))
    assert [effect.result for effect in hf.effects("t") if effect.status == "done"] == []
    assert asyncio.run(main(ScriptedModel([[assistant_message("done")]]))) == "done"


def test_a_cancelled_agent_can_be_resumed(hf: Holdfast) -> None:
    called: list[str] = []
    is_called, may_end = asyncio.Event(), asyncio.Event()

    @function_tool
    async def pay() -> str:
        called.append("pay")
        is_called.set()
        await may_end.wait()
        return "paid"

    def agent(*replies: Any) -> Agent[Any]:
        return Agent(name="a", model=ScriptedModel(list(replies)), tools=[pay])

    async def main() -> Any:
        first = agent([function_call("pay", {}, call_id="c1")])
        task = asyncio.create_task(run_durably(hf, first, "go", thread="t"))
        await is_called.wait()
        task.cancel()
        asyncio.get_running_loop().call_later(0.05, may_end.set)
        with pytest.raises(asyncio.CancelledError):
            await task
        return await run_durably(hf, agent([assistant_message("done")]), "go", thread="t")

    assert asyncio.run(main()) == "done"
    assert called == ["pay"]
    assert [effect.name for effect in hf.effects("t")] == ["a", "pay", "a"]


def test_the_budget_counts_the_usage(tmp_path: Path, hf: Holdfast) -> None:
    agent = durable(agent_of(World(tmp_path), "same ids", "ask", []), declare={"look_up": {"effect": "read"}})

    async def main() -> None:
        async with hf.aio.run("t", start={}, guards=[holdfast.Budget(tokens=12)]):
            await Runner.run(agent, "go")

    with pytest.raises(UserError, match="budget of 12 tokens"):  # the SDK wraps the errors of tools
        asyncio.run(main())
    info = hf.run_info("t")
    assert info is not None
    assert info.status == "halted"


# -- the session ------------------------------------------------------------------------------------------------------


def items(*numbers: int) -> list[Any]:
    return [{"role": "user", "content": f"message {number}"} for number in numbers]


@pytest.mark.parametrize("store", [*STORES, "memory:", "handle"])
def test_a_session_follows_the_protocol(tmp_path: Path, hf: Holdfast, store: str) -> None:
    async def main() -> None:
        given: Any = {"handle": hf, "memory:": store}.get(store) or url_of(store, tmp_path / "s")
        session = HoldfastSession("s", given)
        assert isinstance(session, Session)
        assert await session.get_items() == []
        assert await session.pop_item() is None
        await session.add_items([])
        await session.add_items(items(1, 2))
        await session.add_items(items(3))
        assert await session.get_items() == items(1, 2, 3)
        assert await session.get_items(2) == items(2, 3)
        assert await session.get_items(0) == []
        session.session_settings = SessionSettings(limit=1)
        assert await session.get_items() == items(3)
        assert await session.get_items(2) == items(2, 3)
        session.session_settings = None
        assert await session.pop_item() == items(3)[0]
        other = HoldfastSession("other", session._hf or hf)
        await other.add_items(items(9))
        await session.clear_session()
        assert await session.get_items() == []
        assert await other.get_items() == items(9)
        await session.add_items([{"role": "user", "content": "größe 'x'; DROP TABLE", "extra": {"a": [1, None]}}])
        assert (await session.get_items())[0]["extra"] == {"a": [1, None]}
        session.close()
        with pytest.raises(Closed):
            await session.add_items([])

    asyncio.run(main())
    if store == "handle":
        assert hf.thread("s").latest() is not None  # an open handle stays open


def test_an_async_handle_is_an_open_handle(hf: Holdfast) -> None:
    session = HoldfastSession("s", hf.aio)
    asyncio.run(session.add_items([{"role": "user", "content": "hi"}]))
    session.close()
    assert hf.thread("s").tail("messages") == [{"role": "user", "content": "hi"}]


def test_each_item_is_popped_once(tmp_path: Path) -> None:
    async def main() -> list[Any]:
        session = HoldfastSession("s", tmp_path / "s.db")
        await session.add_items(items(*range(20)))
        popped = await asyncio.gather(*[session.pop_item() for _ in range(25)])
        session.close()
        return popped

    found = [item["content"] for item in asyncio.run(main()) if item is not None]
    assert sorted(found) == sorted(item["content"] for item in items(*range(20)))


def test_parallel_writers_lose_nothing(tmp_path: Path) -> None:
    async def main() -> list[Any]:
        sessions = [HoldfastSession("s", tmp_path / "s.db") for _ in range(3)]
        await asyncio.gather(*[sessions[n % 3].add_items(items(n)) for n in range(30)])
        found = await sessions[0].get_items()
        for session in sessions:
            session.close()
        return found

    assert sorted(item["content"] for item in asyncio.run(main())) == sorted(i["content"] for i in items(*range(30)))


def test_a_cancelled_mutation_is_known_to_be_made(tmp_path: Path) -> None:
    async def main() -> list[Any]:
        session = HoldfastSession("s", tmp_path / "s.db")
        task = asyncio.create_task(session.add_items(items(1)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        found = await session.get_items()
        session.close()
        return found

    assert asyncio.run(main()) in (items(1), [])


def test_a_poisoned_conversation_is_repaired_on_load(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "buy", "arguments": "{}"}
    orphan = {"type": "function_call_output", "call_id": "c0", "output": "x"}

    async def main() -> None:
        session = HoldfastSession("s", tmp_path / "s.db")
        await session.add_items([*items(1), orphan, call, *items(2)])
        first, _, added, last = await session.get_items()
        assert (first, last) == (items(1)[0], items(2)[0])
        assert (added["type"], added["call_id"]) == ("function_call_output", "c1")
        assert len(session.repairs) == 2
        assert await session.get_items(limit=9) == [*items(1), orphan, call, *items(2)]  # the stored items
        await session.add_items([{"type": "function_call_output", "call_id": "c1", "output": "ok"}])
        assert len([item for item in await session.get_items() if item.get("call_id") == "c1"]) == 2
        session.close()

    with caplog.at_level("WARNING", "holdfast"):
        asyncio.run(main())
    assert "has no output" in caplog.text


def test_repairs_keep_pairs_in_order() -> None:
    def call(id: str) -> dict[str, Any]:
        return {"type": "function_call", "call_id": id}

    def output(id: str) -> dict[str, Any]:
        return {"type": "function_call_output", "call_id": id}

    sound = [call("a"), call("b"), output("b"), output("a"), call("a"), output("a")]
    assert repaired_items(sound) == (sound, [])
    early, repairs = repaired_items([output("a"), call("a")])
    assert [(item["type"], item["call_id"]) for item in early] == [
        ("function_call", "a"),
        ("function_call_output", "a"),
    ]
    assert len(repairs) == 2
    again, _ = repaired_items([call("a"), output("a"), output("a"), call("a")])
    assert [item["type"] for item in again] == ["function_call", "function_call_output"] * 2
    assert again[3]["output"].startswith("The call was interrupted")


def test_a_session_in_a_run_gets_its_items_once(hf: Holdfast) -> None:
    def agent() -> Agent[Any]:
        return durable(Agent(name="a", model=ScriptedModel([[assistant_message("done")]])))

    results = asyncio.run(twice(hf, [agent(), agent()], session=HoldfastSession("chat", hf)))
    assert [result.final_output for result in results] == ["done", "done"]
    roles = [item.get("role") for item in hf.thread("chat").tail("messages")]
    assert roles == ["user", "assistant"]


def test_a_run_records_which_items_it_has_read(hf: Holdfast) -> None:
    """The items themselves would be stored again in each turn."""
    session = HoldfastSession("s", hf)

    async def turn(name: str) -> None:
        async with hf.aio.run("t", start={}, turn=name):
            before = await session.get_items()
            await session.add_items([{"role": "user", "content": name}])
            raise Stop(before)

    found = []
    for name in ("1", "1"):
        with pytest.raises(Stop) as stopped:
            asyncio.run(turn(name))
        found.append(stopped.value.args[0])
    assert found == [[], []]
    asyncio.run(session.add_items([{"role": "user", "content": "x" * 1000}]))
    with pytest.raises(Stop):
        asyncio.run(turn("1"))
    results = [effect.result for effect in hf.effects("t") if effect.name == "session.get_items"]
    assert len(str(results)) < 100
    assert len(asyncio.run(session.get_items())) == 2


def test_a_run_is_resumed_after_the_items_that_it_has_read_were_pruned(hf: Holdfast) -> None:
    session = HoldfastSession("s", hf)
    asyncio.run(session.add_items([{"role": "user", "content": "before"}]))

    async def turn() -> None:
        async with hf.aio.run("t", start={}):
            before = await session.get_items()
            await session.add_items([{"role": "user", "content": "new"}])
            raise Stop(before)

    for _ in range(2):
        with pytest.raises(Stop) as stopped:
            asyncio.run(turn())
        assert [item["content"] for item in stopped.value.args[0]] == ["before"]
        hf.thread("s").prune(holdfast.Retention(keep_last=1))


def test_a_session_is_not_cleared_if_that_would_drop_a_call(hf: Holdfast) -> None:
    session = HoldfastSession("s", hf)
    asyncio.run(session.add_items([{"role": "user", "content": "before"}]))
    pay = holdfast.tool(effect="irreversible", name="pay")(lambda: "paid")
    with suppress(Stop), hf.run("s") as run:
        run.tool(pay, {})
        raise Stop
    with pytest.raises(EffectsAhead, match="has called pay"):
        asyncio.run(session.clear_session())


def test_a_session_stays_small(tmp_path: Path) -> None:
    async def fill(session: Any, turns: int) -> None:
        for turn in range(turns):
            text = f"turn {turn} " + "some words of a conversation " * 6
            await session.add_items([{"role": "user", "content": text}])
            await session.add_items([{"role": "assistant", "content": [{"type": "output_text", "text": text}]}])
        session.close()

    def size(name: str) -> int:
        with sqlite3.connect(tmp_path / name) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return (tmp_path / name).stat().st_size

    for name, count in (("small", 100), ("large", 300)):
        asyncio.run(fill(HoldfastSession("s", f"{tmp_path}/{name}.db"), count))
        asyncio.run(fill(SQLiteSession("s", tmp_path / f"own-{name}.db"), count))
    ours, theirs = size("large.db") - size("small.db"), size("own-large.db") - size("own-small.db")
    assert ours < theirs * 1.3  # a turn, with its place in the history of the thread
