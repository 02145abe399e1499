"""Create files and folders that survive a power cut, and translate errors of the system."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from holdfast.errors import HoldfastError, ReadOnly, StoreError
from holdfast.stores import rules
from holdfast.stores.folder_sync import opened_folder
from holdfast.stores.log.device import Unsure, Version

_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FORBIDDEN: Final = (errno.EACCES, errno.EPERM, errno.EROFS)
_AT_ONCE: Final = 16 << 20
NO_LINK: Final = os.O_CLOEXEC | os.O_NOFOLLOW  # stores are copied and unpacked: a link inside one may lead anywhere


def translate(error: OSError, path: str) -> HoldfastError:
    """The error to raise from an error of the operating system."""
    if error.errno in _FULL:
        return rules.store_full(path)
    if error.errno in FORBIDDEN:
        return ReadOnly(
            f"{path}: this process has no permission to read or write the store; nothing was changed. Change the "
            "permissions of its files, or run as their owner."
        )
    if error.errno == errno.ELOOP:
        return StoreError(
            f"{error.filename or path}: a link inside the store; nothing was changed. Replace it by what it links to."
        )
    return StoreError(
        f"{path}: the operating system could not read or write the store ({error.strerror}). Check the disk, then try "
        "again."
    )


def make_folder(path: str, *, sync: bool) -> None:
    """Create a folder and its missing parents, each synced to its parent."""
    if not _is_folder(path):
        make_folder(os.path.dirname(path), sync=sync)
        # Another process may be faster.
        with suppress(FileExistsError), renaming_in(os.path.dirname(path), sync=sync):
            os.mkdir(path, 0o700)


def _is_folder(path: str) -> bool:
    """`os.path.isdir`, with OSError as in `seen`."""
    return seen(path) is not None and stat.S_ISDIR(os.stat(path).st_mode)


def enter(path: str, entered: set[str], *, sync: bool) -> None:
    """Create a folder, or make sure that an existing one is synced to its parent.

    The process that created it may have been killed before the sync. `entered` are the folders that are done.
    """
    require_no_link(path)
    if sync and path not in entered and _is_folder(path):
        sync_folder(os.path.dirname(path))
    make_folder(path, sync=sync)
    entered.add(path)


def require_no_link(path: str) -> None:
    """OSError if a folder of the store is a link."""
    if os.path.islink(path):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)


def sync_folder(path: str) -> None:
    """Make the names in a folder durable."""
    with renaming_in(path, sync=True):
        pass


@contextmanager
def renaming_in(folder: str, *, sync: bool) -> Generator[None]:
    """Make the names in a folder durable after the block, if `sync`.

    The folder is opened first. If that fails, as on a full disk, nothing has changed yet, and the error may report
    that.
    """
    if not sync:
        yield
        return
    with opened_folder(folder) as sync_names:
        yield
        try:
            sync_names()
        except OSError as error:
            raise Unsure from error


def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        written = os.write(descriptor, view)
        if not written:
            raise OSError(errno.EIO, "a write wrote nothing")
        view = view[written:]


def stretches(descriptor: int, start: int, end: int) -> Iterator[bytes]:
    """The bytes of a file between two offsets, in pieces: a single read returns at most 2 GiB."""
    while start < end:
        piece = os.pread(descriptor, min(end - start, _AT_ONCE), start)
        if not piece:
            return
        yield piece
        start += len(piece)


def seen(path: str) -> Version | None:
    """The state of a file, to see whether it has changed; None if there is none.

    OSError if the system cannot tell, unlike `os.path.exists`: that does not mean that the file is missing.
    """
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return version(found)


def version(found: os.stat_result) -> Version:
    return Version(found.st_ino, found.st_size, found.st_mtime_ns)


def names_in(folder: str) -> list[str]:
    """The names in a folder, in order; none if it is not a folder."""
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def unlink(path: str) -> None:
    """Remove a file, if it exists."""
    with suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(path)


def unlink_unless_locked(path: str) -> None:
    """Remove a file if it exists, unless another process is writing it and has locked it."""
    with suppress(BlockingIOError, FileNotFoundError), opened(path, os.O_RDONLY) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)


def sync_data(descriptor: int) -> None:
    try:
        _fdatasync(descriptor)
    except OSError as error:
        raise Unsure from error


def replace_file(path: str, pieces: Iterable[bytes], *, sync: bool, is_alone: bool = True) -> None:
    """Replace a file, completely or not at all. A `.new` file left by a crash is ignored.

    `is_alone` is False if other processes may do the same at once without a lock.
    """
    new = f"{path}.new" if is_alone else new_name(path)
    with opened(new, os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if is_alone else os.O_EXCL)) as descriptor:
        for piece in pieces:
            write_all(descriptor, piece)
        if sync:
            sync_data(descriptor)
    with renaming_in(os.path.dirname(path), sync=sync):
        os.rename(new, path)


def new_name(path: str) -> str:
    """A unique name next to a file."""
    return f"{path}.{secrets.token_hex(8)}.new"


@contextmanager
def opened(path: str, flags: int) -> Generator[int]:
    """A descriptor of a file that is not a link, for a block."""
    descriptor = os.open(path, flags | NO_LINK, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


_fdatasync = getattr(os, "fdatasync", os.fsync)
