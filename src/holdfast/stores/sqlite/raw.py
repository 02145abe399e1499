"""Copying a store's file and WAL byte for byte, without SQLite opening them."""

from __future__ import annotations

import os
import shutil
import struct
from contextlib import suppress
from typing import Final

from holdfast.errors import NotAStore, NotFound, StoreError
from holdfast.stores.gate import Gate

_TIMEOUT: Final = 10.0
# What a file begins with, the size of a page, how often it was changed, its pages, and at which change that was so.
_HEADER: Final = struct.Struct(">16sH6xII60xI")
_MAGIC: Final = b"SQLite format 3\0"
# A count of pages that is itself damaged must not make the copy any size.
_LONGER: Final = 64
_LONGER_AT_LEAST: Final = 1 << 28


def copy_raw(path: str, folder: str) -> str:
    """Copy a store into a folder; the path of the copy. Nobody writes meanwhile, so the WAL fits the file.

    Of a file that was cut off the copy is as long as the file was: of a shorter one SQLite reads nothing at all.
    """
    path = os.path.realpath(path)
    copy = os.path.join(folder, os.path.basename(path))
    if os.path.exists(path) and not os.path.isfile(path):
        raise NotAStore(f"{path}: not a file; it was left as it was")
    gate = Gate(path, _TIMEOUT) if os.path.exists(f"{path}-gate") else None
    try:
        if gate is not None:  # else nobody has ever written to it here: it was copied by itself
            gate.enter()
        shutil.copyfile(path, copy)
        _lengthen(copy)
        with suppress(FileNotFoundError):
            shutil.copyfile(f"{path}-wal", f"{copy}-wal")
    except FileNotFoundError as error:
        raise NotFound(f"there is no store at {path}") from error
    except OSError as error:
        raise StoreError(f"{path}: the store cannot be copied") from error
    finally:
        if gate is not None:
            gate.close()
    return copy


def _lengthen(path: str) -> None:
    """Put zeros where the end of a file is missing, as far as its own header says."""
    with open(path, "r+b") as file:
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size:
            return
        magic, page_size, changes, pages, checked = _HEADER.unpack(header)
        wanted, size = page_size * pages, os.fstat(file.fileno()).st_size
        # The count is one that SQLite itself believes: it was written with the last change.
        if magic == _MAGIC and changes == checked and size < wanted <= max(size * _LONGER, _LONGER_AT_LEAST):
            file.truncate(wanted)
