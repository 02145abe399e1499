"""Totals over runs: crashes, resumes, calls made and replayed, calls in doubt and how they were settled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec

from holdfast.errors import Damaged
from holdfast.handle import Holdfast
from holdfast.looking.calls import DOUBTFUL
from holdfast.looking.nearest import existing
from holdfast.looking.threads import thread_line
from holdfast.runs.record import is_free
from holdfast.stores.contract import Store
from holdfast.stores.contract_runs import Entry

_PAGE: Final = 500
_TOOLS: Final = ("read", "idempotent", "irreversible")


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """The effects of one tool that are recorded as done. `settled` of them were in doubt first."""

    tool: str
    kind: str
    count: int
    settled: int


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one tool that were in doubt, by how they were settled: "probe", "person", "rerun" or "give_up".

    `happened` is the outcome that was found.
    """

    tool: str
    how: str
    happened: bool
    count: int


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """Totals over the runs of `threads` threads.

    `crashed` counts processes that died without releasing a run, `resumed` counts resumes. `models` and `tools` are
    calls whose outcome is recorded, `models_known` and `tools_known` calls that were replayed from the journal.
    `in_doubt` are calls whose outcome is unknown.
    """

    threads: int = 0
    crashed: int = 0
    resumed: int = 0
    models: int = 0
    models_known: int = 0
    tools: int = 0
    tools_known: int = 0
    in_doubt: int = 0
    done: tuple[Done, ...] = ()
    settled: tuple[Settled, ...] = ()
    entries: int = 0


def account(hf: Holdfast, threads: Iterable[str]) -> Account:
    """Return the totals of some threads. Raises NotFound if one does not exist."""
    counting = _Counting(hf.context.store)
    for name in threads:
        row = existing(hf, name)
        counting.add(row.position.thread, in_doubt=thread_line(hf, row).in_doubt)
    return counting.account()


def weight(hf: Holdfast, thread: str) -> int:
    """Return the number of journal entries of a thread, which is what `account` has to read."""
    try:
        return hf.context.store.last_entry(existing(hf, thread).position.thread)
    except Damaged:
        return 0


class _Counting:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._counts: Counter[str] = Counter()
        self._done: Counter[tuple[str, str]] = Counter()
        self._found: Counter[tuple[str, str]] = Counter()
        self._settled: Counter[tuple[str, str, bool]] = Counter()

    def add(self, thread: int, *, in_doubt: int) -> None:
        self._counts["threads"] += 1
        self._counts["in_doubt"] += in_doubt
        try:
            run = self._store.run(thread)
        except Damaged:
            return  # `verify` reports the damage; the other threads are counted
        if run is None:
            return
        is_gone = run.status == "running" and is_free(self._store, run)
        self._counts["crashed"] += run.crashed + is_gone
        self._counts["resumed"] += run.resumed
        self._know(run.replayed)
        after = 0
        try:
            while page := self._store.entries(thread, after=after, limit=_PAGE):
                for row in page:
                    self._entry(row)
                after = page[-1].number
        except Damaged:
            return  # `verify` reports the damage; the entries so far are counted

    def _know(self, known: tuple[int, int]) -> None:
        self._counts["models_known"] += known[0]
        self._counts["tools_known"] += known[1]

    def _entry(self, row: Entry) -> None:
        self._counts["entries"] += 1
        self._know(row.replayed)
        if row.kind == "model":
            self._counts["models"] += row.status == "done"
            return
        if row.kind not in _TOOLS or row.status == "late":
            return
        was_found = row.settled in ("probe", "person") and row.status == "done"
        if row.status == "done":
            self._done[row.name, row.kind] += 1
            self._found[row.name, row.kind] += was_found
            self._counts["tools"] += not was_found
        elif row.status == "failed":
            self._counts["tools"] += 1
        if row.settled is not None and row.status not in DOUBTFUL:
            self._settled[row.name, row.settled, row.status == "done"] += 1

    def account(self) -> Account:
        done = [
            Done(tool=tool, kind=kind, count=count, settled=self._found[tool, kind])
            for (tool, kind), count in sorted(self._done.items())
        ]
        settled = [
            Settled(tool=tool, how=how, happened=happened, count=count)
            for (tool, how, happened), count in sorted(self._settled.items())
        ]
        return Account(**self._counts, done=tuple(done), settled=tuple(settled))
