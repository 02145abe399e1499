"""rust-ai-agents' session backend: conversations of agents, values by name; by threads, which their names find."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import NEW, AlreadyExists, Holdfast, NotFound
from tests.parity.covering import covers
from tests.parity.damaging import file_address
from tests.parity.processes import Start, told_by


@dataclass
class Session:
    messages: list[dict[str, str]] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)


def begin(hf: Holdfast, agent: str, name: str | None = None) -> str:
    """A new session of an agent, with a name that begins with the agent's and that nobody can guess, or a given one."""
    name = name or f"{agent}:{uuid.uuid4()}"
    hf.thread(name, type=Session).save(Session(), agent=agent, metadata={"agent": agent}, expect=NEW)
    return name


def said(hf: Holdfast, name: str, text: str, **values: Any) -> Session:
    """Load a session, add a message, store it. NotFound if there is none."""
    thread = hf.thread(name, type=Session)
    latest = thread.load("@-1")
    session: Session = latest.state
    session.messages.append({"role": "user", "content": text})
    session.values.update(values)
    thread.save(session, agent=latest.agent)
    return session


def loaded(hf: Holdfast, name: str) -> Session | None:
    latest = hf.thread(name, type=Session).latest()
    return None if latest is None else latest.state


def of_agent(hf: Holdfast, agent: str) -> list[str]:
    return [info.name for info in hf.threads(prefix=f"{agent}:")]


@covers(
    "cortex",
    "Session.id",
    "Session.agent_id",
    "Session.messages",
    "Session.new",
    "Session.with_id",
    "Session.add_message",
    "MemoryBackend",
    "MemoryBackend.save_session",
    "MemoryBackend.load_session",
    "SessionManager.create_session",
    "SessionManager.save_session",
    "session test_in_memory_backend_basic",
)
def test_a_session_begins_empty_and_its_messages_and_agent_come_back(hf: Holdfast) -> None:
    anew, chosen = begin(hf, "test-agent"), begin(hf, "test-agent", "chosen by me")
    assert anew != begin(hf, "test-agent")
    assert chosen == "chosen by me"
    with pytest.raises(AlreadyExists):
        begin(hf, "test-agent", "chosen by me")
    assert loaded(hf, anew) == Session()
    for text in ("Hello", "Hi there!"):
        said(hf, anew, text)
    latest = hf.thread(anew, type=Session).latest()
    assert latest is not None
    assert (latest.thread, latest.agent) == (anew, "test-agent")
    assert [message["content"] for message in latest.state.messages] == ["Hello", "Hi there!"]
    assert loaded(hf, "unknown") is None


@covers("cortex", "Session.metadata", "Session.created_at", "Session.updated_at")
def test_values_are_set_and_read_by_name_and_times_say_when_it_began_and_changed(hf: Holdfast) -> None:
    name = begin(hf, "a")
    began = hf.thread(name).head()
    said(hf, name, "one", key="value", limits=[1, 2.5, None])
    session = loaded(hf, name)
    assert session is not None
    assert (session.values["key"], session.values["limits"], session.values.get("unknown")) == (
        "value",
        [1, 2.5, None],
        None,
    )
    [info] = hf.threads()
    history = list(hf.thread(name).history())
    assert began is not None
    assert history[-1].created_at == began.created_at
    assert info.updated_at == history[0].created_at >= began.created_at


@covers(
    "cortex",
    "Session.resume_token",
    "MemoryBackend.load_by_resume_token",
    "SessionManager.resume_session",
    "session test_resume_token",
)
def test_its_name_finds_a_session_again_and_an_unknown_one_nothing(url: str) -> None:
    name = f"agent:{uuid.uuid4()}"
    with holdfast.open(url, durability="off") as hf:
        begin(hf, "agent", name)
        other = begin(hf, "agent")
        said(hf, name, "hello")
        resumed = hf.thread(name, type=Session).latest()
        assert resumed is not None
        assert resumed.state.messages == [{"role": "user", "content": "hello"}]
        assert loaded(hf, other) == Session()
        assert loaded(hf, name.upper()) is None
        assert loaded(hf, name[:-1]) is None
        # With the id of a checkpoint it finds one moment of it.
        said(hf, name, "more")
        assert hf.thread(name, type=Session).load(resumed.id).state == resumed.state


@covers("cortex", "MemoryBackend.delete_session", "MemoryBackend.session_exists", "SessionManager.delete_session")
@covers("cortex", "session test_sled_backend_delete")
def test_a_deleted_session_is_not_there_and_its_name_finds_nothing(hf: Holdfast) -> None:
    name = begin(hf, "agent")
    assert hf.thread(name).count() == 1
    hf.thread(name).drop()
    assert hf.thread(name).count() == 0
    assert loaded(hf, name) is None
    assert of_agent(hf, "agent") == []


