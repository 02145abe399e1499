"""Import sessions of the OpenAI Agents SDK: its SQLiteSession, and AdvancedSQLiteSession with its branches.

A session becomes a thread, and each item a checkpoint whose state is the conversation up to that item. The branches of
an AdvancedSQLiteSession become branches of the thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from holdfast.codec import storable
from holdfast.errors import Unsupported
from holdfast.handle import Holdfast
from holdfast.importers.foreign import Aside, Entry, ForeignRecord, ForeignSource, ForeignThread, Remark, Unreadable
from holdfast.importers.foreign_files import (
    SqliteFile,
    as_object,
    json_of,
    moment_of_text,
    shown_name,
    valid_text,
    waits_for,
)
from holdfast.importers.frame import Options, Unusable

_TABLES: Final = {
    "agent_sessions": frozenset({"session_id", "created_at", "updated_at"}),
    "agent_messages": frozenset({"id", "session_id", "message_data", "created_at"}),
}
_STRUCTURE: Final = frozenset({"id", "session_id", "message_id", "branch_id", "sequence_number"})
_SESSIONS: Final = "SELECT session_id, count(*) FROM agent_messages GROUP BY session_id ORDER BY min(id)"
_SILENT: Final = "SELECT session_id FROM agent_sessions EXCEPT SELECT session_id FROM agent_messages"
_NUMBERS: Final = "SELECT id FROM agent_messages WHERE session_id = ? ORDER BY id"
_ROW: Final = "SELECT message_data, created_at FROM agent_messages WHERE id = ?"
_BRANCHES: Final = (
    "SELECT branch_id, message_id FROM message_structure WHERE session_id = ? ORDER BY branch_id, sequence_number, id"
)
_FIRST_BRANCHES: Final = "SELECT message_id, branch_id FROM message_structure WHERE session_id = ? ORDER BY id DESC"
_AROUND_AN_ITEM: Final = 2  # a state and its list of messages


def open_openai_agents(path: str, hf: Holdfast | None, options: Options) -> ForeignSource:
    """Open a database. NotFound if it does not exist, InvalidArgument if it is not of a SQLiteSession."""
    file = SqliteFile(path, _TABLES, "database of the OpenAI Agents SDK's SQLiteSession", options.max_file_bytes)
    try:
        sessions = file.listed(_SESSIONS)
        has_branches = file.columns("message_structure") >= _STRUCTURE
    except BaseException:
        file.close()
        raise
    threads: list[ForeignThread] = [SessionRows(file, each, has_branches=has_branches) for each, _ in sessions]
    threads.append(Aside(_silent(file)))
    return ForeignSource("openai-agents-sqlite", hf, threads, sum(count for _, count in sessions), file.close)


def _silent(file: SqliteFile) -> Iterator[Unreadable | Remark]:
    """Remarks about sessions without items, which are not imported."""
    try:
        for (session,) in file.rows(_SILENT):
            shown = shown_name(session) if type(session) is str else ascii(session)
            yield Remark(f"session {shown}", "it has no items")
    except Unusable as error:
        yield Unreadable("table agent_sessions", str(error))


class _Item(msgspec.Struct, frozen=True):
    """An item that was read. `waiting` are the calls up to it that have no output."""

    step: int
    waiting: frozenset[str]


class SessionRows:
    """The items of one session."""

    def __init__(self, file: SqliteFile, session: Any, *, has_branches: bool) -> None:
        self.name: Final = session if type(session) is str else f"session {session!r}"
        self._file = file
        self._session = session
        self._has_branches = has_branches

    def records(self) -> Iterator[Entry]:
        """See `ForeignThread`. A bad row does not affect others."""
        if type(self._session) is not str or not self._session:
            yield Unreadable(None, "its session id is empty or not a string")
            return
        numbers = [number for (number,) in self._file.rows(_NUMBERS, self._session)]
        parents, branches = self._structure(numbers)
        items: dict[int, _Item] = {}
        for number in numbers:
            try:
                item, created_at = self._read(number)
            except Unusable as error:
                yield Unreadable(f"message {number}", str(error))
                continue
            parent = parents.get(number)
            while parent is not None and parent not in items:
                parent = parents.get(parent)  # skip unreadable items
            before = _Item(0, frozenset()) if parent is None else items[parent]
            moment = moment_of_text(created_at)
            known = items[number] = _Item(before.step + 1, _waiting(before.waiting, item))
            yield ForeignRecord(
                id=str(number),
                step=known.step,
                created_at=moment,
                state={"messages": [item]},
                parent=None if parent is None else str(parent),
                grows=parent is not None,
                trigger=valid_text(_kind(item)),
                metadata={} if number not in branches else {"branch": branches[number]},
                resume_hint=waits_for(len(known.waiting)),
                rest={} if moment is not None else {"created_at": created_at},
            )

    def _read(self, number: int) -> tuple[dict[str, Any], object]:
        data, created_at = self._file.row(_ROW, number)
        if type(data) is not str:
            raise Unusable("its data is not a string")
        item = as_object(json_of(data), "it")
        try:
            storable.check(item, _AROUND_AN_ITEM)
        except Unsupported as error:
            raise Unusable(str(error)) from None
        return item, created_at

    def _structure(self, numbers: list[int]) -> tuple[dict[int, int | None], dict[int, str]]:
        """The item before each item, and the branch in which each was added. Without branches, items are in order."""
        parents: dict[int, int | None] = {}
        branches: dict[int, str] = {}
        if self._has_branches:
            there = set(numbers)
            last: tuple[object, int | None] = None, None
            for branch, number in self._file.rows(_BRANCHES, self._session):
                if number not in there:
                    continue  # deleted
                before = last[1] if last[0] == branch else None
                # Branches that share an item agree on the one before it. An item is never older than that one.
                if before is None or before < number:
                    parents.setdefault(number, before)
                last = branch, number
            rows = self._file.rows(_FIRST_BRANCHES, self._session)
            branches = {number: branch for number, branch in rows if type(branch) is str}
        before = None
        for number in numbers:
            parents.setdefault(number, before)
            before = number
        return parents, branches


def _kind(item: dict[str, Any]) -> str:
    """The type of an item, or its role if it is a message."""
    for name in ("type", "role"):
        found = item.get(name)
        if type(found) is str and found and (name, found) != ("type", "message"):
            return found
    return "import"


def _waiting(before: frozenset[str], item: dict[str, Any]) -> frozenset[str]:
    call, kind = item.get("call_id"), item.get("type")
    if type(call) is not str or type(kind) is not str:
        return before
    if kind.endswith("_output"):
        return before - {call}
    return before | {call} if kind.endswith("_call") else before
