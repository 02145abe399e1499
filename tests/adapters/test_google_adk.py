"""Google ADK: the kill experiment, the session service, and what the plugin adds to a runner."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent, LoopAgent, ParallelAgent, SequentialAgent
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools import AgentTool, ToolContext, exit_loop
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.function_tool import FunctionTool
from google.genai import types
from pydantic import BaseModel

import holdfast
from holdfast import Holdfast, InvalidArgument
from holdfast.adapters.google_adk import HoldfastPlugin, HoldfastSessionService, run_durably
from holdfast.adapters.seam import turns
from holdfast.errors import Unfinished
from tests.adapters.frameworks import (
    STORES,
    Stop,
    interrupted_and_resumed,
    refused,
    run_page,
    seconds_of,
    size_of,
    url_of,
)
from tests.adapters.google_adk_agent import ScriptedModel
from tests.adapters.kill_contract import KillContract
from tests.adapters.kill_world import SCRIPTS, Use, World, killed_and_resumed

# ADK says so where it is experimental.
pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


class TestKill(KillContract):
    PROGRAM = "tests.adapters.google_adk_agent"

    def told(self, seen: Any) -> Any:
        return [each.get("result", each) for each in seen]

    def test_a_hand_off(self, world: Path) -> None:
        found = killed_and_resumed(self.PROGRAM, world, "hand-off", "probe")
        assert (found.status, found.result, found.ledger) == ("completed", "bought", ["paper"])
        assert len(found.models) == len(set(found.models))  # none is paid again


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a model that replies as given."""

    def make(*replies: list[Use] | str, name: str = "given") -> ScriptedModel:
        monkeypatch.setitem(SCRIPTS, name, list(replies))
        return ScriptedModel(model="scripted", world=World(tmp_path), script=name, seen=[])

    return make


def agent_with(model: Any, **options: Any) -> LlmAgent:
    return LlmAgent(**{"name": "a", **options}, model=model)


async def events_of(agent: Any, plugins: list[Any], service: Any = None, session_id: str = "s") -> list[Any]:
    sessions = service or InMemorySessionService()
    runner = Runner(app_name="shop", agent=agent, session_service=sessions, plugins=plugins, auto_create_session=True)
    message = types.UserContent("go")
    return [event async for event in runner.run_async(user_id="u", session_id=session_id, new_message=message)]


async def twice(hf: Holdfast, make: Any, *, declare: Any = None, plugins: Any = (), service: Any = None) -> list[Any]:
    """Run an agent in a block that fails, and an equal one in a block that resumes the run."""
    return await interrupted_and_resumed(
        hf, lambda: events_of(make(), [*plugins, HoldfastPlugin(declare=declare)], service)
    )


def plain(events: list[Any]) -> list[Any]:
    """What is the same in a run and when it is resumed."""
    volatile = {"id", "timestamp", "invocation_id", "node_info"}
    return [event.model_dump(mode="json", exclude_none=True, exclude=volatile) for event in events]


def models(tmp_path: Path) -> list[str]:
    return World(tmp_path).lines("models")


# -- the plugin -------------------------------------------------------------------------------------------------------


def test_outside_a_run_nothing_changes(model: Any, hf: Holdfast) -> None:
    events = asyncio.run(events_of(agent_with(model("hello")), [HoldfastPlugin()]))
    assert events[-1].content.parts[0].text == "hello"
    assert list(hf.threads()) == []