@covers(
    "cortex",
    "MemoryBackend.list_sessions",
    "MemoryBackend.list_session_ids",
    "SessionManager.list_sessions",
    "session test_list_sessions",
)
def test_the_sessions_of_an_agent_are_listed_with_what_they_hold(hf: Holdfast) -> None:
    one, two, three = begin(hf, "agent-1"), begin(hf, "agent-1"), begin(hf, "agent-10")
    said(hf, one, "hello")
    assert sorted(of_agent(hf, "agent-1")) == sorted([one, two])
    assert of_agent(hf, "agent-10") == [three]
    assert {info.name: info.agent for info in hf.threads()} == {one: "agent-1", two: "agent-1", three: "agent-10"}
    sessions = {name: loaded(hf, name) for name in of_agent(hf, "agent-1")}
    assert sessions == {one: Session([{"role": "user", "content": "hello"}]), two: Session()}


@covers(
    "cortex",
    "MemoryBackend.clear_agent_sessions",
    "SessionManager.clear_agent_sessions",
    "session test_session_manager_clear",
)
def test_two_of_one_agent_go_and_the_others_stays(hf: Holdfast) -> None:
    one, two, three = begin(hf, "agent-1"), begin(hf, "agent-1"), begin(hf, "agent-2")
    assert sorted(hf.erase(metadata={"agent": "agent-1"}).threads) == sorted([one, two])
    assert of_agent(hf, "agent-1") == []
    assert of_agent(hf, "agent-2") == [three]


@covers("cortex", "MemoryBackend.backend_name", "InMemoryBackend", "SledBackend.temporary")
def test_a_handle_says_which_kind_of_store_it_has_and_one_in_memory_leaves_nothing(tmp_path: Path) -> None:
    names: dict[str, str] = {}
    for kind in ("memory", "sqlite", "directory"):
        address = "memory:" if kind == "memory" else file_address(kind, tmp_path)
        with holdfast.open(address, durability="off") as hf:
            names[kind] = repr(hf)
            begin(hf, "agent")
    assert [kind in names[kind].lower() for kind in names] == [True, True, True]
    with holdfast.open("memory:") as hf:
        assert list(hf.threads()) == []
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith("store.db-")) == [
        "store",
        "store.db",
    ]


@covers("cortex", "SledBackend", "SledBackend.flush", "session test_sled_backend_basic")
@pytest.mark.parametrize("kind", ["sqlite", "directory"])
def test_a_message_and_a_value_by_name_come_back_in_a_new_process(kind: str, tmp_path: Path, start: Start) -> None:
    with holdfast.open(file_address(kind, tmp_path)) as hf:
        name = begin(hf, "test-agent")
        said(hf, name, "Test message", key="value")
        # Nothing has to be flushed or closed: what a save acknowledged is on the disk.
        found = told_by(start("reading", store=file_address(kind, tmp_path), thread=name))
    assert found["state"] == {"messages": [{"role": "user", "content": "Test message"}], "values": {"key": "value"}}
    assert found["threads"] == [name]


@covers("cortex", "SessionManager.get_or_create_session")
def test_the_session_there_is_or_a_new_one(hf: Holdfast) -> None:
    for text in ("one", "two"):
        with hf.run("conversation", start={"messages": []}, agent="agent", turn=text) as run:
            run.state["messages"].append(text)
            run.finish()
    latest = hf.thread("conversation").latest()
    assert latest is not None
    assert latest.state == {"messages": ["one", "two"]}
    thread = hf.thread("by hand", type=Session)
    for expected in (0, 1):
        latest = thread.latest()
        assert (latest is not None) == bool(expected)
        session = Session() if latest is None else latest.state
        assert len(session.messages) == expected
        session.messages.append({"role": "user", "content": "hello"})
        thread.save(session)


@covers("cortex", "SessionManager.add_message", "session test_session_manager_add_message")
def test_one_message_is_one_message_and_to_no_session_none_is_added(hf: Holdfast) -> None:
    name = begin(hf, "my-agent")
    assert said(hf, name, "Hello").messages == [{"role": "user", "content": "Hello"}]
    session = loaded(hf, name)
    assert session is not None
    assert len(session.messages) == 1
    with pytest.raises(NotFound):
        said(hf, "unknown", "Hello")
    assert [info.name for info in hf.threads()] == [name]
