"""Registrations of forks: does whoever uses cells of another thread stand among its forks, and only they?

Pruning and dropping a thread trust its list of forks: one that is missing there would lose cells, and cells would stay
for one that has no business there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from holdfast.errors import Damaged
from holdfast.stores.contract import CheckpointRow, Problem, Store
from holdfast.threads.references import shown
from holdfast.threads.threadlist import Listed

_LOST = bytes(32)  # the digest that a repair gives to a checkpoint of which it could read nothing


class Ties(msgspec.Struct):
    """What the checkpoints of a thread have to do with other threads, by their numbers.

    `uses` are those whose cells they name, and which checkpoints do; `parents` those they began at. Not `is_whole`,
    there may be more: some checkpoint cannot be read.
    """

    uses: dict[int, set[int]] = msgspec.field(default_factory=dict[int, set[int]])
    parents: set[int] = msgspec.field(default_factory=set[int])
    is_whole: bool = True

    @property
    def says_something(self) -> bool:
        return bool(self.uses or self.parents or not self.is_whole)

    def take(self, row: CheckpointRow | Damaged) -> None:
        """A checkpoint of the thread, or a tombstone of one."""
        if isinstance(row, Damaged) or row.digest == _LOST:
            self.is_whole = False
        elif row.parent is not None and row.parent[0]:
            self.parents.add(row.parent[0])

    def names(self, thread: int, seq: int) -> None:
        """A checkpoint names cells of another thread."""
        self.uses.setdefault(thread, set()).add(seq)


def registrations(store: Store, threads: Listed, ties: Mapping[int, Ties]) -> Iterator[Problem]:
    """Which registrations are missing, and which nothing explains. `ties` has every thread that was read to its end.

    Threads come and go meanwhile. One that is there and was read is registered, from its first checkpoint on.
    """
    forks: dict[int, set[int]] = {}
    for number in threads.numbers:
        try:
            forks[number] = set(store.forks(number))
        except Damaged as damage:
            yield Problem(threads.names.get(number), (), str(damage))
    origins: dict[int, set[int]] = {}
    for origin, numbers in forks.items():
        for number in numbers:
            origins.setdefault(number, set()).add(origin)
    for number, tie in ties.items():
        name = threads.names.get(number)
        if name is None:
            continue
        found = [*_missing(number, tie, forks, threads), *_unexplained(number, tie, origins, threads)]
        if found and _is_there(store, name, number):
            yield from (Problem(name, seqs, what) for seqs, what in found)


def _missing(
    number: int, tie: Ties, forks: Mapping[int, set[int]], threads: Listed
) -> Iterator[tuple[tuple[int, ...], str]]:
    for origin, seqs in sorted(tie.uses.items()):
        if origin != number and number not in forks.get(origin, {number}):
            what = (
                f"it uses cells of {_named(origin, threads)} and is not registered as a fork of it: pruning that "
                "thread may take them away. A copy that repair makes has it registered"
            )
            yield tuple(sorted(seqs)), what


def _unexplained(
    number: int, tie: Ties, origins: Mapping[int, set[int]], threads: Listed
) -> Iterator[tuple[tuple[int, ...], str]]:
    """A fork is registered with what it began at and what that is registered with, or with what it uses."""
    explained: set[int] = set()
    waiting = {*tie.parents, *tie.uses}
    while waiting:
        origin = waiting.pop()
        if origin not in threads.names:
            return  # it was dropped: whose fork it was cannot be told any more
        explained.add(origin)
        waiting |= origins.get(origin, set()) - explained
    if tie.is_whole:
        for origin in sorted(origins.get(number, set()) - explained):
            what = (
                f"it is registered as a fork of {_named(origin, threads)} and has nothing of it: what that thread "
                "drops stays for its sake"
            )
            yield (), what


def _is_there(store: Store, name: str, number: int) -> bool:
    """Whether a thread was not dropped meanwhile."""
    try:
        thread = store.thread(name)
    except Damaged:
        return True
    return thread is not None and thread.position.thread == number


def _named(number: int, threads: Listed) -> str:
    name = threads.names.get(number)
    return f"dropped thread number {number}" if name is None else f"thread {shown(name)}"
