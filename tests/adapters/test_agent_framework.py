"""Microsoft Agent Framework: the kill experiment, checkpoints and histories, and what the middleware adds."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatResponse,
    Content,
    Executor,
    FileCheckpointStorage,
    FileHistoryProvider,
    FunctionInvocationContext,
    FunctionInvocationLayer,
    FunctionMiddleware,
    Message,
    MiddlewareTermination,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowCheckpointException,
    WorkflowContext,
    handler,
    tool,
)
from agent_framework._workflows._runner_context import WorkflowMessage
from pydantic import BaseModel

import holdfast
from holdfast import Holdfast, InvalidArgument
from holdfast.adapters.agent_framework import (
    HoldfastCheckpointStorage,
    HoldfastHistoryProvider,
    middleware,
    run_durably,
)
from holdfast.adapters.agent_framework_stores import repaired_messages
from holdfast.errors import Unfinished
from tests.adapters.agent_framework_agent import ScriptedClient
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

# Parts of the framework that are experimental say so.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


class TestKill(KillContract):
    PROGRAM = "tests.adapters.agent_framework_agent"

    def told(self, seen: Any) -> Any:
        return [json.loads(each) for each in seen]


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a client that replies as given."""

    def make(*replies: list[Use] | str, name: str = "given") -> ScriptedClient:
        monkeypatch.setitem(SCRIPTS, name, list(replies))
        return ScriptedClient(World(tmp_path), name, [])

    return make


def durable(client: Any, *, declare: Any = None, **options: Any) -> Agent:
    others = options.pop("middleware", [])
    return Agent(**{"name": "a", **options}, client=client, middleware=[*others, *middleware(declare=declare)])


async def twice(hf: Holdfast, make: Any, *, stream: bool = False, **options: Any) -> list[Any]:
    """Run an agent in a block that fails, and an equal one in a block that resumes the run."""

    async def run() -> Any:
        response = make().run("go", stream=stream, **options)
        return await (response.get_final_response() if stream else response)

    return await interrupted_and_resumed(hf, run)


def plain(response: Any) -> Any:
    return [message.to_dict(exclude={"message_id", "additional_properties"}) for message in response.messages]


def models(tmp_path: Path) -> int:
    return len(World(tmp_path).lines("models"))


# -- the middleware ---------------------------------------------------------------------------------------------------


def test_outside_a_run_nothing_changes(client: Any, hf: Holdfast) -> None:
    assert asyncio.run(durable(client("hello")).run("hi")).text == "hello"
    assert list(hf.threads()) == []


@pytest.mark.parametrize("stream", [False, True])
def test_results_are_the_same_after_a_resume(hf: Holdfast, client: Any, tmp_path: Path, stream: bool) -> None:
    called: list[str] = []

    @tool
    def find(name: str) -> list[Content]:
        """Find."""
        called.append(name)
        return [Content.from_text("found"), Content.from_data(b"\x89PNG", "image/png")]

    @tool
    def fail() -> str:
        """Fail."""
        called.append("fail")
        raise ValueError("no such item")

    @tool
    def typed(n: int) -> int:
        """Arguments are checked."""
        called.append("typed")
        return n

    uses = [
        Use("find", {"name": "x"}, "c1"),
        Use("fail", {}, "c2"),
        Use("typed", {"n": "x"}, "c3"),
        Use("no", {}, "c4"),
    ]
    made = client(uses, "done")
    results = asyncio.run(twice(hf, lambda: durable(made, tools=[find, fail, typed]), stream=stream))
    assert sorted(called) == ["fail", "x"]
    assert models(tmp_path) == 2
    assert plain(results[0]) == plain(results[1])
    assert results[1].text == "done"
    if not stream:
        assert (
            results[1].usage_details == results[0].usage_details == {"input_token_count": 20, "output_token_count": 4}
        )
    assert {effect.name for effect in hf.effects("t")} == {"a", "find", "fail", "typed"}


