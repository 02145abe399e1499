"""The past of a run: what was done on branches that were abandoned. Rewinding or forking does not take it back."""

from __future__ import annotations

import threading
from typing import Literal

from msgspec.structs import replace

from holdfast.errors import InvalidArgument
from holdfast.stores.contract import Store
from holdfast.stores.running import EffectRow
from holdfast.threads.line import Line, acted

Effects = Literal["live", "recorded", "ask"]


def checked_effects(effects: Effects | None) -> Effects | None:
    if effects not in (None, "live", "recorded", "ask"):
        raise InvalidArgument('effects must be "live", "recorded" or "ask"')
    return effects


class Past:
    """What a run need not do again because it was done already, and whether it may act at all.

    Read when it is first needed: most threads were neither rewound nor forked, and most runs only read and ask models.
    """

    def __init__(self, store: Store, thread: str, effects: Effects | None) -> None:
        """`effects` None means: "ask" on a fork, "live" elsewhere."""
        self._store = store
        self._thread = thread
        self._given = effects
        self._lock = threading.Lock()
        self._rows: dict[tuple[str, bytes], list[EffectRow]] | None = None
        self._effects: Effects = effects or "live"

    def effects(self) -> Effects:
        """Whether tools that act are called, only answered from what was recorded, or asked about before."""
        with self._lock:
            self._read()
            return self._effects

    def take(self, name: str, arguments: bytes) -> EffectRow | None:
        """The oldest call of this tool with these arguments that was abandoned. Each is given once.

        Its number is negative if it is from the journal of the thread that this one was forked from.
        """
        with self._lock:
            rows = self._read().get((name, arguments))
            return rows.pop(0) if rows else None

    def first(self, row: EffectRow) -> EffectRow:
        """The call that an entry took the place of, if it took that of one on an abandoned branch; else itself."""
        thread = self._store.thread(self._thread) if row.matches > 0 else None
        while thread is not None and row.matches > 0:
            [row] = self._store.effects(thread.position.thread, after=row.matches - 1, limit=1)
        return row

    def _read(self) -> dict[tuple[str, bytes], list[EffectRow]]:
        if self._rows is None:
            self._rows = {}
            taken: set[int] = set()
            for row in self._abandoned(taken):
                if row.number not in taken:
                    self._rows.setdefault((row.name, row.arguments), []).append(row)
        return self._rows

    def _abandoned(self, taken: set[int]) -> list[EffectRow]:
        store = self._store
        thread = store.thread(self._thread)
        first = None if thread is None else store.checkpoint(thread.position.thread, 1)
        if thread is None or first is None:
            return []
        origin = 0 if first.parent is None else first.parent[0]
        if origin and self._given is None:
            self._effects = "ask"
        line = Line(store, thread)
        rows: list[EffectRow] = []
        for row in acted(store, thread.position.thread):
            if line.holds(row.branch, row.step):
                taken.add(row.matches)
            else:
                rows.append(row)
        if origin and self._effects != "live":
            # Live, a fork acts for itself: what its origin did is its origin's.
            rows += [replace(row, number=-row.number) for row in acted(store, origin) if row.step > first.step]
        return rows
