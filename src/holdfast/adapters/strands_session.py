"""Sessions and storage of Strands Agents in a store of Holdfast."""

# pyright: reportMissingImports=false, reportUnknownParameterType=false, reportUntypedBaseClass=false

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final

from strands.session.session_repository import SessionRepository
from strands.storage.search.keyword import KeywordSearchStrategy
from strands.types.exceptions import SessionException, StorageError
from strands.types.session import Session, SessionAgent, SessionMessage, SessionType

from holdfast.adapters.seam import current
from holdfast.adapters.session_store import (
    MESSAGES,
    StoreLike,
    StoreOwner,
    insist,
    quoted_part,
    report_repairs,
)
from holdfast.aio.executor import to_the_end
from holdfast.errors import Conflict, NotFound
from holdfast.threads.save import ANY, NEW
from holdfast.threads.thread import Thread
from holdfast.types import Checkpoint

_VOLATILE: Final = ("tracking_id", "metadata")  # of messages: other values after a restart
_FOLDER: Final = "storage/"  # the start of the names of HoldfastStorage's threads


class HoldfastSessionRepository(StoreOwner, SessionRepository):  # type: ignore[misc]  # not installed where types are checked
    """Strands' `SessionRepository`: `RepositorySessionManager("chat-17", HoldfastSessionRepository(store))`.

    `store` is what `holdfast.open` takes, or an open handle. The thread SESSION has the records of the session and of
    its agents, and the thread SESSION/AGENT the messages of an agent. A message that another process has stored under
    the same number raises SessionException.

    `repairs` lists the tool uses without results, and the reverse, of the messages that were last listed. Strands
    repairs them when it loads a session; the stored messages are not changed.
    """

    def __init__(self, store: StoreLike) -> None:
        super().__init__(store)
        self.repairs: list[str] = []
        self._heads: dict[str, tuple[Checkpoint, int]] = {}  # by thread: its head, and the number of its last message

    # -- sessions, agents and multi-agents: one small record each ---------------------------------------------------

    def create_session(self, session: Any, **kwargs: Any) -> Any:
        try:
            record = {"session": _plain_session(session), "agents": {}, "multi_agents": {}}
            self._thread(session.session_id).save(record, expect=NEW)
        except Conflict:
            if not _is_resumed():
                raise SessionException(f"session {session.session_id} already exists") from None
        return session

    def read_session(self, session_id: str, **kwargs: Any) -> Any:
        def read() -> Any:
            found = self._record(session_id)
            return None if found is None else found["session"]

        found = self._made("read_session", session_id, read)
        return None if found is None else Session(**{**found, "session_type": SessionType(found["session_type"])})

    def delete_session(self, session_id: str, **kwargs: Any) -> None:
        """Delete a session with the messages of its agents."""
        own = self._thread(session_id).name
        names = [own, *(info.name for info in self._hf.threads(f"{own}/"))]
        if self._record(session_id) is None:
            raise SessionException(f"session {session_id} does not exist")
        for name in names:
            self._hf.thread(name).drop()

    def create_agent(self, session_id: str, session_agent: Any, **kwargs: Any) -> None:
        def add(agents: dict[str, Any]) -> None:
            if session_agent.agent_id in agents and not _is_resumed():
                raise SessionException(f"agent {session_agent.agent_id} already exists in session {session_id}")
            agents[session_agent.agent_id] = asdict(session_agent)

        self._change(session_id, "agents", add)

    def read_agent(self, session_id: str, agent_id: str, **kwargs: Any) -> Any:
        found = self._made("read_agent", f"{session_id}/{agent_id}", lambda: self._read(session_id, "agents", agent_id))
        return None if found is None else SessionAgent(**found)

    def update_agent(self, session_id: str, session_agent: Any, **kwargs: Any) -> None:
        def update(agents: dict[str, Any]) -> None:
            before = agents.get(session_agent.agent_id)
            if before is None:
                raise SessionException(f"agent {session_agent.agent_id} does not exist in session {session_id}")
            session_agent.created_at = before["created_at"]
            agents[session_agent.agent_id] = asdict(session_agent)

        self._change(session_id, "agents", update)

    def create_multi_agent(self, session_id: str, multi_agent: Any, **kwargs: Any) -> None:
        self._change(session_id, "multi_agents", lambda known: known.update({multi_agent.id: _state_of(multi_agent)}))

    def read_multi_agent(self, session_id: str, multi_agent_id: str, **kwargs: Any) -> Any:
        key = f"{session_id}/{multi_agent_id}"
        return self._made("read_multi_agent", key, lambda: self._read(session_id, "multi_agents", multi_agent_id))

    def update_multi_agent(self, session_id: str, multi_agent: Any, **kwargs: Any) -> None:
        def update(known: dict[str, Any]) -> None:
            if multi_agent.id not in known:
                raise SessionException(f"multi-agent {multi_agent.id} does not exist in session {session_id}")
            known[multi_agent.id] = _state_of(multi_agent)

        self._change(session_id, "multi_agents", update)

    # -- messages: a list that grows --------------------------------------------------------------------------------

    def create_message(self, session_id: str, agent_id: str, session_message: Any, **kwargs: Any) -> None:
        """Append a message. Nothing happens if it is stored already, as in a turn that is resumed."""
        thread = self._thread(session_id, agent_id)
        known: list[Any] = [self._heads.get(thread.name, (None, -1))]  # the head, and the number of its last message

        def append() -> None:
            head, last = known[0]
            if session_message.message_id <= last:
                stored = self._stored(thread, session_message.message_id)
                if stored is not None and comparable(stored["message"]) == comparable(session_message.message):
                    return
                raise SessionException(
                    f"message {session_message.message_id} already exists in agent {agent_id} of session {session_id}: "
                    "another process has continued the conversation. Create the agent again."
                )
            try:
                saved = thread.append(MESSAGES, [asdict(session_message)], expect=NEW if head is None else head)
            except Conflict:  # also if this object has not read the thread yet
                last = next((each["message_id"] for each in thread.tail(MESSAGES, 1)), -1)
                known[0] = thread.head(), last
                raise
            if saved is not None:
                self._heads[thread.name] = saved, session_message.message_id

        _insist(session_id, append)

    def read_message(self, session_id: str, agent_id: str, message_id: int, **kwargs: Any) -> Any:
        found = self._stored(self._thread(session_id, agent_id), message_id)
        return None if found is None else SessionMessage(**found)

    def update_message(self, session_id: str, agent_id: str, session_message: Any, **kwargs: Any) -> None:
        thread = self._thread(session_id, agent_id)

        def update() -> None:
            head = thread.latest()
            messages = [] if head is None else head.state[MESSAGES]
            places = [n for n, each in enumerate(messages) if each["message_id"] == session_message.message_id]
            if head is None or not places:
                raise SessionException(f"message {session_message.message_id} does not exist in session {session_id}")
            session_message.created_at = messages[places[0]]["created_at"]
            messages[places[0]] = asdict(session_message)
            thread.save(head.state, expect=head)

        _insist(session_id, update)

    def list_messages(
        self, session_id: str, agent_id: str, limit: int | None = None, offset: int = 0, **kwargs: Any
    ) -> list[Any]:
        """The messages of an agent. In a run, those that were stored when the run listed them first."""
        thread = self._thread(session_id, agent_id)
        messages = thread.tail(MESSAGES)
        key = f"{session_id}/{agent_id}"
        count = self._made("list_messages", key, lambda: len(messages))
        end = count if limit is None else min(offset + limit, count)
        found = messages[offset:end]
        self.repairs = unpaired([each["redact_message"] or each["message"] for each in found])
        report_repairs(session_id, self.repairs)
        return [SessionMessage(**each) for each in found]

    # -- threads ----------------------------------------------------------------------------------------------------

    def _thread(self, session_id: str, agent_id: str | None = None) -> Thread:
        name = quoted_part(session_id)
        return self._hf.thread(name if agent_id is None else f"{name}/{quoted_part(agent_id)}")

    def _record(self, session_id: str) -> Any:
        head = self._thread(session_id).latest()
        return None if head is None else head.state

    def _read(self, session_id: str, kind: str, name: str) -> Any:
        found = self._record(session_id)
        return None if found is None else found[kind].get(name)

    def _change(self, session_id: str, kind: str, change: Callable[[dict[str, Any]], None]) -> None:
        thread = self._thread(session_id)

        def save() -> None:
            head = thread.latest()
            if head is None:
                raise SessionException(f"session {session_id} does not exist")
            change(head.state[kind])
            thread.save(head.state, expect=head)

        _insist(session_id, save)

    def _stored(self, thread: Thread, message_id: int) -> Any:
        """A message by its number. Numbers follow each other, so that only the end of the list is read."""
        last = thread.tail(MESSAGES, 1)
        if not last or message_id > last[0]["message_id"]:
            return None
        near = thread.tail(MESSAGES, last[0]["message_id"] - message_id + 1)
        return next((each for each in near if each["message_id"] == message_id), None)

    def _made(self, verb: str, key: str, read: Callable[[], Any]) -> Any:
        """A read. In a run it is recorded: a resumed run reads the same."""
        seam = current()
        if seam is None:
            return read()
        name = f"session.{verb}"
        return seam.tool_sync(name, read, {}, key=key, declare={name: {"effect": "read"}})