def test_control_flow_is_recorded(hf: Holdfast, client: Any, tmp_path: Path) -> None:
    class Gate(FunctionMiddleware):  # type: ignore[misc]
        async def process(self, context: FunctionInvocationContext, call_next: Any) -> None:
            await call_next()
            World(tmp_path).note("gates", str(context.result))
            raise MiddlewareTermination("enough")

    @tool
    def count() -> str:
        """Count."""
        World(tmp_path).note("counted", "x")
        return "counted"

    made = client([Use("count", {}, "c1")], "never")
    inner = [*middleware(), Gate()]  # inside of the recorded call
    make: Any = lambda: Agent(client=made, name="a", tools=[count], middleware=inner)  # noqa: E731
    results = asyncio.run(twice(hf, make))
    assert plain(results[0]) == plain(results[1])
    assert World(tmp_path).lines("counted") == ["x"]
    assert models(tmp_path) == 1


class Order(BaseModel):
    item: str


@pytest.mark.parametrize("stream", [False, True])
def test_structured_output(hf: Holdfast, client: Any, stream: bool) -> None:
    make: Any = lambda: durable(client('{"item": "ink"}'))  # noqa: E731
    results = asyncio.run(twice(hf, make, stream=stream, options={"response_format": Order}))
    assert [response.value for response in results] == [Order(item="ink")] * 2
    options: Any = {"thread": "u", "options": {"response_format": Order}}
    assert asyncio.run(run_durably(hf, make(), "go", **options)) == {"item": "ink"}


def test_an_error_in_doubt_waits_although_the_framework_hides_it(hf: Holdfast, client: Any) -> None:
    @tool
    def pay() -> str:
        """Pay."""
        raise ConnectionError("lost")

    agent = durable(client([Use("pay", {}, "c1")], "done"), tools=[pay], declare={"pay": {"errors": "doubt"}})
    with pytest.raises(Unfinished):
        asyncio.run(run_durably(hf, agent, "go", thread="t"))
    assert [question.name for question in hf.waiting()] == ["pay"]


def test_an_error_is_the_same_after_a_resume(hf: Holdfast, client: Any) -> None:
    """Middleware around the call sees the error of the tool, and not another one."""
    seen: list[Exception] = []

    class ShopError(Exception):
        pass

    @tool(approval_mode="never_require")
    def buy() -> str:
        """Buy."""
        raise ShopError("sold out")

    class Watched(FunctionMiddleware):  # type: ignore[misc]
        async def process(self, context: Any, call_next: Any) -> None:
            try:
                await call_next()
            except Exception as error:
                seen.append(error)
                raise

    make: Any = lambda: durable(client([Use("buy", {}, "c1")], "done"), tools=[buy], middleware=[Watched()])  # noqa: E731
    asyncio.run(twice(hf, make))
    assert list(map(repr, seen)) == ["ShopError('sold out')", "ShopError('sold out')"]


class BareClient(FunctionInvocationLayer, BaseChatClient):  # type: ignore[misc]
    """A client without middleware."""

    async def _inner_get_response(self, **options: Any) -> Any:
        self.options = options
        return ChatResponse(messages=[Message("assistant", ["hi"])])


def test_a_client_without_middleware_is_refused_in_a_run(hf: Holdfast) -> None:
    client = BareClient()
    asyncio.run(durable(client).run("go"))
    assert not [name for name in client.options if "holdfast" in name]  # outside a run nothing changes

    async def main() -> None:
        async with hf.aio.run("t", start={}):
            await durable(client).run("go")

    with pytest.raises(InvalidArgument, match="BareClient has no chat middleware"):
        asyncio.run(main())


