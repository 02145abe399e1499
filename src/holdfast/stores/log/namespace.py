"""One namespace as one handle has read it: its threads, by name or number, and the log of the namespace itself."""

from __future__ import annotations

import errno
import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from holdfast.errors import Damaged, HoldfastError, ReadOnly
from holdfast.formats import jsonl
from holdfast.formats import lines as ln
from holdfast.stores.contract import Blob
from holdfast.stores.log import device as dv
from holdfast.stores.log import disk
from holdfast.stores.log.device import Device, DeviceLog, Moved
from holdfast.stores.log.groups import Log
from holdfast.stores.log.ledger import Ledger, may_be_a_fork
from holdfast.stores.log.replay import Replay, ReplayedThread

_LARGE: Final = 256 << 10  # a shorter log of the namespace is not worth rewriting
_USUAL_LINE: Final = 512
_LONGEST_LINE: Final = 1 << 20
# Errors of this process, not of the file.
_NOT_THE_FILES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class ThreadLog(Log):
    """A thread's log, and the thread that was replayed from it."""

    def __init__(self, key: str, device: DeviceLog, is_hidden: Callable[[Log], bool]) -> None:
        self.key = key
        self.is_adopted = False  # the blobs in the log are also stored outside it
        self._replay_of = Replay()
        super().__init__(device, self._replay_of, is_hidden)

    @property
    def thread(self) -> ReplayedThread:
        return self._replay_of.thread

    @property
    def is_at_home(self) -> bool:
        """Whether the log is under the key for its thread's name. Copies under other keys are not followed."""
        thread = self.thread
        if thread.is_gone:
            return True
        if thread.name is None:
            thread.name = dv.name_in(self.key)
        return thread.name is not None and dv.thread_key(thread.name) == self.key

    def blob(self, digest: str) -> Blob:
        """A blob that is in the log, because the log is an export. `Damaged` if it does not match its digest."""
        pieces = tuple(jsonl.read_piece(self.line(*place)) for place in self.thread.blobs[digest])
        if hashlib.sha256(b"".join(pieces)).hexdigest() != digest:
            raise Damaged(f"{self.path}: blob {digest} does not match its digest")
        return Blob(bytes.fromhex(digest), pieces)

    def require_number(self) -> None:
        """`Damaged` if the log does not identify a thread."""
        if self.thread.number:
            return
        if self.thread.tail_damage is not None:
            raise Damaged(f"{self.thread.tail_damage}; no line before them identifies the thread")
        raise Damaged(
            f"{self.path}: the log has no undamaged group, so the thread is lost. Restore the file from a copy, or "
            "move its folder out of the store."
        )


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
            "nothing was removed"
        )


