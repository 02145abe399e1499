"""HoldfastSession: a session of the OpenAI Agents SDK, kept as a thread of a store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from holdfast.adapters.openai_items import repaired_items
from holdfast.adapters.seam import current
from holdfast.adapters.session_store import (
    MESSAGES,
    StoreLike,
    StoreOwner,
    insist,
    recorded_verb,
    report_repairs,
)
from holdfast.aio.executor import to_the_end
from holdfast.errors import Closed, NotFound
from holdfast.threads.thread import Thread


class HoldfastSession(StoreOwner):
    """The items of a conversation in a thread with the name of the session: the SDK's `Session` protocol.

    `store` is what `holdfast.open` takes, or an open handle. `session_settings` has the `limit` of `get_items`.
    In a run of Holdfast, its calls are recorded: a resumed run does not add the same items again.

    `repairs` says what the last `get_items` did to a conversation with calls without outputs, or the reverse, which
    models refuse. The stored items are not changed.
    """

    def __init__(self, session_id: str, store: StoreLike, *, session_settings: Any = None) -> None:
        super().__init__(store)
        self.session_id: Final = session_id
        self.session_settings = session_settings
        self.repairs: list[str] = []
        self._is_closed = False

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """The newest items, at most `limit` or that of the settings, oldest first."""
        if limit is None:
            limit = getattr(self.session_settings, "limit", None)
        thread = self._thread()
        if limit is not None:
            newest = max(limit, 0)
            items = await self._read(lambda: thread.tail(MESSAGES, newest))
            return list(items)
        if current() is None:
            items = await to_the_end(lambda: thread.tail(MESSAGES))
        else:
            items = await self._read_in_run(thread)
        repaired, self.repairs = repaired_items(items)
        report_repairs(self.session_id, self.repairs)
        return repaired

    async def add_items(self, items: list[Any]) -> None:
        """Append items, all or none."""
        thread = self._thread()
        added = [dict(item) if isinstance(item, Mapping) else item for item in items]

        def append(key: str | None) -> None:
            thread.append(MESSAGES, added, unique=key)

        if added:
            await recorded_verb("session.add_items", self.session_id, append)

    async def pop_item(self) -> Any:
        """Remove the newest item and return it; None if there is none."""
        thread = self._thread()
        return await recorded_verb("session.pop_item", self.session_id, lambda key: thread.pop(MESSAGES, unique=key))

    async def clear_session(self) -> None:
        """Remove all items. The history of the thread keeps them: `thread.drop()` deletes it."""
        thread = self._thread()

        def clear() -> None:
            head = thread.latest()
            if head is not None and head.state.get(MESSAGES):
                thread.save({**head.state, MESSAGES: []}, expect=head)

        await recorded_verb("session.clear_session", self.session_id, lambda _: insist(thread.name, clear))

    def close(self) -> None:
        """Close the session, and the store if it was opened here."""
        self._is_closed = True
        super().close()

    async def _read(self, read: Callable[[], Any]) -> Any:
        return await recorded_verb("session.get_items", self.session_id, lambda _: read(), effect="read")

    async def _read_in_run(self, thread: Thread) -> list[Any]:
        """All items. The run records which ones it has read: to record them would store them again in each turn."""
        loaded: list[Any] | None = None

        def read() -> list[Any] | None:
            nonlocal loaded
            head = thread.latest()
            loaded = found = [] if head is None else list(head.state.get(MESSAGES, []))
            return None if head is None else [head.id, len(found)]

        head = await self._read(read)
        if loaded is None and head is not None:
            loaded = await to_the_end(lambda: _items_at(thread, *head))
        return loaded or []

    def _thread(self) -> Thread:
        if self._is_closed:
            raise Closed("this session is closed")
        return self._hf.thread(self.session_id)


def _items_at(thread: Thread, head: str, number: int) -> list[Any]:
    """The items that a run has read. If their checkpoint was pruned since, they are the first ones of the thread."""
    with suppress(NotFound):
        return list(thread.load(head).state.get(MESSAGES, []))
    return thread.tail(MESSAGES)[:number]
