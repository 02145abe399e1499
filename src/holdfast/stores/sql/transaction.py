"""The interface between the verbs of the SQL stores and their databases: transactions, writes, named statements."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import resources
from typing import Any, ClassVar, Final, Generic, NamedTuple, Protocol, TypeVar

from holdfast.errors import Damaged
from holdfast.stores.contract_runs import Clock
from holdfast.stores.segments import MAX_SEQ

T = TypeVar("T")

Row = tuple[Any, ...]
Query = tuple[str, Sequence[Any]]  # the name of a statement, and its parameters

_NAME: Final = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_COMMENT: Final = re.compile(r"^--.*\n", re.MULTILINE)
_SHARED: Final = ("reads", "commits", "journals", "keyed_rows", "upkeep", "checks")


def named(package: str, *files: str) -> Mapping[str, str]:
    """The statements in SQL files of a package by name. Each statement starts with a line `-- name: …`."""
    parts = _NAME.split("".join(text_of(package, f"{file}.sql") for file in files))
    return {name: _COMMENT.sub("", statement).strip() for name, statement in zip(parts[1::2], parts[2::2], strict=True)}


def shared() -> Mapping[str, str]:
    """The statements that are the same for both databases.

    They are written for PostgreSQL; the schema of the store is `hf`. SQLite has no schema, types of parameters or locks
    of rows, and another sign for parameters. What is in braces is for SQLite alone.
    """
    return named("holdfast.stores.sql", *_SHARED)


def text_of(package: str, file: str) -> str:
    """The text of an SQL file of a package."""
    return resources.files(package).joinpath("sql", file).read_text(encoding="utf-8")


def in_order(fetch: Callable[[int], Sequence[Row]], first: int) -> Iterator[Row]:
    """The rows with keys from `first` on, read page by page. `fetch` returns the page that starts at a key."""
    while page := growing(fetch(first), first):
        yield from page
        first = page[-1][0] + 1


def growing(page: Sequence[Row], first: int) -> Sequence[Row]:
    """The page, whose keys must grow from `first` on, or else `Damaged`.

    A damaged index can lead back to earlier rows, and reading page by page would never end.
    """
    for row in page:
        if row[0] < first:
            raise Damaged(f"the database returns the rows with keys {first - 1} and {row[0]} in the wrong order")
        first = row[0] + 1
    return page


class Transaction(Protocol):
    """A transaction of one namespace. Statements are named; both databases have the same names.

    A read transaction sees one snapshot. In a write transaction, each statement sees what was committed before it; the
    statements `lock_…` lock what they select until the end, if other writers can run at the same time.

    An unreadable page raises `Damaged`. After that a read transaction can be used further, to read the rows on other
    pages. In PostgreSQL these may be of a later snapshot.
    """

    # The statements that lock a run, and find the newest entry of its journal. One, if nothing can change between two;
    # otherwise the second one must come after the lock.
    locks_run: ClassVar[tuple[str, ...]]

    @property
    def namespace(self) -> bytes: ...

    def has(self, name: str) -> bool:
        """Whether this database has the statement. Some are optional: a second lookup, or one query for two."""
        ...

    def ask(self, *queries: Query) -> list[list[Row]]:
        """The rows of each query, if possible in one round trip."""
        ...

    def rows(self, name: str, *args: Any) -> list[Row]:
        """The rows of one query."""
        ...

    def put(self, name: str, *args: Any) -> None:
        """Write. The statement may be sent later, with the next query or the commit."""
        ...

    def change(self, name: str, *args: Any) -> int:
        """Write at once and return the number of rows changed."""
        ...

    def rewrite_checkpoint(self, columns: Sequence[Any]) -> None:
        """Replace a checkpoint's row by these columns. Its cells stay."""
        ...

    def drop_cells(self, row_keys: Sequence[int]) -> None:
        """Remove the cells from checkpoints' rows."""
        ...

    def clock(self) -> Clock:
        """The time for leases."""
        ...

    def wall(self) -> int:
        """The wall clock, in µs since 1970."""
        ...

    def problems(self) -> Iterable[str]:
        """Problems that the database finds in its pages and indexes. `Damaged` if it cannot look further."""
        ...

    def announce(self) -> None:
        """After the commit, notify idle workers that a run was queued, if the database can."""
        ...


def salvaged(tx: Transaction, queries: Iterable[Query]) -> Iterator[list[Row] | Damaged]:
    """The rows of each query, or the error of one that needs an unreadable page."""
    for query in queries:
        try:
            [found] = tx.ask(query)
        except Damaged as damage:
            yield damage
        else:
            yield found


def in_range(tx: Transaction, name: str, one: str, low: int, high: int) -> list[Row]:
    """The rows of a query from one key to another; `(key, seq, None)` for each row on an unreadable page.

    A database gives up on the whole range at such a page. Then the rows are read one by one: `one` is the same query
    for a single key.
    """
    with suppress(Damaged):
        return tx.rows(name, low, high)
    found: list[Row] = []
    keys = range(low, high + 1)
    for row_key, answer in zip(keys, salvaged(tx, ((one, (row_key,)) for row_key in keys)), strict=True):
        found += [(row_key, row_key & MAX_SEQ, None)] if isinstance(answer, Damaged) else answer
    return found


class Done(NamedTuple, Generic[T]):
    """The result of a write that was found to be done."""

    answer: T


class StoreWrite(Generic[T]):
    """A write. SQLite calls only `run`.

    PostgreSQL first sends the guarded statement, if there is one. If that changes nothing, it calls `run`. If the
    connection is lost and the result is not known, it calls `find_result` before it repeats the write. Without these
    methods, a write has no guarded statement, and may be repeated.
    """

    weight = 0  # roughly how many bytes it writes
    is_grouped = True  # whether it may wait for other writes, to share their transaction

    def run(self, tx: Transaction, /) -> T:
        """Do the write in a transaction. Keep what `find_result` needs."""
        raise NotImplementedError

    def guarded(self, namespace: bytes) -> Query | None:
        """The write as one statement, which changes nothing unless the rows are as expected; None if impossible."""
        return None

    def guarded_answer(self) -> T:
        """The result, after the guarded statement has written."""
        raise NotImplementedError

    def find_result(self, tx: Transaction) -> Done[T] | None:
        """The result of a write whose answer was lost with the connection; None if the write was not done.

        Lock the thread first, to wait for a transaction that may still commit. `OutcomeUnknown` if the stored rows do
        not show whether the write was done.
        """
        return None


class StoreWriter(Protocol):
    """The writer of a store."""

    def write(self, write: StoreWrite[T]) -> T:
        """Do a write in a durable transaction, alone or in a group with other waiting writes."""
        ...


class FunctionWrite(StoreWrite[T]):
    """A function as a write."""

    def __init__(self, function: Callable[[Transaction], T], weight: int = 0) -> None:
        self.weight = weight
        self._function = function

    def run(self, tx: Transaction, /) -> T:
        return self._function(tx)
