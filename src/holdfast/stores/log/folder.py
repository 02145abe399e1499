"""The file system as a device: a folder per namespace, a file per log and per blob.

<store>/holdfast.json                       identifies the folder as a store
<store>/<namespace>/lock-gate, lock-turn    the lock for writers
<store>/<namespace>/threads/<name>/log.jsonl
<store>/<namespace>/dropped/<number>/log.jsonl
<store>/<namespace>/blobs/ab/abcd…
<store>/<namespace>/keys/<id>.json
<store>/<namespace>/counters/number, epoch
<store>/<namespace>/limits/of-<handler>.json  the newest claims for a handler with a rate
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections import OrderedDict
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from typing import Final

from holdfast.errors import NotAStore, ReadOnly, StoreError
from holdfast.stores import rules
from holdfast.stores.log import disk
from holdfast.stores.log.device import (
    ACTS,
    BLOBS,
    DROPPED,
    FORMAT,
    MARKER,
    THREADS,
    Device,
    DeviceLog,
    Marker,
    Moved,
    NewLog,
    Unsure,
    Version,
    encoded,
)
from holdfast.stores.write_queue import Gate

KIND: Final = "directory"
LOG: Final = "log.jsonl"
_PARTED: Final = (BLOBS, ACTS)
_OPEN_FILES: Final = 64
# The start of the first line. It has the checksum of the rest of the line, which includes the time the file was made.
_HEAD: Final = 64
# The modification time of a folder is coarse: a second change in the same tick would be missed. So a folder that
# changed this recently (ns) is listed again.
_SETTLED: Final = 2_000_000_000
_ADVICE: Final = "If it was damaged, replace it by that of any other directory store: they are all the same"


class Folder(Device):
    """A namespace's folder. Not thread-safe: the store's lock comes first."""

    def __init__(self, root: str, namespace: str, durability: str, timeout: float) -> None:
        """With durability "normal", only appends are left to the system. With "off", everything is."""
        self.path = os.path.join(root, encoded(namespace))
        self.sync = durability != "off"
        self.is_lazy = durability == "normal"
        self._gate = Gate(os.path.join(self.path, "lock"), timeout)
        self._has_folder = False
        self._entered: set[str] = set()
        self._opened: OrderedDict[str, FileLog] = OrderedDict()
        self._writer = ("", -1, -1)  # path, inode, descriptor

    def enter(self) -> None:
        if not self._has_folder:
            root = os.path.dirname(self.path)
            try:
                with suppress(FileExistsError), disk.renaming_in(root, sync=self.sync):
                    os.mkdir(self.path, 0o700)
            except FileNotFoundError as error:
                raise StoreError(
                    f"{root}: the folder of the store no longer exists; nothing was changed. Restore it, or open "
                    "another store."
                ) from error
            self._has_folder = True
        self._gate.enter()

    def leave(self) -> None:
        self._gate.leave()

    # -- logs -------------------------------------------------------------------------------------------------------

    def log(self, key: str) -> FileLog:
        return FileLog(self, self._path_of(key))

    def changed(self, kind: str) -> int | None:
        try:
            found = os.stat(os.path.join(self.path, kind)).st_mtime_ns
        except FileNotFoundError:
            return 0
        return found if time.time_ns() - found > _SETTLED else None

    def create(self, path: str, pieces: Iterable[bytes], *, sync: bool) -> None:
        """Write a file as a whole, and the folders that it is in."""
        folders = [os.path.dirname(path)]
        while folders[-1] != self.path:
            folders.append(os.path.dirname(folders[-1]))
        for folder in reversed(folders):
            # The folder of a thread may have been removed, and created again by a process that did not sync it.
            entered = set[str]() if self._is_thread(folder) else self._entered
            disk.enter(folder, entered, sync=self.sync)
        disk.replace_file(path, pieces, sync=sync)

    def writer(self, path: str, identity: int | str) -> int:
        """A descriptor for appending to the file that was seen. `Moved` if another file has its name now.

        It stays open until another log is written. Only in a turn.
        """
        if self._writer[:2] != (path, identity):
            self._close_writer()
            descriptor = _opened(path, os.O_RDWR | os.O_APPEND)
            self._writer = path, os.fstat(descriptor).st_ino, descriptor
            if self._writer[1] != identity:
                raise Moved
        return self._writer[2]

    def _close_writer(self) -> None:
        descriptor, self._writer = self._writer[2], ("", -1, -1)
        if descriptor >= 0:
            os.close(descriptor)

    def keep_few_open(self, log: FileLog) -> None:
        """Close the files opened longest ago, so that a handle does not keep thousands of files open."""
        self._opened[log.path] = log
        self._opened.move_to_end(log.path)
        while len(self._opened) > _OPEN_FILES:
            _, oldest = self._opened.popitem(last=False)
            oldest.close()

    # -- blobs ------------------------------------------------------------------------------------------------------

    def put(self, key: str, pieces: Iterable[bytes], *, sync: bool = True) -> None:
        self.create(self._path_of(key), pieces, sync=sync and self.sync)

    def get(self, key: str) -> bytes | None:
        try:
            with open(self._path_of(key), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def seen(self, key: str) -> Version | None:
        return disk.seen(self._path_of(key))

    # -- logs and blobs ---------------------------------------------------------------------------------------------

    def keys(self, kind: str, after: str = "") -> Iterator[str]:
        last = after.rpartition("/")[2]
        top, first = os.path.join(self.path, kind), _part_of(kind, last)
        for part in disk.names_in(top) if kind in _PARTED else [""]:
            for name in disk.names_in(os.path.join(top, part)) if part >= first else []:
                if (part, name) > (first, last) and (kind in (THREADS, DROPPED) or not name.endswith(".new")):
                    yield f"{kind}/{name}"

    def remove(self, keys: Iterable[str]) -> None:
        for folder, paths in groupby(sorted(map(self._path_of, keys)), key=os.path.dirname):
            self.remove_files(folder, paths)

    def remove_files(self, folder: str, paths: Iterable[str]) -> None:
        """Remove files of a folder, durably."""
        if disk.seen(folder):
            with disk.renaming_in(folder, sync=self.sync):
                for path in paths:
                    disk.unlink(path)

    def _path_of(self, key: str) -> str:
        kind, name = key.split("/")
        if kind in (THREADS, DROPPED):
            return os.path.join(self.path, kind, name, LOG)
        return os.path.join(self.path, kind, _part_of(kind, name), name)

    def _is_thread(self, folder: str) -> bool:
        return os.path.dirname(folder) in (os.path.join(self.path, THREADS), os.path.join(self.path, DROPPED))

    # -- maintenance ------------------------------------------------------------------------------------------------

    def clean(self, *, scrub: bool) -> list[str]:
        left: list[str] = []
        for folder, _, names in os.walk(self.path, topdown=False):
            leftovers = [os.path.join(folder, name) for name in names if _is_left(name, names, scrub=scrub)]
            for path in leftovers:
                disk.unlink_unless_locked(path)
                if disk.seen(path):
                    left.append(f"{path}: another process is writing the file. Erase again when it has finished.")
            if leftovers and self.sync:
                disk.sync_folder(folder)
            if self._is_thread(folder):
                with suppress(OSError):
                    os.rmdir(folder)  # if it is empty
        return left

    def close(self) -> None:
        for log in self._opened.values():
            log.close()
        self._close_writer()
        self._opened.clear()
        self._gate.close()

    def forget_lock(self) -> None:
        """In the child of a fork: close the gate without unlocking it. The inherited lock belongs to the parent."""
        self._gate.close()
        self._has_folder = False  # so that the lock files are opened again


def _part_of(kind: str, name: str) -> str:
    """The folder of a blob, if there may be very many: two digits of its name. Acts of one tool start with the same."""
    return name[:2] if kind == BLOBS else name[-2:] if kind == ACTS else ""


def _is_left(name: str, names: Sequence[str], *, scrub: bool) -> bool:
    """Whether an interrupted write left a file. Torn ends of logs are kept for inspection until a scrub."""
    return name.endswith(".new") or (name.startswith("torn-") and (scrub or LOG not in names))


class FileLog(DeviceLog):
    """The log in one file. A replaced file is noticed by its inode."""

    def __init__(self, folder: Folder, path: str) -> None:
        self.path = path
        self._folder = folder
        self._descriptor = -1
        self._inode = -1
        self._head = b""  # the first bytes of the file that was read

    def stat(self) -> Version | None:
        found = disk.seen(self.path)
        # While a file is open, no other file can get its inode number.
        if found is None or found.identity != self._inode:
            self.close()
        return found

    def read(self, seen: Version, position: int) -> tuple[int, bytes]:
        # Another file may have overwritten this one, or got its inode.
        if position and (seen.size < position or self.get(seen, 0, len(self._head)) != self._head):
            position = 0
        data = self.get(seen, position, seen.size - position)
        if not position:
            self._head = data[:_HEAD]
        return position, data

    def get(self, seen: Version, position: int, length: int) -> bytes:
        return b"".join(disk.stretches(self._open(seen), position, position + length))

    def create(self, pieces: Iterable[bytes]) -> None:
        self._folder.create(self.path, pieces, sync=self._folder.sync)

    def append(self, seen: Version, position: int, data: bytes, *, sync: bool) -> Version:
        sync = sync and self._folder.sync
        descriptor = self.end_at(seen, position, sync=sync)
        try:
            disk.write_all(descriptor, data)
        except OSError:
            # Half a group is ignored by readers, but the next group must not follow it.
            try:
                os.ftruncate(descriptor, position)
            except OSError as error:
                raise Unsure from error
            raise
        if sync:
            disk.sync_data(descriptor)
        return disk.version(os.fstat(descriptor))

    def end_at(self, seen: Version, position: int, *, sync: bool) -> int:
        """A descriptor for appending at a position. The tail of an interrupted write is moved to another file.

        `Moved` if the log is not as it was seen.
        """
        descriptor = self._folder.writer(self.path, seen.identity)
        if os.fstat(descriptor).st_size != seen.size:
            raise Moved
        if seen.size > position:
            number = 1
            while disk.seen(aside := os.path.join(os.path.dirname(self.path), f"torn-{position}-{number}")):
                number += 1
            disk.replace_file(aside, disk.stretches(descriptor, position, seen.size), sync=sync)
            os.ftruncate(descriptor, position)
            if sync:
                disk.sync_data(descriptor)
        return descriptor

    @contextmanager
    def rewrite(self) -> Generator[NewLog]:
        draft = NewFile(self, sync=self._folder.sync)
        try:
            yield draft
        finally:
            draft.close()

    def remove(self, seen: Version, position: int) -> None:
        folder = os.path.dirname(self.path)
        self._folder.remove_files(folder, [self.path])
        shutil.rmtree(folder, ignore_errors=True)  # without a log, it is not a thread, whatever else is left in it

    def sync(self, seen: Version) -> None:
        disk.sync_data(self._open(seen))

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = self._inode = -1

    def _open(self, seen: Version) -> int:
        """The descriptor of the file that was seen. `Moved` if another file has its name now."""
        if self._descriptor < 0:
            self._descriptor = _opened(self.path, os.O_RDONLY)
            self._inode = os.fstat(self._descriptor).st_ino
            self._folder.keep_few_open(self)
        if self._inode != seen.identity:
            self.close()
            raise Moved
        return self._descriptor


class NewFile(NewLog):
    """A new file next to a log, which will replace it."""

    def __init__(self, log: FileLog, *, sync: bool) -> None:
        self._log = log
        self._sync = sync
        self._is_done = False
        self._new, self._target = _locked_file(log.path)

    def write(self, data: bytes) -> None:
        disk.write_all(self._target, data)

    def sync(self) -> None:
        try:
            if self._sync:
                disk.sync_data(self._target)
        except Unsure as error:
            raise StoreError(
                f"{self._log.path}: cannot write a new log; the old one was left unchanged. Check the disk, then try "
                "again."
            ) from error

    def publish(self, seen: Version, position: int) -> None:
        if disk.seen(self._log.path) != seen:
            raise Moved
        self._log.end_at(seen, position, sync=self._sync)
        if self._sync:
            disk.sync_data(self._target)
        with disk.renaming_in(os.path.dirname(self._log.path), sync=self._sync):
            os.rename(self._new, self._log.path)
            self._is_done = True

    def close(self) -> None:
        """Close the file. A new log that was not published is removed."""
        if not self._is_done:
            # It does not exist if its thread was dropped meanwhile. If it cannot be removed, `clean` does it later.
            with suppress(OSError):
                os.unlink(self._new)
        os.close(self._target)


def _locked_file(log: str) -> tuple[str, int]:
    """A new file next to a log, and its descriptor. The lock tells `Folder.clean` that the file is in use."""
    while True:
        path = disk.new_name(log)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileNotFoundError as error:  # the thread was dropped, and its folder with it
            raise Moved from error
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if disk.seen(path):
            return path, descriptor
        os.close(descriptor)  # `clean` removed the file before it was locked


def _opened(path: str, flags: int) -> int:
    disk.require_no_link(os.path.dirname(path))
    try:
        return os.open(path, flags | disk.NO_LINK)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Moved from error
    except OSError as error:
        if flags == os.O_RDONLY or error.errno not in disk.FORBIDDEN:
            raise
        raise ReadOnly(
            f"{path}: this process has no permission to write the log; nothing was changed. Change the permissions of "
            "the file, or run as its owner."
        ) from error


# -- the folder of a store --------------------------------------------------------------------------------------------


def open_root(path: str, *, sync: bool) -> None:
    """Make sure that the folder is a store; create one in a folder that is empty or missing.

    `NotAStore` or `NewerFormat`, leaving the folder unchanged, if it is something else. `ReadOnly` if it cannot be
    created.
    """
    try:
        with open(os.path.join(path, MARKER), "rb") as file:
            Marker.decode(file.read(), KIND, path, _ADVICE)
        return
    except NotADirectoryError as error:
        raise NotAStore(
            f"{path}: a file, not the folder of a store; it was left unchanged. Name a folder, or open a SQLite file "
            "without dir:."
        ) from error
    except FileNotFoundError:
        pass
    except OSError as error:
        raise disk.translate(error, path) from error
    _make(path, sync=sync)


def _make(path: str, *, sync: bool) -> None:
    try:
        disk.make_folder(path, sync=sync)
        # Files that an interrupted creation left are allowed.
        if any(not (name.startswith(f"{MARKER}.") and name.endswith("new")) for name in os.listdir(path)):
            if os.path.exists(os.path.join(path, MARKER)):
                return  # another process was faster
            raise NotAStore(
                f"{path}: the folder is not empty and not a Holdfast store; it was left unchanged. Name a new or empty "
                "folder."
            )
        disk.replace_file(os.path.join(path, MARKER), [Marker(KIND, FORMAT).encode()], sync=sync, is_alone=False)
    except Unsure as error:
        raise rules.write_failed(path) from error
    except (FileExistsError, NotADirectoryError) as error:
        raise NotAStore(
            f"{path}: a file is in the place of a folder; it was left unchanged. Name another folder."
        ) from error
    except OSError as error:
        translated = disk.translate(error, path)
        if isinstance(translated, ReadOnly):
            raise ReadOnly(
                f"{path}: the store does not exist, and this process may not create it. Create the folder, or name "
                "another one."
            ) from error
        raise translated from error
