"""Where an export goes: to a new file, whole or not at all, or to one that is open."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import IO, TypeVar

import msgspec

from holdfast.errors import HoldfastError, InvalidArgument
from holdfast.stores.contract import Problem

R = TypeVar("R")

Target = str | os.PathLike[str] | IO[bytes]
Progress = Callable[[str, int, int], None]
Write = Callable[[bytes], object]


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """What was written, and what was left out because it is damaged."""

    threads: int
    checkpoints: int
    entries: int
    bytes: int
    left_out: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        return not self.left_out


def written_to(target: Target, export: Callable[[Write], R]) -> R:
    """Let `export` write to a new file with mode 0600, durable when this returns, or to an open one.

    InvalidArgument if the file is there, or takes no bytes, HoldfastError if it cannot be made.
    """
    if not isinstance(target, str | os.PathLike):
        if isinstance(target, io.TextIOBase) or not hasattr(target, "write"):
            raise InvalidArgument('an export goes to a path, or a file that is open for bytes, as by open(path, "wb")')
        return export(target.write)
    with _created(target) as file:
        try:
            done = export(file.write)
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            # Half an export is worth nothing, and would be in the way of the next.
            with suppress(OSError):
                os.unlink(target)
            raise
    return done


def check_selection(threads: Sequence[str] | None, prefix: str | None) -> None:
    """InvalidArgument if threads are both named and chosen by a prefix, or are one text, not a list."""
    if threads is not None and prefix is not None:
        raise InvalidArgument("export takes names of threads, or a prefix, and not both")
    if isinstance(threads, str):
        raise InvalidArgument("threads must be a list of names, also of one")


def put_all(write: Write, pieces: Iterable[str]) -> int:
    """Write texts after each other; how many bytes they were."""
    count = 0
    for piece in pieces:
        data = piece.encode("utf-8", "backslashreplace")
        write(data)
        count += len(data)
    return count


def _created(path: str | os.PathLike[str]) -> IO[bytes]:
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise InvalidArgument(f"{os.fspath(path)} is there already; name a new file. Nothing was written") from None
    except OSError as error:
        raise HoldfastError(f"cannot write {os.fspath(path)} ({error.strerror})") from error
    return os.fdopen(number, "wb", buffering=1 << 20)
