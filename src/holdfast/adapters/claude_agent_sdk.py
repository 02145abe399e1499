"""Claude Agent SDK: session transcripts in a store of Holdfast, so that any machine can resume a session.

    options = ClaudeAgentOptions(session_store=HoldfastSessionStore("sessions.db"), session_store_flush="eager")

With the SDK's default, "batched", a crash loses the entries of the turn: use "eager". See
`docs/tutorials/claude_agent_sdk.md`.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import unquote

from holdfast.adapters.seam import require

require("claude-agent-sdk", "0.2.182", "0.3", "claude-agent-sdk")

from anyio import to_thread
from claude_agent_sdk import fold_session_summary

from holdfast.adapters.claude_journal import Journal, journal_name, transcript_name
from holdfast.adapters.session_store import StoreLike, StoreOwner, insist, quoted_part
from holdfast.threads.save import NEW
from holdfast.threads.thread import Thread

__all__ = ["HoldfastSessionStore", "Journal"]

_ENTRIES: Final = "entries"  # the key of the list in the state of a thread
_SUMMARY: Final = "summary"  # the key in the metadata of its checkpoints
_fold: Final[Any] = fold_session_summary


class HoldfastSessionStore(StoreOwner):
    """The SDK's `SessionStore`: a transcript is a thread, PROJECT/SESSION, and PROJECT/SESSION/SUBPATH of sub-agents.

    `store` is what `holdfast.open` takes, or an open handle. An entry with a `uuid` is stored once.
    """

    def __init__(self, store: StoreLike) -> None:
        super().__init__(store)
        self._uuids: dict[str, tuple[str, set[str]]] = {}  # by thread: the head they are of, and the uuids

    async def append(self, key: Any, entries: list[Any]) -> None:
        """Append the entries that are not stored yet, all or none."""
        if entries:
            await to_thread.run_sync(lambda: self._append(key, entries))

    async def load(self, key: Any) -> list[Any] | None:
        """All entries of a transcript; None if it was never written."""
        thread = self._thread(key)
        return await to_thread.run_sync(lambda: None if thread.head() is None else thread.tail(_ENTRIES))

    async def list_sessions(self, project_key: str) -> list[Any]:
        """The sessions of a project, each with the time of its last change in milliseconds."""
        found = await to_thread.run_sync(lambda: list(self._sessions(project_key)))
        return [{"session_id": session, "mtime": _milliseconds(head)} for session, head in found]

    async def list_session_summaries(self, project_key: str) -> list[Any]:
        """The summaries of the sessions of a project, without reading their entries."""
        found = await to_thread.run_sync(lambda: list(self._sessions(project_key)))
        return [{**head.metadata[_SUMMARY], "mtime": _milliseconds(head)} for _, head in found]

    async def delete(self, key: Any) -> None:
        """Delete a transcript, and with a session those of its sub-agents."""
        await to_thread.run_sync(lambda: self._delete(key))

    async def list_subkeys(self, key: Any) -> list[str]:
        """The subpaths of a session."""
        prefix = f"{transcript_name({**key, 'subpath': None})}/"
        return await to_thread.run_sync(lambda: [unquote(name[len(prefix) :]) for name in self._names(prefix)])

    # -- threads ----------------------------------------------------------------------------------------------------

    def _thread(self, key: Any) -> Thread:
        return self._hf.thread(transcript_name(key))

    def _names(self, prefix: str) -> list[str]:
        return [info.name for info in self._hf.threads(prefix)]

    def _sessions(self, project_key: str) -> Iterator[tuple[str, Any]]:
        """The sessions of a project, each with its head."""
        prefix = f"{quoted_part(project_key)}/"
        for name in self._names(prefix):
            session = name[len(prefix) :]
            head = None if "/" in session else self._hf.thread(name).head()
            if head is not None:
                yield unquote(session), head

    def _append(self, key: Any, entries: list[Any]) -> None:
        thread = self._thread(key)

        def append() -> None:
            head = thread.head()
            known = self._known(thread, head)
            new = _new_entries(entries, known)
            if not new:
                return
            metadata = None
            if key.get("subpath") is None:
                before = None if head is None else {**head.metadata[_SUMMARY], "mtime": _milliseconds(head)}
                metadata = {_SUMMARY: dict(_fold(before, key, new))}
            saved = thread.append(_ENTRIES, new, expect=NEW if head is None else head, metadata=metadata)
            if saved is not None:
                uuids = {entry["uuid"] for entry in new if entry.get("uuid") is not None}
                self._uuids[thread.name] = saved.id, known | uuids

        insist(thread.name, append)

    def _known(self, thread: Thread, head: Any) -> set[str]:
        """The uuids of the stored entries. They are read once, unless another process appends."""
        if head is None:
            return set()
        seen = self._uuids.get(thread.name)
        if seen is not None and seen[0] == head.id:
            return seen[1]
        return {entry["uuid"] for entry in thread.tail(_ENTRIES) if entry.get("uuid") is not None}

    def _delete(self, key: Any) -> None:
        name = transcript_name(key)
        below = self._names(f"{name}/") if key.get("subpath") is None else []
        own = [journal_name(key["project_key"], key["session_id"])] if key.get("subpath") is None else []
        for each in (*below, *own, name):
            thread = self._hf.thread(each)
            if thread.head() is not None:
                thread.drop()
            self._uuids.pop(each, None)


def _new_entries(entries: list[Any], known: set[str]) -> list[Any]:
    """The entries that are not stored. Those without a uuid always are new."""
    new: dict[object, Any] = {}
    for number, entry in enumerate(entries):
        uuid = entry.get("uuid")
        if uuid is None or uuid not in known:
            new.setdefault(number if uuid is None else uuid, entry)
    return list(new.values())


def _milliseconds(head: Any) -> int:
    return int(head.created_at.timestamp() * 1000)