def test_results_are_the_same_after_a_resume(hf: Holdfast, model: Any, tmp_path: Path) -> None:
    called: list[str] = []

    def find(name: str, tool_context: ToolContext) -> dict[str, Any]:
        """Find."""
        called.append(name)
        tool_context.state["found"] = {"name": name}
        tool_context.state["user:last"] = name
        return {"n": 1, "data": b"\x00\xff"}

    def plain_text() -> str:
        """A text."""
        return "text"

    made = model([Use("find", {"name": "x"}, ""), Use("plain_text", {}, "")], "done")
    results = asyncio.run(twice(hf, lambda: agent_with(made, tools=[find, plain_text])))
    assert called == ["x"]
    assert models(tmp_path) == ["given 0", "given 1"]
    assert plain(results[0]) == plain(results[1])
    deltas = [event.actions.state_delta for event in results[1] if event.actions.state_delta]
    assert deltas == [{"found": {"name": "x"}, "user:last": "x"}]
    ids = [call.id for event in results[0] for call in event.get_function_calls()]
    assert all(id_.startswith("adk-") for id_ in ids)  # those of ADK, and the same after a resume
    first_call, *tools, last = [effect.name for effect in hf.effects("t")]
    assert (first_call, sorted(tools), last) == ("a", ["find", "plain_text"], "a")


