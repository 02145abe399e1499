"""The events of a call that runs as a task, for frameworks whose calls are generators of events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from holdfast.runs.block_end import Suspended

Emit = Callable[[Any], None]
_END: Final = object()


async def call_events(call: Callable[[Emit], Awaitable[Any]]) -> AsyncGenerator[Any, None]:
    """Yield the events that a call emits as they arrive, and then its result.

    The call has a context of its own: a generator would share that of its consumer. If the consumer leaves, the call is
    cancelled.
    """
    queue: asyncio.Queue[Any] = asyncio.Queue()
    task = asyncio.ensure_future(call(queue.put_nowait))
    task.add_done_callback(lambda _: queue.put_nowait(_END))
    try:
        while (event := await queue.get()) is not _END:
            yield event
        yield await task
    finally:
        if not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError, Exception, Suspended):
                await task
