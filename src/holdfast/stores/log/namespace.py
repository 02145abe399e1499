"""One namespace as one handle has read it: its threads, by name or number."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from holdfast.errors import Damaged, HoldfastError, ReadOnly
from holdfast.formats import jsonl
from holdfast.formats import lines as ln
from holdfast.stores.contract_runs import RunRow
from holdfast.stores.log import device as dv
from holdfast.stores.log import disk
from holdfast.stores.log.device import Device, Moved, Version
from holdfast.stores.log.groups import ThreadLog
from holdfast.stores.log.replay import FORK, ReplayedThread

# Errors of this process, not of the file.
_NOT_THE_FILES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_AT_ONCE: Final = 64  # logs that are fetched together

FoundRun = tuple[ReplayedThread, RunRow]


class _Counter(msgspec.Struct):
    value: ln.Whole


class Unread(NamedTuple):
    """A log that cannot be followed. `number` is None if not even its first line gives it."""

    key: str
    path: str
    number: int | None
    error: HoldfastError

    def refusal(self) -> Damaged:
        """The error for a caller that was about to remove data that this thread may need."""
        if isinstance(self.error, Damaged):
            return self.error
        return Damaged(
            f"{self.path}: the log cannot be read ({self.error}), so it is unknown which data it needs; "
            "nothing was changed"
        )


class Namespace:
    """One namespace. Not thread-safe: the store's lock comes first."""

    def __init__(self, device: Device, new_number: Callable[[], int]) -> None:
        self.device = device
        self._new_number = new_number
        self._logs: dict[str, ThreadLog] = {}
        self._keys: dict[int, set[str]] = {}  # by number; several if a thread was copied, or its drop interrupted
        self.unread: list[Unread] = []  # set by `everything`
        self.strangers: list[ThreadLog] = []  # set by `everything`: copies of threads under other keys
        self._listed: tuple[int | None, list[tuple[str, str]], list[str]] = (None, [], [])

    # -- finding ----------------------------------------------------------------------------------------------------

    def named(self, name: str) -> ThreadLog | None:
        """The thread with this name; None if there is none. `Damaged` if its log does not identify the thread."""
        found = self.under(dv.thread_key(name))
        if found is None:
            return None
        found.require_number()
        if not found.is_under_own_key:
            raise Damaged(f"{found.path}: this folder has the log of another thread")
        if len(self._keys[found.thread.number]) > 1:
            self._one(found.thread.number)
        return found

    def numbered(self, number: int) -> ThreadLog | None:
        """The thread with this number, including one that was dropped and stays for its forks.

        `Damaged` if its log cannot be read, or if two threads have the number.
        """
        found = self._one(number)
        if found is None and self.device.trust is not None:
            for key in (self.key_of(number), dv.dropped_key(number)):
                if key is not None:
                    self.under(key)
            return self._one(number)
        if found is None:
            self.everything()
            for other in self.unread:
                if other.number == number:
                    raise other.error
            found = self._one(number)
        return found

    def key_of(self, number: int) -> str | None:
        """The key of a thread, on a device with several writers; None if no thread has the number."""
        found = self.device.get(dv.number_key(number))
        return None if found is None else found.decode()

    def _one(self, number: int) -> ThreadLog | None:
        """The thread with this number among the logs that this handle has read."""
        there = [self.under(key) for key in sorted(self._keys.get(number, ()))]
        found = [log for log in there if log is not None and log.thread.number == number]
        return _single(found) if found else None

    def under(self, key: str) -> ThreadLog | None:
        """The log under a key, up to date; None if there is none."""
        found = self._logs.get(key)
        if found is None:
            found = self._logs[key] = ThreadLog(key, self.device.log(key))
        if not found.catch_up():
            self.forget(key)
            return None
        number = found.thread.number
        if number and key not in self._keys.get(number, ()) and found.is_under_own_key:
            self._keys.setdefault(number, set()).add(key)
        return found

    def fetched(self, keys: Sequence[str]) -> Iterator[str]:
        """The keys of logs that are about to be read one after the other."""
        trust = self.device.trust
        if trust is None or trust.is_on():
            yield from keys
            return
        for at in range(0, len(keys), _AT_ONCE):
            some = keys[at : at + _AT_ONCE]
            # A log that this handle appends to is not read meanwhile.
            with self.device.fetch([key for key in some if key not in self._logs or not self._logs[key].is_hidden]):
                yield from some

    def everything(self) -> list[ThreadLog]:
        """Every readable thread, up to date. The others are in `unread`, and copies of threads in `strangers`."""
        there: dict[int, list[ThreadLog]] = {}
        strangers: list[ThreadLog] = []
        self.unread = []
        keys = [*self.device.keys(dv.THREADS), *self.device.keys(dv.DROPPED)]
        for key in self.fetched(keys):
            try:
                found = self.under(key)
                if found is None:
                    continue
                found.require_number()
            except (HoldfastError, OSError) as error:
                self.unread.append(self._unread(key, error))
                continue
            if key in self._keys.get(found.thread.number, ()):
                there.setdefault(found.thread.number, []).append(found)
            else:
                strangers.append(found)
        for key in self._logs.keys() - set(keys):
            self.forget(key)
        self.strangers = [log for log in strangers if log.thread.number in there]
        self.unread += [_renamed(log) for log in strangers if log.thread.number not in there]
        readable: list[ThreadLog] = []
        for number, same in there.items():
            try:
                readable.append(_single(same))
            except Damaged as error:
                self.unread += [Unread(log.key, log.path, number, error) for log in same]
        return readable

    def runs(self) -> Iterator[FoundRun]:
        """The runs of all threads that can be read."""
        for found in self.everything():
            thread = found.thread
            if thread.has_known_run and thread.run_row is not None and thread.name is not None:
                yield thread, thread.run_row

    def all_read(self) -> list[ThreadLog]:
        """Every thread, for callers that remove unused data: `Damaged` if one cannot be read."""
        found = self.everything()
        if self.unread:
            raise self.unread[0].refusal()
        return found

    def forget(self, key: str) -> None:
        """Forget the log under a key, which no longer exists there."""
        found = self._logs.pop(key, None)
        if found is not None:
            found.device.close()
            keys = self._keys.get(found.thread.number, set())
            keys.discard(key)
            if not keys:
                self._keys.pop(found.thread.number, None)

    def _unread(self, key: str, error: HoldfastError | OSError) -> Unread:
        """Describe a log that cannot be followed because of this error."""
        if isinstance(error, OSError) and error.errno in _NOT_THE_FILES:
            raise error
        log = self._logs.get(key) or ThreadLog(key, self.device.log(key))
        log.device.close()
        if isinstance(error, OSError):
            translated = disk.translate(error, log.path)
            error = translated if isinstance(translated, ReadOnly) else Damaged(str(translated))
        return Unread(key, log.path, log.thread.number or log.stated or None, error)

    # -- listing ----------------------------------------------------------------------------------------------------

    def listed(self, prefix: str, after: str | None) -> Iterator[ThreadLog]:
        """The threads by name, in order. Each is read when it is reached, so a page costs only what it shows."""
        for name, key in self._names():
            if name.startswith(prefix) and (after is None or name > after):
                with suppress(Damaged):
                    found = self._readable(key)
                    if found is not None and found.thread.name == name:
                        yield found

    def require_listed(self, prefix: str) -> None:
        """Raise the error of a thread that a listing has skipped."""
        keys = [(dv.name_in(key), key) for key in self.device.keys(dv.THREADS)]
        for key in self.fetched([key for name, key in keys if name is None or name.startswith(prefix)]):
            found = self._readable(key)
            if found is not None and found.is_under_own_key:
                _ = found.thread.at

    def _names(self) -> list[tuple[str, str]]:
        """Names and keys, ordered by the names' code points, which is the order of their UTF-8 bytes."""
        changed, names, nameless = self._listed
        now = self.device.changed(dv.THREADS)
        if changed is None or now != changed:
            names, nameless = [], list(self.device.keys(dv.THREADS))
        # A key without a readable name may get a log that has it; the listing of keys does not change then.
        if nameless:
            named = [(self._name_of(key), key) for key in nameless]
            names = sorted([*names, *((name, key) for name, key in named if name is not None)])
            nameless = [key for name, key in named if name is None]
        self._listed = now, names, nameless
        return names

    def _name_of(self, key: str) -> str | None:
        name = dv.name_in(key)
        if name is None:  # it was shortened
            with suppress(Damaged):
                found = self._readable(key)
                name = found.thread.name if found is not None and found.is_under_own_key else None
        return name

    def _readable(self, key: str) -> ThreadLog | None:
        """The log under a key. `Damaged` if it cannot be read or does not identify a thread."""
        try:
            found = self.under(key)
            if found is not None:
                found.require_number()
        except (HoldfastError, OSError) as error:
            raise self._unread(key, error).refusal() from error
        return found

    # -- forks: recorded in the log of the thread whose cells they use ------------------------------------------------

    def forks(self, number: int) -> list[int]:
        """The threads that use, or may use, cells of this one. `Damaged` if one that may is unreadable."""
        found = self.numbered(number)
        if found is None:
            return []
        forks, is_sure = found.thread.forks, FORK not in found.thread.doubts
        there = list[ReplayedThread]()
        for fork in forks if is_sure else ():
            log = self._at_hand(fork)
            if log is None:
                break
            there.append(log.thread)
        if not is_sure or len(there) < len(forks):
            there = [log.thread for log in self.everything()]
            for other in self.unread:
                if other.number is None or other.number in forks or not is_sure:
                    raise other.refusal()
            if not is_sure:
                forks = {each.number for each in there if number in each.origins or may_be_a_fork(each)} - {number}
        return sorted(each.number for each in there if each.number in forks and not each.is_gone)

    def _at_hand(self, number: int) -> ThreadLog | None:
        """The thread with this number, if this handle has read it and still can."""
        with suppress(HoldfastError, OSError):
            return self._one(number) if self.device.trust is None else self.numbered(number)
        return None

    # -- durability "normal": sync an append before anything durable depends on it ----------------------------------
    # Otherwise a power cut could leave a fork without the cells it uses, or restore a checkpoint whose cells were
    # removed. Then the store would not be in any state it was in before.

    def settle(self, logs: Iterable[ThreadLog | None]) -> None:
        """Sync what was appended to these threads. Only in a turn."""
        for log in logs if self.device.is_lazy else ():
            if log is not None:
                log.device.sync(log.seen)

    def settle_users(self, found: ThreadLog) -> None:
        """Sync what was appended to a thread and to all that use, or used, its cells. Only in a turn."""
        if self.device.is_lazy and FORK in found.thread.doubts:
            self.settle(self.everything())
        self.settle([found])
        for fork in found.thread.forks if self.device.is_lazy else ():
            with suppress(Damaged):  # no durable record depends on an unreadable log
                self.settle([self.numbered(fork)])

    # -- writing: only in a turn --------------------------------------------------------------------------------------

    def counter(self, key: str) -> int | None:
        """The value of a counter; None if it is not stored, or damaged."""
        found = ln.record_in(self.device.get(key) or b"", _Counter)
        return None if found is None else found.value

    def count(self, key: str, value: int, *, sync: bool) -> None:
        """Change a counter. If it is not synced, a power cut may lose it."""
        self.device.put(key, [ln.line_of(_Counter(value))], sync=sync)

    def free_number(self) -> int:
        """A number that no thread has or had, in this store or, most likely, in any other. It grows."""
        if self.device.trust is not None:
            return self._new_number()
        highest = self.counter(dv.NUMBER)
        if highest is None:
            highest = max((log.thread.number for log in self.everything()), default=0)
        number = max(self._new_number(), highest + 1)
        while number in self._keys:
            number += 1
        self.count(dv.NUMBER, number, sync=False)
        return number

    def reserve(self, number: int, name: str) -> None:
        """With several writers: store the name of a thread that is about to be created, so that others find it."""
        if self.device.trust is not None:
            if self.key_of(number) is not None:
                raise Moved  # another thread has the number
            self.device.put(dv.number_key(number), [dv.thread_key(name).encode()])

    def remove_numbers(self, threads: Collection[int]) -> None:
        """Remove the numbers of threads that do not exist: they were dropped, or their creation was interrupted."""
        if self.device.trust is None:
            return
        kept = {dv.number_key(number) for number in threads}
        self.device.remove(self.device.settled(key for key in self.device.keys(dv.NUMBERS) if key not in kept))

    def create(
        self, name: str, number: int, lines: Sequence[ln.Sealed], at: ln.ThreadRecord | None, entry: int, id: str
    ) -> None:
        """Create a new thread with its first group. `id` is that of its data key, in hex."""
        key = dv.thread_key(name)
        named = jsonl.show_name(name)
        head = ln.ThreadHeader(format=ln.FORMAT, number=number, made=time.time_ns(), key=id, **named)
        self.forget(key)
        data, _ = ln.group([ln.sealed(head), *lines], number, at, 1, entry)
        self.device.log(key).create([data])
        # The thread exists even if it cannot be read back now; the next read does that.
        with suppress(OSError, HoldfastError):
            self.under(key)

    def delete(self, log: ThreadLog, seen: Version, end: int) -> None:
        """Delete a log, durably. `Moved` if it is not as it was `seen`. Its last group ended at `end` then."""
        log.device.remove(seen, end)
        self.forget(log.key)

    # -- several writers at once: prevent an append to another log, which could contradict this one ------------------

    def interrupt(self, log: ThreadLog) -> None:
        """Make every append fail that was planned before now: an empty group takes its place."""
        log.write([])

    def decide(self, number: int, own: int, is_written: Callable[[ReplayedThread], bool]) -> None:
        """Make sure that what was announced for the log of a thread was written to it, or never is.

        Does nothing if it is the caller's `own` thread: its append fails if that log has changed.
        """
        log = None if self.device.trust is None or number in (0, own) else self.numbered(number)
        if log is not None and not log.thread.is_gone and not is_written(log.thread):
            self.interrupt(log)

    def interrupt_forks(self, origin: ThreadLog) -> None:
        """Interrupt commits that are about to use cells of a thread, before the cells are removed.

        Such a commit has registered its thread with the origin, after it found the cells. If it registers while this
        is in progress, the origin has changed, and the removal is planned again.
        """
        trust = self.device.trust
        if trust is None or not origin.thread.forks:
            return
        if trust.is_on():
            raise Moved
        for number in sorted(origin.thread.forks):
            key = self.key_of(number)
            fork = None if key is None else self.under(key)
            if fork is not None and fork.thread.number == number:
                self.interrupt(fork)
            elif key is not None and fork is None:
                self.device.log(key).prevent()

    def close(self) -> None:
        for found in self._logs.values():
            found.device.close()
        self._logs.clear()
        self._keys.clear()


