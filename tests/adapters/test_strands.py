"""Strands Agents: the kill experiment, sessions and storage, and what the plugin adds to an agent."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from strands import Agent, ToolContext, tool
from strands.hooks import AfterToolCallEvent
from strands.middleware import ExecuteToolStage
from strands.multiagent import GraphBuilder, Swarm
from strands.session import SnapshotSessionManager
from strands.session.file_session_manager import FileSessionManager
from strands.session.repository_session_manager import RepositorySessionManager
from strands.storage import Storage
from strands.types.exceptions import EventLoopException, SessionException, StorageError
from strands.types.session import Session, SessionAgent, SessionMessage, SessionType

import holdfast
from holdfast import Holdfast, InvalidArgument
from holdfast.adapters.strands import HoldfastPlugin, HoldfastSessionRepository, HoldfastStorage, run_durably
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
from tests.adapters.kill_contract import KillContract
from tests.adapters.kill_world import SCRIPTS, Use, World
from tests.adapters.strands_agent import ScriptedModel


class TestKill(KillContract):
    PROGRAM = "tests.adapters.strands_agent"

    def told(self, seen: Any) -> Any:
        return [json.loads(each) for each in seen]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a model that replies as given."""
    world = World(tmp_path)

    def model(*replies: list[Use] | str) -> ScriptedModel:
        monkeypatch.setitem(SCRIPTS, "given", list(replies))
        return ScriptedModel(world, "given", [])

    return model


async def twice(hf: Holdfast, make: Any, prompt: Any = "go", **options: Any) -> list[Any]:
    """Run an agent in a block that fails, and an equal one in a block that resumes the run."""

    async def run() -> Any:
        agent = make()
        return await agent.invoke_async(prompt, **options), agent

    return await interrupted_and_resumed(hf, run)


def durable(**options: Any) -> Agent:
    declare = options.pop("declare", None)
    return Agent(**{"name": "a", **options}, callback_handler=None, plugins=[HoldfastPlugin(declare=declare)])


def plain(messages: Any) -> Any:
    return [{name: each for name, each in message.items() if name != "tracking_id"} for message in messages]


def models(tmp_path: Path) -> int:
    return len(World(tmp_path).lines("models"))


# -- the plugin -------------------------------------------------------------------------------------------------------


def test_outside_a_run_nothing_changes(script: Any, hf: Holdfast) -> None:
    assert str(durable(model=script("hello"))("hi")).strip() == "hello"
    assert list(hf.threads()) == []


def test_results_are_the_same_after_a_resume(hf: Holdfast, script: Any, tmp_path: Path) -> None:
    called: list[str] = []
    errors: list[str] = []

    @tool(context=True)
    def find(name: str, tool_context: ToolContext) -> Any:
        """Find."""
        called.append(name)
        tool_context.agent.state.set("found", {"name": name})
        return {"status": "success", "content": [{"text": "found"}, {"json": {"n": 1}}]}

    @tool
    def fail() -> str:
        """Fail."""
        called.append("fail")
        raise ValueError("no such item")

    def noted(event: AfterToolCallEvent) -> None:
        if event.exception is not None:
            errors.append(f"{type(event.exception).__name__}: {event.exception}")

    model = script([Use("find", {"name": "x"}, "c1"), Use("fail", {}, "c2")], "done")
    results = asyncio.run(twice(hf, lambda: durable(model=model, tools=[find, fail], hooks=[noted])))
    assert sorted(called) == ["fail", "x"]
    assert models(tmp_path) == 2
    assert plain(results[0][1].messages) == plain(results[1][1].messages)
    assert results[1][1].state.get() == {"found": {"name": "x"}}  # what the tool changed
    assert errors == ["ValueError: no such item"] * 2
    assert {effect.name for effect in hf.effects("t")} == {"a", "find", "fail"}


def test_bytes_survive(hf: Holdfast, script: Any) -> None:
    image = {"image": {"format": "png", "source": {"bytes": b"\x89PNG\x00"}}}

    @tool
    def draw() -> Any:
        """Draw."""
        return {"status": "success", "content": [image]}

    model = script([Use("draw", {}, "c1")], "done")
    results = asyncio.run(twice(hf, lambda: durable(model=model, tools=[draw]), [{"text": "see"}, image]))
    assert plain(results[0][1].messages) == plain(results[1][1].messages)
    assert results[1][1].messages[2]["content"][0]["toolResult"]["content"] == [image]


