"""HoldfastStepStore: it does what the step stores of Pydantic AI's harness do, and its runs survive a kill."""

from __future__ import annotations

import asyncio
import dataclasses
import re
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import (
    Agent,
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RunContext,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.messages import ThinkingPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage, UsageLimits
from pydantic_ai_harness import StepPersistence
from pydantic_ai_harness.conversation_search import SnapshotStore
from pydantic_ai_harness.step_persistence import (
    ContinuableSnapshot,
    InMemoryStepStore,
    RunRecord,
    SqliteStepStore,
    StepEvent,
    StepStore,
    ToolEffectRecord,
    annotate_tool_effect,
    continue_run,
)
from pydantic_ai_harness.step_persistence.recovery import inspect_recovery

import holdfast
from holdfast import Holdfast, InvalidArgument
from holdfast.adapters.pydantic_ai import HoldfastStepStore, run_durably
from tests.adapters.frameworks import STORES, refused, run_page, seconds_of, size_of, url_of
from tests.adapters.kill_contract import KillContract
from tests.adapters.pydantic_ai_harness_agent import CONVERSATION, shop
from tests.test_docs import ROOT

WHEN = datetime(2026, 3, 1, 12, 30, 0, 123456, tzinfo=UTC)


class TestKill(KillContract):
    """The harness brings an older version of Pydantic AI, with which durable runs work as well."""

    PROGRAM = "tests.adapters.pydantic_ai_agent"


FILE = BinaryContent(bytes(range(256)), media_type="application/pdf", identifier="f1")


def history(*parts: Any) -> list[ModelMessage]:
    """Messages with everything that a store could lose: times, usage, bytes, thoughts, nested results."""
    return [
        ModelRequest([UserPromptPart(["look", FILE], timestamp=WHEN)]),
        ModelResponse(
            [ThinkingPart("hm", signature="s"), ToolCallPart("look_up", {"item": "päper \U0001f4c4"}, "c1")],
            usage=RequestUsage(input_tokens=3, details={"x": 1}),
            timestamp=WHEN,
            provider_details={"id": 1.5},
        ),
        ModelRequest([ToolReturnPart("look_up", {"price": [1, 2.5, None]}, "c1", timestamp=WHEN)]),
        *parts,
    ]


OPEN = ModelResponse([ToolCallPart("buy", {}, "c2")], timestamp=WHEN)
ODD = "r0/a b/../\U0001f4c4\ud800\x00"
ELSEWHERE = timezone(timedelta(hours=2))

EFFECTS: list[tuple[str, Any, dict[str, Any]]] = [
    ("c1", "started", {"started_at": WHEN}),
    ("c2", "started", {"started_at": WHEN, "idempotency_key": "k", "effect_summary": "one"}),
    ("c1", "completed", {"started_at": WHEN, "ended_at": WHEN + timedelta(seconds=3)}),
    ("c3", "started", {"started_at": WHEN}),
]

WRITES: list[tuple[str, Any]] = [
    ("append_event", StepEvent(run_id="r1", kind="run_started", step_index=0, timestamp=WHEN)),  # before the run
    ("save_snapshot", ContinuableSnapshot(run_id="r2", step_index=0, messages=history(), timestamp=WHEN)),
    ("register_run", RunRecord(run_id="r2", conversation_id="c", started_at=WHEN + timedelta(seconds=1))),
    (
        "register_run",
        RunRecord(
            run_id="r1",
            conversation_id="c",
            parent_run_id="r0",
            agent_name="clerk",
            metadata={"tenant": "a"},
            started_at=WHEN.astimezone(ELSEWHERE),
            registration_id="x",
        ),
    ),
    ("register_run", RunRecord(run_id=ODD, started_at=WHEN - timedelta(hours=1))),
    *[
        (
            "append_event",
            StepEvent(
                run_id="r1",
                kind="tool_call_failed",
                step_index=2,
                timestamp=WHEN,
                conversation_id="c",
                parent_run_id="r0",
                agent_name="clerk",
                tool_call_id="c1",
                tool_name="look_up",
                error="ValueError('\x00 \udfff')",
                metadata={"a": ""},
                idempotency_key=key,
            ),
        )
        for key in (None, "1:2", None, "1:2", "", "")
    ],
    *[
        (
            "save_snapshot",
            ContinuableSnapshot(
                run_id="r1", step_index=n, messages=messages, state=state, idempotency_key=key, timestamp=WHEN
            ),
        )
        for n, (messages, state, key) in enumerate(
            [
                (history(), "complete", "0:1:complete"),
                (history(ModelResponse([TextPart("a")], timestamp=WHEN)), "complete", "1:2:complete"),
                (history()[:1], "complete", None),  # a shorter history, as after a compaction
                (history(), "complete", "0:1:complete"),  # replayed
                (history(OPEN), "interrupted", ""),
                (history(OPEN), "interrupted", ""),
            ]
        )
    ],
    *[
        ("record_tool_effect", ToolEffectRecord(tool_call_id=id, tool_name="t", run_id="r1", status=status, **rest))
        for id, status, rest in EFFECTS
    ],
]


async def seen(store: Any) -> dict[str, Any]:
    """All that the protocol tells about the runs of these tests, and about one that is not there."""
    found: dict[str, Any] = {
        "runs": await store.list_runs(),
        "of a conversation": await store.list_runs(conversation_id="c"),
        "of a parent": await store.list_runs(parent_run_id="r0"),
        "of both": await store.list_runs(parent_run_id="r0", conversation_id="d"),
    }
    for run in (ODD, "r1", "r2", "missing"):
        found[run] = [
            await store.get_run(run_id=run),
            await store.list_events(run_id=run),
            [await store.latest_snapshot(run_id=run, include_interrupted=each) for each in (False, True)],
            [await store.list_snapshots(run_id=run, include_interrupted=each) for each in (False, True)],
            [await store.get_tool_effect(run_id=run, tool_call_id=each) for each in ("c1", "c2", "c3", "c4")],
            await store.list_unresolved_tool_effects(run_id=run),
        ]
    return found


@pytest.mark.parametrize("kind", STORES)
def test_it_does_what_the_stores_of_the_harness_do(tmp_path: Path, kind: str) -> None:
    async def main() -> None:
        own, model = HoldfastStepStore(url_of(kind, tmp_path / "s")), InMemoryStepStore()
        for verb, record in WRITES:
            await getattr(model, verb)(dataclasses.replace(record))
            await getattr(own, verb)(dataclasses.replace(record))
            assert await seen(own) == await seen(model), (verb, record)
        own.close()

    assert isinstance(HoldfastStepStore("memory:"), StepStore)
    assert isinstance(HoldfastStepStore("memory:"), SnapshotStore)
    asyncio.run(main())


# -- processes --------------------------------------------------------------------------------------------------------


def killed(url: str, ledger: Path, where: str) -> None:
    """Run the agent in a process that is killed."""
    command = [sys.executable, "-m", "tests.adapters.pydantic_ai_harness_agent", url, str(ledger), where]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("where", ["tool", "model"])
def test_a_run_is_continued_after_a_kill(tmp_path: Path, kind: str, where: str) -> None:
    url, ledger = url_of(kind, tmp_path / "s"), tmp_path / "ledger"
    killed(url, ledger, where)

    async def main() -> None:
        store = HoldfastStepStore(url)
        (run,) = await store.list_runs(conversation_id=CONVERSATION)
        assert run.agent_name == "clerk"
        facts = await inspect_recovery(store=store, run_id=run.run_id)
        assert [effect.tool_name for effect in facts.unresolved] == (["buy"] if where == "tool" else [])
        assert facts.completed_tools == ("look_up",)
        last = (await store.list_events(run_id=run.run_id))[-1]
        assert last.kind == ("tool_call_started" if where == "tool" else "model_request_started")
        messages = await continue_run(store, run_id=run.run_id)
        result = await shop(store, ledger).run(message_history=messages, conversation_id=CONVERSATION)
        assert result.output == "bought"
        assert len(await store.list_runs(conversation_id=CONVERSATION)) == 2
        store.close()

    asyncio.run(main())
    assert ledger.read_text().split("\n").count("look_up") == 1  # its result was in the snapshot


def test_a_durable_run_that_was_killed_stores_each_step_once(tmp_path: Path) -> None:
    def resumed(name: str) -> tuple[list[str], int]:
        """The events of a run that is resumed, or that was never killed."""

        async def main(hf: Holdfast) -> tuple[list[str], int]:
            store = HoldfastStepStore(hf)
            agent = shop(store, tmp_path / name, is_durable=True)
            assert await run_durably(hf, agent, "Buy paper", thread=CONVERSATION) == "bought"
            (run,) = await store.list_runs()
            assert await store.list_unresolved_tool_effects(run_id=run.run_id) == []
            events = [event.kind for event in await store.list_events(run_id=run.run_id)]
            return events, len(await store.list_snapshots(run_id=run.run_id))

        with holdfast.open(tmp_path / f"{name}.db") as hf:
            return asyncio.run(main(hf))

    killed(str(tmp_path / "killed.db"), tmp_path / "killed", "event")
    assert resumed("killed") == resumed("whole")
    assert (tmp_path / "killed").read_text() == (tmp_path / "whole").read_text()  # no call was made again


def written_by(url: str, number: int) -> None:
    """One of two processes that write the same run: events of its own, and records with keys that both use."""

    async def main() -> None:
        store = HoldfastStepStore(url)
        for n in range(20):
            for key in (f"{number}:{n}", f"both:{n}"):
                await store.append_event(
                    StepEvent(run_id="r", kind="run_started", step_index=n, idempotency_key=key, timestamp=WHEN)
                )
            await store.save_snapshot(
                ContinuableSnapshot(run_id="r", step_index=n, messages=history(), idempotency_key=f"{n}:both")
            )
            await store.record_tool_effect(
                ToolEffectRecord(tool_call_id=f"{number}:{n}", tool_name="t", run_id="r", status="started")
            )
        store.close()

    asyncio.run(main())


@pytest.mark.parametrize("kind", STORES)
def test_two_processes_lose_nothing_and_store_nothing_twice(tmp_path: Path, kind: str) -> None:
    url = url_of(kind, tmp_path / "s")
    HoldfastStepStore(url).close()
    script = f"import sys; from {__name__} import written_by; written_by(sys.argv[1], int(sys.argv[2]))"
    writers = [subprocess.Popen([sys.executable, "-c", script, url, str(number)], cwd=ROOT) for number in (1, 2)]
    assert [writer.wait() for writer in writers] == [0, 0]

    async def main() -> None:
        store = HoldfastStepStore(url)
        keys = [event.idempotency_key for event in await store.list_events(run_id="r")]
        assert sorted(keys) == sorted(f"{who}:{n}" for who in ("1", "2", "both") for n in range(20))
        saved = [each.idempotency_key for each in await store.list_snapshots(run_id="r")]
        assert saved == [f"{n}:both" for n in range(20)]
        assert len(await store.list_unresolved_tool_effects(run_id="r")) == 40
        store.close()

    asyncio.run(main())


@pytest.mark.parametrize("kind", STORES)
def test_writers_at_the_same_time_store_a_snapshot_once(tmp_path: Path, kind: str) -> None:
    async def main() -> None:
        stores = [HoldfastStepStore(url) for _ in range(4)]
        for n in range(5):
            one = ContinuableSnapshot(run_id="r", step_index=n, messages=history(), idempotency_key=f"{n}")
            await asyncio.gather(*(store.save_snapshot(one) for store in stores))
            assert len(await stores[0].list_snapshots(run_id="r")) == n + 1
        for store in stores:
            store.close()

    url = url_of(kind, tmp_path / "s")
    asyncio.run(main())


def test_only_one_process_registers_a_run(hf: Holdfast) -> None:
    async def main() -> list[Any]:
        stores = [HoldfastStepStore(hf) for _ in range(4)]
        tries = [store.register_run(RunRecord(run_id="r", registration_id=str(n))) for n, store in enumerate(stores)]
        return await asyncio.gather(*tries, return_exceptions=True)

    errors = [each for each in asyncio.run(main()) if each is not None]
    assert [type(each) for each in errors] == [InvalidArgument] * 3
    assert "run 'r' is already in the store; nothing was changed" in str(errors[0])


# -- what users see, and what is refused ------------------------------------------------------------------------------


def scripted(*replies: Any) -> FunctionModel:
    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([replies[sum(isinstance(message, ModelResponse) for message in messages)]])

    return FunctionModel(model)


def test_a_run_is_a_thread_with_a_checkpoint_for_each_snapshot(hf: Holdfast, tmp_path: Path) -> None:
    asyncio.run(shop(HoldfastStepStore(hf), tmp_path / "ledger").run("Buy paper"))
    (thread,) = [hf.thread(info.name) for info in hf.threads("steps/")]
    counts = [len(thread.load(each).state["messages"]) for each in thread.history(tag="complete")]
    assert counts == [6, 5, 3]
    assert {each.agent for each in thread.history()} == {"clerk"}


def test_a_tool_can_describe_its_effect(hf: Holdfast) -> None:
    store = HoldfastStepStore(hf.aio)
    model = scripted(ToolCallPart("buy", {}, "c1"), TextPart("done"))
    agent = Agent(model, name="a", capabilities=[StepPersistence(store=store, run_id="r")])

    @agent.tool
    async def buy(context: RunContext) -> str:
        await annotate_tool_effect(store, context, idempotency_key="k", effect_summary="order 17")
        return "done"

    async def main() -> Any:
        await agent.run("go")
        with pytest.raises(ValueError, match="already in the store"):
            await agent.run("again")  # a run id is used once
        return await store.get_tool_effect(run_id="r", tool_call_id="c1")

    found = asyncio.run(main())
    assert (found.status, found.idempotency_key, found.effect_summary) == ("completed", "k", "order 17")


def test_a_tool_effect_is_found_behind_many_others(hf: Holdfast) -> None:
    async def main() -> Any:
        store = HoldfastStepStore(hf)
        for n in range(80):
            await store.record_tool_effect(
                ToolEffectRecord(tool_call_id=f"c{n}", tool_name="t", run_id="r", status="started")
            )
        return await store.get_tool_effect(run_id="r", tool_call_id="c0")

    assert asyncio.run(main()).tool_call_id == "c0"


def test_a_poisoned_snapshot_is_repaired_when_it_is_loaded(hf: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    poisoned = history(OPEN)

    async def main() -> list[ModelMessage]:
        store = HoldfastStepStore(hf)
        await store.save_snapshot(ContinuableSnapshot(run_id="r", step_index=1, messages=poisoned))
        messages = await continue_run(store, run_id="r")
        await Agent(scripted(None, None, TextPart("done")), name="a").run("go on", message_history=messages)
        return list(messages)

    with caplog.at_level("WARNING", "holdfast"):
        repaired = asyncio.run(main())
    assert repaired != poisoned
    assert "'steps/r': calls without results, or results without calls, were repaired" in caplog.text
    head = hf.thread("steps/r").latest()
    assert head is not None
    assert len(head.state["messages"]) == len(poisoned)


@pytest.mark.parametrize(
    ("verb", "record", "message"),
    [
        ("register_run", RunRecord(run_id=""), "id of a run"),
        ("register_run", RunRecord(run_id="r", metadata={"a": object()}), "RunRecord could not be loaded again"),
        ("append_event", StepEvent(run_id="r", kind="paused", step_index=1), "StepEvent could not be loaded again"),
        (
            "record_tool_effect",
            ToolEffectRecord(tool_call_id="c", tool_name="t", run_id="r", status="unknown"),
            "ToolEffectRecord could not be loaded again",
        ),
        (
            "save_snapshot",
            ContinuableSnapshot(run_id="r", step_index=1, messages=[], state="broken"),
            "ContinuableSnapshot could not be loaded again",
        ),
        (
            "save_snapshot",
            ContinuableSnapshot(
                run_id="r", step_index=1, messages=[ModelRequest([ToolReturnPart("t", object(), "c")])]
            ),
            "messages of a snapshot cannot be stored; nothing was changed",
        ),
    ],
)
def test_what_could_not_be_loaded_again_is_refused(hf: Holdfast, verb: str, record: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        asyncio.run(getattr(HoldfastStepStore(hf), verb)(record))
    assert list(hf.threads()) == []


def test_a_long_run_is_smaller_and_faster_than_in_the_store_of_the_harness(tmp_path: Path) -> None:
    def work(store: Any) -> Any:
        turns = 60
        replies = [*(ToolCallPart("say", {"text": f"{n} " * 20}, f"c{n}") for n in range(turns)), TextPart("done")]
        agent = Agent(scripted(*replies), name="a", capabilities=[StepPersistence(store=store)])
        agent.tool_plain(say)
        return lambda: asyncio.run(agent.run("go", usage_limits=UsageLimits(request_limit=None)))

    def say(text: str) -> str:
        return text * 4

    own = HoldfastStepStore(tmp_path / "own.db")
    seconds = seconds_of(work(own))
    own.close()
    assert seconds <= 1.2 * seconds_of(work(SqliteStepStore(database=str(tmp_path / "theirs.db"))))
    assert size_of(tmp_path / "own.db") <= size_of(tmp_path / "theirs.db")


# -- the package and the page -----------------------------------------------------------------------------------------


def test_another_version_is_refused() -> None:
    assert "pip install 'holdfast[pydantic-ai-harness]'" in refused("pydantic_steps", None)
    assert "from 0.62 to before 0.63, and 0.63.1 is installed" in refused("pydantic_steps", "0.63.1")


def test_the_section_of_the_page(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "tutorials" / "pydantic_ai.md").read_text("utf-8")
    (found,) = re.findall(r'^```python title="steps.py"\n(.*?^```)$', page, re.MULTILINE | re.DOTALL)
    section = tmp_path / "steps.md"
    section.write_text(f"```python\n{found}\n", "utf-8")
    run_page(str(section), tmp_path)