class HoldfastStorage(StoreOwner):
    """Strands' `Storage`: bytes under keys, each the thread storage/KEY. For `SnapshotSessionManager` and others.

    `store` is what `holdfast.open` takes, or an open handle. JSON, such as a snapshot, is stored as data, so that a
    larger snapshot stores only what is new. The bytes that are read are those that were written.
    """

    async def write(self, key: str, data: bytes) -> None:
        """Store bytes under a key, in place of those before."""
        thread = self._thread(key)
        state = _packed(bytes(data))
        await to_the_end(lambda: thread.save(state, expect=ANY))

    async def read(self, key: str) -> bytes | None:
        """The bytes under a key; None if there are none."""
        thread = self._thread(key)
        head = await to_the_end(thread.latest)
        return None if head is None else _unpacked(head.state)

    async def delete(self, key: str) -> None:
        """Delete a key with its history. Nothing happens if there is none."""
        thread = self._thread(key)

        def drop() -> None:
            with suppress(NotFound):
                thread.drop()

        await to_the_end(drop)

    async def list(self, query: str = "") -> list[str]:
        """The keys that start with a text, sorted."""
        names = await to_the_end(lambda: [info.name for info in self._hf.threads(f"{_FOLDER}{query.lstrip('/')}")])
        return sorted(name.removeprefix(_FOLDER) for name in names)

    async def search(self, query: str) -> Any:
        """The keys whose data has words of the query, best first."""
        return await KeywordSearchStrategy().search(self, query)

    def _thread(self, key: str) -> Thread:
        return self._hf.thread(f"{_FOLDER}{_checked_key(key)}")


