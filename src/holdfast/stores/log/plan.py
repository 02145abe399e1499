"""The two kinds of verbs: a read sees one state of the logs; a write is planned, then appended as one group.

One writer at a time, across processes, and one user at a time of what the handle has read. Reading never waits for a
sync: a writer reads, releases the lock, writes, and reads again.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial, wraps
from typing import Concatenate, Final, Generic, ParamSpec, TypeVar

import msgspec

from holdfast import forksafe
from holdfast.errors import HoldfastError, OutcomeUnknown
from holdfast.formats import lines as ln
from holdfast.formats.jsonl import new_number
from holdfast.signals import shield, sleep
from holdfast.stores import clock as clocks
from holdfast.stores import rules
from holdfast.stores.contract import Blob, KeyRow
from holdfast.stores.contract_runs import ActRow, Clock, RunRow
from holdfast.stores.log import disk
from holdfast.stores.log.device import EPOCH, Device, Moved, Unsure, Version, thread_key
from holdfast.stores.log.groups import NextGroup, ThreadLog
from holdfast.stores.log.keyed_values import ActFiles, Blobs, WrappedKeys
from holdfast.stores.log.namespace import FoundRun, Namespace
from holdfast.stores.log.replay import RUN
from holdfast.stores.log.run_hints import OPEN_STATUSES, RunHints
from holdfast.stores.sweeps import Sweeps

P = ParamSpec("P")
T = TypeVar("T")
V = TypeVar("V", bound="LogVerbs")

_LONGEST_PAUSE: Final = 0.05  # seconds between attempts, on a device with several writers; a different time in each


class Locks:
    """The locks of one handle. The one for writing is taken before the one for looking."""

    def __init__(self, path: str, device: Device) -> None:
        self._path = path
        self._device = device
        self._writing = threading.Lock()
        self._looking = threading.Lock()
        self._writer: int | None = None
        self._looker: int | None = None
        self._refusal: Callable[[str], HoldfastError] | None = None  # the error of every further call
        self._held = forksafe.HeldLocks()
        _all.add(self)

    def ready(self) -> None:
        """Raise unless the store can be used."""
        if self._refusal is not None:
            raise self._refusal(self._path)

    def look(self, work: Callable[[], T]) -> T:
        """Call a function that uses what the handle has read."""
        if self._looker == threading.get_ident():
            raise rules.in_signal_handler()
        with shield, self._looking:
            self._looker = threading.get_ident()
            try:
                self.ready()
                return work()
            except OSError as error:
                raise disk.translate(error, self._path) from error
            finally:
                self._looker = None

    def write(self, work: Callable[[], T]) -> T:
        """Call a function with permission to write, again if it raises `Moved`: what it has read has changed."""
        if self._writer == threading.get_ident():
            raise rules.in_signal_handler()
        with shield, self._writing:
            self._writer = threading.get_ident()
            try:
                while True:
                    self.ready()
                    self._device.enter()
                    try:
                        return work()
                    except Moved:  # another writer was faster
                        if self._device.trust is not None:
                            sleep(random.random() * _LONGEST_PAUSE)  # noqa: S311
            except Unsure as error:
                self._refusal = rules.write_failed
                raise rules.write_failed(self._path) from error
            except OSError as error:
                raise disk.translate(error, self._path) from error
            finally:
                self._device.leave()
                self._writer = None

    def append(self, log: ThreadLog, group: NextGroup) -> None:
        """Append a group to a log. Readers of this handle see it when it is durable."""
        self.ready()  # a signal handler may have forked in the middle of the call, and this is the child
        log.is_hidden = True
        version = None
        try:
            version = log.append(group, sync=not self._device.is_lazy)
        except Unsure:
            self._refusal = rules.write_failed  # before another thread can read
            raise
        finally:
            with self._looking:
                log.is_hidden = False
                if version is not None:
                    with suppress(HoldfastError):  # the next read tries again
                        log.follow(group, version)

    def close(self) -> bool:
        """Wait for calls in progress and refuse later ones. Return whether the caller must close the files."""
        with self._writing, self._looking:
            before, self._refusal = self._refusal, rules.closed
            # A call in progress during the fork may have been about to close one of the files.
            return before not in (rules.closed, rules.forked)

    # -- fork() -----------------------------------------------------------------------------------------------------

    def pause(self, patience: float) -> None:
        """Before fork(): wait for calls in progress, so that the child inherits nothing half done."""
        deadline = time.monotonic() + patience
        if self._held.take(self._writing, patience):
            self._held.take(self._looking, max(0.0, deadline - time.monotonic()))

    def is_paused(self) -> bool:
        return self._held.has(self._writing, self._looking)

    def resume(self) -> None:
        self._held.release()

    def restart(self, *, paused: bool) -> None:
        """In the child: leave the lock to the parent."""
        if not paused and self._refusal is not rules.closed:
            self._refusal = rules.forked
        self._writer = self._looker = None
        self._writing = threading.Lock()
        self._looking = threading.Lock()
        self._device.forget_lock()


_all: Final = forksafe.PausedAtFork[Locks]()


class WritePlan(msgspec.Struct, Generic[T]):
    """The lines that a verb will append, and its result. Without lines there is nothing to do.

    `creates` is the name of the thread to create; otherwise the lines go to `log`. `place` and `group` are set when the
    plan is prepared.
    """

    answer: T
    lines: Sequence[ln.Sealed] = ()
    at: ln.ThreadRecord | None = None
    log: ThreadLog | None = None
    creates: str | None = None
    number: int = 0
    blobs: Sequence[Blob] = ()
    used: Sequence[tuple[ThreadLog, Version]] = ()  # other logs with cells that the lines use, as they were checked
    entry: int = 0  # the highest number of a journal entry in the lines
    acts: Sequence[tuple[ActRow, ActRow | None]] = ()  # claimed by entries in the lines, and the claims before
    key: KeyRow | None = None
    run: RunRow | None = None  # the run that is in the lines
    place: int = 0  # where they are written, if the run has hints
    group: NextGroup | None = None  # the lines, to append to `log`


class LogVerbs:
    """The parts of a store that all verbs use."""

    def __init__(
        self,
        device: Device,
        place: str,
        *,
        clock: Callable[[], Clock] | None = None,
        wall: Callable[[], int] | None = None,
        number: Callable[[], int] = new_number,
    ) -> None:
        """`place` names the store in messages. `number` gives the number of a new thread, if it is above the others."""
        self._clock = clock or clocks.machine
        self._wall = wall or clocks.wall
        self._device = device
        self._locks = Locks(place, device)
        self._space = Namespace(device, number)
        self._blobs = Blobs(device)
        self._sweeps = Sweeps()
        self._acts = ActFiles(self._space)
        self._keys = WrappedKeys(device)
        # None if all threads are read instead.
        self._hints = None if device.hints is None else RunHints(self._space, device.hints, self._clock, self._wall)

    def _carry_out(self, verb: Callable[[], WritePlan[T]]) -> T:
        """Plan, append, and read what was appended. Only in a turn.

        Readers of this handle continue meanwhile and see the append when it is durable. The append fails if the log is
        not as the plan has read it. With several writers, the first plan trusts what the handle knows.
        """
        trust = self._device.trust
        if trust is None:
            return self._attempt(verb)
        try:
            trust.switch(on=True)
            return self._attempt(verb)
        except (Moved, HoldfastError) as error:
            if isinstance(error, OutcomeUnknown):
                raise
        finally:
            trust.switch(on=False)
        return self._attempt(verb)  # what the first plan has seen may be out of date

    def _attempt(self, verb: Callable[[], WritePlan[T]]) -> T:
        plan = self._locks.look(lambda: self._prepared(verb))
        for blob in plan.blobs:
            self._blobs.store(blob)
        for act, before in plan.acts:
            # Before the entry: if a crash separates them, `before` counts, and no entry lacks its claim.
            self._acts.put(act.key, act, before)
        if plan.log is not None and plan.group is not None:
            self._locks.append(plan.log, plan.group)
        elif plan.creates is not None:
            id = self._keys.put_new(plan.key, plan.number)
            self._locks.look(
                partial(self._space.create, plan.creates, plan.number, plan.lines, plan.at, plan.entry, id)
            )
        if self._hints is not None and plan.run is not None:
            with suppress(HoldfastError):  # the write has succeeded
                self._locks.look(partial(self._hints.settle, _key_of(plan), plan.place, plan.run))
        return plan.answer

    def _runs(self, statuses: Collection[str]) -> Iterable[FoundRun]:
        """The runs in these statuses, and perhaps others."""
        if self._hints is None or not OPEN_STATUSES.issuperset(statuses):
            return self._space.runs()
        return self._hints.open()

    def _prepared(self, verb: Callable[[], WritePlan[T]]) -> WritePlan[T]:
        """The plan of a verb, complete. What the write depends on is recorded before it.

        `Moved` if the plan trusted what the append will not check.
        """
        plan, trust = verb(), self._device.trust
        log = plan.log
        if trust is not None and trust.is_on() and (not plan.lines or trust.used - {"" if log is None else log.key}):
            raise Moved
        if not plan.lines:
            return plan
        if log is not None:
            plan.number = log.thread.number
            self._adopt(log)
        elif plan.creates is not None:
            self._space.reserve(plan.number, plan.creates)
        for origin, seen in plan.used:
            if origin.seen != seen:
                raise Moved
            self._adopt(origin)
            self._register(origin, plan.number)
        if self._hints is not None and plan.run is not None:
            before = None if log is None or RUN in log.thread.doubts else log.thread.run_row
            plan.place = self._hints.announce(_key_of(plan), before, plan.run)
        if plan.blobs:
            digests = tuple(dict.fromkeys(blob.digest.hex() for blob in plan.blobs))
            stamp = ln.StampLine(epoch=self._space.counter(EPOCH) or 0, blobs=digests)
            plan.lines = [ln.sealed(stamp), *plan.lines]
        if log is not None:
            plan.group = log.next_group(plan.lines, plan.at, plan.entry)
        return plan

    def _register(self, origin: ThreadLog, number: int) -> None:
        """Record durably, in the log of a thread, that another one is about to use its cells."""
        thread = origin.thread
        # With several writers, the append makes sure that the origin has not changed since the plan.
        if number in thread.forks and self._device.trust is None:
            self._space.settle([origin])
            return
        line = ln.sealed(ln.ForkLine(number=number))
        at = thread.record if thread.is_placed else None  # a copy, in case that the end of the last commit is damaged
        origin.write([line], at)

    def _adopt(self, log: ThreadLog) -> None:
        """Store the blobs that are in the log of a thread that was exported and copied here."""
        if not log.is_adopted:
            for digest in log.thread.blobs:
                self._blobs.store(log.blob(digest))
            log.is_adopted = True

    @staticmethod
    def read(verb: Callable[Concatenate[V, P], T]) -> Callable[Concatenate[V, P], T]:
        """A verb that reads: it sees one state of the logs."""

        @wraps(verb)
        def run(self: V, /, *args: P.args, **kwargs: P.kwargs) -> T:
            while True:
                try:
                    return self._locks.look(lambda: verb(self, *args, **kwargs))
                except Moved:
                    continue

        return run

    @staticmethod
    def write(verb: Callable[Concatenate[V, P], WritePlan[T]]) -> Callable[Concatenate[V, P], T]:
        """A verb that plans a write: it checks everything, and the plan is appended. Others do not write meanwhile."""

        @wraps(verb)
        def run(self: V, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return self._locks.write(lambda: self._carry_out(lambda: verb(self, *args, **kwargs)))

        return run

    @staticmethod
    def maintain(verb: Callable[Concatenate[V, P], T]) -> Callable[Concatenate[V, P], T]:
        """A verb that uses what the handle has read, with permission to write."""

        @wraps(verb)
        def run(self: V, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return self._locks.write(lambda: self._locks.look(lambda: verb(self, *args, **kwargs)))

        return run


def _key_of(plan: WritePlan[T]) -> str:
    return plan.log.key if plan.log is not None else thread_key(plan.creates or "")


read = LogVerbs.read
write = LogVerbs.write
maintain = LogVerbs.maintain