def _single(logs: Sequence[ThreadLog]) -> ThreadLog:
    """The thread among the logs with one number. `Damaged` if there are several."""
    # An interrupted drop leaves a thread and the copy of its cells.
    live = [log for log in logs if not log.thread.is_gone] or logs
    if len(live) > 1:
        raise Damaged(
            f"{' and '.join(log.path for log in live)}: two threads have the number {live[0].thread.number}, because "
            "one is a copy of the other. Move one of them out of the store."
        )
    return live[0]


def _renamed(log: ThreadLog) -> Unread:
    """A thread that is only under a key of another name. It is not found, but its data must not count as unused."""
    name, what = log.thread.name, "the line with the name of the thread is damaged; nothing was changed"
    if name is not None:
        folder = dv.thread_key(name).rpartition("/")[2]
        what = f"the folder of a thread was renamed; nothing was changed. Name it {folder} again."
    return Unread(log.key, log.path, log.thread.number, Damaged(f"{log.path}: {what}"))


def may_be_a_fork(thread: ReplayedThread) -> bool:
    """Whether damaged lines may have recorded that the thread uses cells of others."""
    if thread.is_gone or not thread.damages:
        return False
    is_whole = thread.record is not None and len(thread.rows) == thread.record.last
    return not is_whole or any(damage.offset == 0 for damage in thread.damages)