def test_callbacks_of_agents_and_plugins_are_called_each_time(hf: Holdfast, model: Any, tmp_path: Path) -> None:
    calls: list[str] = []

    def before_tool(tool: Any, args: Any, tool_context: Any) -> Any:
        calls.append("policy")
        return {"error": "not allowed"} if tool.name == "drop" else None

    def after_model(callback_context: Any, llm_response: Any) -> Any:
        calls.append("after model")
        return None

    class Watch(BasePlugin):  # type: ignore[misc]
        async def before_model_callback(self, **kwargs: Any) -> None:
            calls.append("plugin")

    def drop() -> str:
        """Drop."""
        World(tmp_path).note("dropped", "x")
        return "dropped"

    made = model([Use("drop", {}, "c1")], "done")
    options: Any = {"before_tool_callback": before_tool, "after_model_callback": after_model}
    results = asyncio.run(twice(hf, lambda: agent_with(made, tools=[drop], **options), plugins=[Watch("watch")]))
    assert plain(results[0]) == plain(results[1])
    assert World(tmp_path).lines("dropped") == []
    assert calls[: len(calls) // 2] == calls[len(calls) // 2 :]
    assert "policy" in calls
    assert [effect.name for effect in hf.effects("t")] == ["a", "a"]


def test_tools_of_a_toolset_and_of_adk(hf: Holdfast, model: Any, tmp_path: Path) -> None:
    def stock() -> int:
        """How many."""
        World(tmp_path).note("reads", "stock")
        return 7

    class Shop(BaseToolset):  # type: ignore[misc]
        async def get_tools(self, readonly_context: Any = None) -> list[Any]:
            return [FunctionTool(stock)]

        async def close(self) -> None: ...

    def make() -> Any:
        made = model([Use("shop_stock", {}, "c1")], [Use("exit_loop", {}, "c2")])
        return LoopAgent(name="loop", sub_agents=[agent_with(made, tools=[Shop(tool_name_prefix="shop"), exit_loop])])

    results = asyncio.run(twice(hf, make))
    assert plain(results[0]) == plain(results[1])
    assert World(tmp_path).lines("reads") == ["stock"]
    assert [effect.name for effect in hf.effects("t")] == ["a", "shop_stock", "a", "exit_loop"]


def test_agents_in_sequence_and_in_parallel(hf: Holdfast, model: Any, tmp_path: Path) -> None:
    def make() -> Any:
        both = [agent_with(model(f"{name} is done", name=name), name=name) for name in ("one", "two")]
        last = agent_with(model("", "", "three is done", name="three"), name="three")
        return SequentialAgent(name="all", sub_agents=[ParallelAgent(name="both", sub_agents=both), last])

    # ADK gives each agent what the others said as a message of the user.
    SCRIPTS["three"] = ["three is done"]
    results = asyncio.run(twice(hf, lambda: _with_script(make(), "three", ["three is done"])))
    texts = [sorted(event.content.parts[0].text for event in events) for events in results]
    assert texts == [["one is done", "three is done", "two is done"]] * 2
    assert sorted(models(tmp_path)) == ["one 0", "three 0", "two 0"]


def _with_script(agent: Any, name: str, replies: list[Any]) -> Any:
    SCRIPTS[name] = replies
    return agent


def test_an_agent_without_plugins_is_one_call(hf: Holdfast, model: Any, tmp_path: Path) -> None:
    def make() -> Any:
        sub = agent_with(model("from sub", name="sub"), name="sub")
        made = model([Use("sub", {"request": "x"}, "c1")], "done")
        return agent_with(made, tools=[AgentTool(sub, include_plugins=False)])

    results = asyncio.run(twice(hf, make))
    assert plain(results[0]) == plain(results[1])
    assert [effect.name for effect in hf.effects("t")] == ["a", "sub", "a"]


def test_errors_of_tools(hf: Holdfast, model: Any, tmp_path: Path) -> None:
    """An error ends an agent, unless a callback makes a result of it: then it is declared as the outcome."""

    def pay() -> str:
        """Pay."""
        World(tmp_path).note("ledger", "x")
        raise ConnectionError("lost")

    def handled(tool: Any, args: Any, tool_context: Any, error: Any) -> Any:
        return {"error": f"{type(error).__name__}: {error}"}

    make: Any = lambda: agent_with(model([Use("pay", {}, "c1")], "done"), tools=[pay], on_tool_error_callback=handled)  # noqa: E731
    results = asyncio.run(twice(hf, make, declare={"pay": {"errors": "outcome"}}))
    assert plain(results[0]) == plain(results[1])
    assert World(tmp_path).lines("ledger") == ["x"]
    with pytest.raises(Unfinished):
        asyncio.run(run_durably(hf, make(), "go", thread="u"))
    assert [question.name for question in hf.waiting()] == ["pay"]


class Order(BaseModel):
    item: str


def test_an_error_is_the_same_after_a_resume(hf: Holdfast, model: Any) -> None:
    seen: list[str] = []

    class ShopError(Exception):
        pass

    def buy() -> None:
        """Buy."""
        raise ShopError("sold out")

    def handled(tool: Any, args: Any, tool_context: Any, error: Exception) -> dict[str, str]:
        seen.append(repr(error))
        return {"error": str(error)}

    make: Any = lambda: agent_with(  # noqa: E731
        model([Use("buy", {}, "c1")], "done"), tools=[buy], on_tool_error_callback=handled
    )
    results = asyncio.run(twice(hf, make, declare={"buy": {"errors": "outcome"}}))
    assert plain(results[0]) == plain(results[1])
    assert seen == ["ShopError('sold out')", "ShopError('sold out')"]


def test_structured_output(hf: Holdfast, model: Any) -> None:
    agent = agent_with(model('{"item": "ink"}'), output_schema=Order)
    assert asyncio.run(run_durably(hf, agent, "go", thread="t")) == {"item": "ink"}
    assert asyncio.run(run_durably(hf, agent, "go", thread="t")) == {"item": "ink"}


def test_two_confirmations_are_asked_at_once(hf: Holdfast, model: Any, tmp_path: Path) -> None:
    def pay(item: str) -> str:
        """Pay."""
        return World(tmp_path).pay(item)

    made = model([Use("pay", {"item": "ink"}, "c1"), Use("pay", {"item": "pen"}, "c2")], "done")
    agent = agent_with(made, tools=[FunctionTool(pay, require_confirmation=True)])
    with pytest.raises(Unfinished):
        asyncio.run(run_durably(hf, agent, "go", thread="t"))
    assert {question.name for question in hf.waiting()} == {"approve c1", "approve c2"}
    hf.answer("t", "approve c1", True)
    hf.answer("t", "approve c2", "no pens")
    assert asyncio.run(run_durably(hf, agent, "go", thread="t")) == "done"
    assert World(tmp_path).lines("ledger") == ["ink"]
    assert "no pens" in str(made.seen)


def test_the_budget_counts_the_usage(hf: Holdfast, model: Any) -> None:
    def noop() -> str:
        """Nothing."""
        return ""

    agent = agent_with(model([Use("noop", {}, "c1")], "done"), tools=[noop])

    async def main() -> None:
        async with hf.aio.run("t", start={}, guards=[holdfast.Budget(tokens=12)]):
            await events_of(agent, [HoldfastPlugin()])

    with pytest.raises(holdfast.Halted, match="budget of 12 tokens"):
        asyncio.run(main())


def test_a_cancelled_agent_can_be_resumed(hf: Holdfast, model: Any, tmp_path: Path) -> None:
    started = asyncio.Event()

    async def slow() -> str:
        """Slow."""
        if not started.is_set():
            started.set()
            await asyncio.sleep(600)
        return "slept"

    async def main() -> Any:
        agent = agent_with(model([Use("slow", {}, "c1")], "done"), tools=[slow])
        options: Any = {"thread": "t", "declare": {"slow": {"effect": "idempotent"}}}
        task = asyncio.create_task(run_durably(hf, agent, "go", **options))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await run_durably(hf, agent, "go", **options)

    assert asyncio.run(main()) == "done"
    assert len(models(tmp_path)) == 2


def test_a_conversation_of_turns(hf: Holdfast, model: Any) -> None:
    def remember(tool_context: ToolContext) -> int:
        """Count."""
        tool_context.state["n"] = tool_context.state.get("n", 0) + 1
        return int(tool_context.state["n"])

    agent = agent_with(
        model([Use("remember", {}, "c1")], "reply to r1", [Use("remember", {}, "c2")], "reply to r2"), tools=[remember]
    )

    async def main() -> list[Any]:
        return [
            await run_durably(hf, agent, f"question {turn}", thread="t", turn=turn) for turn in ("r1", "r2", "r2", "r1")
        ]

    assert asyncio.run(main()) == ["reply to r1", "reply to r2", "reply to r2", "reply to r1"]
    head = hf.thread("t").latest()
    assert head is not None
    assert head.state["session"] == {"n": 2}
    assert [record["author"] for record in head.state["messages"]] == ["user", "a", "a", "a"] * 2


def test_wrong_declarations_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="declare: buy"):
        HoldfastPlugin(declare={"buy": {"effect": "x"}})