def test_a_poisoned_thread_is_repaired_when_it_is_continued(
    hf: Holdfast, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    call = Content.from_function_call("c9", "buy", arguments={})
    hf.thread("t").save({"messages": [Message("assistant", [call]).to_dict()]})
    made = client("before", "done")
    assert asyncio.run(run_durably(hf, durable(made), "hello", thread="t", turn="2")) == "done"
    assert "call 'c9' has no result" in caplog.text
    assert "was interrupted" in str(made.seen)


def test_two_approvals_are_asked_at_once(hf: Holdfast, client: Any, tmp_path: Path) -> None:
    @tool(approval_mode="always_require")
    def pay(item: str) -> str:
        """Pay."""
        return World(tmp_path).pay(item)

    agent = durable(client([Use("pay", {"item": "ink"}, "c1"), Use("pay", {"item": "pen"}, "c2")], "done"), tools=[pay])
    with pytest.raises(Unfinished):
        asyncio.run(run_durably(hf, agent, "go", thread="t"))
    assert {question.name for question in hf.waiting()} == {"approve c1", "approve c2"}
    hf.answer("t", "approve c1", True)
    hf.answer("t", "approve c2", "no pens")
    assert asyncio.run(run_durably(hf, agent, "go", thread="t")) == "done"
    assert World(tmp_path).lines("ledger") == ["ink"]


def test_an_agent_without_the_middleware_is_one_call(hf: Holdfast, client: Any, tmp_path: Path) -> None:
    def agent() -> Agent:
        sub = Agent(client=client("from sub", name="sub"), name="sub")
        return durable(client([Use("sub", {"task": "x"}, "c1")], "done"), tools=[sub.as_tool()])

    results = asyncio.run(twice(hf, agent))
    assert plain(results[0]) == plain(results[1])
    assert [effect.name for effect in hf.effects("t")] == ["a", "sub", "a"]
    assert models(tmp_path) == 3


def test_agents_in_a_workflow(hf: Holdfast, client: Any, tmp_path: Path) -> None:
    def workflow() -> Any:
        one = durable(client("one is done", name="one"), name="one")
        two = durable(client("", "two is done", name="two"), name="two")
        return WorkflowBuilder(start_executor=one).add_edge(one, two).build()

    results = []
    for _ in range(2):

        async def main() -> None:
            async with hf.aio.run("t", start={}):
                results.append(await workflow().run("go"))
                raise Stop

        with pytest.raises(Stop):
            asyncio.run(main())
    assert "two is done" in str([output.text for output in results[1].get_outputs()])
    assert World(tmp_path).lines("models") == ["one 0", "two 1"]


def test_the_budget_counts_the_usage(hf: Holdfast, client: Any) -> None:
    @tool
    def noop() -> str:
        """Nothing."""
        return ""

    agent = durable(client([Use("noop", {}, "c1")], "done"), tools=[noop])

    async def main() -> None:
        async with hf.aio.run("t", start={}, guards=[holdfast.Budget(tokens=12)]):
            await agent.run("go")

    with pytest.raises(holdfast.Halted, match="budget of 12 tokens"):
        asyncio.run(main())


def test_a_cancelled_agent_can_be_resumed(hf: Holdfast, client: Any, tmp_path: Path) -> None:
    started = asyncio.Event()

    @tool
    async def slow() -> str:
        """Slow."""
        if not started.is_set():
            started.set()
            await asyncio.sleep(600)
        return "slept"

    def agent() -> Agent:
        declare = {"slow": {"effect": "idempotent"}}
        return durable(client([Use("slow", {}, "c1")], "done"), tools=[slow], declare=declare)

    async def main() -> Any:
        task = asyncio.create_task(run_durably(hf, agent(), "go", thread="t"))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await run_durably(hf, agent(), "go", thread="t")

    assert asyncio.run(main()) == "done"
    assert models(tmp_path) == 2


def test_a_conversation_of_turns(hf: Holdfast, client: Any) -> None:
    made = client("reply to r1", "reply to r2")

    async def main() -> list[Any]:
        return [
            await run_durably(hf, durable(made), f"question {turn}", thread="t", turn=turn)
            for turn in ("r1", "r2", "r2", "r1")
        ]

    assert asyncio.run(main()) == ["reply to r1", "reply to r2", "reply to r2", "reply to r1"]
    head = hf.thread("t").latest()
    assert head is not None
    assert [message["role"] for message in head.state["messages"]] == ["user", "assistant"] * 2


def test_what_cannot_be_recorded_is_refused(hf: Holdfast, client: Any) -> None:
    with pytest.raises(InvalidArgument, match="needs an agent with middleware"):
        asyncio.run(run_durably(hf, Agent(client=client("x"), name="a"), "go", thread="t"))
    with pytest.raises(InvalidArgument, match="declare: buy"):
        middleware(declare={"buy": {"effect": "x"}})


def test_another_version_is_refused() -> None:
    assert "pip install 'holdfast[agent-framework]'" in refused("agent_framework", None)
    assert "from 1.23 to before 2, and 2.0 is installed" in refused("agent_framework", "2.0")


def test_the_page(tmp_path: Path) -> None:
    run_page("agent_framework.md", tmp_path)


# -- histories --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", STORES)
def test_a_history_follows_the_interface(tmp_path: Path, store: str) -> None:
    async def main() -> None:
        provider = HoldfastHistoryProvider(url_of(store, tmp_path / "store"))
        assert await provider.get_messages("s") == []
        first = [
            Message("user", ["größe", Content.from_data(b"\x00\xff", "image/png")], author_name="x"),
            Message("assistant", [Content.from_function_call(call_id="c1", name="buy", arguments='{"n": 1}')]),
        ]
        second = [
            Message("tool", [Content.from_function_result(call_id="c1", result="ok")]),
            Message("assistant", ["."]),
        ]
        await provider.save_messages("s", first)
        await provider.save_messages("s", [])
        await provider.save_messages("s", second)
        await provider.save_messages(None, second[1:])
        assert [each.to_dict() for each in await provider.get_messages("s")] == [
            each.to_dict() for each in first + second
        ]
        assert len(await provider.get_messages(None)) == 1
        assert provider.repairs == []
        provider.close()

    asyncio.run(main())


@pytest.mark.parametrize("store", STORES)
def test_an_agent_continues_its_session(tmp_path: Path, store: str, client: Any) -> None:
    async def main() -> None:
        for text, reply in (("hello", "one"), ("again", "two")):
            provider = HoldfastHistoryProvider(url_of(store, tmp_path / "store"))
            agent = Agent(client=client("one", "two"), name="a", context_providers=[provider])
            assert (await agent.run(text, session=AgentSession(session_id="chat"))).text == reply
            provider.close()

    asyncio.run(main())


def test_a_history_in_a_run_gets_its_messages_once(hf: Holdfast, client: Any, tmp_path: Path) -> None:
    provider = HoldfastHistoryProvider(hf)
    make: Any = lambda: durable(client("before", "done"), context_providers=[provider])  # noqa: E731
    asyncio.run(make().run("hello", session=AgentSession(session_id="chat")))
    results = asyncio.run(twice(hf, make, session=AgentSession(session_id="chat")))
    assert [response.text for response in results] == ["done", "done"]
    assert len(asyncio.run(provider.get_messages("chat"))) == 4
    assert models(tmp_path) == 2


def test_a_poisoned_history_is_repaired_on_load(hf: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    provider = HoldfastHistoryProvider(hf)
    call = Content.from_function_call(call_id="c1", name="buy", arguments="{}")
    orphan = Content.from_function_result(call_id="c0", result="x")
    stored = [Message("user", ["hi"]), Message("tool", [orphan]), Message("assistant", [call]), Message("user", ["?"])]

    async def main() -> list[Any]:
        await provider.save_messages("s", stored)
        return await provider.get_messages("s")

    with caplog.at_level("WARNING", "holdfast"):
        found = asyncio.run(main())
    assert [message.role for message in found] == ["user", "assistant", "tool", "user"]
    assert found[2].contents[0].call_id == "c1"
    assert len(provider.repairs) == 2
    assert "has no result" in caplog.text
    assert len(hf.thread("s").tail("messages")) == 4  # not changed in place


def test_ids_that_repeat_are_paired_in_order() -> None:
    def call(id_: str) -> Any:
        return Message("assistant", [Content.from_function_call(id_, "buy", arguments={})])

    def result(id_: str) -> Any:
        return Message("tool", [Content.from_function_result(call_id=id_, result="bought")])

    found, repairs = repaired_messages([call("a"), result("a"), call("a"), Message("user", ["go on"])])
    assert repairs == ["call 'a' has no result; one was added that says so"]
    assert [message.role for message in found] == ["assistant", "tool", "assistant", "tool", "user"]
    found, repairs = repaired_messages([result("a"), call("a"), result("a")])
    assert repairs == ["the result of call 'a' has no call before it; it was left out"]
    assert [message.role for message in found] == ["assistant", "tool"]


def test_500_turns_beside_the_file_of_the_framework(tmp_path: Path) -> None:
    async def fill(provider: Any) -> None:
        for turn in range(500):
            text = f"turn {turn} " + "some words of a conversation " * 6
            await provider.save_messages("s", [Message("user", [text]), Message("assistant", [text])])

    hf = holdfast.open(tmp_path / "ours.db", durability="off")
    ours = seconds_of(lambda: fill(HoldfastHistoryProvider(hf)))
    hf.close()
    theirs = seconds_of(lambda: fill(FileHistoryProvider(tmp_path / "theirs")))
    assert size_of(tmp_path / "ours.db") < 1.1 * size_of(tmp_path / "theirs")
    assert ours < theirs * 6, (ours, theirs)


# -- checkpoints of workflows -----------------------------------------------------------------------------------------


@dataclass
class Parcel:
    """A type of an application."""

    weight: int


def checkpoint(number: int, *, name: str = "w", **fields: Any) -> WorkflowCheckpoint:
    at = datetime(2026, 1, 1, 0, 0, number, tzinfo=UTC).isoformat()
    return WorkflowCheckpoint(name, "hash", checkpoint_id=f"id-{number}", timestamp=at, **fields)


@pytest.mark.parametrize("store", STORES)
def test_a_storage_follows_the_protocol(tmp_path: Path, store: str) -> None:
    async def main() -> None:
        storage = HoldfastCheckpointStorage(url_of(store, tmp_path / "store"))
        assert await storage.get_latest(workflow_name="w") is None
        assert await storage.list_checkpoints(workflow_name="w") == []
        with pytest.raises(WorkflowCheckpointException, match="no checkpoint 'id-1'"):
            await storage.load("id-1")
        message = WorkflowMessage(data={"text": "größe"}, source_id="a", target_id="b")
        first = checkpoint(1, state={"n": {"deep": [1, (2, 3), {4}]}, "bytes": b"\x00"}, messages={"b": [message]})
        assert await storage.save(first) == "id-1"
        copied = await storage.load("id-1")
        assert copied == first
        first.state["n"]["deep"].append(9)
        copied.state["n"]["deep"].append(8)
        copied.messages["b"][0].data["text"] = "changed"
        assert (await storage.load("id-1")).state["n"]["deep"] == [1, (2, 3), {4}]
        assert (await storage.load("id-1")).messages["b"][0].data == {"text": "größe"}
        for number in (3, 2):
            await storage.save(checkpoint(number, previous_checkpoint_id="id-1", state={"n": number}))
        await storage.save(checkpoint(9, name="other"))
        assert await storage.list_checkpoint_ids(workflow_name="w") == ["id-1", "id-3", "id-2"]
        assert [each.checkpoint_id for each in await storage.list_checkpoints(workflow_name="w")] == [
            "id-1",
            "id-3",
            "id-2",
        ]
        assert (await storage.get_latest(workflow_name="w")).checkpoint_id == "id-3"
        await storage.save(checkpoint(3, state={"n": "again"}))  # replaces the one before
        assert sorted(await storage.list_checkpoint_ids(workflow_name="w")) == ["id-1", "id-2", "id-3"]
        assert (await storage.load("id-3")).state == {"n": "again"}
        assert await storage.delete("id-3")
        assert not await storage.delete("id-3")
        assert (await storage.get_latest(workflow_name="w")).checkpoint_id == "id-2"
        assert await storage.delete("id-1")
        assert await storage.delete("id-2")
        assert await storage.list_checkpoint_ids(workflow_name="w") == []
        assert await storage.list_checkpoint_ids(workflow_name="other") == ["id-9"]
        storage.close()

    asyncio.run(main())


def test_what_could_not_be_loaded_is_not_saved(hf: Holdfast) -> None:
    async def main() -> None:
        with pytest.raises(WorkflowCheckpointException):
            await HoldfastCheckpointStorage(hf).save(checkpoint(1, state={"x": Parcel(3)}))
        with pytest.raises(WorkflowCheckpointException, match="was not saved"):
            await HoldfastCheckpointStorage(hf).save(checkpoint(1, state={"x": lambda: None}))
        assert list(hf.threads()) == []
        allowed = HoldfastCheckpointStorage(hf, allowed_checkpoint_types=[f"{__name__}:Parcel"])
        await allowed.save(checkpoint(1, state={"x": Parcel(3)}))
        assert (await allowed.load("id-1")).state == {"x": Parcel(3)}

    asyncio.run(main())


def test_runs_of_one_workflow_are_told_apart(hf: Holdfast) -> None:
    async def main() -> None:
        storage = HoldfastCheckpointStorage(hf)
        one, two = storage.for_run("one"), storage.for_run("two/x")
        await one.save(checkpoint(1))
        await two.save(checkpoint(2))
        assert (await one.get_latest(workflow_name="w")).checkpoint_id == "id-1"
        assert (await two.get_latest(workflow_name="w")).checkpoint_id == "id-2"
        assert await storage.get_latest(workflow_name="w") is None
        with pytest.raises(WorkflowCheckpointException):
            await one.load("id-2")

    asyncio.run(main())


class Step(Executor):  # type: ignore[misc]
    """Appends its number to a log, and fails once in step 3."""

    def __init__(self, number: int, world: World) -> None:
        super().__init__(id=f"step-{number}")
        self.number, self.world = number, world

    @handler
    async def work(self, text: str, context: WorkflowContext[str, str]) -> None:
        self.world.note("steps", str(self.number))
        if self.number == 3 and self.world.lines("steps").count("3") == 1:
            raise Stop
        if self.number == 4:
            await context.yield_output(f"{text}4")
        else:
            await context.send_message(f"{text}{self.number}")


@pytest.mark.parametrize("store", STORES)
def test_a_workflow_resumes_from_a_checkpoint(tmp_path: Path, store: str) -> None:
    async def main() -> None:
        whole = HoldfastCheckpointStorage(url_of(store, tmp_path / "store"))
        storage = whole.for_run("order-17")

        def workflow() -> Any:
            steps = [Step(number, World(tmp_path)) for number in (1, 2, 3, 4)]
            builder = WorkflowBuilder(name="order", start_executor=steps[0], checkpoint_storage=storage)
            for one, two in pairwise(steps):
                builder.add_edge(one, two)
            return builder.build()

        with pytest.raises(Stop):
            await workflow().run(">")
        latest = await storage.get_latest(workflow_name="order")
        result = await workflow().run(checkpoint_id=latest.checkpoint_id)
        assert result.get_outputs() == [">1234"]
        assert World(tmp_path).lines("steps") == ["1", "2", "3", "3", "4"]
        whole.close()

    asyncio.run(main())


def test_100_checkpoints_beside_the_files_of_the_framework(tmp_path: Path) -> None:
    async def fill(storage: Any) -> None:
        texts: list[str] = []
        for number in range(100):
            texts.append(f"turn {number} " + "some words of a conversation " * 6)
            await storage.save(WorkflowCheckpoint("w", "hash", state={"texts": texts, "n": number}))

    hf = holdfast.open(tmp_path / "ours.db", durability="off")
    ours = seconds_of(lambda: fill(HoldfastCheckpointStorage(hf)))
    hf.close()
    theirs = seconds_of(lambda: fill(FileCheckpointStorage(tmp_path / "theirs")))
    assert size_of(tmp_path / "ours.db") < size_of(tmp_path / "theirs") / 3
    assert ours < theirs * 6, (ours, theirs)
