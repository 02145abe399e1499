"""Read all threads of a store, or all records of a thread, page by page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from holdfast.errors import Damaged
from holdfast.pages import PAGE, pages
from holdfast.stores.contract import Refs, Store, ThreadRow
from holdfast.stores.contract_runs import Entry


def threads(store: Store) -> Iterator[ThreadRow]:
    """Every thread of the namespace, in the order of their names."""
    return pages(lambda after: store.threads(prefix="", after=after, limit=PAGE), lambda thread: thread.name)


def roots(store: Store, thread: int) -> Iterator[Refs]:
    """The references of every checkpoint of a thread."""
    for row in pages(lambda after: store.refs(thread, after=after or 0, limit=PAGE), lambda row: row.seq):
        yield row.refs


def entries(store: Store, thread: int, after: int = 0, topic: str | None = None) -> Iterator[Entry]:
    """The journal of a thread after a number, oldest entry first; with `topic`, only the entries that have it."""
    while page := store.entries(thread, after=after, limit=PAGE, topic=topic):
        yield from page
        if topic is not None and len(page) < PAGE:
            return
        after = page[-1].number


class AllThreads(NamedTuple):
    """All thread numbers in order, and the names that could be read.

    If there are no problems, a thread without a name was dropped. It is there for the cells that its forks use.
    """

    numbers: list[int]
    names: dict[int, str]
    problems: list[str]


def all_threads(store: Store) -> AllThreads:
    """List the threads of a store that may be damaged."""
    names: dict[int, str] = {}
    problems: list[str] = []
    try:
        for thread in threads(store):
            names[thread.position.thread] = thread.name
    except Damaged as damage:
        problems.append(str(damage))
        try:
            names |= store.names()
        except Damaged as worse:
            problems.append(str(worse))
    try:
        numbers = sorted(store.thread_numbers())
    except Damaged as damage:
        # Some numbers cannot be read: those of the listed threads are known.
        numbers = sorted(names)
        problems.append(str(damage))
    return AllThreads(numbers, names, problems)
