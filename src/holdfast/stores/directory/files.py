"""Files and folders: made so that they are there after a power cut, and the system's errors in Holdfast's terms."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from holdfast.errors import HoldfastError, OutcomeUnknown, ReadOnly, StoreError, StoreFull
from holdfast.stores.files import opened_folder

_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN: Final = (errno.EACCES, errno.EPERM, errno.EROFS)
_AT_ONCE: Final = 16 << 20
NO_LINK: Final = os.O_CLOEXEC | os.O_NOFOLLOW  # a store is copied and unpacked: a link in it may lead anywhere


class SyncFailed(Exception):
    """The system could not say that bytes are on the disk: they may be, and they may not."""


def translate(error: OSError, path: str) -> HoldfastError:
    """The error to raise from an error of the system's."""
    if error.errno in _FULL:
        return StoreFull(f"{path}: no room for the write; nothing was changed. Free space, then try again")
    if error.errno in _FORBIDDEN:
        return ReadOnly(f"{path}: this process may not write the store, or not read it; nothing was changed")
    if error.errno == errno.ELOOP:
        return StoreError(
            f"{error.filename or path}: nothing is written through a link in a store; put what it leads to there"
        )
    return StoreError(f"{path}: the operating system could not read or write the store ({error.strerror})")


def unknown(path: str) -> OutcomeUnknown:
    """The error of a store whose last write has an unknown outcome."""
    return OutcomeUnknown(
        f"{path}: the store failed while writing, so the last write may or may not have happened; "
        "close this handle and open the store again to find out"
    )


def make_folder(path: str, *, sync: bool) -> None:
    """A folder and those above it that are missing, each entered durably into the one above."""
    missing: list[str] = []
    at = path
    while not _is_folder(at):
        missing.append(at)
        at = os.path.dirname(at)
    for folder in reversed(missing):
        # Somebody else may be faster.
        with suppress(FileExistsError), renaming_in(os.path.dirname(folder), sync=sync):
            os.mkdir(folder, 0o700)


def is_there(path: str) -> bool:
    """As `os.path.exists`, but OSError where the system could not look: that a file is gone does not follow from it."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _is_folder(path: str) -> bool:
    """As `os.path.isdir`, but for the same."""
    return is_there(path) and stat.S_ISDIR(os.stat(path).st_mode)


def enter(path: str, entered: set[str], *, sync: bool) -> None:
    """Make a folder, or see to it that one which is there is entered durably into the one above.

    Who made it may have been killed before that. `entered` are those for which this was done.
    """
    require_no_link(path)
    if sync and path not in entered and _is_folder(path):
        sync_folder(os.path.dirname(path))
    make_folder(path, sync=sync)
    entered.add(path)


def require_no_link(path: str) -> None:
    """OSError if a folder of the store is a link to another."""
    if os.path.islink(path):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)


def sync_folder(path: str) -> None:
    """Make durable which names a folder has."""
    with renaming_in(path, sync=True):
        pass


@contextmanager
def renaming_in(folder: str, *, sync: bool) -> Generator[None]:
    """Make durable which names a folder has after the block, if `sync`.

    It is opened before: where that fails, as on a full disk, nothing has changed, and the error may say so.
    """
    if not sync:
        yield
        return
    with opened_folder(folder) as sync_names:
        yield
        try:
            sync_names()
        except OSError as error:
            raise SyncFailed from error


def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        written = os.write(descriptor, view)
        if not written:
            raise OSError(errno.EIO, "a write wrote nothing")
        view = view[written:]


def stretches(descriptor: int, start: int, end: int) -> Iterator[bytes]:
    """The bytes of a file between two offsets, in pieces: one read gives 2 GiB at most, however much is asked for."""
    while start < end:
        piece = os.pread(descriptor, min(end - start, _AT_ONCE), start)
        if not piece:
            return
        yield piece
        start += len(piece)


def sync_data(descriptor: int) -> None:
    try:
        _fdatasync(descriptor)
    except OSError as error:
        raise SyncFailed from error


def replace_file(path: str, pieces: Iterable[bytes], *, sync: bool, is_alone: bool = True) -> None:
    """Put a new file in the place of a name, whole or not at all. A `.new` that a crash leaves behind is nobody's.

    Not `is_alone` is where others may do so at once, and no lock keeps them apart.
    """
    new = f"{path}.new" if is_alone else new_name(path)
    with _opened(new, os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if is_alone else os.O_EXCL)) as descriptor:
        for piece in pieces:
            write_all(descriptor, piece)
        if sync:
            sync_data(descriptor)
    with renaming_in(os.path.dirname(path), sync=sync):
        os.rename(new, path)


def new_name(path: str) -> str:
    """A name, beside that of a file, that nobody else writes to."""
    return f"{path}.{secrets.token_hex(8)}.new"


@contextmanager
def _opened(path: str, flags: int) -> Generator[int]:
    descriptor = os.open(path, flags | NO_LINK, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


_fdatasync = getattr(os, "fdatasync", os.fsync)
