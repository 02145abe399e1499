"""The content of a namespace's log: numbers of threads, which threads use whose cells, epochs and stamps of blobs.

It can be rebuilt from the threads. What is not known then is recorded as unknown, so that nothing needed is removed.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from typing import Final, TypeVar

import msgspec

from holdfast.formats import jsonl
from holdfast.formats import lines as ln
from holdfast.formats.lines import Damage
from holdfast.stores.log.groups import Group
from holdfast.stores.log.replay import ReplayedThread

_UNKNOWN: Final = 0  # a thread number: there may be forks that the log does not name
_PER_LINE: Final = 1000

T = TypeVar("T")


class Ledger:
    """The content of the log as far as it was read (a `groups.Sink`)."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.numbers: set[int] = set()
        self.highest = 0
        self.epoch = 0
        self.stamps: dict[str, int] = {}
        self.forks: dict[int, set[int]] = {}
        self._fork_count = 0
        self.is_partial = False
        self.damages: list[Damage] = []
        self.tail_damage: Damage | None = None

    def take(self, group: Group, end: ln.End, bad: Sequence[Damage], where: Damage | None = None) -> None:
        self.damages += bad
        for _, _, record in group:
            match record:
                case ln.NamespaceLine():
                    ln.require_known(record.format)
                case ln.EpochLine():
                    self.epoch = max(self.epoch, record.epoch)
                case ln.StampLine():
                    self.stamps.update(dict.fromkeys(record.blobs, record.epoch))
                case ln.ForkLine():
                    self.is_partial |= record.number == _UNKNOWN
                    self.add_fork(record.number, record.origins)
                case ln.NumberLine():
                    self.numbers.update(record.numbers)
                    self.highest = max(self.highest, *record.numbers, 0)
                case _:
                    continue

    def lose(self, group: Group, bad: Sequence[Damage], *, is_end: bool) -> None:
        self.take(group, ln.End(of="", number=0), bad)

    def stop(self, damage: Damage | None, group: Group) -> None:
        self.tail_damage = damage

    # -- content ----------------------------------------------------------------------------------------------------

    @property
    def lost(self) -> int:
        """How many of its lines are damaged."""
        return len(self.damages) + (self.tail_damage is not None)

    @property
    def knows_forks(self) -> bool:
        """Whether every thread with a known number that uses cells of others is in `forks`."""
        return not self.lost and not self.is_partial

    @property
    def size(self) -> int:
        """Roughly how many bytes a new log with this content takes."""
        return 300 + 70 * len(self.stamps) + 100 * self._fork_count + 16 * len(self.numbers)

    def add_fork(self, number: int, origins: Iterable[int]) -> None:
        for origin in origins:
            numbers = self.forks.setdefault(origin, set())
            self._fork_count += number not in numbers
            numbers.add(number)

    def records(self, namespace: str) -> list[msgspec.Struct]:
        """The content as records of a new log."""
        first = ln.NamespaceLine(format=ln.FORMAT, made=time.time_ns(), **jsonl.show_name(namespace))
        made: list[msgspec.Struct] = [first]
        made += [ln.NumberLine(numbers=tuple(some)) for some in _batches(sorted(self.numbers))]
        if self.epoch:
            made.append(ln.EpochLine(epoch=self.epoch))
        if self.is_partial:
            made.append(ln.ForkLine(number=_UNKNOWN, origins=()))
        origins = sorted(self._origins().items())
        made += [ln.ForkLine(number=number, origins=tuple(sorted(of))) for number, of in origins]
        by_epoch: dict[int, list[str]] = {}
        for digest, epoch in self.stamps.items():
            by_epoch.setdefault(epoch, []).append(digest)
        for epoch, digests in sorted(by_epoch.items()):
            made += [ln.StampLine(epoch=epoch, blobs=tuple(some)) for some in _batches(digests)]
        return made

    # -- replacements -----------------------------------------------------------------------------------------------

    def made_again(
        self, threads: Sequence[ReplayedThread], blobs: Iterable[str], *, is_lost: bool, is_partial: bool
    ) -> Ledger:
        """A new ledger from the remaining content and from the threads.

        If content `is_lost`, it may have included an epoch and its stamps. Then all blobs are stamped, so that a sweep
        in progress removes none of them.
        """
        made = Ledger()
        made.numbers = self.numbers | {thread.number for thread in threads}
        made.epoch = max(self.epoch + self.lost, int(time.time())) if is_lost else self.epoch
        made.stamps = dict(self.stamps)
        if is_lost:
            made.stamps.update(dict.fromkeys(blobs, made.epoch))
        for number, origins in self._origins().items():
            made.add_fork(number, origins)
        for thread in threads:
            made.add_fork(thread.number, thread.origins)
        made.is_partial = is_partial or any(map(may_be_a_fork, threads))
        return made

    def tidied(self, threads: Sequence[ReplayedThread], blobs: Collection[str]) -> Ledger:
        """A new ledger for the existing threads and blobs. Only valid if every thread could be read."""
        made = Ledger()
        made.epoch = self.epoch
        made.numbers = {self.highest, *(thread.number for thread in threads)}
        made.stamps = {digest: epoch for digest, epoch in self.stamps.items() if digest in blobs}
        made.is_partial = any(map(may_be_a_fork, threads))
        known = self._origins()
        for thread in threads:
            if not thread.is_gone:
                made.add_fork(thread.number, thread.origins | known.get(thread.number, set()))
        return made

    def _origins(self) -> dict[int, set[int]]:
        """The origins by the number of the thread that uses their cells."""
        origins: dict[int, set[int]] = {}
        for origin, numbers in self.forks.items():
            for number in numbers:
                origins.setdefault(number, set()).add(origin)
        return origins


def may_be_a_fork(thread: ReplayedThread) -> bool:
    """Whether damaged lines may have recorded that the thread uses cells of others."""
    if thread.is_gone or not thread.damages:
        return False
    is_whole = thread.record is not None and len(thread.rows) == thread.record.last
    return not is_whole or any(damage.offset == 0 for damage in thread.damages)


def _batches(items: Sequence[T]) -> list[Sequence[T]]:
    return [items[at : at + _PER_LINE] for at in range(0, len(items), _PER_LINE)]