def test_another_version_is_refused() -> None:
    assert "pip install 'holdfast[google-adk]'" in refused("google_adk", None)
    assert "from 2.13 to before 3, and 3.0 is installed" in refused("google_adk", "3.0")


def test_the_page(tmp_path: Path) -> None:
    run_page("google_adk.md", tmp_path)


# -- the session service ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", STORES)
def test_a_service_follows_the_interface(tmp_path: Path, store: str) -> None:
    async def main() -> None:
        service = HoldfastSessionService(url_of(store, tmp_path / "store"))
        app: Any = {"app_name": "my/app"}
        mine: Any = {**app, "user_id": "u1"}
        assert await service.get_session(**mine, session_id="s1") is None
        given = {"k": 1, "user:k": 2, "app:k": 3, "temp:k": 4}
        session = await service.create_session(**mine, session_id=" s1 ", state=given)
        assert session.id == "s1"
        assert session.state == {"k": 1, "user:k": 2, "app:k": 3}
        assert await service.get_session(**mine, session_id="s1") == session
        assert await service.get_session(**mine, session_id=" s1 ") == session
        with pytest.raises(AlreadyExistsError):
            await service.create_session(**mine, session_id="s1")
        assert (await service.create_session(**mine, session_id="s2")).state == {"user:k": 2, "app:k": 3}
        assert (await service.create_session(**app, user_id="u2", session_id="s1")).state == {"app:k": 3}
        assert (await service.create_session(**mine)).id  # an id of its own
        assert await service.get_user_state(**mine) == {"k": 2}
        assert await service.get_user_state(**app, user_id="nobody") == {}

        content = types.Content(role="user", parts=[types.Part.from_bytes(data=b"\x00\xff", mime_type="image/png")])
        delta = {"k": None, "more": [1, {"x": 0.1 + 0.2}], "temp:t": 1, "user:k": "new", "app:k2": True}
        event = Event(
            invocation_id="i1",
            author="user",
            timestamp=session.last_update_time + 10,
            content=content,
            actions=EventActions(state_delta=delta, artifact_delta={"f": 1}, escalate=True),
            long_running_tool_ids={"t1"},
            usage_metadata=types.GenerateContentResponseUsageMetadata(prompt_token_count=1),
            grounding_metadata=types.GroundingMetadata(search_entry_point=types.SearchEntryPoint(sdk_blob=b"\xfe")),
            custom_metadata={"a": "größe"},
        )
        await service.append_event(session, event)
        assert session.state["temp:t"] == 1
        assert session.last_update_time == event.timestamp
        again = await service.get_session(**mine, session_id="s1")
        assert again.events == [event]
        assert again.events == session.events
        assert again.state == {"k": None, "more": [1, {"x": 0.1 + 0.2}], "user:k": "new", "app:k": 3, "app:k2": True}
        assert again.last_update_time == event.timestamp
        await service.append_event(again, Event(author="user", partial=True))
        assert len((await service.get_session(**mine, session_id="s1")).events) == 1

        for number in range(2, 6):
            await service.append_event(again, Event(author="user", invocation_id=f"i{number}", timestamp=number))

        async def found(**config: Any) -> list[str]:
            read = await service.get_session(**mine, session_id="s1", config=GetSessionConfig(**config))
            assert read.state["more"]
            return [each.invocation_id for each in read.events]

        assert await found(num_recent_events=2) == ["i4", "i5"]
        assert await found(num_recent_events=0) == []
        assert await found(after_timestamp=4) == ["i1", "i4", "i5"]
        assert await found(after_timestamp=5, num_recent_events=3) == ["i5"]

        listed = (await service.list_sessions(**mine)).sessions
        assert listed[0].id == "s1"  # changed last at 5 seconds
        assert len(listed) == 3
        assert all(each.events == [] for each in listed)
        assert listed[0].state["more"]
        assert len((await service.list_sessions(**app)).sessions) == 4
        assert (await service.list_sessions(app_name="other")).sessions == []
        await service.delete_session(**mine, session_id="s1")
        await service.delete_session(**mine, session_id="s1")
        assert await service.get_session(**mine, session_id="s1") is None
        assert len((await service.list_sessions(**app)).sessions) == 3
        service.close()

    asyncio.run(main())


