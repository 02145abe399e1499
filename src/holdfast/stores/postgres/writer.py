"""How a write is done: at once and with others where it can be, again where others were in its way, and looked for
where its answer was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

import psycopg

from holdfast.errors import AlreadyExists, Conflict, HoldfastError
from holdfast.stores.group import Entry, GroupCommit
from holdfast.stores.postgres.errors import is_absent, is_away, is_conflict, translate, unknown
from holdfast.stores.postgres.known import Known, KnownRun, KnownThread
from holdfast.stores.postgres.patience import Patience
from holdfast.stores.postgres.pool import Connection, Pool
from holdfast.stores.postgres.schema import Statements
from holdfast.stores.postgres.session import BEGIN_WRITING, COMMIT, Sent, Session, send
from holdfast.stores.running import Clock

T = TypeVar("T")

_UNIQUE: Final = "23505"
# A name that was given to another thread at the same moment is found the next time; what is still in the way then is
# something else.
_UNIQUE_TRIES: Final = 3


class Fact(NamedTuple):
    """What is known of a thread and its run once a write is done."""

    number: int
    thread: KnownThread | None
    run: KnownRun | None


# A write that is one statement, which gives a row back if it was done.
Quick = Sent


class Done(NamedTuple, Generic[T]):
    """A write that was found to be done, and its answer."""

    answer: T


class Work(Protocol[T]):
    """Something to be written."""

    def quick(self, known: Known) -> Quick | None:
        """The write as one statement, made from what is known; None if it takes more than that."""
        ...

    def quick_answer(self) -> T:
        """The answer, once the quick write was done."""
        ...

    def run(self, session: Session) -> T:
        """Do it in a transaction. What was read under its locks is kept, to be looked for should the answer be lost."""
        ...

    def find(self, session: Session) -> Done[T] | None:
        """After the answer of `run` or of a quick write was lost: whether it was done. None if it was not.

        The thread is locked first: a transaction that may still commit is waited for. `OutcomeUnknown` if nothing
        that is stored tells.
        """
        ...

    def facts(self) -> Sequence[Fact]:
        """What is known once it is done."""
        ...


class Writer:
    """Does writes on connections of a pool."""

    def __init__(
        self,
        pool: Pool,
        sql: Statements,
        namespace: bytes,
        shown: str,
        *,
        patience: float,
        clock: Callable[[], Clock] | None,
        channel: str | None = None,
    ) -> None:
        self.known = Known()
        self._pool = pool
        self._sql = sql
        self._namespace = namespace
        self._shown = shown
        self._patience = patience
        self._clock = clock
        self._channel = channel
        self.group: GroupCommit[Quick, bool | None] = GroupCommit(self._run_batch)

    def restart(self) -> None:
        """In a forked child: nobody else is in the line."""
        self.group = GroupCommit(self._run_batch)
        self.known = Known()

    def write(self, work: Work[T]) -> T:
        """Do the work; returns when it is durable."""
        self._pool.ready()
        quick = work.quick(self.known)
        done = self.group.submit(quick) if quick is not None else False
        answer = work.quick_answer() if done else self._write(work, lost=done is None)
        for fact in work.facts():
            self.known.learn(*fact)
        return answer

    # -- in a transaction of its own --------------------------------------------------------------------------------

    def _write(self, work: Work[T], *, lost: bool) -> T:
        patience = Patience(self._patience)
        unique = 0
        while True:
            session: Session | None = None
            try:
                connection = self._pool.take()
                try:
                    session = Session(connection, self._sql, self._namespace, "write", self._clock)
                    answer = self._attempt(work, session, lost=lost)
                    if session.queues:
                        self._announce(connection)
                    return answer
                finally:
                    self._pool.give(connection)
            except psycopg.Error as error:
                if is_away(error) or (session is not None and session.is_closed):
                    self._pool.forget_idle()
                    lost = lost or (session is not None and session.committing)
                elif error.sqlstate == _UNIQUE and unique < _UNIQUE_TRIES:
                    unique += 1
                elif not is_conflict(error):
                    raise self._given_up(error, lost=lost) from None
                if not patience.wait():
                    raise self._given_up(error, lost=lost) from None

    def _given_up(self, error: psycopg.Error, *, lost: bool) -> HoldfastError:
        """What to raise: not from the server's own error, which may quote the row."""
        return unknown(self._shown) if lost else translate(error, self._shown)

    def _attempt(self, work: Work[T], session: Session, *, lost: bool) -> T:
        try:
            if lost:
                found = work.find(session)
                if found is not None:
                    session.roll_back()
                    return found.answer
            try:
                answer = work.run(session)
            except (AlreadyExists, Conflict):
                # The name was not there a moment ago, and now it is: perhaps by the very write whose answer was lost.
                found = work.find(session) if lost else None
                if found is None:
                    raise
                session.roll_back()
                return found.answer
            session.commit()
        except BaseException as error:
            with suppress(psycopg.Error):
                session.roll_back()
            if session.committing and not isinstance(error, Exception):
                # An interrupt in the middle of the commit: whoever reads the connection next would read its answer.
                session.close()
            raise
        return answer

    def _announce(self, connection: Connection) -> None:
        """Say that a run was queued. It is, whatever becomes of this."""
        if self._channel is None:
            return
        try:
            connection.execute(self._sql["announce"], (self._channel,))
        except psycopg.Error as error:
            if is_absent(error):
                self._channel = None

    # -- with others ------------------------------------------------------------------------------------------------

    def _run_batch(self, entries: Sequence[Entry[Quick, bool | None]]) -> None:
        """Do quick writes in one transaction. Each is settled as done, not done (False), or lost (None)."""
        try:
            connection = self._pool.take()
        except psycopg.Error:
            self._settle(entries, [False] * len(entries))  # each will wait for the database by itself
            return
        outcomes: list[bool | None] = [None] * len(entries)
        try:
            outcomes = self._send(connection, entries)
        except psycopg.Error as error:
            # Nothing was done, unless nobody knows.
            is_lost = connection.closed or is_away(error)
            outcomes = [None if is_lost else False] * len(entries)
            if is_lost:
                self._pool.forget_idle()
        except BaseException:
            connection.close()
            raise
        finally:
            # Whatever strikes here, nobody goes back to the line: what may be done is looked for, not done again.
            self._settle(entries, outcomes)
            if connection.info.transaction_status is psycopg.pq.TransactionStatus.INERROR:
                with suppress(psycopg.Error):
                    connection.execute("ROLLBACK")
            self._pool.give(connection)

    def _send(self, connection: Connection, entries: Sequence[Entry[Quick, bool | None]]) -> list[bool | None]:
        connection.is_writing = True
        if len(entries) == 1 and not connection.is_lax:
            text, values = entries[0].item
            return [connection.execute(text, values, binary=True).rowcount == 1]
        begin: list[Sent] = [(BEGIN_WRITING, ()), (self._sql["durable"], ())]
        begin = begin if connection.is_lax else begin[:1]
        cursors = send(connection, [*begin, *(entry.item for entry in entries), (COMMIT, ())])
        return [cursor.rowcount == 1 for cursor in cursors[len(begin) : -1]]

    @staticmethod
    def _settle(entries: Sequence[Entry[Quick, bool | None]], outcomes: Sequence[bool | None]) -> None:
        for entry, outcome in zip(entries, outcomes, strict=True):
            if not entry.settled:
                entry.settle(outcome)


class Slow(Generic[T]):
    """Work that is always done in a transaction of its own. It may be done twice, unless it says how it is found."""

    def quick(self, known: Known) -> Quick | None:
        return None

    def quick_answer(self) -> T:
        raise HoldfastError("there is no quick way")

    def find(self, session: Session) -> Done[T] | None:
        return None

    def facts(self) -> Sequence[Fact]:
        return ()


class Plain(Slow[T]):
    """A verb as work: done the second time, it changes nothing."""

    def __init__(self, run: Callable[[Session], T]) -> None:
        self._run = run

    def run(self, session: Session) -> T:
        return self._run(session)
