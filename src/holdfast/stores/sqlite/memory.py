"""`MemoryStore`: a SQLite store without a file, for tests and short-lived work. It is lost when it is closed."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Concatenate, Final, ParamSpec, TypeVar

from holdfast import forksafe
from holdfast.errors import HoldfastError
from holdfast.signals import shield
from holdfast.stores import clock as clocks
from holdfast.stores import rows, rules
from holdfast.stores.contract_runs import Clock
from holdfast.stores.sql.store import SQLStore
from holdfast.stores.sql.transaction import StoreWrite, StoreWriter, Transaction
from holdfast.stores.sqlite import schema
from holdfast.stores.sqlite.failures import FAILURES, translate
from holdfast.stores.sqlite.transaction import SQLiteTransaction

P = ParamSpec("P")
T = TypeVar("T")

_SHOWN = "memory"  # messages start with "memory:"


class MemoryStore(SQLStore[StoreWriter]):
    """One database in memory, opened on one namespace. Any thread may use it; calls run one after the other."""

    def __init__(
        self,
        *,
        namespace: str,
        clock: Callable[[], Clock] | None = None,
        wall: Callable[[], int] | None = None,
    ) -> None:
        self._namespace = rows.to_bytes(namespace)
        self.writer = self
        self._clock = clock or _clock
        self._lock = threading.Lock()
        self._user = 0  # the thread that is in a call
        # Makes the error of every call, if the store cannot be used any longer.
        self._refusal: Callable[[str], HoldfastError] | None = None
        self._held = forksafe.HeldLocks()
        self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._connection.text_factory = bytes
        schema.create(self._connection)
        self._tx = SQLiteTransaction(self._connection, self._namespace, self._clock, wall or clocks.wall, _SHOWN)
        _stores.add(self)

    def clock(self) -> Clock:
        self._ready()
        return self._clock()

    def reclaim(self, *, scrub: bool = False) -> tuple[str, ...]:
        self._ready()
        return ()

    def close(self) -> None:
        with shield, self._turn():
            if self._refusal is None:
                self._connection.close()
            self._refusal = rules.closed

    def read(self, verb: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        with shield, self._turn():
            self._ready()
            return verb(self._tx, *args, **kwargs)

    def write(self, write: StoreWrite[T]) -> T:
        """Do a write in a transaction."""
        with shield, self._turn():
            self._ready()
            self._connection.execute("BEGIN")
            try:
                answer = write.run(self._tx)
                self._connection.execute("COMMIT")
            except BaseException as error:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                if isinstance(error, FAILURES):
                    raise translate(error, _SHOWN) from error
                raise
            return answer

    @contextmanager
    def _turn(self) -> Generator[None]:
        """Wait until no other thread is in a call."""
        caller = threading.get_ident()
        if self._user == caller:
            raise rules.in_signal_handler()
        with self._lock:
            self._user = caller
            try:
                yield
            finally:
                self._user = 0

    def _ready(self) -> None:
        if self._refusal is not None:
            raise self._refusal(_SHOWN)

    # A child has a copy of the database, as it is between two calls.

    def pause(self, patience: float) -> None:
        self._held.take(self._lock, patience)

    def is_paused(self) -> bool:
        return self._held.has(self._lock)

    def resume(self) -> None:
        self._held.release()

    def restart(self, *, paused: bool) -> None:
        if not paused:
            self._refusal = rules.forked
        self._lock = threading.Lock()


def _clock() -> Clock:
    return Clock(_SHOWN, clocks.now())


_stores: Final = forksafe.PausedAtFork[MemoryStore]()
