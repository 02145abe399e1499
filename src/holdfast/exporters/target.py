"""The target of an export: a new file, which is complete or absent, or an open file."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import IO, TypeVar

import msgspec

from holdfast.errors import HoldfastError, InvalidArgument
from holdfast.types import Problem

R = TypeVar("R")

Target = str | os.PathLike[str] | IO[bytes]
Progress = Callable[[str, int, int], None]
Write = Callable[[bytes], object]


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an export: counts, and what was left out because it is damaged."""

    threads: int
    checkpoints: int
    entries: int
    bytes: int
    left_out: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        return not self.left_out


def written_to(target: Target, export: Callable[[Write], R]) -> R:
    """Call `export` with the write function of a new file or an open one. A new file has mode 0600 and is synced.

    InvalidArgument if the file exists or is a text file, HoldfastError if it cannot be created.
    """
    if not isinstance(target, str | os.PathLike):
        if isinstance(target, io.TextIOBase) or not hasattr(target, "write"):
            raise InvalidArgument('the target must be a path, or a binary file such as open(path, "wb")')
        return export(target.write)
    with _created(target) as file:
        try:
            done = export(file.write)
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            # An incomplete export is useless, and the next export needs the name.
            with suppress(OSError):
                os.unlink(target)
            raise
    return done


def check_selection(threads: Sequence[str] | None, prefix: str | None) -> None:
    """Raise InvalidArgument if both `threads` and `prefix` are given, or `threads` is a string."""
    if threads is not None and prefix is not None:
        raise InvalidArgument("an export takes names of threads or a prefix, not both")
    if isinstance(threads, str):
        raise InvalidArgument("threads must be a list of names, not a string")


def put_all(write: Write, pieces: Iterable[str]) -> int:
    """Write texts one after the other, and return the number of bytes."""
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
        raise InvalidArgument(f"{os.fspath(path)} already exists; nothing was written. Name a new file.") from None
    except OSError as error:
        raise HoldfastError(
            f"cannot write {os.fspath(path)} ({error.strerror}); nothing was exported. Name another file."
        ) from error
    return os.fdopen(number, "wb", buffering=1 << 20)
