"""Rewriting a log: a new file without what is dead, made beside the writers and then put in the old one's place.

The new log is one group that says what the old one said when this began, and behind it, as they are, the groups that
were appended since. Only those are copied while others wait to write. Lines are copied as they lie, the damaged ones
too: nothing is left out because it could not be read.
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

_UNKNOWN: Final = "z"  # stands for a damaged line in the composition of a group


class Rewriting:
    """A log that is being rewritten. Begun under the gate; `close` comes last, however it ends."""

    def __init__(self, space: Space, found: Followed, dead: frozenset[int]) -> None:
        """`dead` are offsets of lines of cells that are left out."""
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
            # Who sweeps leftovers sees by this that it is none.
            fcntl.flock(self._target, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise

    def copy(self, *, sync: bool) -> None:
        """Write the new log as far as the old one was read. Takes its time, and no lock."""
        try:
            self._copy()
            if sync:
                files.sync_data(self._target)
        except files.SyncFailed as error:
            raise StoreError(f"{self._path}: the system could not write a new log; the old one was left") from error
        except OSError as error:
            raise files.translate(error, self._path) from error

    def is_due(self) -> bool:
        """Whether the old log is still in its place, caught up with, and can be added to. Only under the gate."""
        log = self.followed.log
        if not log.catch_up() or self.followed.thread.tail_damage is not None:
            return False
        here, there = os.fstat(self._source), os.fstat(log.descriptor())
        self._until = log.end
        return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino) and self._until >= self._end

    def finish(self, *, sync: bool) -> None:
        """Add what was appended since, and put the new log in the place of the old one. Only under the gate."""
        for piece in files.stretches(self._source, self._end, self._until):
            files.write_all(self._target, piece)
        if os.fstat(self._target).st_size != self._size + self._until - self._end:
            raise StoreError(f"{self._path}: it is shorter than it was; the new log was not put in its place")
        if os.fstat(self._source).st_size > self._until:
            tail.set_aside(self._path, self._source, self._until, sync=sync)
        if sync:
            files.sync_data(self._target)
        with files.renaming_in(os.path.dirname(self._path), sync=sync):
            os.rename(self._new, self._path)
            self._is_done = True

    def close(self) -> None:
        """Let go of the files. A new log that was not put in place is removed."""
        if not self._is_done:
            # It is not there if its folder is that of a thread which was dropped meanwhile. What cannot be removed, on
            # a disk that has gone bad, is left to `reclaim`.
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
        letters += self._lost  # what no damaged line was left to stand for
        last = ending(letters, self._number, self._at, self._groups, self._entry)
        files.write_all(self._target, b"".join([*(line for _, line in self._last), last]))
        self._size = os.fstat(self._target).st_size

    def _copied(self) -> Iterator[list[Sealed]]:
        """The lines that stay, some at a time. `Damaged` unless all of them are there, and sound."""
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
            raise Damaged(f"{self._path}: {left} lines that were there are not; the log was left as it is")


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
    """Where the thread stands; of one that was dropped, only how far it got."""
    at = thread.at
    return replace(at, summary=replace(at.summary, agent=None)) if thread.is_gone else at


def _lost(thread: Thread) -> list[str]:
    """The kinds of lines that were lost, and may not be forgotten: damaged lines stand for them in the new group."""
    lost = [] if thread.run_damage is None else ["r"]
    if thread.journal_damage is not None:
        lost += ["e"] * (len(thread.lost_entries) + 1)  # one more than numbers account for
    return [*lost, "d"] if thread.doubtful else lost


def _kept(thread: Thread, dead: frozenset[int]) -> dict[int, str]:
    """The offsets of the lines that stay, and the letters of their kinds."""
    kept = {cell.offset: "c" for cells in thread.logs.values() for cell in cells if cell.offset not in dead}
    kept |= {row.place.offset: "k" for row in thread.rows.values() if row.place is not None}
    return kept | {entry.place.offset: "e" for entry in thread.entries.values()}


def _tombstone(head: r.CheckpointHead) -> r.TombstoneLine:
    return r.TombstoneLine(
        seq=head.seq, id=head.id, digest=head.digest, step=head.step, move=head.move, parent=head.parent
    )
