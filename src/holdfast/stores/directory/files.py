"""Files and folders: made so that they are there after a power cut, and the system's errors in Holdfast's terms."""

from __future__ import annotations

import errno
import os
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Final

from holdfast.errors import HoldfastError, OutcomeUnknown, ReadOnly, StoreError, StoreFull

_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN: Final = (errno.EACCES, errno.EPERM, errno.EROFS)


class SyncFailed(Exception):
    """The system could not say that bytes are on the disk: they may be, and they may not."""


def translate(error: OSError, path: str) -> HoldfastError:
    """The error to raise from an error of the system's."""
    if error.errno in _FULL:
        return StoreFull(f"{path}: no room for the write; nothing was changed. Free space, then try again")
    if error.errno in _FORBIDDEN:
        return ReadOnly(f"{path}: this process may not write the store, or not read it; nothing was changed")
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
    while not os.path.isdir(at):
        missing.append(at)
        at = os.path.dirname(at)
    for folder in reversed(missing):
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            continue  # somebody else was faster
        if sync:
            sync_folder(os.path.dirname(folder))


def sync_folder(path: str) -> None:
    """Make durable which names a folder has."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise SyncFailed from error
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def sync_data(descriptor: int) -> None:
    try:
        _fdatasync(descriptor)
    except OSError as error:
        raise SyncFailed from error


def replace_file(path: str, pieces: Iterable[bytes], *, sync: bool, new: str | None = None) -> None:
    """Put a new file in the place of a name, whole or not at all. A `.new` that a crash leaves behind is nobody's.

    `new` is for where several processes may do so at once, and no lock keeps them apart.
    """
    new = f"{path}.new" if new is None else new
    with _opened(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as descriptor:
        for piece in pieces:
            write_all(descriptor, piece)
        if sync:
            sync_data(descriptor)
    os.rename(new, path)
    if sync:
        sync_folder(os.path.dirname(path))


@contextmanager
def _opened(path: str, flags: int) -> Generator[int]:
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


_fdatasync = getattr(os, "fdatasync", os.fsync)
