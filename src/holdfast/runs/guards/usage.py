"""Token counts of model replies, and their running sum per thread."""

from __future__ import annotations

import threading
from typing import Any

from msgspec.structs import replace

from holdfast.errors import Damaged
from holdfast.stores.contract import Store
from holdfast.stores.contract_runs import Entry
from holdfast.types import Usage


def usage_of_reply(reply: Any) -> Usage | None:
    """The usage that a reply, its `usage` alone, or the chunks of a stream report; None if they report none.

    `input` counts all tokens that the model read, `cached` the part of them from a cache. OpenAI counts in this way.
    Anthropic does not count tokens read from or written to a cache in `input_tokens`; they are added here.
    """
    counts = _counts(reply)
    if "prompt_tokens" in counts:
        return _usage(counts, "prompt_tokens", "completion_tokens", counts.get("prompt_tokens_details"))
    if "input_tokens" not in counts:
        return None
    if "input_tokens_details" in counts:  # OpenAI's responses count in the same way as its chat completions
        return _usage(counts, "input_tokens", "output_tokens", counts["input_tokens_details"])
    return _usage(
        counts,
        "input_tokens",
        "output_tokens",
        {"cached_tokens": counts.get("cache_read_input_tokens")},
        more=("cache_read_input_tokens", "cache_creation_input_tokens"),
    )


def cache_written(reply: Any) -> int:
    """How many input tokens of a reply were written to a cache. Some providers charge more for them."""
    counts = _counts(reply)
    details = counts.get("prompt_tokens_details", counts.get("input_tokens_details"))
    written = details.get("cache_write_tokens") if isinstance(details, dict) else None
    written = counts.get("cache_creation_input_tokens") if written is None else written
    return written if type(written) is int and written > 0 else 0


def model_named(reply: Any) -> str | None:
    """The model that a reply names."""
    for part in reply if isinstance(reply, list) else [reply]:
        match part:
            case {"model": str(name)} | {"message": {"model": str(name)}} | {"response": {"model": str(name)}}:
                return name
            case _:
                pass
    return None


def _counts(found: Any) -> dict[str, Any]:
    """The token counts of a reply or a stream. The chunks of a stream report running totals: the last one counts."""
    counts: dict[str, Any] = {}
    for part in found if isinstance(found, list) else [found]:
        match part:
            case {"usage": dict(usage)} | {"message": {"usage": dict(usage)}} | {"response": {"usage": dict(usage)}}:
                counts.update({name: count for name, count in usage.items() if count is not None})
            case {"prompt_tokens": _} | {"input_tokens": _}:
                counts.update(part)
            case _:
                pass
    return counts


def _usage(
    counts: dict[str, Any], read: str, written: str, details: object, *, more: tuple[str, ...] = ()
) -> Usage | None:
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    found = [counts[read], counts.get(written), cached, *(counts.get(name) for name in more)]
    numbers = [0 if count is None else count for count in found]  # providers write null for 0
    if not all(type(number) is int and 0 <= number < 2**53 for number in numbers):
        return None
    read_in_all = numbers[0] + sum(numbers[3:])
    return Usage(input=read_in_all, output=numbers[1], cached=numbers[2], total=read_in_all + numbers[1])


_LOOKED_AT = 100  # entries at the end of a journal: model calls are seldom further apart


class Spending:
    """The usage of one thread over all of its branches: abandoned calls were paid for too."""

    def __init__(self, store: Store, thread: int) -> None:
        self._store = store
        self._thread = thread
        self._sum: Usage | None = None
        self._is_read = False
        self._lock = threading.Lock()

    def with_sum(self, row: Entry, reply: Any) -> Entry:
        """The entry of a model's reply with the sum so far; unchanged if the reply reports no usage."""
        usage = row.usage if row.usage is not None else usage_of_reply(reply)
        if usage is None:
            return row
        with self._lock:
            if not self._is_read:
                self._sum, self._is_read = spent(self._store, self._thread), True
            self._sum = usage if self._sum is None else sum_of_usage(self._sum, usage)
            return replace(row, spent=self._sum)


def spent(store: Store, thread: int) -> Usage | None:
    """The sum that the newest replies of a thread carry; None if they carry none."""
    try:
        last = store.last_entry(thread)
        rows = store.entries(thread, after=max(last - _LOOKED_AT, 0), limit=_LOOKED_AT)
    except Damaged:
        return None  # a reader of the entry itself gets the error
    sums = [row.spent for row in rows if row.spent is not None]
    # Concurrent replies may be recorded in another order than they were added.
    return max(sums, key=lambda each: (each.total, each.cost), default=None)


def sum_of_usage(a: Usage, b: Usage) -> Usage:
    """The sum of two usages. Costs in another currency are not added."""
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