def test_a_stale_session_is_refused(hf: Holdfast) -> None:
    async def main() -> None:
        service = HoldfastSessionService(hf)
        key: Any = {"app_name": "app", "user_id": "u", "session_id": "s"}
        one = await service.create_session(**key)
        two = await service.get_session(**key)
        await service.append_event(one, Event(author="one"))
        with pytest.raises(ValueError, match="was changed by another writer"):
            await service.append_event(two, Event(author="two"))
        assert [event.author for event in (await service.get_session(**key)).events] == ["one"]
        assert two.events == []
        gone = await service.get_session(**key)
        await service.delete_session(**key)
        with pytest.raises(ValueError, match="does not exist"):
            await service.append_event(gone, Event(author="two"))

    asyncio.run(main())


@pytest.mark.parametrize("store", STORES)
def test_an_agent_continues_its_session(tmp_path: Path, store: str, model: Any) -> None:
    async def main() -> None:
        for reply in ("one", "two"):
            service = HoldfastSessionService(url_of(store, tmp_path / "store"))
            events = await events_of(agent_with(model("one", "two")), [], service)
            assert events[-1].content.parts[0].text == reply
            service.close()

    asyncio.run(main())


def test_a_session_in_a_run_gets_its_events_once(hf: Holdfast, model: Any, tmp_path: Path) -> None:
    service = HoldfastSessionService(hf)

    def count(tool_context: ToolContext) -> int:
        """Count."""
        tool_context.state["n"] = tool_context.state.get("n", 0) + 1
        return int(tool_context.state["n"])

    make: Any = lambda: agent_with(model("before", [Use("count", {}, "c1")], "done"), tools=[count])  # noqa: E731
    asyncio.run(events_of(make(), [], service))
    results = asyncio.run(twice(hf, make, service=service))
    assert plain(results[0]) == plain(results[1])
    session = asyncio.run(service.get_session(app_name="shop", user_id="u", session_id="s"))
    assert [event.author for event in session.events] == ["user", "a", "user", "a", "a", "a"]
    assert session.state == {"n": 1}
    assert len(models(tmp_path)) == 3


