"""The claims of acts in a directory: one small file per act, written before the journal entry that claims it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from holdfast.errors import Damaged
from holdfast.formats import jsonl
from holdfast.formats import lines as ln
from holdfast.stores import rules
from holdfast.stores.contract_runs import ActRow
from holdfast.stores.log.device import ACTS, part_of
from holdfast.stores.log.namespace import Namespace

_CLAIM: Final = re.compile(
    rb'.{%d}"thread":(\d{1,19}),"number":(\d{1,19})(?:,"before":\[(\d{1,19}),(\d{1,19})\])?}\n' % ln.PREFIX, re.DOTALL
)
_NAME: Final = re.compile(rf"[0-9a-f]{{{2 * rules.ACT_BYTES}}}")
_PARTS: Final = [f"{part:02x}" for part in range(256)]


class ActFiles:
    """The claims of a namespace. A claim counts if its entry has the act, or if its thread was dropped.

    A crash between the two writes leaves a file for an entry that was not written. Then the claim that it replaces
    counts, which is in the file too. If there is none, the act is free.
    """

    def __init__(self, space: Namespace) -> None:
        self._space = space

    def find(self, key: bytes) -> ActRow | None:
        """The claim of an act; None if it is free. `Damaged` if the file cannot be read."""
        return self._found(key, set())

    def decided(self, key: bytes, thread: int) -> ActRow | None:
        """`find`, for a writer to a thread: no other writer is about to make another claim count. Only in a turn."""
        rows = self.stored(key)
        for row in rows[:1] if self._space.device.trust is not None else ():
            log = self._space.numbered(row.thread)
            is_other = log is not None and row.thread != thread and not log.thread.is_gone
            if log is not None and is_other and row.number > log.thread.last_entry:
                self._space.interrupt(log)
        return self._counting(rows, set())

    def page(self, prefix: bytes, after: bytes | None, limit: int) -> list[ActRow]:
        found: list[ActRow] = []
        gone: set[int] = set()
        for key in self.listed(prefix, after) if limit > 0 else ():
            row = self._found(key, gone)
            if row is not None:
                found.append(row)
            if len(found) >= limit:
                break
        return found

    def listed(self, prefix: bytes = b"", after: bytes | None = None) -> Iterator[bytes]:
        """The keys of the files, ordered by part, then by key."""
        last = "" if after is None else after.hex()
        first = part_of(ACTS, last)
        for part in _PARTS:
            if part < first:
                continue
            for each in self._space.device.keys(ACTS, part):
                name = each.partition("/")[2]
                if name.startswith(prefix.hex()) and _NAME.fullmatch(name) and (part > first or name > last):
                    yield bytes.fromhex(name)

    def put(self, key: bytes, row: ActRow | None, before: ActRow | None = None) -> None:
        """Replace the claim of an act, durably. Only in a turn. `before` counts until the entry of `row` is written."""
        device = self._space.device
        if row is None:
            device.remove([_name(key)])
        else:
            kept = b"" if before is None else b',"before":[%d,%d]' % (before.thread, before.number)
            device.put(_name(key), [ln.reseal(b'{"thread":%d,"number":%d%b}' % (row.thread, row.number, kept))])

    def stored(self, key: bytes) -> list[ActRow]:
        """The claim in the file of an act, and the one before it. `Damaged` if the file cannot be read."""
        data = self._space.device.get(_name(key))
        if not (data or b"").strip(b"\0"):
            return []  # a power cut leaves nothing, or zeros, of a file that was not synced
        found = _CLAIM.fullmatch(data or b"") if ln.is_whole((data or b"")[:-1]) else None
        if found is None:
            raise Damaged(
                f"{_name(key)}: the claim of an act is damaged; nothing was changed. Find out whether the act has "
                "happened, then remove the file."
            )
        claims = [(found[1], found[2]), (found[3], found[4])]
        return [ActRow(key, int(thread), int(number)) for thread, number in claims if thread is not None]

    def _found(self, key: bytes, gone: set[int]) -> ActRow | None:
        return self._counting(self.stored(key), gone)

    def _counting(self, rows: list[ActRow], gone: set[int]) -> ActRow | None:
        return next((row for row in rows if self._counts(row, gone)), None)

    def _counts(self, row: ActRow, gone: set[int]) -> bool:
        """`gone` has the threads that are known to be dropped: each is looked for among all threads only once."""
        log = None if row.thread in gone else self._space.numbered(row.thread)
        if log is None or log.thread.is_gone:
            gone.add(row.thread)
            return True
        if row.number > log.thread.last_entry:
            return False
        place = log.thread.entries.get(row.number)
        return place is None or jsonl.read_entry(log.line(place)).act == row.key  # a lost entry may have had the act


def _name(key: bytes) -> str:
    return f"{ACTS}/{key.hex()}"
