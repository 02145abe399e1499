"""Tokens and cost of a thread per model, over time, from the replies in its journal."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

import msgspec

from holdfast.codec import msgpack
from holdfast.errors import HoldfastError
from holdfast.handle import Holdfast
from holdfast.inspect.calls import usage_of
from holdfast.inspect.nearest import existing
from holdfast.inspect.whole import whole
from holdfast.stores.contract_runs import Entry
from holdfast.threads.metadata import moment
from holdfast.types import Usage

_PAGE: Final = 500
_ENTRIES_MOST: Final = 20_000  # the newest; older ones are not read
_POINTS: Final = 120


class ModelUse(msgspec.Struct, frozen=True, kw_only=True):
    """The recorded replies of one model: their number, tokens and cost, and its totals over time.

    `model` is the name that the replies report, or the name of the call. Each of `points` is a time and the tokens and
    the cost up to it.
    """

    model: str
    calls: int
    input: int
    output: int
    cached: int
    cost: float
    currency: str
    seconds: float
    points: tuple[tuple[datetime, int, float], ...]

    @property
    def tokens(self) -> int:
        return self.input + self.output


class Spending(msgspec.Struct, frozen=True, kw_only=True):
    """The models of a thread, those with the most tokens first. `skipped` counts older journal entries not read."""

    models: tuple[ModelUse, ...]
    skipped: int


def spending(hf: Holdfast, thread: str) -> Spending:
    """Return what a thread used per model. Raises NotFound if there is no such thread."""
    store = whole(hf.context.store, {})  # the views of the journal report the damage
    number = existing(hf, thread).position.thread
    last = store.last_entry(number)
    first = max(last - _ENTRIES_MOST, 0)
    used: dict[tuple[str, str], list[tuple[Entry, Usage]]] = {}
    for after in range(first, last, _PAGE):
        for row in store.entries(number, after=after, limit=_PAGE):
            if row.kind == "model" and row.status == "done":
                usage = usage_of(row) or Usage()
                used.setdefault((_model(row), usage.currency), []).append((row, usage))
    models = [_use(model, currency, rows) for (model, currency), rows in used.items()]
    return Spending(models=tuple(sorted(models, key=lambda each: (-each.tokens, each.model))), skipped=first)


def _use(model: str, currency: str, rows: list[tuple[Entry, Usage]]) -> ModelUse:
    return ModelUse(
        model=model,
        calls=len(rows),
        input=sum(usage.input for _, usage in rows),
        output=sum(usage.output for _, usage in rows),
        cached=sum(usage.cached for _, usage in rows),
        cost=sum(usage.cost for _, usage in rows),
        currency=currency,
        seconds=sum(max((row.ended_at or row.begun_at) - row.begun_at, 0) for row, _ in rows) / 1_000_000,
        points=tuple(_points(rows)),
    )


def _points(rows: list[tuple[Entry, Usage]]) -> Iterator[tuple[datetime, int, float]]:
    every = max(len(rows) // _POINTS, 1)
    tokens, cost = 0, 0.0
    for index, (row, usage) in enumerate(rows, 1):
        tokens += usage.total or usage.input + usage.output
        cost += usage.cost
        if index % every == 0 or index == len(rows):
            yield moment(row.ended_at or row.begun_at), tokens, cost


def _model(row: Entry) -> str:
    """Return the name of the model that a reply reports."""
    try:
        reply: Any = None if row.result is None else msgpack.decode(row.result)
    except HoldfastError:
        reply = None
    for each in (reply, reply[-1] if type(reply) is list and reply else None):
        if type(each) is dict and type(each.get("model")) is str and each["model"]:
            return str(each["model"])
    return row.name