def test_a_session_in_a_run_whose_turns_are_steps(hf: Holdfast, model: Any, tmp_path: Path) -> None:
    service = HoldfastSessionService(hf)

    def count(tool_context: ToolContext) -> int:
        """Count."""
        tool_context.state["n"] = tool_context.state.get("n", 0) + 1
        return int(tool_context.state["n"])

    async def main() -> None:
        for is_first in (True, False):
            made = model([Use("count", {}, "c1")], [Use("count", {}, "c2")], "done")
            with suppress(Stop):
                async with hf.aio.run("t", start={}) as run:
                    async for _ in run.steps():
                        with turns():
                            await events_of(agent_with(made, tools=[count]), [HoldfastPlugin()], service)
                        if is_first:
                            raise Stop
                        await run.finish()

    asyncio.run(main())
    session = asyncio.run(service.get_session(app_name="shop", user_id="u", session_id="s"))
    assert [event.author for event in session.events] == ["user", "a", "a", "a", "a", "a"]
    assert session.state == {"n": 2}
    assert len(models(tmp_path)) == 3


def test_a_run_does_not_discard_what_others_said(hf: Holdfast, model: Any) -> None:
    service = HoldfastSessionService(hf)
    key: Any = {"app_name": "shop", "user_id": "u", "session_id": "s"}

    async def interrupted(*, is_changed: bool) -> None:
        async with hf.aio.run("t", start={}):
            await events_of(agent_with(model("done")), [HoldfastPlugin()], service)
            if is_changed:
                raise Stop

    with pytest.raises(Stop):
        asyncio.run(interrupted(is_changed=True))

    async def other() -> None:
        await service.append_event(await service.get_session(**key), Event(author="other"))

    asyncio.run(other())
    with pytest.raises(ValueError, match="was changed outside of the run"):
        asyncio.run(interrupted(is_changed=False))
    assert asyncio.run(service.get_session(**key)).events[-1].author == "other"


def test_a_poisoned_session_is_reported_and_left_as_it_is(hf: Holdfast, model: Any, caplog: Any) -> None:
    service = HoldfastSessionService(hf)
    key: Any = {"app_name": "shop", "user_id": "u", "session_id": "s"}
    call = types.Part(function_call=types.FunctionCall(id="c1", name="buy", args={}))
    orphan = types.Part(function_response=types.FunctionResponse(id="c0", name="buy", response={}))

    async def poison() -> None:
        session = await service.create_session(**key)
        await service.append_event(session, Event(author="a", content=types.Content(role="model", parts=[call])))
        await service.append_event(session, Event(author="a", content=types.Content(role="user", parts=[orphan])))

    asyncio.run(poison())
    made = model("done")
    with caplog.at_level("WARNING", "holdfast"):
        asyncio.run(events_of(agent_with(made), [], service))
    assert "function call 'c1' has no response" in caplog.text
    assert "the response to 'c0' has no function call" in caplog.text
    asyncio.run(service.get_session(**key))
    assert len(service.repairs) == 2
    assert made.seen == [] or "c0" not in str(made.seen)  # ADK leaves them out of its request
    assert len(hf.thread("shop/u/s").tail("messages")) == 4


