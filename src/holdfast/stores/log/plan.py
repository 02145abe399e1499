"""The two kinds of verbs: a read sees one state of the logs; a write is planned, then appended as one group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Concatenate, Generic, NamedTuple, ParamSpec, TypeVar

from holdfast.formats import lines as ln
from holdfast.stores.contract import Blob
from holdfast.stores.contract_runs import Clock
from holdfast.stores.log.blobs import Blobs
from holdfast.stores.log.device import Moved, thread_key
from holdfast.stores.log.locks import Locks
from holdfast.stores.log.namespace import Namespace, ThreadLog
from holdfast.stores.sweeps import Sweeps

P = ParamSpec("P")
T = TypeVar("T")
V = TypeVar("V", bound="LogVerbs")


class WritePlan(NamedTuple, Generic[T]):
    """The lines that a verb will append, and its result. Without lines there is nothing to do.

    `creates` is the name of the thread to create; otherwise the lines go to `log`.
    """

    answer: T
    lines: Sequence[ln.Sealed] = ()
    at: ln.Stand | None = None
    log: ThreadLog | None = None
    creates: str | None = None
    number: int = 0
    blobs: Sequence[Blob] = ()
    origins: tuple[int, ...] = ()
    entry: int = 0  # the highest number of a journal entry in the lines


class LogVerbs:
    """The parts of a store that all verbs use."""

    _space: Namespace
    _locks: Locks
    _blobs: Blobs
    _sweeps: Sweeps
    _clock: Callable[[], Clock]
    _wall: Callable[[], int]
    _syncs_appends: bool

    def _carry_out(self, verb: Callable[[], WritePlan[T]]) -> T:
        """Plan, append, and read what was appended. Only in a turn.

        Readers of this handle continue meanwhile and see the append when it is durable. The number of the new group
        follows that of the last group in the log: the append fails if the log does not end where it was read to.
        """
        while True:
            try:
                return self._carry_out_once(verb)
            except Moved:
                continue

    def _carry_out_once(self, verb: Callable[[], WritePlan[T]]) -> T:
        with self._locks.to_look(), self._locks.looking():
            plan = verb()
            if not plan.lines:
                return plan.answer
            self._prepare(plan)
        for blob in plan.blobs:
            self._blobs.store(blob)
        if plan.creates is not None:
            with self._locks.to_look(), self._locks.looking():
                self._space.create(plan.creates, plan.number, plan.lines, plan.at, plan.entry)
        else:
            self._append(plan)
        return plan.answer

    def _append(self, plan: WritePlan[T]) -> None:
        log = plan.log
        if log is None:
            return
        thread = log.thread
        entry = max(thread.newest_entry, plan.entry)
        data = ln.group(plan.lines, thread.number, plan.at, thread.groups + 1, entry)
        self._locks.append(log, data, sync=self._syncs_appends)

    def _prepare(self, plan: WritePlan[T]) -> None:
        """Record what a write depends on, before it: the blobs it has, the threads whose cells it uses."""
        space = self._space
        number = plan.number if plan.log is None else plan.log.thread.number
        for used in (number, *plan.origins):
            self._adopt(used)
        if plan.origins:
            space.settle(plan.origins)
        if plan.origins or number not in space.ledger.numbers:
            space.keep_ledger()
            # A log that was copied here is not known yet.
            is_new = plan.log is not None and number not in space.ledger.numbers
            before = plan.log.thread.origins if plan.log is not None and is_new else ()
            space.register(number, (*plan.origins, *before))
        if plan.blobs:
            space.keep_ledger()
            digests = tuple(dict.fromkeys(blob.digest.hex() for blob in plan.blobs))
            space.note(ln.StampLine(epoch=space.ledger.epoch, blobs=digests))
        if plan.creates is not None:
            key = thread_key(plan.creates)
            left = space.under(key)
            if left is not None:
                self._lay_aside(left)
                if left.key != key:  # an interrupted drop left both logs
                    space.device.delete(key)

    def _adopt(self, number: int) -> None:
        """Store the blobs that are in the log of a thread that was exported and copied here."""
        log = self._space.known(number)
        if log is None or not log.thread.blobs or log.is_adopted:
            return
        self._space.keep_ledger()
        self._space.note(ln.StampLine(epoch=self._space.ledger.epoch, blobs=tuple(log.thread.blobs)))
        for digest in log.thread.blobs:
            self._blobs.store(log.blob(digest))
        log.is_adopted = True

    def _lay_aside(self, log: ThreadLog) -> None:
        """Keep a dropped thread under its number, so that its name is free."""
        raise NotImplementedError

    @staticmethod
    def read(verb: Callable[Concatenate[V, P], T]) -> Callable[Concatenate[V, P], T]:
        """A verb that reads: it sees one state of the logs."""

        @wraps(verb)
        def run(self: V, /, *args: P.args, **kwargs: P.kwargs) -> T:
            locks = self._locks
            while True:
                try:
                    with locks.to_look(), locks.looking():
                        return verb(self, *args, **kwargs)
                except Moved:
                    continue

        return run

    @staticmethod
    def write(verb: Callable[Concatenate[V, P], WritePlan[T]]) -> Callable[Concatenate[V, P], T]:
        """A verb that plans a write: it checks everything, and the plan is appended. Others do not write meanwhile."""

        @wraps(verb)
        def run(self: V, /, *args: P.args, **kwargs: P.kwargs) -> T:
            locks = self._locks
            with locks.to_write(), locks.writing():
                return self._carry_out(lambda: verb(self, *args, **kwargs))

        return run


read = LogVerbs.read
write = LogVerbs.write
