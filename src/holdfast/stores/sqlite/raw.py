"""Copy a store's file and WAL byte by byte, without opening them with SQLite."""

from __future__ import annotations

import os
import shutil
import struct
from contextlib import suppress
from typing import Final

from holdfast.errors import NotAStore, NotFound, StoreError
from holdfast.stores.gate import Gate

_TIMEOUT: Final = 10.0
# Magic bytes, page size, change counter, number of pages, and the change counter when that was written.
_HEADER: Final = struct.Struct(">16sH6xII60xI")
_MAGIC: Final = b"SQLite format 3\0"
# A damaged page count must not make the copy arbitrarily large.
_LONGER: Final = 64
_LONGER_AT_LEAST: Final = 1 << 28


def copy_raw(path: str, folder: str) -> str:
    """Copy a store to a folder and return the path of the copy. Writers are locked out, so the WAL fits the file.

    A truncated file is extended to its original length in the copy, because SQLite reads nothing from a short file.
    """
    path = os.path.realpath(path)
    copy = os.path.join(folder, os.path.basename(path))
    if os.path.exists(path) and not os.path.isfile(path):
        raise NotAStore(f"{path}: not a regular file; it was left unchanged")
    gate = Gate(path, _TIMEOUT) if os.path.exists(f"{path}-gate") else None
    try:
        if gate is not None:  # without a gate no store was opened here: the file was copied alone
            gate.enter()
        shutil.copyfile(path, copy)
        _lengthen(copy)
        with suppress(FileNotFoundError):
            shutil.copyfile(f"{path}-wal", f"{copy}-wal")
    except FileNotFoundError as error:
        raise NotFound(f"there is no store at {path}") from error
    except OSError as error:
        raise StoreError(f"{path}: cannot copy the store") from error
    finally:
        if gate is not None:
            gate.close()
    return copy


def _lengthen(path: str) -> None:
    """Append zeros to a truncated file, up to the length in its header."""
    with open(path, "r+b") as file:
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size:
            return
        magic, page_size, changes, pages, checked = _HEADER.unpack(header)
        wanted, size = page_size * pages, os.fstat(file.fileno()).st_size
        # SQLite trusts the page count only if it was written with the last change.
        if magic == _MAGIC and changes == checked and size < wanted <= max(size * _LONGER, _LONGER_AT_LEAST):
            file.truncate(wanted)