def test_500_turns_beside_the_database_of_adk(tmp_path: Path) -> None:
    async def fill(service: Any) -> None:
        session = await service.create_session(app_name="a", user_id="u", session_id="s")
        for turn in range(500):
            text = f"turn {turn} " + "some words of a conversation " * 6
            for author, content in (("user", types.UserContent(text)), ("a", types.ModelContent(text))):
                await service.append_event(session, Event(author=author, invocation_id=f"i{turn}", content=content))

    hf = holdfast.open(tmp_path / "ours.db", durability="off")
    ours = seconds_of(lambda: fill(HoldfastSessionService(hf)))
    hf.close()
    theirs = seconds_of(lambda: fill(SqliteSessionService(str(tmp_path / "theirs.db"))))
    assert size_of(tmp_path / "ours.db") < size_of(tmp_path / "theirs.db")
    assert ours < theirs * 3, (ours, theirs)


@pytest.mark.parametrize("kind", ["sqlite", "directory"])
def test_a_kill_while_an_event_and_shared_states_are_saved(tmp_path: Path, kind: str) -> None:
    """Killed after the first, second … commit: an event has its deltas. A directory commits one thread at a time."""
    url = f"dir:{tmp_path / 'sessions'}" if kind == "directory" else str(tmp_path / "sessions.db")
    actions = EventActions(state_delta={"user:n": 1, "app:n": 1, "n": 1})

    async def append(app: str, at: int) -> None:
        with holdfast.open(url, durability="off") as hf:
            service: Any = HoldfastSessionService(hf)
            session = await service.create_session(app_name=app, user_id="u", session_id="s", state={"user:n": 0})
            store: Any = hf.context.store
            commit, commits = store.commit, iter(range(1, 9))

            def commit_and_die(made: Any) -> Any:
                answer = commit(made)
                if next(commits) == at:
                    os.kill(os.getpid(), signal.SIGKILL)
                return answer

            store.commit = commit_and_die
            await service.append_event(session, Event(author="a", invocation_id="i", actions=actions))

    async def seen(app: str) -> tuple[Any, ...]:
        with holdfast.open(url, durability="off") as hf:
            service: Any = HoldfastSessionService(hf)
            session = await service.get_session(app_name=app, user_id="u", session_id="s")
            return len(session.events), *(session.state.get(key, 0) for key in ("n", "user:n", "app:n"))

    found = []
    for at in range(1, 5):
        pid = os.fork()
        if not pid:
            try:
                asyncio.run(append(f"shop{at}", at))
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        found.append(asyncio.run(seen(f"shop{at}")))
    if kind == "sqlite":
        assert found == [(1, 1, 1, 1)] * 4
    else:
        assert found == [(1, 1, 0, 0), (1, 1, 0, 1), (1, 1, 1, 1), (1, 1, 1, 1)]


def test_shared_states_of_sessions_that_change_them_at_once(tmp_path: Path) -> None:
    """No delta is lost, on a store that saves threads together and on one that cannot."""

    async def main(url: str) -> None:
        with holdfast.open(url, durability="off") as hf:
            service: Any = HoldfastSessionService(hf)
            sessions = [await service.create_session(app_name="shop", user_id="u") for _ in range(4)]

            async def work(number: int) -> None:
                for at in range(5):
                    delta = EventActions(state_delta={f"user:{number}-{at}": 1, f"app:{number}-{at}": 1})
                    event = Event(author="a", invocation_id="i", actions=delta)
                    await service.append_event(sessions[number], event)

            await asyncio.gather(*(work(number) for number in range(4)))
            found = await service.get_session(app_name="shop", user_id="u", session_id=sessions[0].id)
            expected = {f"{kind}:{number}-{at}" for kind in ("user", "app") for number in range(4) for at in range(5)}
            assert set(found.state) == expected

    asyncio.run(main(str(tmp_path / "sessions.db")))
    asyncio.run(main(f"dir:{tmp_path / 'sessions'}"))
