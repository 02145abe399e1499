"""What the models of a thread have cost so far: each recorded reply carries the sum, so that the newest tells it."""

from __future__ import annotations

import threading
from typing import Any

from msgspec.structs import replace

from holdfast.errors import Damaged
from holdfast.records import Usage
from holdfast.runs.usage import counted
from holdfast.stores.contract import Store
from holdfast.stores.running import EffectRow

_LOOKED_AT = 100  # entries at the end of a journal; model calls are seldom further apart


class Spending:
    """The sum of one thread, over all of its branches: what was abandoned was paid for."""

    def __init__(self, store: Store, thread: int) -> None:
        self._store = store
        self._thread = thread
        self._sum: Usage | None = None
        self._is_read = False
        self._lock = threading.Lock()

    def with_sum(self, row: EffectRow, reply: Any) -> EffectRow:
        """The entry of a model's reply, with the sum up to it; as it is if the reply says nothing of usage."""
        usage = row.usage if row.usage is not None else counted(reply)
        if usage is None:
            return row
        with self._lock:
            if not self._is_read:
                self._sum, self._is_read = spent(self._store, self._thread), True
            self._sum = usage if self._sum is None else added(self._sum, usage)
            return replace(row, spent=self._sum)


def spent(store: Store, thread: int) -> Usage | None:
    """What a thread's newest replies say was spent in all; None if nobody said."""
    try:
        last = store.last_effect(thread)
        rows = store.effects(thread, after=max(last - _LOOKED_AT, 0), limit=_LOOKED_AT)
    except Damaged:
        return None  # who needs the entry itself hears of it
    sums = [row.spent for row in rows if row.spent is not None]
    # Replies that came at once may be recorded in another order than they were added in.
    return max(sums, key=lambda each: (each.total, each.cost), default=None)


def added(a: Usage, b: Usage) -> Usage:
    """Both together. Money of another currency is not added."""
    return Usage(
        input=a.input + b.input,
        output=a.output + b.output,
        cached=a.cached + b.cached,
        total=_total(a) + _total(b),
        cost=a.cost + (b.cost if b.currency == a.currency or not a.cost else 0.0),
        currency=a.currency if a.cost else b.currency,
    )


def _total(usage: Usage) -> int:
    return usage.total or usage.input + usage.output
