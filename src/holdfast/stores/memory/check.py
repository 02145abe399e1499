"""Checking the memory store: that what it keeps in two ways agrees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from holdfast.stores.contract import Problem
from holdfast.stores.memory.thread import Thread
from holdfast.stores.memory.waking import Waking


def problems(
    threads: Mapping[int, Thread], named: Mapping[str, Thread], names: Sequence[str], waking: Waking
) -> Iterator[Problem]:
    """What is wrong: with the threads by number and by name, their sorted names, and the runs that wait for a time."""
    if names != sorted(named):
        yield Problem(None, (), "The sorted names are not those of the threads.")
    if not waking.holds({number: thread.run for number, thread in threads.items() if thread.run is not None}):
        yield Problem(None, (), "The wake times are not those of the runs.")
    for name, thread in named.items():
        if threads.get(thread.number) is not thread:
            yield Problem(name, (), "The thread is not found by its number.")
        if [row.seq for row in thread.rows] != list(range(1, thread.last + 1)):
            yield Problem(name, (), "The checkpoints are not those that were numbered.")
        if not thread.has(thread.head):
            yield Problem(name, (thread.head,), "The head is not among the checkpoints.")
        if thread.count != sum(not row.deleted for row in thread.rows):
            yield Problem(name, (), "The number of checkpoints is not what was counted.")
        if [row.number for row in thread.effects] != list(range(1, len(thread.effects) + 1)):
            yield Problem(name, (), "The journal's entries are not those that were numbered.")
        if thread.run is None and thread.effects:
            yield Problem(name, (), "The journal has no run.")
        if thread.run is not None and thread.run.thread != thread.number:
            yield Problem(name, (), "The run is that of another thread.")
