"""Kills the process that uses it at its n-th write: of SQLite's files, of a store's verbs, or of the outside world.

Or at its n-th line of the library's code.

SQLite reaches the disk through a table of functions (its VFS). `hook_disk` puts a count before each function that
changes a file, so that a kill can strike between any two system calls without a tracer and in a forked child. What it
does not count are the bytes that size the -shm file: the next process makes that file anew.
"""

from __future__ import annotations

import _sqlite3
import ctypes
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, cast

import holdfast
from holdfast.stores.contract import Store

WRITING_VERBS = ("commit", "rewind", "claim", "renew", "journal", "post", "put_act")


class Countdown:
    """Counts the places where a process could die, and dies at one of them. 0 means that it lives."""

    def __init__(self, at: int, pipe: int) -> None:
        self._at = at
        self._pipe = pipe
        self.places: list[str] = []
        self.failing = False  # as long as it is set, no sync of SQLite succeeds

    def tick(self, place: str) -> None:
        self.places.append(place)
        if len(self.places) == self._at:
            os.write(self._pipe, f"killed {place}\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)


class CountedStore:
    """A store that ticks before and after each verb that writes."""

    def __init__(self, store: Store, countdown: Countdown) -> None:
        self._store = store
        self._countdown = countdown

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return self._counted(name, found) if name in WRITING_VERBS else found

    def _counted(self, name: str, verb: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            self._countdown.tick(f"before {name}")
            answer = verb(*args, **kwargs)
            self._countdown.tick(f"after {name}")
            return answer

        return run


def counted(store: Store, countdown: Countdown) -> Store:
    return cast(Store, CountedStore(store, countdown))


# -- lines of the library ----------------------------------------------------------------------------------------------

PACKAGE = f"{Path(holdfast.__file__).parent}{os.sep}"


def hook_lines(countdown: Countdown) -> None:
    """Tick at each line of the library, in the thread that calls this, until the process ends."""
    tick = countdown.tick
    places: dict[str, str] = {}  # by file name; "" for files of others

    def trace(frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        file = frame.f_code.co_filename
        place = places.get(file)
        if place is None:
            place = places[file] = f"before line of {Path(file).stem}" if file.startswith(PACKAGE) else ""
        return count if place else None

    def count(frame: FrameType, event: str, _: object) -> Callable[..., Any]:
        if event == "line":
            tick(places[frame.f_code.co_filename])
        return count

    sys.settrace(trace)


# -- SQLite's files: the layouts are those of sqlite3.h, which SQLite promises to keep ---------------------------------

_FSYNC_FAILED = 10 | 4 << 8  # SQLITE_IOERR_FSYNC

_Write = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64)
_Truncate = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int64)
_Sync = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
# Names as addresses: SQLite keeps them, and reads what lies behind their end.
_Open = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
_Delete = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)


class _Methods(ctypes.Structure):
    """`sqlite3_io_methods`: what can be done with one open file."""

    _fields_: ClassVar = [
        ("version", ctypes.c_int),
        ("close", ctypes.c_void_p),
        ("read", ctypes.c_void_p),
        ("write", _Write),
        ("truncate", _Truncate),
        ("sync", _Sync),
        ("others", ctypes.c_void_p * 13),  # xFileSize to xUnfetch
    ]


class _File(ctypes.Structure):
    """`sqlite3_file`: begins with its methods; the rest is the VFS's own."""

    _fields_: ClassVar = [("methods", ctypes.POINTER(_Methods))]


class _Vfs(ctypes.Structure):
    """`sqlite3_vfs`, up to the last function that is hooked."""

    _fields_: ClassVar = [
        ("version", ctypes.c_int),
        ("file_size", ctypes.c_int),
        ("longest_path", ctypes.c_int),
        ("next", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("data", ctypes.c_void_p),
        ("open", _Open),
        ("delete", _Delete),
    ]


def can_hook_disk() -> bool:
    """Whether this interpreter's SQLite can be reached: not if it is linked into the interpreter out of sight."""
    return _vfs() is not None


def hook_disk(countdown: Countdown) -> None:
    """Tick before each write, truncation, sync and deletion of SQLite, and after each sync, until the process ends."""
    vfs = _vfs()
    if vfs is None:
        raise RuntimeError("the SQLite of this interpreter cannot be reached")
    open_file, delete_file = _copy(_Open, vfs.open), _copy(_Delete, vfs.delete)
    methods: dict[int, _Methods] = {}

    def opened(self: int, name: int | None, file: int, flags: int, out: int | None) -> int:
        code: int = open_file(self, name, file, flags, out)
        header = _File.from_address(file)
        if code == 0 and header.methods:
            original = header.methods.contents
            address = ctypes.addressof(original)
            if address not in methods:
                methods[address] = _counted_methods(original, countdown)
            header.methods = ctypes.pointer(methods[address])
        return code

    def deleted(self: int, name: int, sync: int) -> int:
        countdown.tick("before delete")
        code: int = delete_file(self, name, sync)
        return code

    vfs.open, vfs.delete = _Open(opened), _Delete(deleted)
    _kept.extend([vfs, methods, vfs.open, vfs.delete])


_kept: list[Any] = []  # what SQLite points to must not be collected


def _counted_methods(original: _Methods, countdown: Countdown) -> _Methods:
    new = _Methods.from_buffer_copy(original)
    write_file = _copy(_Write, original.write)
    truncate_file = _copy(_Truncate, original.truncate)
    sync_file = _copy(_Sync, original.sync)

    def write(file: int, data: int, size: int, offset: int) -> int:
        countdown.tick("before write")
        code: int = write_file(file, data, size, offset)
        return code

    def truncate(file: int, size: int) -> int:
        countdown.tick("before truncate")
        code: int = truncate_file(file, size)
        return code

    def sync(file: int, flags: int) -> int:
        countdown.tick("before sync")
        if countdown.failing:
            return _FSYNC_FAILED
        code: int = sync_file(file, flags)
        countdown.tick("after sync")
        return code

    new.write, new.truncate, new.sync = _Write(write), _Truncate(truncate), _Sync(sync)
    _kept.extend([new, new.write, new.truncate, new.sync])
    return new


def _copy(kind: Any, function: Any) -> Any:
    """The same function by its address: the field it was read from is about to change."""
    return kind(ctypes.cast(function, ctypes.c_void_p).value)


def _vfs() -> _Vfs | None:
    try:
        find = ctypes.CDLL(getattr(_sqlite3, "__file__", None)).sqlite3_vfs_find
    except (OSError, AttributeError):
        return None
    find.restype = ctypes.POINTER(_Vfs)
    find.argtypes = [ctypes.c_char_p]
    found = find(None)
    return found.contents if found else None
