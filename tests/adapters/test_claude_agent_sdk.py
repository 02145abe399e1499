"""Claude Agent SDK: the store of sessions, by the suite that the SDK ships, and the journal, with the SDK's own CLI."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import SessionStore
from claude_agent_sdk.testing import run_session_store_conformance

import holdfast
from holdfast import Happened, Holdfast
from holdfast.adapters.claude_agent_sdk import HoldfastSessionStore, Journal
from holdfast.types import Effect
from tests.adapters.frameworks import STORES, url_of
from tests.adapters.kill_world import World, killed_and_resumed, resumed, start

KEY: Any = {"project_key": "-home-me/project", "session_id": "0b5f"}


def entries(*numbers: int) -> list[Any]:
    return [{"type": "user", "uuid": f"u{number}", "message": {"content": f"text {number}"}} for number in numbers]


# -- the store of sessions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*STORES, "memory", "handle"])
def test_the_suite_of_the_sdk(tmp_path: Path, kind: str) -> None:
    opened: list[Any] = []
    numbers = itertools.count()

    def make() -> Any:
        number = next(numbers)
        store: Any = "memory:" if kind == "memory" else None
        if store is None:
            store = url_of("sqlite" if kind == "handle" else kind, tmp_path / str(number))
            store = holdfast.open(store) if kind == "handle" else store
        opened.append(store)
        made = HoldfastSessionStore(store)
        opened.append(made)
        return made

    asyncio.run(run_session_store_conformance(make))
    for each in opened:
        if hasattr(each, "close"):
            each.close()


def test_entries_with_a_uuid_are_stored_once(tmp_path: Path) -> None:
    async def main() -> None:
        first, second = (HoldfastSessionStore(tmp_path / "s.db") for _ in range(2))
        await first.append(KEY, entries(1, 2))
        await first.append(KEY, entries(2, 3))
        await second.append(KEY, entries(1, 3, 4))
        await first.append(KEY, [{"type": "title"}, {"type": "title"}, *entries(4, 5, 5)])
        assert await second.load(KEY) == [*entries(1, 2, 3, 4), {"type": "title"}, {"type": "title"}, *entries(5)]
        first.close()
        second.close()

    asyncio.run(main())


def test_parallel_writers_lose_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        stores = [HoldfastSessionStore(tmp_path / "s.db") for _ in range(3)]
        await asyncio.gather(*[stores[n % 3].append(KEY, entries(n)) for n in range(30)])
        found = await stores[0].load(KEY)
        assert found is not None
        assert sorted(entry["uuid"] for entry in found) == sorted(f"u{n}" for n in range(30))
        for store in stores:
            store.close()

    asyncio.run(main())


def test_names_of_projects_and_sessions_do_not_mix(tmp_path: Path) -> None:
    keys: list[Any] = [
        {"project_key": "a", "session_id": "b/c"},
        {"project_key": "a/b", "session_id": "c"},
        {"project_key": "a", "session_id": "b", "subpath": "c"},
        {"project_key": "a", "session_id": "b%2Fc"},
    ]

    async def main() -> None:
        with holdfast.open(tmp_path / "s.db") as hf:
            store = HoldfastSessionStore(hf)
            for number, key in enumerate(keys):
                await store.append(key, entries(number))
            for number, key in enumerate(keys):
                assert await store.load(key) == entries(number)
            assert sorted(s["session_id"] for s in await store.list_sessions("a")) == ["b%2Fc", "b/c"]

    asyncio.run(main())


def test_the_methods_are_those_of_the_protocol() -> None:
    for name in ("append", "load", "list_sessions", "list_session_summaries", "delete", "list_subkeys"):
        assert getattr(HoldfastSessionStore, name) is not getattr(SessionStore, name)


# -- the journal, with the CLI ----------------------------------------------------------------------------------------

PROGRAM = "tests.adapters.claude_agent_sdk_agent"
BUY = "mcp__shop__buy"
CALLS = ["second 0", "second 1"]  # the model calls before the kill


@pytest.fixture
def world(tmp_path: Path) -> Path:
    return tmp_path / "world"


def effects_of(world: Path) -> list[Effect]:
    with holdfast.open(world / "agent.db") as hf:
        [journal] = [info.name for info in hf.threads("") if "#calls/" in info.name]
        return hf.effects(journal)


def test_without_a_journal_it_buys_twice(world: Path) -> None:
    found = killed_and_resumed(PROGRAM, world, "alone")
    assert (found.result, found.ledger) == ("bought", ["paper", "paper"])
    assert found.models == [*CALLS, "second 1", "second 2"]


def test_ask_waits_before_the_model_is_asked_again(world: Path) -> None:
    found = killed_and_resumed(PROGRAM, world, "second")
    assert (found.status, found.ledger, found.questions, found.models) == ("waiting", ["paper"], [BUY], CALLS)
    with holdfast.open(world / "agent.db") as hf:
        [question] = hf.waiting()
        assert question.payload == {"item": "paper", "amount": 3}
        hf.settle(question.thread, question.effect, Happened("bought by a person"))
    found = resumed(PROGRAM, world, "second")
    assert (found.result, found.ledger) == ("bought", ["paper"])
    assert "bought by a person" in found.seen[1]
    assert found.models == [*CALLS, "second 1", "second 2"]  # the model asks for the call again


@pytest.mark.parametrize("scenario", ["second", "trio"])
def test_probe_finds_the_call(world: Path, scenario: str) -> None:
    found = killed_and_resumed(PROGRAM, world, scenario, "probe")
    assert (found.result, found.ledger, found.reads) == ("bought", ["paper"], ["paper"])
    assert "Result of call c2" in found.seen[1]
    with holdfast.open(world / "agent.db") as hf:  # the model was also told before it asked
        [transcript] = [info.name for info in hf.threads("") if "#calls/" not in info.name]
        entries = [json.dumps(entry) for entry in hf.thread(transcript).tail("entries")]
    assert sum("Result of call c2" in entry for entry in entries) >= 2


def test_give_up_tells_the_model(world: Path) -> None:
    found = killed_and_resumed(PROGRAM, world, "second", "give_up")
    assert (found.result, found.ledger) == ("bought", ["paper"])
    assert "It may or may not have happened" in found.seen[1]


def test_rerun_buys_twice_as_declared(world: Path) -> None:
    found = killed_and_resumed(PROGRAM, world, "second", "rerun")
    assert (found.result, found.ledger) == ("bought", ["paper", "paper"])


def test_three_tools_of_one_reply_are_called_once_each(world: Path) -> None:
    found = killed_and_resumed(PROGRAM, world, "three", "probe")
    assert (found.result, sorted(found.ledger), found.reads) == ("bought", ["ink", "paper"], ["paper"])


def test_a_call_without_permission_was_not_made(world: Path) -> None:
    found = resumed(PROGRAM, world, "denied")
    assert (found.status, found.ledger) == ("idle", [])
    assert [(effect.name, effect.status) for effect in effects_of(world)] == [(BUY, "not_done")]


def test_two_processes_on_one_session(world: Path) -> None:
    assert resumed(PROGRAM, world, "denied").ledger == []
    with holdfast.open(world / "agent.db") as hf:
        [journal] = [info.name for info in hf.threads("") if "#calls/" in info.name]
        with hf.run(journal):
            other = start(PROGRAM, world, "second")
    assert other.returncode == 1
    assert "LeaseHeld" in other.stderr
    assert World(world).lines("ledger") == []


# -- the journal, by its hooks ----------------------------------------------------------------------------------------


class Session:
    """A session whose CLI is the test: it calls the hooks, and writes the transcript."""

    def __init__(self, hf: Any, **declare: dict[str, Any]) -> None:
        self.journal = Journal(hf, KEY["project_key"], KEY["session_id"], declare=declare)
        self.hooks = self.journal.hooks()
        self.store = HoldfastSessionStore(hf)

    def hook(self, name: str, call_id: str | None = None, **given: Any) -> Any:
        [matcher] = self.hooks[name]
        return asyncio.run(matcher.hooks[0]({"hook_event_name": name, **given}, call_id, None))

    def begin(self, call_id: str, tool: str = "buy", **arguments: Any) -> str | None:
        """Why the call must not be made; None if it may."""
        said = self.hook("PreToolUse", call_id, tool_name=tool, tool_input=arguments)
        reason: str | None = said.get("hookSpecificOutput", {}).get("permissionDecisionReason")
        return reason

    def end(self, call_id: str, result: Any) -> None:
        self.hook("PostToolUse", call_id, tool_name="buy", tool_input={}, tool_response=result)

    def tell(self, call_id: str, content: Any, **fields: Any) -> None:
        """The CLI writes what the model was told."""
        blocks = [{"type": "tool_result", "tool_use_id": call_id, "content": content}]
        asyncio.run(self.store.append(KEY, [{"type": "user", "message": {"content": blocks}, **fields}]))


def test_a_result_that_the_model_was_not_told_is_given_once(hf: Holdfast) -> None:
    first = Session(hf)
    assert first.begin("c1", item="paper") is None
    first.end("c1", "receipt 1")
    first.journal.close()  # the entry with the result was not written
    second = Session(hf)
    second.tell("c1", "the session ended", toolDenialKind="interrupted")
    reason = second.begin("c2", item="paper")
    assert reason is not None
    assert "receipt 1" in reason
    second.tell("c2", f"PreToolUse:buy hook error: {reason}")
    second.journal.close()
    third = Session(hf)
    assert third.begin("c3", item="paper") is None  # another call with the same arguments
    third.journal.close()


def test_equal_calls_of_one_process_are_calls_of_their_own(hf: Holdfast) -> None:
    session = Session(hf)
    for call in ("c1", "c2"):
        assert session.begin(call, item="paper") is None
        session.end(call, call)
        session.tell(call, call)
    session.journal.close()
    assert [effect.result for effect in hf.effects(session.journal.thread)] == ["c1", "c2"]
    again = Session(hf)
    assert again.begin("c3", item="paper") is None
    again.journal.close()


def test_the_model_is_told_before_it_asks_in_other_words(hf: Holdfast) -> None:
    first = Session(hf, book={"effect": "idempotent"})
    for call, tool in (("c1", "buy"), ("c2", "book")):
        assert first.begin(call, tool, item="paper") is None
        first.end(call, f"receipt of {tool}")
    first.journal.close()
    second = Session(hf, book={"effect": "idempotent"})
    told = second.hook("UserPromptSubmit", prompt="continue")["hookSpecificOutput"]["additionalContext"]
    assert 'buy {"item": "paper"}' in told
    assert "Result of call c1: receipt of buy" in told
    assert "Result of call c2: receipt of book" in told
    assert second.hook("UserPromptSubmit", prompt="continue") == {}
    second.tell("x", told)
    second.journal.close()
    third = Session(hf, book={"effect": "idempotent"})
    assert third.hook("UserPromptSubmit", prompt="continue") == {}
    third.journal.close()


def test_reads_are_not_recorded(hf: Holdfast) -> None:
    session = Session(hf, look_up={"effect": "read"})
    assert session.begin("c1", "Read", file_path="a") is None
    assert session.begin("c2", "look_up", item="paper") is None
    session.journal.close()
    assert hf.effects(session.journal.thread) == []


def test_a_failure_is_an_outcome_or_leaves_the_call_in_doubt(hf: Holdfast) -> None:
    session = Session(hf, pay={"errors": "doubt"})
    assert session.begin("c1", item="paper") is None
    given: Any = {"tool_input": {}, "error": "no such item"}
    assert session.hook("PostToolUseFailure", "c1", tool_name="buy", **given) == {}
    assert session.begin("c2", "pay", amount=3) is None
    said = session.hook("PostToolUseFailure", "c2", tool_name="pay", **given)
    assert said["continue_"] is False
    assert "A person has been asked" in str(session.begin("c3", item="ink"))  # nothing new starts
    session.journal.close()
    assert session.journal.status == "waiting"
    assert [(effect.name, effect.status) for effect in hf.effects(session.journal.thread)] == [
        ("buy", "done"),
        ("pay", "in_doubt"),
    ]


def test_a_sub_agent_makes_calls_after_the_turn_of_its_agent(hf: Holdfast) -> None:
    session = Session(hf.aio)
    session.hook("PreToolUse", "c1", tool_name="buy", tool_input={"item": "ink"}, agent_id="helper")
    session.hook("PreToolUse", "c2", tool_name="buy", tool_input={"item": "gold"})  # its permission is denied
    session.hook("Stop")
    session.end("c1", "bought ink")
    session.hook("PreToolUse", "c3", tool_name="buy", tool_input={"item": "pen"}, agent_id="helper")
    session.hook("SubagentStop", agent_id="helper")
    session.journal.close()
    effects = {effect.arguments["item"]: effect.status for effect in hf.effects(session.journal.thread)}
    assert effects == {"ink": "done", "gold": "not_done", "pen": "not_done"}


def test_a_call_that_ends_while_the_turn_ends(hf: Holdfast) -> None:
    session = Session(hf)
    for number in (1, 2):
        assert session.begin(f"c{number}", item=str(number)) is None
    [stop], [after] = session.hooks["Stop"], session.hooks["PostToolUse"]

    async def both() -> None:
        given: Any = {"tool_response": "bought"}
        await asyncio.gather(stop.hooks[0]({}, None, None), after.hooks[0](given, "c2", None))

    asyncio.run(both())
    session.journal.close()
    assert [effect.status for effect in hf.effects(session.journal.thread)] == ["not_done", "done"]


def test_a_cancelled_session_makes_no_further_call(hf: Holdfast) -> None:
    session = Session(hf)
    hf.cancel(session.journal.thread, "no longer wanted")
    assert "no longer wanted" in str(session.begin("c1", item="paper"))
    session.journal.close()
    assert session.journal.status == "halted"


def test_a_session_is_deleted_with_its_journal(hf: Holdfast) -> None:
    session = Session(hf)
    assert session.begin("c1", item="paper") is None
    session.end("c1", "receipt")
    session.tell("c1", "receipt")
    session.journal.close()
    assert [listed["session_id"] for listed in asyncio.run(session.store.list_sessions(KEY["project_key"]))] == ["0b5f"]
    asyncio.run(session.store.delete(KEY))
    assert list(hf.threads("")) == []
