"""The memory store: for tests and short-lived work, and the simplest implementation of the contract.

It has one lock, and plain lists and dicts. Records are immutable, so they are stored and returned without copying.
"""

from __future__ import annotations

import hashlib
import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from operator import itemgetter
from typing import Literal, overload

import msgspec

from holdfast.errors import AlreadyExists, Closed, Conflict, Damaged, NotFound, Protected
from holdfast.stores import clock as clocks
from holdfast.stores import contract as c
from holdfast.stores import handler_limits, rules
from holdfast.stores.contract import PLAIN, KeyRow
from holdfast.stores.contract_runs import ActClaim, ActRow, ClaimLimit, Clock, Entry, EntryStatus, Progress, RunRow
from holdfast.stores.sweeps import Sweeps
from holdfast.types import Problem
from tests.stores.model import check
from tests.stores.model.thread import (
    Alive,
    Segment,
    Thread,
    Value,
    check_appends,
    not_found,
    tombstone,
    write_journal,
)
from tests.stores.model.waking import Waking


class ModelStore:
    """A store that is lost when it is closed. Implements `holdfast.stores.contract.Store`; any thread may use it."""

    encoding: Literal["packed", "text"] = "packed"
    hashing = PLAIN

    def __init__(
        self,
        *,
        namespace: str,
        clock: Callable[[], Clock] | None = None,
        wall: Callable[[], int] | None = None,
        number: Callable[[int], int] = int,
    ) -> None:
        self.namespace = namespace
        self._clock = clock or _clock
        self._wall = wall or clocks.wall
        self._lock = threading.Lock()
        self._closed = False
        self._threads: dict[int, Thread] = {}
        self._named: dict[str, Thread] = {}
        # Strings compare by code point, which is the order of their UTF-8 bytes, so no encoded copy is needed.
        self._names: list[str] = []
        self._waking = Waking()
        self._windows: dict[str, bytes] = {}
        self._values: dict[bytes, Value] = {}
        self._keys: dict[bytes, KeyRow] = {}
        self._acts: dict[bytes, ActRow] = {}
        self._epoch = 0
        self._sweeps = Sweeps()
        self._last_number = 0
        self._number = number  # the number of the first, second, third … thread

    # -- reading ----------------------------------------------------------------------------------------------------

    def head(self, name: str) -> c.Head | None:
        with self._open():
            if name not in self._named:
                return None
            thread = self._row(name)
            found = self._named[name].row(thread.position.head)
            return c.Head(thread, found or Damaged(f"the head of thread {name} is missing"))

    def threads(
        self, *, prefix: str, after: str | None, limit: int, contains: str = "", newest: int | None = None
    ) -> list[c.ThreadRow]:
        with self._open():
            names = [n for n in self._names if n.startswith(prefix) and contains.casefold() in n.casefold()]
            if newest is not None:
                rows = sorted(map(self._row, names), key=lambda row: (-row.summary.updated_at, row.name))
                keys = [(-row.summary.updated_at, row.name) for row in rows]
                first = bisect_left(keys, (-newest, "")) if after is None else bisect_right(keys, (-newest, after))
                return rows[first : first + max(limit, 0)]
            start = 0 if after is None else bisect_right(names, after)
            return [self._row(name) for name in names[start : start + max(limit, 0)]]

    def numbered(self, *, after: int | None, limit: int) -> list[c.NumberedThread]:
        with self._open():
            found = [
                c.NumberedThread(number, thread.name, thread.last)
                for number, thread in sorted(self._threads.items())
                if number > (after or 0) and (thread.name is not None or any(thread.logs.values()))
            ]
            return found[: max(limit, 0)]

    def checkpoints(
        self, thread: int, *, before: int | None, limit: int, label: str | None = None, step: int | None = None
    ) -> list[c.CheckpointRow]:
        with self._open():
            rows = self._at(thread).rows
            newest = len(rows) if before is None else min(len(rows), before - 1)
            wanted = (
                msgspec.structs.replace(row, refs=c.NO_REFS, skeleton=b"")
                for row in (rows[seq - 1] for seq in range(newest, 0, -1))
                if not row.deleted and (label is None or row.label == label) and (step is None or row.step == step)
            )
            return list(islice(wanted, max(limit, 0)))

    def walk(self, thread: int, *, after: int, limit: int, refs_only: bool = False) -> list[c.CheckpointRow | Damaged]:
        with self._open():
            first = max(after, 0)
            rows = self._at(thread).rows[first : first + max(limit, 0)]
            return [msgspec.structs.replace(row, meta=b"", skeleton=b"") for row in rows] if refs_only else [*rows]

    def cells(self, spans: Sequence[c.Span]) -> list[c.Cells]:
        with self._open():
            return [self._at(span.thread).read(span) for span in spans]

    def blob(self, digest: bytes) -> list[bytes]:
        with self._open():
            value = self._values.get(digest)
        if value is None:
            raise Damaged(f"blob {digest.hex()} is missing")
        actual = hashlib.sha256()
        for piece in value.pieces:
            actual.update(piece)
        if actual.digest() != digest:
            raise Damaged(f"blob {digest.hex()} does not match its digest")
        return list(value.pieces)

    def forks(self, thread: int) -> list[int]:
        with self._open():
            return sorted(self._at(thread).forks)

    def clock(self) -> Clock:
        with self._open():
            return self._clock()

    def run(self, thread: int) -> RunRow | None:
        with self._open():
            return self._at(thread).run

    def runs(self, *, statuses: Collection[str], after: tuple[int, int], limit: int) -> list[tuple[str, RunRow]]:
        with self._open():
            wanted = [
                (thread.run.updated_at, thread.number, name, thread.run)
                for name, thread in self._named.items()
                if thread.run is not None and thread.run.status in statuses
            ]
        page = [(name, run) for at, number, name, run in sorted(wanted, key=itemgetter(0, 1)) if (at, number) > after]
        return page[: max(limit, 0)]

    def queue(self, *, handlers: Collection[str], after: tuple[int, int, int], limit: int) -> list[tuple[str, RunRow]]:
        with self._open():
            wanted = [
                (rules.queue_place(thread.run), name, thread.run)
                for name, thread in self._named.items()
                if thread.run is not None and rules.is_ready(thread.run) and rules.queue_of(thread.run) in handlers
            ]
        page = [(name, run) for place, name, run in sorted(wanted, key=itemgetter(0)) if place > after]
        return page[: max(limit, 0)]

    def due(self, *, limit: int) -> list[tuple[str, RunRow]]:
        with self._open():
            clock, wall = self._clock(), self._wall()
            due = [self._threads[number] for number in self._waking.due(clock, wall)]
            found = [(at.name, at.run) for at in due if at.name is not None and at.run is not None]
        found.sort(key=lambda one: (-one[1].priority, -rules.overdue(one[1], clock, wall), one[1].thread))
        return found[: max(limit, 0)]

    def entries(self, thread: int, *, after: int, limit: int, topic: str | None = None) -> list[Entry]:
        with self._open():
            rows = self._at(thread).effects[max(after, 0) :]
            return [row for row in rows if topic in (None, row.topic)][: max(limit, 0)]

    def last_entry(self, thread: int) -> int:
        with self._open():
            return len(self._at(thread).effects)

    # -- writing: everything is checked before anything is changed --------------------------------------------------

    @overload
    def commit(self, commit: c.Commit, /) -> c.Position: ...

    @overload
    def commit(self, commit: Sequence[c.Commit], /) -> list[c.Position]: ...

    def commit(self, commit: c.Commit | Sequence[c.Commit]) -> c.Position | list[c.Position]:
        if isinstance(commit, c.Commit):
            return self.commit([commit])[0]
        rules.check_together(commit)
        with self._open():
            for each in commit:
                self._check_commit(each)
            return [self._commit(each) for each in commit]

    def _check_commit(self, commit: c.Commit) -> None:
        rules.check_form(commit)
        thread = self._named.get(commit.name)
        self._check_run(commit)
        if thread and commit.expect is None:
            raise AlreadyExists("a thread with that name already exists; nothing was stored")
        if (thread.position if thread else None) != commit.expect:
            raise Conflict("the thread was changed or dropped by another writer; nothing was changed. Read it again.")
        if not all(self._at(number).has(seq) for number, seq in commit.bases):
            raise Conflict(
                "a checkpoint whose cells this commit reuses was deleted; nothing was stored. "
                "Call latest() and save again."
            )
        if not all(number in self._threads for number in commit.origins):
            raise Conflict(
                "a thread whose cells this commit uses no longer exists; nothing was stored. "
                "Call latest() and save again."
            )
        runs = [run for run in commit.appends if run.cells]
        check_appends(runs, thread.logs if thread else {})
        if commit.entries or commit.last_entry is not None:
            newest = len(thread.effects) if thread else 0
            rules.require_entries(thread.number if thread else 0, newest, commit.entries, rules.newest_seen(commit))

    def _commit(self, commit: c.Commit) -> c.Position:
        thread = self._named.get(commit.name) or self._create(commit.name)
        runs = [run for run in commit.appends if run.cells]
        if commit.key is not None:
            thread.key = commit.key.id
            self._keys[commit.key.id] = commit.key
        if commit.run:
            row = msgspec.structs.replace(commit.run, thread=thread.number)
            self._put_run(thread, rules.keep_lease(thread.run, row) if thread.run else row)
        write_journal(thread, commit.entries)
        for run in runs:
            segment = Segment(commit.row.seq, run.start, run.cells, run.refs)
            thread.logs.setdefault(run.log, []).append(segment)
        for value in commit.blobs:
            known = self._values.get(value.digest)
            self._values[value.digest] = Value(known.pieces if known else value.pieces, self._epoch)
        for number in commit.origins:
            self._register(thread, {number} | self._threads[number].origins)
        thread.rows.append(commit.row)
        thread.head = thread.last = commit.row.seq
        thread.move = commit.row.move
        thread.count += 1
        thread.summary = commit.summary
        return thread.position

    def rewind(self, expect: c.Position, *, to: int, summary: c.Summary) -> c.Position:
        with self._open():
            thread = self._at(expect.thread)
            rules.require_free(thread.run, self._clock(), thread.name)
            if thread.name is None or thread.position != expect:
                raise Conflict(
                    "the thread was changed or dropped by another writer; nothing was changed. Read it again."
                )
            if not thread.has(to):
                raise NotFound(f"checkpoint {to} of the thread does not exist or was deleted; nothing was changed")
            thread.head, thread.move, thread.summary = to, thread.move + 1, summary
            return thread.position

    def claim(self, expect: RunRow | None, row: RunRow, limit: ClaimLimit | None = None) -> c.Claimed:
        rules.check_claim(expect, row)
        with self._open():
            thread = self._at(row.thread)
            rules.require_expected(thread.run, expect)
            if thread.name is None:
                raise not_found(row.thread)
            if limit is not None:
                self._count_claim(limit, row.thread)
            row = rules.start_lease(row, self._clock)
            self._put_run(thread, row)
            return c.Claimed(thread.position, row, len(thread.effects))

    def _count_claim(self, limit: ClaimLimit, thread: int) -> None:
        clock = self._clock()
        runs = [at.run for at in self._named.values() if at.run is not None and at.run.status == "running"]
        handler_limits.require_slot(limit, [run for run in runs if rules.queue_of(run) == limit.handler], thread, clock)
        window = handler_limits.next_window(limit, self._windows.get(limit.handler), clock, self._wall())
        if window is not None:
            self._windows[limit.handler] = window

    def renew(self, thread: int, fence: int, until: int, progress: Progress | None = None) -> None:
        with self._open():
            found = self._at(thread)
            run = rules.require_fence(found.run, fence)
            found.run = rules.renewed(run, until, progress)

    def journal(
        self,
        thread: int,
        fence: int | None,
        entries: Sequence[Entry],
        *,
        last: int | None,
        run: RunRow | None = None,
        claims: Sequence[ActClaim] = (),
    ) -> None:
        rules.check_journal(entries, last, run, thread, fence)
        acts = rules.claimed_acts(thread, entries, claims)
        with self._open():
            found = self._at(thread)
            before = rules.require_run(thread, found.run) if fence is None else rules.require_fence(found.run, fence)
            rules.require_entries(thread, len(found.effects), entries, last)
            for row, expect in acts:
                rules.require_claim(self._acts.get(row.key), row, expect)
            self._acts |= {row.key: row for row, _ in acts}
            write_journal(found, entries)
            if run is not None:
                self._put_run(found, rules.keep_lease(before, run))

    def post(
        self,
        thread: int,
        row: Entry,
        *,
        status: EntryStatus | None = None,
        run: RunRow | None = None,
        then: RunRow | None = None,
    ) -> None:
        rules.check_post(row, run, then)
        with self._open():
            found = self._at(thread)
            rows = found.effects
            rules.require_post(
                found.run, len(rows), row, lambda number: rows[number - 1].status, thread=thread, status=status, run=run
            )
            write_journal(found, [row])
            if then is not None:
                self._put_run(found, then)

    def delete(self, thread: int, seqs: Collection[int]) -> int:
        with self._open():
            found = self._at(thread)
            if found.name is None:
                raise not_found(thread)
            gone = {seq for seq in seqs if found.has(seq)}
            if found.head in gone:
                raise Protected(
                    "the head of a thread cannot be deleted; nothing was changed. Rewind or drop the thread instead."
                )
            for seq in gone:
                found.rows[seq - 1] = tombstone(found.rows[seq - 1])
            found.count -= len(gone)
            return len(gone)

    def sweep(self, thread: int, live: c.Live) -> c.Swept:
        # Small segments cost nothing here, so none are merged.
        alive = Alive(thread, live)
        dropped = 0
        with self._open():
            for log, segments in self._at(thread).logs.items():
                before = sum(len(segment.cells) for segment in segments)
                if live.blobs is None:
                    segments[:] = [segment for segment in segments if alive.parts(log, segment)]
                else:
                    segments[:] = [part for segment in segments for part in alive.parts(log, segment)]
                dropped += before - sum(len(segment.cells) for segment in segments)
            self._sweeps.record(thread, live)
        return c.Swept(dropped=dropped)

    def sweep_blobs(self, epoch: int | None = None) -> c.Collected:
        with self._open():
            if epoch is None:
                self._epoch += 1
                return c.Collected(epoch=self._epoch)
            threads = {number: (at.last, bool(at.origins)) for number, at in self._threads.items()}
            if unswept := self._sweeps.unswept(epoch, threads):
                return c.Collected(unswept=unswept)
            keep = self._sweeps.used()
            dead = [digest for digest, value in self._values.items() if digest not in keep and value.stamp < epoch]
            for digest in dead:
                del self._values[digest]
            return c.Collected(frozenset(dead), keep)

    def drop(self, thread: int) -> None:
        with self._open():
            found = self._at(thread)
            if found.name is None:
                raise not_found(thread)
            rules.require_free(found.run, self._clock(), found.name)
            del self._named[found.name]
            del self._names[bisect_left(self._names, found.name)]
            found.name, found.rows, found.count = None, [], 0
            found.run, found.effects = None, []
            self._waking.follow(thread, None)
            # Its forks are registered with its origins, too, so its own registration is not needed for them.
            for other in (found, *map(self._at, found.origins)):
                other.forks.discard(thread)
                if other.name is None and not other.forks:
                    self._threads.pop(other.number, None)
                    self._keys.pop(other.key, None)

    # -- acts -------------------------------------------------------------------------------------------------------

    def acts(
        self, *, key: bytes | None = None, prefix: bytes = b"", after: bytes | None = None, limit: int
    ) -> list[ActRow]:
        with self._open():
            keys = sorted(each for each in self._acts if each.startswith(prefix) and each > (after or b""))
            wanted = keys if key is None else [key] if key in self._acts else []
            return [self._acts[each] for each in wanted][: max(limit, 0)]

    def put_act(self, key: bytes, expect: ActRow | None, row: ActRow | None) -> ActRow | None:
        rules.check_put_act(key, row)
        with self._open():
            if self._acts.get(key) == expect:
                self._acts.pop(key, None)
                if row is not None:
                    self._acts[key] = row
            return self._acts.get(key)

    # -- wrapped keys -----------------------------------------------------------------------------------------------

    def keys(self, *, id: bytes | None = None, after: bytes = b"", limit: int) -> list[KeyRow]:
        with self._open():
            ids = sorted(self._keys) if id is None else [id]
            return [self._keys[each] for each in ids if each > after and each in self._keys][: max(limit, 0)]

    def put_key(self, id: bytes, expect: KeyRow | None, row: KeyRow | None) -> KeyRow | None:
        with self._open():
            if self._keys.get(id) == expect:
                self._keys.pop(id, None)
                if row is not None:
                    self._keys[id] = row
            return self._keys.get(id)

    # -- maintenance ------------------------------------------------------------------------------------------------

    def reclaim(self, *, scrub: bool = False) -> tuple[str, ...]:
        with self._open():
            return ()

    def check(self) -> Iterator[Problem]:
        with self._open():
            return iter(list(check.problems(self._threads, self._named, self._names, self._waking)))

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for held in (self._threads, self._named, self._names, self._waking, self._values):
                held.clear()

    # -- inside the lock --------------------------------------------------------------------------------------------

    @contextmanager
    def _open(self) -> Generator[None]:
        with self._lock:
            if self._closed:
                raise Closed("the store was closed; nothing was done. Open it again.")
            yield

    def _at(self, number: int) -> Thread:
        """The thread with this number, or an empty one if it does not exist."""
        return self._threads.get(number) or Thread(number)

    def _row(self, name: str) -> c.ThreadRow:
        at = self._named[name]
        head_id = at.rows[at.head - 1].id
        return c.ThreadRow(name=name, position=at.position, head_id=head_id, count=at.count, summary=at.summary)

    def _create(self, name: str) -> Thread:
        self._last_number += 1
        thread = Thread(self._number(self._last_number), name)
        self._threads[thread.number] = self._named[name] = thread
        insort(self._names, name)
        return thread

    def _put_run(self, thread: Thread, row: RunRow) -> None:
        thread.put_run(row)
        self._waking.follow(thread.number, row)

    def _check_run(self, commit: c.Commit) -> None:
        run = self._at(commit.expect.thread).run if commit.expect else None
        rules.check_commit(run, commit, self._clock)

    def _register(self, thread: Thread, origins: Collection[int]) -> None:
        for origin in map(self._at, origins):
            if origin is not thread:
                thread.origins.add(origin.number)
                origin.forks.add(thread.number)


def _clock() -> Clock:
    return Clock("memory", clocks.now())
