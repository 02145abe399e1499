"""`LogStore`: the verbs of the contract on the logs of a device; `DirectoryStore`: with the file system as device."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Literal

from holdfast.errors import Damaged
from holdfast.formats.jsonl import new_number
from holdfast.stores.abilities import StoreSettings
from holdfast.stores.contract import PLAIN, KeyRow
from holdfast.stores.contract_runs import ActRow, Clock
from holdfast.stores.log import backup
from holdfast.stores.log.compact import CompactVerbs
from holdfast.stores.log.device import EPOCH, NUMBER, name_in
from holdfast.stores.log.folder import Folder, open_root
from holdfast.stores.log.groups import ThreadLog
from holdfast.stores.log.keyed_values import ActFiles
from holdfast.stores.log.namespace import Namespace
from holdfast.stores.log.plan import read
from holdfast.stores.log.read import ReadVerbs
from holdfast.stores.log.replay import RUN, ReplayedThread
from holdfast.stores.log.write import WriteVerbs
from holdfast.stores.write_queue import Gate
from holdfast.types import Problem


class LogStore(ReadVerbs, WriteVerbs, CompactVerbs):
    """A namespace on a device."""

    encoding: Literal["packed", "text"] = "text"
    hashing = PLAIN

    # -- acts -------------------------------------------------------------------------------------------------------

    @read
    def acts(
        self, *, key: bytes | None = None, prefix: bytes = b"", after: bytes | None = None, limit: int
    ) -> list[ActRow]:
        if key is None:
            return self._acts.page(prefix, after, limit)
        found = self._acts.find(key)
        return [] if found is None or limit <= 0 else [found]

    # -- wrapped keys -----------------------------------------------------------------------------------------------

    @read
    def keys(self, *, id: bytes | None = None, after: bytes = b"", limit: int) -> list[KeyRow]:
        return self._keys.all(id, after, max(limit, 0))

    def put_key(self, id: bytes, expect: KeyRow | None, row: KeyRow | None) -> KeyRow | None:
        return self._locks.write(lambda: self._keys.put(id, expect, row))

    # -- the whole store --------------------------------------------------------------------------------------------

    @read
    def check(self) -> Iterator[Problem]:
        return iter([*_problems(self._space), *_claims(self._acts)])

    def close(self) -> None:
        if self._locks.close():
            self._space.close()
            self._device.close()


class DirectoryStore(LogStore):
    """A folder of text files, opened on one namespace. Any number of threads and processes may use it.

    Raises `NotAStore` or `NewerFormat`, leaving everything unchanged, if the folder is not a store that this version
    can read. Raises `ReadOnly` if it does not exist and cannot be created.
    """

    kind = "dir"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        namespace: str,
        durability: Literal["full", "normal", "off"],
        busy_timeout: float = 10.0,
        clock: Callable[[], Clock] | None = None,
        wall: Callable[[], int] | None = None,
        number: Callable[[], int] = new_number,
    ) -> None:
        self.path = os.path.realpath(path)  # see `BackingUp`
        self._busy_timeout = busy_timeout
        self._folder = Folder(self.path, namespace, durability, busy_timeout)
        open_root(self.path, sync=self._folder.sync)
        super().__init__(self._folder, self.path, clock=clock, wall=wall, number=number)

    def backup(self, path: str, progress: Callable[[int, int], None] | None = None) -> int:
        """See `BackingUp`."""
        return backup.copy(self.path, path, self._turn_of, progress)

    def settings(self) -> StoreSettings:
        """See `Configured`."""
        is_flushed = self._folder.sync and not self._folder.is_lazy
        flushed = "flushed" if is_flushed else "not flushed"
        return StoreSettings(is_flushed, f"lines with checksums, {flushed} to their files at each commit")

    def _turn_of(self, folder: str, work: Callable[[], None]) -> None:
        """Call a function with the lock for writing to a namespace's folder, of this namespace or another one."""
        if folder == self._folder.path:
            return self._locks.write(work)
        gate = Gate(os.path.join(folder, "lock"), self._busy_timeout)
        try:
            gate.enter()
            return work()
        finally:
            gate.close()


# -- checks -----------------------------------------------------------------------------------------------------------


def _problems(space: Namespace) -> Iterator[Problem]:
    for key in (NUMBER, EPOCH):
        # A power cut leaves nothing, or zeros, of a counter that was not synced.
        if (space.device.get(key) or b"").strip(b"\0") and space.counter(key) is None:
            yield Problem(None, (), f"{key}: the counter is damaged. The next write that needs it replaces it.")
    for found in space.everything():
        yield from _thread(found)
    for unread in space.unread:
        yield Problem(name_in(unread.key), (), f"{unread.path}: {unread.error}")
    for stranger in space.strangers:
        number = stranger.thread.number
        yield Problem(None, (), f"{stranger.path}: a copy of the thread with number {number}")


def _claims(acts: ActFiles) -> Iterator[Problem]:
    for key in acts.listed():
        try:
            acts.stored(key)
        except Damaged as error:
            yield Problem(None, (), str(error))


def _thread(found: ThreadLog) -> Iterator[Problem]:
    thread = found.thread
    name = thread.name
    for damage in thread.damages:
        yield Problem(name, (), str(damage))
    if thread.tail_damage is not None:
        yield Problem(name, (), f"{thread.tail_damage}, and no complete group follows")
    if thread.is_gone or thread.record is None or not thread.is_placed:
        return
    yield from _history(thread, name)
    if len(thread.entries) != thread.newest_entry:
        yield Problem(name, (), "journal entries are missing")
    if thread.run_row is None and RUN not in thread.doubts and thread.entries:
        yield Problem(name, (), "the thread has a journal but no run")
    if thread.run_row is not None and thread.run_row.thread != thread.number:
        yield Problem(name, (), "the run belongs to another thread")


def _history(thread: ReplayedThread, name: str | None) -> Iterator[Problem]:
    at = thread.at
    if lost := thread.rows.missing(at.last):
        yield Problem(name, tuple(lost), "checkpoints are missing")
    elif len(thread.rows) != at.last:
        yield Problem(name, (), "the checkpoints do not match their numbers")
    elif not thread.has(at.head):
        yield Problem(name, (at.head,), "the checkpoint at the head is missing or deleted")
    elif at.count != len(thread.live()):
        yield Problem(name, (), "the number of checkpoints differs from the thread's record")
