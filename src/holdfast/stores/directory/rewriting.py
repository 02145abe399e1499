"""Rewrite a log without dead lines while writers continue, then replace the old file.

The new log starts with one group that has the content of the old log at the start of the rewrite. The groups that were
appended since follow unchanged. Writers wait only while these are copied. Lines are copied as they are, even damaged
ones: nothing is left out because it cannot be read.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from holdfast.errors import Damaged, StoreError
from holdfast.stores.directory import files, lines, tail
from holdfast.stores.directory import records as r
from holdfast.stores.directory.lines import Damage
from holdfast.stores.directory.replay import Thread
from holdfast.stores.directory.space import Followed, Sealed, Space, ending, sealed

_UNKNOWN: Final = "z"  # the letter for a damaged line in the composition of a group


class Rewriting:
    """A rewrite in progress. Create it under the gate, and always call `close` at the end."""

    def __init__(self, space: Space, found: Followed, dead: frozenset[int]) -> None:
        """`dead` are the offsets of cell lines to leave out."""
        thread = found.thread
        self.followed = found
        self._path = found.log.path
        self._end = found.log.end
        self._until = self._end
        self._kept = _kept(thread, dead)
        self._lost = _lost(thread)
        self._first = _first(thread)
        self._last: list[Sealed] = []
        if thread.run_row is not None and thread.run_damage is None:
            self._last.append(sealed(r.show_run(thread.run_row, space.form)))
        self._number, self._at = thread.number, _stand(thread)
        self._groups, self._entry = thread.groups, thread.newest_entry
        self._size = 0
        self._new = files.new_name(self._path)
        self._is_done = False
        self._target = -1
        self._source = os.dup(found.log.descriptor())
        try:
            self._target = os.open(self._new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            # Tells `sweep_leftovers` that the file is in use.
            fcntl.flock(self._target, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise

    def copy(self, *, sync: bool) -> None:
        """Write the new log up to where the old one was read. May take long, and needs no lock."""
        try:
            self._copy()
            if sync:
                files.sync_data(self._target)
        except files.SyncFailed as error:
            raise StoreError(f"{self._path}: cannot write a new log; the old one was left unchanged") from error
        except OSError as error:
            raise files.translate(error, self._path) from error

    def is_due(self) -> bool:
        """Whether the old log is still in place, up to date and undamaged at its end. The caller holds the gate."""
        log = self.followed.log
        if not log.catch_up() or self.followed.thread.tail_damage is not None:
            return False
        here, there = os.fstat(self._source), os.fstat(log.descriptor())
        self._until = log.end
        return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino) and self._until >= self._end

    def finish(self, *, sync: bool) -> None:
        """Copy what was appended since, and replace the old log by the new one. The caller holds the gate."""
        for piece in files.stretches(self._source, self._end, self._until):
            files.write_all(self._target, piece)
        if os.fstat(self._target).st_size != self._size + self._until - self._end:
            raise StoreError(f"{self._path}: the log became shorter while it was rewritten; it was left unchanged")
        if os.fstat(self._source).st_size > self._until:
            tail.set_aside(self._path, self._source, self._until, sync=sync)
        if sync:
            files.sync_data(self._target)
        with files.renaming_in(os.path.dirname(self._path), sync=sync):
            os.rename(self._new, self._path)
            self._is_done = True

    def close(self) -> None:
        """Close the files. A new log that was not put in place is removed."""
        if not self._is_done:
            # It does not exist if its thread was dropped and moved in the meantime. If it cannot be removed, `reclaim`
            # does it later.
            with suppress(OSError):
                os.unlink(self._new)
        for descriptor in (self._source, self._target):
            if descriptor >= 0:
                os.close(descriptor)
        self._source = self._target = -1

    def _copy(self) -> None:
        letters = [kind for kind, _ in self._first]
        files.write_all(self._target, b"".join(line for _, line in self._first))
        for kept in self._copied():
            letters += [kind for kind, _ in kept]
            files.write_all(self._target, b"".join(line for _, line in kept))
        letters += [kind for kind, _ in self._last]
        letters += self._lost  # lost lines for which no damaged line is left
        last = ending(letters, self._number, self._at, self._groups, self._entry)
        files.write_all(self._target, b"".join([*(line for _, line in self._last), last]))
        self._size = os.fstat(self._target).st_size

    def _copied(self) -> Iterator[list[Sealed]]:
        """The lines to keep, in batches. `Damaged` if one of them is missing or damaged."""
        left = len(self._kept)
        offset = 0
        rest = b""
        for piece in files.stretches(self._source, 0, self._end):
            data = rest + piece
            found, rest = lines.split(data, offset)
            taken: list[Sealed] = []
            for line in found:
                kind = self._kept.get(line.offset)
                if line.body is None:
                    if kind is not None:
                        raise Damaged(str(Damage(self._path, line.offset, line.length)))
                    kind = self._lost.pop(0) if self._lost else _UNKNOWN
                if kind is not None:
                    left -= line.body is not None
                    at = line.offset - offset
                    taken.append((kind, data[at : at + line.length + 1]))
            yield taken
            offset += len(data) - len(rest)
        if left or rest:
            raise Damaged(f"{self._path}: {left} lines vanished while the log was rewritten; it was left unchanged")


def _first(thread: Thread) -> list[Sealed]:
    head = r.ThreadLine(
        format=r.FORMAT,
        number=thread.number,
        **r.shown_name(thread.name or ""),
        made=time.time_ns(),
        origins=tuple(sorted(thread.origins)),
        gone=thread.is_gone,
    )
    stones = [row.head for _, row in sorted(thread.rows.items()) if row.place is None]
    return [sealed(head), *(sealed(_tombstone(stone)) for stone in stones)]


def _stand(thread: Thread) -> r.Stand:
    """The thread's position; for a dropped thread, without the agent."""
    at = thread.at
    return replace(at, summary=replace(at.summary, agent=None)) if thread.is_gone else at


def _lost(thread: Thread) -> list[str]:
    """The kinds of lost lines. Damaged lines represent them in the new group, so that the loss stays known."""
    lost = [] if thread.run_damage is None else ["r"]
    if thread.journal_damage is not None:
        lost += ["e"] * (len(thread.lost_entries) + 1)  # one more than the numbers account for
    return [*lost, "d"] if thread.doubtful else lost


def _kept(thread: Thread, dead: frozenset[int]) -> dict[int, str]:
    """The offsets of the lines to keep, with the letters for their kinds."""
    kept = {cell.offset: "c" for cells in thread.logs.values() for cell in cells if cell.offset not in dead}
    kept |= {row.place.offset: "k" for row in thread.rows.values() if row.place is not None}
    return kept | {entry.place.offset: "e" for entry in thread.entries.values()}


def _tombstone(head: r.CheckpointHead) -> r.TombstoneLine:
    return r.TombstoneLine(
        seq=head.seq, id=head.id, digest=head.digest, step=head.step, move=head.move, parent=head.parent
    )
