"""HoldfastSession: a session of the OpenAI Agents SDK, kept as a thread of a store."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from holdfast.adapters.openai_items import repaired_items, report_repairs
from holdfast.adapters.seam import current
from holdfast.aio.executor import to_the_end
from holdfast.errors import Closed
from holdfast.handle import Holdfast
from holdfast.handle import open as open_handle
from holdfast.runs.drivers import current_call
from holdfast.stores.contract import Store

ITEMS: Final = "messages"  # the key of the list in the thread's state


class HoldfastSession:
    """The items of a conversation in a thread with the name of the session: the SDK's `Session` protocol.

    `store` is what `holdfast.open` takes, or an open handle. `session_settings` has the `limit` of `get_items`.
    In a run of Holdfast, its calls are recorded: a resumed run does not add the same items again.

    `repairs` says what the last `get_items` did to a conversation with calls without outputs, or the reverse, which
    models refuse. The stored items are not changed.
    """

    def __init__(
        self,
        session_id: str,
        store: Holdfast | Store | str | os.PathLike[str],
        *,
        session_settings: Any = None,
    ) -> None:
        self.session_id: Final = session_id
        self.session_settings = session_settings
        self.repairs: list[str] = []
        self._owned = None if isinstance(store, Holdfast) else open_handle(store)
        self._hf: Holdfast | None = store if isinstance(store, Holdfast) else self._owned

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """The newest items, at most `limit` or that of the settings, oldest first."""
        if limit is None:
            limit = getattr(self.session_settings, "limit", None)
        count = limit if limit is None else max(limit, 0)
        items = await self._made("get_items", "read", lambda _: self._thread().tail(ITEMS, count))
        if limit is not None:
            return list(items)
        repaired, self.repairs = repaired_items(items)
        report_repairs(self.session_id, self.repairs)
        return repaired

    async def add_items(self, items: list[Any]) -> None:
        """Append items, all or none."""
        if items:
            added = [dict(item) if isinstance(item, Mapping) else item for item in items]
            await self._made(
                "add_items", "idempotent", lambda key: _done(self._thread().append(ITEMS, added, unique=key))
            )
        else:
            self._thread()

    async def pop_item(self) -> Any:
        """Remove the newest item and return it; None if there is none."""
        return await self._made("pop_item", "idempotent", lambda key: self._thread().pop(ITEMS, unique=key))

    async def clear_session(self) -> None:
        """Remove all items. The history of the thread keeps them: `thread.drop()` deletes it."""
        await self._made("clear_session", "idempotent", lambda _: self._clear())

    def close(self) -> None:
        """Close the store, if the session has opened it."""
        self._hf = None
        if self._owned is not None:
            self._owned.close()

    def _thread(self) -> Any:
        if self._hf is None:
            raise Closed("this session is closed")
        return self._hf.thread(self.session_id)

    def _clear(self) -> None:
        thread = self._thread()
        head = thread.latest()
        if head is not None and head.state.get(ITEMS):
            thread.save({**head.state, ITEMS: []})

    async def _made(self, verb: str, effect: str, work: Callable[[str | None], Any]) -> Any:
        """Call a verb of the session in a thread of the pool. In a run, the call is recorded.

        A cancelled caller waits for the end of the work: the SDK must know whether items were added.
        """
        seam = current()
        if seam is None:
            return await to_the_end(lambda: work(None))

        async def call() -> Any:
            call_now = current_call()
            key = None if call_now is None or effect == "read" else call_now.idempotency_key
            return await to_the_end(lambda: work(key))

        name = f"session.{verb}"
        return await seam.tool(name, call, {}, key=self.session_id, declare={name: {"effect": effect}})


def _done(_: object) -> None:
    """Nothing: a checkpoint is not recorded."""