# -- data -------------------------------------------------------------------------------------------------------------


def comparable(message: Any) -> Any:
    """The part of a message that is the same after a restart."""
    return {name: value for name, value in message.items() if name not in _VOLATILE}


def _insist(session_id: str, work: Callable[[], None]) -> None:
    try:
        insist(f"session {session_id}", work)
    except Conflict as conflict:
        raise SessionException(str(conflict)) from None


def unpaired(messages: list[Any]) -> list[str]:
    """The tool uses without results, and the results without tool uses, of a conversation."""
    problems: list[str] = []
    before: set[str] = set()
    for message in messages:
        results = {block["toolResult"]["toolUseId"] for block in message["content"] if "toolResult" in block}
        problems += [f"tool use {each!r} has no result" for each in sorted(before - results)]
        problems += [f"the result of {each!r} has no tool use" for each in sorted(results - before)]
        before = {block["toolUse"]["toolUseId"] for block in message["content"] if "toolUse" in block}
    return [*problems, *(f"tool use {each!r} has no result" for each in sorted(before))]


def _plain_session(session: Any) -> dict[str, Any]:
    return {**asdict(session), "session_type": str(session.session_type.value)}


def _state_of(multi_agent: Any) -> Any:
    """The state of a graph or a swarm, as its own stores keep it."""
    return json.loads(json.dumps(multi_agent.serialize_state()))


def _is_resumed() -> bool:
    """Whether a record that exists may be from the same program, before it was killed."""
    return current() is not None


def _checked_key(key: str) -> str:
    parts = [part for part in key.split("/") if part]
    if not parts or "\\" in key or ".." in parts:
        raise StorageError(f"invalid storage key {key!r}: it must not be empty, and has no '..' and no backslash")
    return "/".join(parts)


def _packed(data: bytes) -> dict[str, Any]:
    """JSON that `json.dumps` would write in the same way is stored as data."""
    try:
        value = json.loads(data)
        for is_ascii in (False, True):
            if json.dumps(value, ensure_ascii=is_ascii).encode() == data:
                return {"json": value, "ascii": is_ascii}
    except (ValueError, RecursionError):
        pass
    return {"data": data}


def _unpacked(state: dict[str, Any]) -> bytes:
    if "data" in state:
        return bytes(state["data"])
    return json.dumps(state["json"], ensure_ascii=state["ascii"]).encode()