def test_an_error_in_doubt_waits_although_strands_hides_it(hf: Holdfast, script: Any) -> None:
    @tool
    def pay() -> str:
        """Pay."""
        raise ConnectionError("lost")

    agent = durable(model=script([Use("pay", {}, "c1")], "done"), tools=[pay], declare={"pay": {"errors": "doubt"}})
    with pytest.raises(Unfinished):
        asyncio.run(run_durably(hf, agent, "go", thread="t"))
    assert [question.name for question in hf.waiting()] == ["pay"]
    assert agent.messages == []  # nothing was added to the conversation


def test_interrupts_of_tools_and_of_middleware(hf: Holdfast, script: Any) -> None:
    called: list[Any] = []

    @tool(context=True)
    def ask(tool_context: ToolContext) -> str:
        """Ask."""
        answer = tool_context.interrupt("colour", reason="which?")
        called.append(answer)
        return f"it is {answer}"

    async def gate(context: Any, make: Any) -> Any:
        called.append(context.interrupt("gate", reason="may it?").response)
        async for event in make(context):
            yield event

    def agent() -> Agent:
        made = durable(model=script([Use("ask", {}, "c1")], "done"), tools=[ask])
        made.add_middleware(ExecuteToolStage, gate)
        return made

    for name, answer in (("gate c1", "yes"), ("colour c1", "red")):
        with pytest.raises(Unfinished):
            asyncio.run(run_durably(hf, agent, "go", thread="t"))
        assert [question.name for question in hf.waiting()] == [name]
        hf.answer("t", name, answer)
    assert asyncio.run(run_durably(hf, agent, "go", thread="t")) == "done"
    head = hf.thread("t").latest()
    assert head is not None
    assert "it is red" in str(head.state["messages"])
    assert called[-1] == "red"


def test_two_interrupts_are_asked_at_once(hf: Holdfast, script: Any) -> None:
    @tool(context=True)
    def ask(what: str, tool_context: ToolContext) -> str:
        """Ask."""
        return f"{what}: {tool_context.interrupt('value')}"

    agent = durable(
        model=script([Use("ask", {"what": "x"}, "c1"), Use("ask", {"what": "y"}, "c2")], "done"), tools=[ask]
    )
    with pytest.raises(Unfinished):
        asyncio.run(run_durably(hf, agent, "go", thread="t"))
    assert {question.name for question in hf.waiting()} == {"value c1", "value c2"}
    hf.answer("t", "value c1", 1)
    hf.answer("t", "value c2", 2)
    assert asyncio.run(run_durably(hf, agent, "go", thread="t")) == "done"
    head = hf.thread("t").latest()
    assert head is not None
    assert "x: 1" in str(head.state["messages"])
    assert "y: 2" in str(head.state["messages"])


class Order(BaseModel):
    item: str
    amount: int


def test_structured_output(hf: Holdfast, script: Any) -> None:
    def agent() -> Agent:
        return durable(model=script([Use("Order", {"item": "ink", "amount": 2}, "c1")]))

    results = asyncio.run(twice(hf, agent, structured_output_model=Order))
    assert [result.structured_output for result, _ in results] == [Order(item="ink", amount=2)] * 2
    options: Any = {"thread": "u", "structured_output_model": Order}
    assert asyncio.run(run_durably(hf, agent, "go", **options)) == {"item": "ink", "amount": 2}


def test_direct_calls_are_found_again(hf: Holdfast, script: Any) -> None:
    """Strands makes up another id for each of them."""
    called: list[int] = []

    @tool
    def count(n: int) -> int:
        """Count."""
        called.append(n)
        return n

    for is_first in (True, False):
        agent = durable(model=script("done"), tools=[count])
        try:
            with hf.run("t", start={}) as run:
                assert [agent.tool.count(n=n)["content"][0]["text"] for n in (1, 2)] == ["1", "2"]
                if is_first:
                    raise Stop
                run.finish()
        except Stop:
            pass
    assert called == [1, 2]


