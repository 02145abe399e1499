"""HoldfastConversationStore: conversations of Pydantic AI, each kept as a thread of a store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from holdfast.adapters.seam import require

require("pydantic-ai-slim", "2.66", "3", "pydantic-ai")

from pydantic import TypeAdapter
from pydantic_ai import ModelMessage
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)

from holdfast.adapters.session_store import MESSAGES, StoreLike, StoreOwner
from holdfast.aio.executor import to_the_end
from holdfast.errors import Conflict
from holdfast.threads.save import NEW
from holdfast.threads.thread import Thread
from holdfast.types import Checkpoint

_LINK: Final = "$entry"  # the key of [id, id of the entry before it] in each message
_RECORD: Final = "record"  # the key in the metadata of checkpoints; None if the conversation was deleted
_record: Final = TypeAdapter(ConversationRecord)
_message: Final[TypeAdapter[ModelMessage]] = TypeAdapter(ModelMessage)


class HoldfastConversationStore(StoreOwner, ConversationStore):
    """Pydantic AI's `ConversationStore`: a conversation is a thread of the same name, with its log as `messages`.

    `store` is what `holdfast.open` takes, or an open handle. Entries and record are stored together. The entries of a
    deleted conversation are kept while another one was forked from it.
    """

    def __init__(self, store: StoreLike) -> None:
        super().__init__(store)
        self._places: dict[str, str] = {}  # the conversations of entries that were seen, by the ids of the entries

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        return await to_the_end(lambda: self._stored(conversation_id)[1])

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        def read() -> list[ConversationRecord]:
            found = [record for record in self._records() if scope is None or record.scope == scope]
            return sorted(found, key=lambda record: record.updated_at, reverse=True)[:limit]

        return await to_the_end(read)

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        await to_the_end(lambda: self._write(record, list(new_entries), expected_revision))

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        await to_the_end(lambda: self._delete(conversation_id, expected_revision))

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        return (await self.read_history(entry_id, limit=1))[0]

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        return await to_the_end(lambda: self._history(head_id, limit))

    # -- threads ------------------------------------------------------------------------------------------------------

    def _thread(self, conversation_id: str) -> Thread:
        return self._hf.thread(conversation_id)

    def _stored(self, conversation_id: str) -> tuple[Checkpoint | None, ConversationRecord | None]:
        head = self._thread(conversation_id).head()
        plain = None if head is None else head.metadata.get(_RECORD)
        record = None if plain is None else _record.validate_python(plain)
        if record is not None and record.head_id is not None:
            self._places.setdefault(record.head_id, conversation_id)
        return head, record

    def _records(self) -> Iterator[ConversationRecord]:
        for info in self._hf.threads():
            record = self._stored(info.name)[1]
            if record is not None:
                yield record

    def _write(self, record: ConversationRecord, entries: list[ConversationEntry], expected: str | None) -> None:
        name = record.conversation_id
        head, stored = self._stored(name)
        is_known = record.head_id is None or record.head_id in {entry.id for entry in entries}
        if (None if stored is None else stored.revision) != expected or not (is_known or self._place(record.head_id)):
            raise ConversationConflict(name)
        links = [[entry.id, entry.parent_id] for entry in entries]
        plain = [_message.dump_python(entry.message, mode="json") for entry in entries]
        items = [{**message, _LINK: link} for message, link in zip(plain, links, strict=True)]
        metadata = {_RECORD: _record.dump_python(record, mode="json")}
        try:
            self._thread(name).append(MESSAGES, items, expect=NEW if head is None else head, metadata=metadata)
        except Conflict:
            raise ConversationConflict(name) from None
        self._places.update({entry.id: name for entry in entries})

    def _delete(self, conversation_id: str, expected: str) -> None:
        head, stored = self._stored(conversation_id)
        if stored is None or stored.revision != expected:
            raise ConversationConflict(conversation_id)
        thread = self._thread(conversation_id)
        try:
            thread.append(MESSAGES, [], expect=head, metadata={_RECORD: None})
        except Conflict:
            raise ConversationConflict(conversation_id) from None
        if any(record.forked_from == conversation_id for record in self._records()):
            return
        thread.drop()
        self._places = {id: name for id, name in self._places.items() if name != conversation_id}

    # -- entries ------------------------------------------------------------------------------------------------------

    def _place(self, entry_id: str | None) -> str | None:
        """The thread with this entry: that of a conversation that was read, or else found by reading all."""
        if entry_id in self._places:
            return self._places[entry_id]
        for info in self._hf.threads():
            thread = self._thread(info.name)
            head = thread.head()
            if head is not None and _RECORD in head.metadata:
                self._places.update({item[_LINK][0]: info.name for item in thread.tail(MESSAGES)})
        return self._places.get(entry_id or "")

    def _history(self, head_id: str | None, limit: int | None) -> list[ConversationEntry]:
        """The entries up to one of them. A fork's first ones are in the thread that it was forked from."""
        history: list[ConversationEntry] = []
        threads: dict[str, dict[str, Any]] = {}  # the items of each thread, by their ids
        wanted = head_id
        while wanted is not None and (limit is None or len(history) < limit):
            place = next((name for name, items in threads.items() if wanted in items), None) or self._place(wanted)
            if place is not None and place not in threads:
                threads[place] = {item[_LINK][0]: item for item in self._thread(place).tail(MESSAGES)}
            item = None if place is None else threads[place].get(wanted)
            if item is None and self._places.pop(wanted, None) is not None:
                continue  # a fork without entries of its own: its head is in another thread
            if item is None:
                raise LookupError(f"there is no entry {wanted!r}")
            id, parent = item[_LINK]
            plain = {key: value for key, value in item.items() if key != _LINK}
            history.append(ConversationEntry(id=id, parent_id=parent, message=_message.validate_python(plain)))
            wanted = parent
        return history[::-1]
