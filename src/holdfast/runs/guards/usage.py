"""Token counts of a reply, and their running sum."""

from __future__ import annotations

import threading
from typing import Any

from msgspec.structs import replace

from holdfast.errors import Damaged
from holdfast.stores.contract import Store
from holdfast.stores.running import EffectRow
from holdfast.types import Usage


def counted(reply: Any) -> Usage | None:
    """The tokens that a reply as plain data cost, its `usage`, or a stream's chunks; None if it does not say.

    `input` is all that was read, the cached part too, and `cached` that part. OpenAI counts so; Anthropic counts what
    was read from a cache, or written to it, beside `input_tokens`, and it is added here.
    """
    counts = _counts(reply)
    if "prompt_tokens" in counts:
        return _usage(counts, "prompt_tokens", "completion_tokens", counts.get("prompt_tokens_details"))
    if "input_tokens" not in counts:
        return None
    if "input_tokens_details" in counts:  # OpenAI's responses, which count as its chat completions do
        return _usage(counts, "input_tokens", "output_tokens", counts["input_tokens_details"])
    return _usage(
        counts,
        "input_tokens",
        "output_tokens",
        {"cached_tokens": counts.get("cache_read_input_tokens")},
        beside=("cache_read_input_tokens", "cache_creation_input_tokens"),
    )


def cache_written(reply: Any) -> int:
    """How many of the tokens that a reply's model read were written to a cache: some providers charge more for them."""
    counts = _counts(reply)
    details = counts.get("prompt_tokens_details", counts.get("input_tokens_details"))
    written = details.get("cache_write_tokens") if isinstance(details, dict) else None
    written = counts.get("cache_creation_input_tokens") if written is None else written
    return written if type(written) is int and written > 0 else 0


def model_named(reply: Any) -> str | None:
    """The model that a reply says it is of."""
    for said in reply if isinstance(reply, list) else [reply]:
        match said:
            case {"model": str(name)} | {"message": {"model": str(name)}} | {"response": {"model": str(name)}}:
                return name
            case _:
                pass
    return None


def _counts(found: Any) -> dict[str, Any]:
    """What a reply, or each chunk of a stream, says of tokens. Chunks give totals so far: the last one counts."""
    counts: dict[str, Any] = {}
    for said in found if isinstance(found, list) else [found]:
        match said:
            case {"usage": dict(usage)} | {"message": {"usage": dict(usage)}} | {"response": {"usage": dict(usage)}}:
                counts.update({name: count for name, count in usage.items() if count is not None})
            case {"prompt_tokens": _} | {"input_tokens": _}:
                counts.update(said)
            case _:
                pass
    return counts


def _usage(
    counts: dict[str, Any], read: str, written: str, details: object, *, beside: tuple[str, ...] = ()
) -> Usage | None:
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    found = [counts[read], counts.get(written), cached, *(counts.get(name) for name in beside)]
    numbers = [0 if count is None else count for count in found]  # null is how providers say: none
    if not all(type(number) is int and 0 <= number < 2**53 for number in numbers):
        return None
    read_in_all = numbers[0] + sum(numbers[3:])
    return Usage(input=read_in_all, output=numbers[1], cached=numbers[2], total=read_in_all + numbers[1])


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
