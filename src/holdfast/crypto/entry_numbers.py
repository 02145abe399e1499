"""Numbers of journal entries: an entry is believed under the number that it was sealed for.

A store gives numbers out, so they are foretold. Whoever has the run knows the newest, and what is told from outside is
written only if that is the newest still. So only what is told while the run writes comes between. Then an entry of the
run stands behind the number that it was sealed for, and is written again for its own. Where that cannot be (the run has
ended with it, say), it is believed behind entries that were told, or that were moved with it, by as much.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from holdfast.errors import Closed, Conflict, Damaged, LeaseLost, StoreError
from holdfast.stores.contract import Store
from holdfast.stores.running import EffectRow

_KEPT: Final = 1_000
_FURTHEST: Final = 10_000  # how many may be told between two writes of a run

SealEntry = Callable[[EffectRow, int], EffectRow]


class Numbering:
    """Writes entries of journals under the numbers that they are sealed for."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # Of each thread the fence of who wrote last, and its newest number then.
        self._last: OrderedDict[int, tuple[int, int]] = OrderedDict()

    def foretold(self, thread: int, fence: int | None, rows: Sequence[EffectRow]) -> list[int]:
        """The numbers that entries will have, if nothing is told meanwhile."""
        if all(row.number for row in rows):
            return [row.number for row in rows]
        before, last = self._last.get(thread, (0, 0))
        if before != fence:
            last = self._store.last_effect(thread)
        return list(_numbers(rows, last))

    def forget(self, thread: int) -> None:
        """Nobody knows the newest number: it is asked for."""
        self._last.pop(thread, None)

    def journal(self, thread: int, fence: int, rows: Sequence[EffectRow], seal: SealEntry) -> list[int]:
        due = self.foretold(thread, fence, rows)
        last = self._last.pop(thread, None)  # should this fail, the newest number may be another
        numbers = self._store.journal(thread, fence, list(map(seal, rows, due)))
        written = zip(rows, due, numbers, strict=True)
        moved = [replace(seal(row, number), number=number) for row, at, number in written if at != number]
        if moved:
            # They are written, and where they stand they are believed: nobody is to write them a second time.
            with suppress(LeaseLost, StoreError, Closed):
                self._store.journal(thread, fence, moved)
        new = [number for row, number in zip(rows, numbers, strict=True) if not row.number]
        if new:
            self.keep(thread, fence, new[-1])
        elif last is not None:
            self.keep(thread, *last)
        return numbers

    def tell(self, thread: int, last: int | None, write: Callable[[int], int]) -> int:
        """Let `write` append an entry behind the newest, given that one's number; again if it was not any more."""
        newest = self._store.last_effect(thread) if last is None else last
        while True:
            try:
                number = write(newest)
            except Conflict:
                now = self._store.last_effect(thread)
                if last is not None or now == newest:
                    raise
                newest = now
            else:
                fence, known = self._last.get(thread, (0, 0))
                if fence and known == newest:
                    self.keep(thread, fence, number)
                return number

    def check(self, thread: int, number: int, due: int, due_of: Callable[[EffectRow], int]) -> None:
        """`Damaged` if an entry that was sealed for the number `due` cannot have come to stand under `number`."""
        if due == number:
            return
        if not 0 < number - due <= _FURTHEST:
            raise _misplaced(thread, number)
        between = self._store.effects(thread, after=due - 1, limit=number - due)
        if [row.number for row in between] != list(range(due, number)):
            raise _misplaced(thread, number)
        for row in between:
            if row.number - due_of(row) != (0 if _is_told(row) else number - due):
                raise _misplaced(thread, number)

    def keep(self, thread: int, fence: int, last: int) -> None:
        """Take note of the newest number, known to whoever has this fence."""
        self._last[thread] = fence, last
        if len(self._last) > _KEPT:
            self._last.popitem(last=False)


def _numbers(rows: Sequence[EffectRow], last: int) -> Iterator[int]:
    for row in rows:
        last += not row.number
        yield row.number or last


def _is_told(row: EffectRow) -> bool:
    """Whether an entry was written from outside its run. What says so is in clear, and authenticated."""
    return not row.fence or row.status == "late"


def _misplaced(thread: int, number: int) -> Damaged:
    return Damaged(f"journal entry {number} of thread number {thread} was written under another number")
