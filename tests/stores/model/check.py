"""Check that the redundant structures of the memory store agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from holdfast.types import Problem
from tests.stores.model.thread import Thread
from tests.stores.model.waking import Waking


def problems(
    threads: Mapping[int, Thread], named: Mapping[str, Thread], names: Sequence[str], waking: Waking
) -> Iterator[Problem]:
    """Problems of the threads by number and by name, the sorted names, and the index of wake times."""
    if names != sorted(named):
        yield Problem(None, (), "the index of thread names does not match the threads")
    if not waking.holds({number: thread.run for number, thread in threads.items() if thread.run is not None}):
        yield Problem(None, (), "the index of wake times does not match the runs")
    for name, thread in named.items():
        if threads.get(thread.number) is not thread:
            yield Problem(name, (), "looking up the thread's number does not find it")
        if [row.seq for row in thread.rows] != list(range(1, thread.last + 1)):
            yield Problem(name, (), "the checkpoints do not match their numbers")
        if not thread.has(thread.head):
            yield Problem(name, (thread.head,), "the checkpoint at the head is missing or deleted")
        if thread.count != sum(not row.deleted for row in thread.rows):
            yield Problem(name, (), "the number of checkpoints differs from the thread's record")
        if [row.number for row in thread.effects] != list(range(1, len(thread.effects) + 1)):
            yield Problem(name, (), "the journal entries do not match their numbers")
        if thread.run is None and thread.effects:
            yield Problem(name, (), "the run of the thread is missing")
        if thread.run is not None and thread.run.thread != thread.number:
            yield Problem(name, (), "the run belongs to another thread")
