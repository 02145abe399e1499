"""Journal entry numbers: an entry is accepted only under the number it was sealed for.

The store assigns numbers, so they are predicted. The worker that holds the run knows the newest number, and entries
from outside are posted only if that is still the newest. So only entries posted while the run writes can come in
between. Then an entry of the run gets a higher number than it was sealed for, and is sealed and written again for that
number. If that is not possible (for example because the run has ended), the entry is accepted if it follows posted
entries, or entries that were shifted by the same amount.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from holdfast.errors import Closed, Conflict, Damaged, LeaseLost, StoreError
from holdfast.stores.contract import Store
from holdfast.stores.contract_runs import Entry

_KEPT: Final = 1_000
_FURTHEST: Final = 10_000  # how many entries may be posted between two writes of a run

SealEntry = Callable[[Entry, int], Entry]


class Numbering:
    """Writes journal entries under the numbers they are sealed for."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # By thread: the fence of the last writer, and the newest number after its write.
        self._last: OrderedDict[int, tuple[int, int]] = OrderedDict()

    def foretold(self, thread: int, fence: int | None, rows: Sequence[Entry]) -> list[int]:
        """The numbers that the entries will get, unless other entries are posted meanwhile."""
        if all(row.number for row in rows):
            return [row.number for row in rows]
        before, last = self._last.get(thread, (0, 0))
        if before != fence:
            last = self._store.last_entry(thread)
        return list(_numbers(rows, last))

    def forget(self, thread: int) -> None:
        """Forget the newest number, so that it is read again."""
        self._last.pop(thread, None)

    def journal(self, thread: int, fence: int, rows: Sequence[Entry], seal: SealEntry) -> list[int]:
        due = self.foretold(thread, fence, rows)
        last = self._last.pop(thread, None)  # if this fails, the newest number may be another
        numbers = self._store.journal(thread, fence, list(map(seal, rows, due)))
        written = zip(rows, due, numbers, strict=True)
        moved = [replace(seal(row, number), number=number) for row, at, number in written if at != number]
        if moved:
            # The entries are written and accepted where they are, so a failure here must not make the caller repeat
            # them.
            with suppress(LeaseLost, StoreError, Closed):
                self._store.journal(thread, fence, moved)
        new = [number for row, number in zip(rows, numbers, strict=True) if not row.number]
        if new:
            self.keep(thread, fence, new[-1])
        elif last is not None:
            self.keep(thread, *last)
        return numbers

    def tell(self, thread: int, last: int | None, write: Callable[[int], int]) -> int:
        """Call `write` with the newest number to append an entry after it; retry if another entry was added."""
        newest = self._store.last_entry(thread) if last is None else last
        while True:
            try:
                number = write(newest)
            except Conflict:
                now = self._store.last_entry(thread)
                if last is not None or now == newest:
                    raise
                newest = now
            else:
                fence, known = self._last.get(thread, (0, 0))
                if fence and known == newest:
                    self.keep(thread, fence, number)
                return number

    def check(self, thread: int, number: int, due: int, due_of: Callable[[Entry], int]) -> None:
        """`Damaged` if an entry that was sealed for the number `due` cannot have got the number `number`."""
        if due == number:
            return
        if not 0 < number - due <= _FURTHEST:
            raise _misplaced(thread, number)
        between = self._store.entries(thread, after=due - 1, limit=number - due)
        if [row.number for row in between] != list(range(due, number)):
            raise _misplaced(thread, number)
        for row in between:
            if row.number - due_of(row) != (0 if _is_told(row) else number - due):
                raise _misplaced(thread, number)

    def keep(self, thread: int, fence: int, last: int) -> None:
        """Record the newest number for the holder of this fence."""
        self._last[thread] = fence, last
        if len(self._last) > _KEPT:
            self._last.popitem(last=False)


def _numbers(rows: Sequence[Entry], last: int) -> Iterator[int]:
    for row in rows:
        last += not row.number
        yield row.number or last


def _is_told(row: Entry) -> bool:
    """Whether an entry was posted from outside its run. The fields that show it are unencrypted and authenticated."""
    return not row.fence or row.status == "late"


def _misplaced(thread: int, number: int) -> Damaged:
    return Damaged(f"journal entry {number} of the thread with number {thread} was written under another number")