class Namespace:
    """One namespace. Not thread-safe: the store's lock comes first."""

    def __init__(
        self,
        device: Device,
        name: str,
        is_hidden: Callable[[Log], bool],
        new_number: Callable[[], int],
        *,
        is_lazy: bool,
    ) -> None:
        """`is_lazy`: appends are not synced, everything else is."""
        self.name = name
        self.device = device
        self.is_lazy = is_lazy
        self.ledger = Ledger()
        self.ledger_log = Log(device.log(dv.LEDGER), self.ledger, is_hidden)
        self._is_hidden = is_hidden
        self._new_number = new_number
        self._by_key: dict[str, ThreadLog] = {}
        self._by_number: dict[int, ThreadLog] = {}
        self._twins: dict[int, set[str]] = {}
        self.unread: list[Unread] = []  # set by `everything`
        self.leftovers: list[str] = []  # set by `everything`: keys of logs that an interrupted drop did not delete
        self.skipped: dict[str, HoldfastError] = {}  # by key: threads that listings could not show
        self._listed: tuple[int | None, list[tuple[str, str]], list[str]] = (None, [], [])
        self._registered: set[str] = set()  # keys of logs whose numbers the ledger has
        self._checked: tuple[int | None, int | None] = (None, None)

    # -- finding ----------------------------------------------------------------------------------------------------

    def named(self, name: str) -> ThreadLog | None:
        """The thread with this name; None if there is none. `Damaged` if its log does not identify the thread."""
        found = self.under(dv.thread_key(name))
        if found is None or found.thread.is_gone:
            return None
        found.require_number()
        if found.thread.name is None:
            found.thread.name = name  # its first line is damaged, but the key has the name, too
        if found.thread.name != name:
            raise Damaged(f"{found.path}: this folder has the log of another thread")
        self._require_alone(found)
        return found

    def numbered(self, number: int) -> ThreadLog | None:
        """The thread with this number, including one that was dropped and stays for its forks.

        `Damaged` if its log cannot be read, or if two threads have the number.
        """
        found = self._at_hand(number)
        if found is None:
            self.everything()
            for other in self.unread:
                if other.number == number:
                    raise other.error
            found = self._by_number.get(number)
        elif self._twins:
            self._require_alone(found)
        return found

    def _at_hand(self, number: int) -> ThreadLog | None:
        """The thread with this number, if this handle knows its key."""
        found = self._by_number.get(number)
        is_there = found is not None and self._catch_up(found) and found.thread.number == number
        return found if is_there else None

    def known(self, number: int) -> ThreadLog | None:
        """The thread with this number, as far as this handle has read it."""
        return self._by_number.get(number)

    def under(self, key: str) -> ThreadLog | None:
        """The log under a key, up to date; None if there is none."""
        found = self._by_key.get(key)
        if found is None:
            found = self._by_key[key] = ThreadLog(key, self.device.log(key), self._is_hidden)
        if not self._catch_up(found):
            return None
        number = found.thread.number
        before = self._by_number.get(number)
        if number and before is not found and found.is_at_home:
            if before is not None and before.thread.is_gone and found.thread.is_gone:
                # An interrupted drop left both. The copy is the one that stays.
                found = found if found.key == dv.dropped_key(number) else before
            elif before is not None:
                self._twins.setdefault(number, set()).update((before.key, key))
            self._by_number[number] = found
        return found

    def everything(self) -> list[ThreadLog]:
        """Every readable thread, up to date. The others are in `unread`."""
        there: dict[str, ThreadLog] = {}
        self.unread, self.leftovers = [], []
        for key in self.log_keys():
            try:
                found = self.under(key)
                if found is None:
                    continue
                found.require_number()
            except (HoldfastError, OSError) as error:
                self.unread.append(self._unread(key, error))
                continue
            if found.key != key and key != dv.dropped_key(found.thread.number):
                self.leftovers.append(key)
            if found.is_at_home:
                there[found.key] = found
        for key in [key for key in self._by_key if key not in there]:
            self.forget(key)
        self._by_number = {found.thread.number: found for found in there.values()}
        for number in list(self._twins):
            try:
                self._require_alone(self._by_number.get(number))
            except Damaged as error:
                twins = self._twins[number]
                self.unread += [Unread(key, self.device.log(key).path, number, error) for key in sorted(twins)]
                there = {key: found for key, found in there.items() if key not in twins}
        return list(there.values())

    def all_read(self) -> list[ThreadLog]:
        """Every thread, for callers that remove unused data: `Damaged` if one cannot be read."""
        found = self.everything()
        if self.unread:
            raise self.unread[0].refusal()
        return found

    def log_keys(self) -> list[str]:
        return [*self.device.logs(dv.THREADS), *self.device.logs(dv.DROPPED)]

    def forget(self, key: str) -> None:
        """Forget the log under a key, which no longer exists there."""
        self._registered.discard(key)
        found = self._by_key.pop(key, None)
        if found is not None:
            found.close()
            if self._by_number.get(found.thread.number) is found:
                del self._by_number[found.thread.number]

    def _catch_up(self, found: ThreadLog) -> bool:
        """Read what is new. Forget the log if it no longer exists or cannot be read."""
        is_there = False
        try:
            is_there = found.catch_up()
        finally:
            if not is_there:
                self.forget(found.key)
        return is_there

    def _require_alone(self, found: ThreadLog | None) -> None:
        """`Damaged` if another log has the same number. A thread that was moved in the meantime does not count."""
        number = 0 if found is None else found.thread.number
        if number not in self._twins:
            return
        there: list[ThreadLog | None] = []
        for key in sorted(self._twins.pop(number)):
            with suppress(HoldfastError, OSError):  # an unreadable log has no number
                there.append(self.under(key))
        same = {twin.key: twin for twin in there if twin is not None and twin.thread.number == number}
        if len(same) > 1:
            self._twins[number] = set(same)
            paths = " and ".join(twin.path for twin in same.values())
            raise Damaged(
                f"{paths}: two threads have the number {number}, because one is a copy of the other. Move one of them "
                "out of the store."
            )

    def _unread(self, key: str, error: HoldfastError | OSError) -> Unread:
        """Describe a log that cannot be followed because of this error."""
        path = self.device.log(key).path
        if isinstance(error, OSError):
            if error.errno in _NOT_THE_FILES:
                raise error
            translated = disk.translate(error, path)
            return Unread(key, path, None, translated if isinstance(translated, ReadOnly) else Damaged(str(translated)))
        return Unread(key, path, self._first_number(key), error)

    def _first_number(self, key: str) -> int | None:
        """The number in the first lines of a log; None if it cannot be read."""
        log = self.device.log(key)
        try:
            seen = log.stat()
            if seen is None:
                return None
            for length in (_USUAL_LINE, _LONGEST_LINE):
                for line in log.get(seen, 0, length).split(b"\n")[:-1]:
                    record = ln.replayed(line) if ln.is_whole(line) else None
                    if isinstance(record, ln.ThreadHeader):
                        return record.number
                    if not isinstance(record, ln.ExportLine):
                        return None
        except (Damaged, Moved, OSError):
            return None
        finally:
            log.close()
        return None

    # -- listing ----------------------------------------------------------------------------------------------------

    def listed(self, prefix: str, after: str | None) -> Iterator[ThreadLog]:
        """The threads by name, in order. Each is read when it is reached, so a page costs only what it shows."""
        for name, key in self._names():
            if name.startswith(prefix) and (after is None or name > after):
                found = self._shown(key)
                if found is not None and found.thread.name == name and not found.thread.is_gone:
                    yield found

    def require_listed(self, prefix: str) -> None:
        """Raise the error of a thread that a listing skipped, if it is still unreadable."""
        for key in sorted(self.skipped):
            name = dv.name_in(key)
            if name is None or name.startswith(prefix):
                found = self._shown(key)
                error = self.skipped.get(key)
                if error is not None:
                    raise error if isinstance(error, Damaged) else Damaged(f"{self.device.log(key).path}: {error}")
                if found is not None and not found.thread.is_gone:
                    _ = found.thread.at

    def _names(self) -> list[tuple[str, str]]:
        """Names and keys, ordered by the names' code points, which is the order of their UTF-8 bytes."""
        changed, names, nameless = self._listed
        now = self.device.changed(dv.THREADS)
        if changed is None or now != changed:
            names, nameless = [], self.device.logs(dv.THREADS)
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
            found = self._shown(key)
            name = found.thread.name if found is not None and found.is_at_home else None
        return name

    def _shown(self, key: str) -> ThreadLog | None:
        """The thread under a key. An unreadable one is recorded in `skipped`, for the end of a listing."""
        self.skipped.pop(key, None)
        try:
            found = self.under(key)
            if found is not None:
                found.require_number()
        except (HoldfastError, OSError) as error:
            self.skipped[key] = self._unread(key, error).error
            return None
        return found

    # -- forks ------------------------------------------------------------------------------------------------------

    def forks(self, number: int) -> list[int]:
        """The threads that use, or may use, cells of this one. `Damaged` if one that may is unreadable.

        The namespace's log names the candidates, so that not all threads have to be read.
        """
        forks = set(self.ledger.forks.get(number, ())) if self.ledger_log.catch_up() else set[int]()
        is_sure = self.knows_all_forks()
        if not is_sure or any(self._at_hand(fork) is None for fork in forks):
            for found in self.everything():
                if number in found.thread.origins or (not is_sure and may_be_a_fork(found.thread)):
                    forks.add(found.thread.number)
            for other in self.unread:
                if other.number is None or other.number in forks or not is_sure:
                    raise other.refusal()
        found_forks = [self._by_number.get(fork) for fork in sorted(forks - {number})]
        return [found.thread.number for found in found_forks if found is not None and not found.thread.is_gone]

    def knows_all_forks(self) -> bool:
        """Whether every thread that uses cells of another is in the namespace's log."""
        return bool(self.ledger_log.end) and self.ledger.knows_forks and not self._has_strangers()

    def _has_strangers(self) -> bool:
        """Whether there is a log that the ledger does not know: it was copied here from elsewhere."""
        now = self.device.changed(dv.THREADS), self.device.changed(dv.DROPPED)
        if None in now or now != self._checked:
            for key in self.log_keys():
                if key not in self._registered:
                    number = self._first_number(key)
                    if number is not None and number not in self.ledger.numbers:
                        self._checked = None, None
                        return True
                    self._registered.add(key)
            self._checked = now
        return False

    # -- durability "normal": sync an append before anything durable depends on it ----------------------------------
    # Otherwise a power cut could leave a fork without the cells it uses, or restore a checkpoint whose cells were
    # removed. Then the store would not be in any state it was in before.

    def settle(self, numbers: Iterable[int] | None = None) -> None:
        """Sync what was appended to these threads, or to all. Only in a turn."""
        if not self.is_lazy:
            return
        if numbers is None:
            for found in self.everything():
                found.sync()
            return
        for number in numbers:
            # No durable record depends on an unreadable log.
            with suppress(Damaged):
                found_one = self.numbered(number)
                if found_one is not None:
                    found_one.sync()

    def settle_users(self, number: int) -> None:
        """Sync what was appended to a thread and to all that use, or used, its cells. Only in a turn."""
        users = sorted({number, *self.ledger.forks.get(number, ())}) if self.ledger.knows_forks else None
        self.settle(users)

    # -- writing: only in a turn --------------------------------------------------------------------------------------

    def keep_ledger(self) -> None:
        """Read the namespace's log. Create it if it is missing or damaged."""
        log = self.ledger_log
        is_there = log.catch_up() and log.end > 0
        if not is_there or self.ledger.lost:
            self._make_ledger()
        elif log.end > _LARGE and log.end > 2 * self.ledger.size and not log.has_tail:
            self._replace_ledger(self.ledger)

    def free_number(self) -> int:
        """A number that no thread has or had, in this store or, most likely, in any other. It grows."""
        self.keep_ledger()
        number = max(self._new_number(), self.ledger.highest + 1)
        while number in self._by_number:
            number += 1
        return number

    def register(self, number: int, origins: Iterable[int] = ()) -> None:
        """Record a thread, and whose cells it is about to use."""
        self.keep_ledger()
        new = tuple(sorted(set(origins)))
        made: list[msgspec.Struct] = []
        if number not in self.ledger.numbers:
            made.append(ln.NumberLine(numbers=(number,)))
        if new:
            made.append(ln.ForkLine(number=number, origins=new))
        if made:
            self.note(*made)

    def _make_ledger(self) -> None:
        """Write the namespace's log from its readable part and from the threads."""
        known = [found.thread for found in self.everything()]
        blobs = [key.partition("/")[2] for key in self.device.blobs(dv.BLOBS)]
        is_lost = bool(self.ledger.lost or known or blobs or self.unread)
        if is_lost and self.ledger_log.catch_up():
            # For inspection.
            name = f"{dv.DAMAGED}/{len(self.device.blobs(dv.DAMAGED)) + 1}"
            self.device.put(name, [self.ledger_log.get(0, self.ledger_log.seen.size)])
        self._replace_ledger(self.ledger.made_again(known, blobs, is_lost=is_lost, is_partial=bool(self.unread)))

    def tidy_ledger(self, *, is_forced: bool = False) -> None:
        """Remove entries for things that no longer exist from the namespace's log, if that makes it much shorter."""
        known = [found.thread for found in self.everything()]
        if self.unread:
            return
        tidied = self.ledger.tidied(known, {key.partition("/")[2] for key in self.device.blobs(dv.BLOBS)})
        is_other = self.ledger.is_partial != tidied.is_partial or not tidied.numbers <= self.ledger.numbers
        if is_forced or is_other or self.ledger_log.end > 2 * tidied.size:
            self._replace_ledger(tidied)

    def _replace_ledger(self, ledger: Ledger) -> None:
        data = ln.group([ln.sealed(record) for record in ledger.records(self.name)], 0)
        if not self.ledger_log.catch_up():
            self.device.create(dv.LEDGER, [data])
        else:
            with self.ledger_log.rewrite() as new:
                new.write(data)
                new.publish(self.ledger_log.seen.size)
        self.ledger_log.catch_up()

    def note(self, *records: msgspec.Struct) -> None:
        """Append records to the namespace's log, durably.

        It is synced even at durability "normal", so that a power cut never leaves two torn groups: the first one would
        look damaged.
        """
        self.ledger_log.append(ln.group([ln.sealed(record) for record in records], 0), sync=True)
        self.ledger_log.catch_up()

    def create(
        self, name: str, number: int, lines: Sequence[ln.Sealed], at: ln.ThreadRecord | None, entry: int
    ) -> None:
        """Create a new thread with its first group."""
        head = ln.ThreadHeader(format=ln.FORMAT, number=number, made=time.time_ns(), **jsonl.show_name(name))
        key = dv.thread_key(name)
        self.forget(key)
        self.device.create(key, [ln.group([ln.sealed(head), *lines], number, at, 1, entry)])
        self._registered.add(key)
        # The thread exists even if it cannot be read back now; the next read does that.
        with suppress(OSError):
            self.under(key)

    def close(self) -> None:
        for found in self._by_key.values():
            found.close()
        self.ledger_log.close()
        self._by_key.clear()
        self._by_number.clear()