def test_an_agent_without_the_plugin_is_one_call(hf: Holdfast, script: Any, tmp_path: Path) -> None:
    def agent() -> Agent:
        model = script([Use("sub", {"input": "x"}, "c1")], "done")
        return durable(model=model, tools=[Agent(name="sub", model=model, callback_handler=None).as_tool()])

    SCRIPTS["given"] = []
    results = asyncio.run(twice(hf, agent))
    assert plain(results[0][1].messages) == plain(results[1][1].messages)
    assert [effect.name for effect in hf.effects("t")] == ["a", "sub", "a"]


def test_a_graph_and_a_swarm(hf: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    hand_off = Use("handoff_to_agent", {"agent_name": "two", "message": "yours"}, "h1")
    for name, replies in {"one": [[hand_off], "over"], "two": ["two is done"], "plain": ["one is done"]}.items():
        monkeypatch.setitem(SCRIPTS, name, replies)

    def agents(first: str) -> list[Agent]:
        names = {"one": first, "two": "two"}
        return [durable(name=name, model=ScriptedModel(world, script, [])) for name, script in names.items()]

    def graph() -> Any:
        builder = GraphBuilder().set_max_node_executions(9)
        one, two = (builder.add_node(agent, agent.name) for agent in agents("plain"))
        builder.add_edge(one, two)
        return builder.build()

    for thread, make in (("graph", graph), ("swarm", lambda: Swarm(agents("one")))):
        results: list[Any] = []
        for _ in range(2):

            async def main(make: Any = make, thread: str = thread, results: list[Any] = results) -> None:
                async with hf.aio.run(thread, start={}):
                    results.append(await make().invoke_async("go"))
                    raise Stop

            with pytest.raises(Stop):
                asyncio.run(main())
        assert [str(each.results["two"].result).strip() for each in results] == ["two is done"] * 2
    assert sorted(world.lines("models")) == ["one 0", "one 1", "plain 0", "two 0", "two 0"]


def test_the_budget_counts_the_usage(hf: Holdfast, script: Any) -> None:
    @tool
    def noop() -> str:
        """Nothing."""
        return ""

    agent = durable(model=script([Use("noop", {}, "c1")], "done"), tools=[noop])

    async def main() -> None:
        async with hf.aio.run("t", start={}, guards=[holdfast.Budget(tokens=12)]):
            await agent.invoke_async("go")

    with pytest.raises(EventLoopException, match="budget of 12 tokens"):  # Strands wraps errors of models
        asyncio.run(main())
    info = hf.run_info("t")
    assert info is not None
    assert info.status == "halted"


def test_a_cancelled_agent_can_be_resumed(hf: Holdfast, script: Any, tmp_path: Path) -> None:
    started = asyncio.Event()

    @tool
    async def slow() -> str:
        """Slow."""
        if not started.is_set():
            started.set()
            await asyncio.sleep(600)
        return "slept"

    def agent() -> Agent:
        model = script([Use("slow", {}, "c1")], "done")
        return durable(model=model, tools=[slow], declare={"slow": {"effect": "idempotent"}})

    async def main() -> Any:
        task = asyncio.create_task(run_durably(hf, agent(), "go", thread="t"))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await run_durably(hf, agent(), "go", thread="t")

    assert asyncio.run(main()) == "done"
    assert models(tmp_path) == 2


def test_a_stream_that_is_left_can_be_resumed(hf: Holdfast, script: Any, tmp_path: Path) -> None:
    async def left() -> None:
        async with hf.aio.run("t", start={"messages": []}):
            async for event in durable(model=script("done")).stream_async("go"):
                if "data" in event:
                    raise Stop

    with pytest.raises(Stop):
        asyncio.run(left())
    assert asyncio.run(run_durably(hf, durable(model=script("done")), "go", thread="t")) == "done"
    assert models(tmp_path) in (1, 2)  # the reply may have arrived as a whole before


def test_a_conversation_of_turns(hf: Holdfast, script: Any) -> None:
    agent = durable(model=script("reply to r1", "reply to r2"), state={"n": 1})

    async def main() -> list[Any]:
        return [
            await run_durably(hf, agent, f"question {turn}", thread="t", turn=turn) for turn in ("r1", "r2", "r2", "r1")
        ]

    assert asyncio.run(main()) == ["reply to r1", "reply to r2", "reply to r2", "reply to r1"]
    head = hf.thread("t").latest()
    assert head is not None
    assert [message["role"] for message in head.state["messages"]] == ["user", "assistant"] * 2
    assert agent.messages == []  # an agent may serve several threads


def test_what_cannot_be_recorded_is_refused(hf: Holdfast, script: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="needs an agent with plugins"):
        asyncio.run(run_durably(hf, Agent(model=script("x")), "go", thread="t"))
    with pytest.raises(InvalidArgument, match="declare: buy"):
        HoldfastPlugin(declare={"buy": {"effect": "x"}})
    manager = RepositorySessionManager("s", HoldfastSessionRepository(hf))
    with pytest.raises(InvalidArgument, match="give run_durably a function"):
        asyncio.run(run_durably(hf, durable(model=script("x"), session_manager=manager), "go", thread="t"))

    class Stateful(ScriptedModel):
        stateful = True

    with pytest.raises(InvalidArgument, match="keeps the conversation at its provider"):
        asyncio.run(run_durably(hf, durable(model=Stateful(World(tmp_path), "second", [])), "go", thread="t"))


def test_another_version_is_refused() -> None:
    assert "pip install 'holdfast[strands]'" in refused("strands", None)
    assert "from 1.62 to before 2, and 2.0 is installed" in refused("strands", "2.0")


def test_the_page(tmp_path: Path) -> None:
    run_page("strands.md", tmp_path)


# -- sessions ---------------------------------------------------------------------------------------------------------


def message(number: int, **content: Any) -> SessionMessage:
    content = content or {"text": f"message {number}"}
    return SessionMessage.from_message({"role": "user", "content": [content]}, number)


@pytest.mark.parametrize("store", STORES)
def test_a_repository_follows_the_interface(tmp_path: Path, store: str) -> None:
    repository = HoldfastSessionRepository(url_of(store, tmp_path / "store"))
    session, agent = Session("s/1", SessionType.AGENT), SessionAgent("a b", {"n": 1}, {"kind": "window"}, {"x": {}})
    assert repository.read_session("s/1") is None
    with pytest.raises(SessionException, match="does not exist"):
        repository.create_agent("s/1", agent)
    assert repository.create_session(session) is session
    assert repository.read_session("s/1") == session
    with pytest.raises(SessionException, match="already exists"):
        repository.create_session(session)
    assert repository.read_agent("s/1", "a b") is None
    with pytest.raises(SessionException, match="does not exist"):
        repository.update_agent("s/1", agent)
    repository.create_agent("s/1", agent)
    assert repository.read_agent("s/1", "a b") == agent
    changed = SessionAgent("a b", {"n": 2}, {})
    repository.update_agent("s/1", changed)
    assert repository.read_agent("s/1", "a b").state == {"n": 2}
    assert repository.read_agent("s/1", "a b").created_at == agent.created_at
    assert repository.list_messages("s/1", "a b") == []
    image = {"format": "png", "source": {"bytes": b"\x00\xff"}}
    messages = [message(0), message(1, image=image), message(2), message(3)]
    for each in messages:
        repository.create_message("s/1", "a b", each)
    assert repository.list_messages("s/1", "a b") == messages
    assert repository.list_messages("s/1", "a b", limit=2, offset=1) == messages[1:3]
    assert repository.list_messages("s/1", "a b", offset=9) == []
    assert repository.read_message("s/1", "a b", 1) == messages[1]
    assert repository.read_message("s/1", "a b", 9) is None
    messages[3].redact_message = {"role": "user", "content": [{"text": "redacted"}]}
    repository.update_message("s/1", "a b", messages[3])
    assert repository.read_message("s/1", "a b", 3) == messages[3]
    with pytest.raises(SessionException, match="does not exist"):
        repository.update_message("s/1", "a b", message(9))
    repository.create_message("s/1", "a b", messages[2])  # it is stored already
    with pytest.raises(SessionException, match="another process has continued"):
        repository.create_message("s/1", "a b", message(2, text="something else"))
    assert len(repository.list_messages("s/1", "a b")) == 4
    repository.delete_session("s/1")
    assert repository.read_session("s/1") is None
    assert repository.list_messages("s/1", "a b") == []
    repository.close()


@pytest.mark.parametrize("store", STORES)
def test_an_agent_continues_its_session(tmp_path: Path, store: str, script: Any) -> None:
    url = url_of(store, tmp_path / "store")

    def agent(repository: Any) -> Agent:
        manager = RepositorySessionManager("chat", repository)
        return Agent(model=script("one", "two"), session_manager=manager, callback_handler=None)

    first = HoldfastSessionRepository(url)
    made = agent(first)
    made("hello")
    made.state.set("n", 7)
    made("again")
    first.close()
    second = HoldfastSessionRepository(url)
    again = agent(second)
    assert again.messages == made.messages
    assert again.state.get("n") == made.state.get("n")
    second.close()


def test_two_processes_do_not_overwrite_each_other(hf: Holdfast, script: Any) -> None:
    def agent() -> Agent:
        manager = RepositorySessionManager("chat", HoldfastSessionRepository(hf))
        return Agent(model=script("one", "two"), session_manager=manager, callback_handler=None)

    one, two = agent(), agent()
    one("from one")
    with pytest.raises(SessionException, match="another process has continued"):
        two("from two")
    texts = [
        each.message["content"][0]["text"] for each in HoldfastSessionRepository(hf).list_messages("chat", "default")
    ]
    assert texts == ["from one", "one"]


def test_a_graph_continues_its_session(hf: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCRIPTS, "plain", ["done"])

    def graph() -> Any:
        builder = GraphBuilder().set_max_node_executions(9)
        node = Agent(name="one", model=ScriptedModel(World(tmp_path), "plain", []), callback_handler=None)
        builder.add_node(node, "one")
        builder.set_session_manager(RepositorySessionManager("graph", HoldfastSessionRepository(hf)))
        return builder.build()

    first = graph()
    first("go")
    state = HoldfastSessionRepository(hf).read_multi_agent("graph", first.id)
    assert state["status"] == "completed"
    assert graph().id == first.id


def test_a_poisoned_session_is_repaired_on_load(hf: Holdfast, script: Any, caplog: pytest.LogCaptureFixture) -> None:
    repository = HoldfastSessionRepository(hf)
    repository.create_session(Session("chat", SessionType.AGENT))
    repository.create_agent("chat", SessionAgent.from_agent(Agent(model=script("x"))))
    use = {"toolUse": {"toolUseId": "c1", "name": "buy", "input": {}}}
    result = {"toolResult": {"toolUseId": "c0", "status": "success", "content": []}}
    stored = [message(0), message(1, **result), message(2, **use), message(3)]
    for each in stored:
        repository.create_message("chat", "default", each)
    with caplog.at_level("WARNING", "holdfast"):
        manager = RepositorySessionManager("chat", repository)
        agent = Agent(model=script("x"), session_manager=manager, callback_handler=None)
    assert repository.repairs == ["the result of 'c0' has no tool use", "tool use 'c1' has no result"]
    assert "has no result" in caplog.text
    contents = [each["content"] for each in agent.messages]
    assert not any("c0" in str(content) for content in contents)
    assert [block["toolResult"]["status"] for content in contents for block in content if "toolResult" in block] == [
        "error"
    ]
    assert repository.list_messages("chat", "default") == stored  # not changed in place


def test_a_session_in_a_run_gets_its_messages_once(hf: Holdfast, script: Any, tmp_path: Path) -> None:
    @tool
    def noop() -> str:
        """Nothing."""
        return "ok"

    def agent() -> Agent:
        manager = RepositorySessionManager("chat", HoldfastSessionRepository(hf))
        model = script("before", [Use("noop", {}, "c1")], "done", [Use("noop", {}, "c1")], "done again")
        return durable(model=model, tools=[noop], session_manager=manager)

    agent()("hello")
    results = asyncio.run(twice(hf, agent))
    assert plain(results[0][1].messages) == plain(results[1][1].messages)
    stored = HoldfastSessionRepository(hf).list_messages("chat", "default")
    assert [each.message_id for each in stored] == list(range(6))
    assert models(tmp_path) == 3
    assert asyncio.run(run_durably(hf, agent, "more", thread="u")) == "done again"
    assert len(HoldfastSessionRepository(hf).list_messages("chat", "default")) == 10


def test_a_new_session_in_a_run(hf: Holdfast, script: Any, tmp_path: Path) -> None:
    """A resumed run starts without the session, although the interrupted one has created it."""

    def agent() -> Agent:
        manager = RepositorySessionManager("chat", HoldfastSessionRepository(hf))
        return durable(model=script("done"), session_manager=manager)

    results = asyncio.run(twice(hf, agent))
    assert plain(results[0][1].messages) == plain(results[1][1].messages)
    assert len(HoldfastSessionRepository(hf).list_messages("chat", "default")) == 2
    assert models(tmp_path) == 1


def test_500_turns_beside_the_files_of_strands(tmp_path: Path) -> None:
    def fill(repository: Any) -> None:
        if repository.read_session("s") is None:
            repository.create_session(Session("s", SessionType.AGENT))
        repository.create_agent("s", SessionAgent("a", {}, {}))
        for turn in range(500):
            text = f"turn {turn} " + "some words of a conversation " * 6
            for number, role in ((2 * turn, "user"), (2 * turn + 1, "assistant")):
                added: Any = {"role": role, "content": [{"text": text}]}
                repository.create_message("s", "a", SessionMessage.from_message(added, number))

    hf = holdfast.open(tmp_path / "ours.db", durability="off")
    ours = seconds_of(lambda: fill(HoldfastSessionRepository(hf)))
    hf.close()
    (tmp_path / "theirs").mkdir()
    theirs = seconds_of(lambda: fill(FileSessionManager("s", storage_dir=str(tmp_path / "theirs"))))
    files = [each for each in (tmp_path / "theirs").rglob("*") if each.is_file()]
    on_disk = sum(-(-each.stat().st_size // 4096) * 4096 for each in files)  # a file takes whole blocks
    assert size_of(tmp_path / "ours.db") < on_disk
    assert ours < theirs * 6  # about twice: each message is a checkpoint


# -- storage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", STORES)
def test_storage_follows_the_protocol(tmp_path: Path, store: str) -> None:
    async def main() -> None:
        storage = HoldfastStorage(url_of(store, tmp_path / "store"))
        assert isinstance(storage, Storage)
        values = [
            b"",
            b"\x00\xff",
            b'{"a": [1, 2.5, null]}',
            b'{"a":1}',
            '{"b": "größe"}'.encode(),
            b'{"b": "\\u00e4"}',
        ]
        for number, value in enumerate(values):
            await storage.write(f"s/{number}", value)
            assert await storage.read(f"s/{number}") == value
        other = HoldfastStorage(storage._hf)
        await other.write("s/0", b"other")
        await storage.write("s/0", b"mine")  # the last writer wins
        await other.write("s/0", b"other")
        assert await storage.read("s/0") == b"other"
        assert await storage.read("missing") is None
        assert await storage.read("/s//0") == b"other"
        await storage.write("a", b"find these words")
        assert await storage.list("") == ["a", *(f"s/{number}" for number in range(len(values)))]
        assert await storage.list("s/1") == ["s/1"]
        assert [found.key for found in await storage.search("words")] == ["a"]
        await storage.delete("a")
        await storage.delete("a")
        assert await storage.read("a") is None
        for key in ("", "/", "a/../b", "a\\b"):
            with pytest.raises(StorageError):
                await storage.write(key, b"")
        storage.close()

    asyncio.run(main())


@pytest.mark.parametrize("store", STORES)
def test_snapshots_of_agents(tmp_path: Path, store: str, script: Any) -> None:
    url = url_of(store, tmp_path / "store")

    def agent(storage: Any) -> Agent:
        manager = SnapshotSessionManager("chat", storage=storage, save_latest_on="message")
        return Agent(model=script("one", "two"), session_manager=manager, callback_handler=None)

    storage = HoldfastStorage(url)
    made = agent(storage)
    made("hello")
    again = agent(storage)
    again("more")
    assert plain(again.messages)[:2] == plain(made.messages)
    assert len(again.messages) == 4
    storage.close()


def test_a_growing_snapshot_stores_what_is_new(tmp_path: Path) -> None:
    async def main() -> int:
        storage = HoldfastStorage(tmp_path / "s.db")
        messages: list[Any] = []
        for turn in range(300):
            messages.append(asdict(message(turn, text=f"turn {turn} " + "some words of a conversation " * 6)))
            await storage.write("latest", json.dumps({"data": {"messages": messages}}).encode())
        whole = len(await storage.read("latest") or b"")
        storage.close()
        return whole

    whole = asyncio.run(main())
    assert size_of(tmp_path / "s.db") < 3 * whole  # with all 300 versions
