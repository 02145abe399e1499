"""Read all threads of a store, or all records of a thread, page by page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

from holdfast.errors import Damaged
from holdfast.stores.contract import CheckpointRow, NumberedThread, Refs, Store, ThreadRow
from holdfast.stores.contract_runs import Entry

T = TypeVar("T")
K = TypeVar("K")

PAGE: Final = 200  # rows read at once
_NUMBERS: Final = 5_000  # threads per page in the order of numbers; some stores look at all threads for each page


def pages(fetch: Callable[[K | None], Sequence[T]], key: Callable[[T], K]) -> Iterator[T]:
    """Every item of a listing. `fetch` returns the page after an item, given its key; None for the first page.

    An empty page is the end. Nothing is held open between two pages.
    """
    last: K | None = None
    while page := fetch(last):
        yield from page
        last = key(page[-1])


def threads(store: Store, prefix: str = "", after: str | None = None, page: int = PAGE) -> Iterator[ThreadRow]:
    """Every thread of the namespace, in the order of their names."""
    return pages(
        lambda last: store.threads(prefix=prefix, after=after if last is None else last, limit=page),
        lambda thread: thread.name,
    )


def thread_named(store: Store, name: str) -> ThreadRow | None:
    """The thread of this name, without its head; None if there is none."""
    head = store.head(name)
    return None if head is None else head.thread


def numbered(store: Store) -> Iterator[NumberedThread]:
    """Every thread of the namespace, in the order of their numbers, also dropped ones whose cells forks use."""
    return pages(lambda after: store.numbered(after=after, limit=_NUMBERS), lambda thread: thread.number)


def thread_numbered(store: Store, number: int) -> NumberedThread:
    """The thread with this number; one without a name and without checkpoints if there is none."""
    page = store.numbered(after=number - 1, limit=1)
    return page[0] if page and page[0].number == number else NumberedThread(number, None, 0)


def name_of(store: Store, number: int) -> str | None:
    """The name of a thread; None if it was dropped or does not exist. Raises Damaged if it cannot be read."""
    name = thread_numbered(store, number).name
    if isinstance(name, Damaged):
        raise name
    return name


def last_of(store: Store, number: int) -> int:
    """The last seq assigned in a thread; 0 if there is none. Raises Damaged if it cannot be read."""
    last = thread_numbered(store, number).last
    if isinstance(last, Damaged):
        raise last
    return last


def checkpoint_at(store: Store, thread: int, seq: int) -> CheckpointRow | None:
    """One complete checkpoint; None if that seq was never assigned. Raises Damaged if it cannot be read."""
    for row in store.walk(thread, after=seq - 1, limit=1) if seq > 0 else ():
        if isinstance(row, Damaged):
            raise row
        return row
    return None


def walked(store: Store, thread: int, last: int | None = None, *, refs_only: bool = False) -> Iterator[CheckpointRow]:
    """The checkpoints of a thread up to `last`, also deleted ones, oldest first. Raises Damaged."""
    after = 0
    while page := store.walk(thread, after=after, limit=PAGE, refs_only=refs_only):
        for row in page:
            if isinstance(row, Damaged):
                raise row
            if last is not None and row.seq > last:
                return
            yield row
        after += len(page)


def with_refs(store: Store, thread: int) -> Iterator[CheckpointRow]:
    """The checkpoints of a thread, without meta and skeletons. Raises Damaged if one cannot be read."""
    return (row for row in walked(store, thread, refs_only=True) if not row.deleted)


def roots(store: Store, thread: int) -> Iterator[Refs]:
    """The references of every checkpoint of a thread."""
    return (row.refs for row in with_refs(store, thread))


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
    numbers = set(names)
    try:
        for each in numbered(store):
            if isinstance(each.name, Damaged):
                problems.append(str(each.name))
                continue
            numbers.add(each.number)
            if each.name is not None:
                names.setdefault(each.number, each.name)
    except Damaged as damage:
        problems.append(str(damage))
    return AllThreads(sorted(numbers), names, list(dict.fromkeys(problems)))
