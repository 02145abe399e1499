"""How many bytes a store writes to its WAL."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from types import TracebackType
from typing import Self

_FRAME_HEADER = 24


class WalMeter:
    """Counts the frames appended to a WAL, from the header of its index (SQLite's file format, "WAL-index header").

    The size of the WAL file is not enough: the file is overwritten from its start after a checkpoint. Call `look` after
    every commit, because frames that were overwritten between two calls are missed. Create the meter before the store,
    and `start` it when the store is open. It is then closed last: closing any descriptor of a file drops the locks that
    the process holds on it.
    """

    def __init__(self, database: Path) -> None:
        self._path = f"{database}-shm"
        self._descriptor = -1
        self._salts, self._frames = (0, 0), 0
        self.written = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def start(self) -> None:
        self._descriptor = os.open(self._path, os.O_RDONLY)
        self._salts, self._frames = self._header()

    def look(self) -> int:
        """Bytes appended since the last call."""
        salts, frames = self._header()
        new = frames - self._frames if salts == self._salts else frames
        self._salts, self._frames = salts, frames
        size = new * (self._page_size() + _FRAME_HEADER)
        self.written += size
        return size

    def database_size(self) -> int:
        """Size of the database with the contents of the WAL."""
        (count,) = struct.unpack_from("=I", os.pread(self._descriptor, 48, 0), 20)
        return int(count) * self._page_size()

    def _page_size(self) -> int:
        # Unknown before the first frame, which a newly opened store does not have.
        (size,) = struct.unpack_from("=H", os.pread(self._descriptor, 48, 0), 14)
        return int(size)

    def _header(self) -> tuple[tuple[int, int], int]:
        header = os.pread(self._descriptor, 48, 0)
        (frames,) = struct.unpack_from("=I", header, 16)
        first, second = struct.unpack_from("=2I", header, 32)
        return (first, second), frames


def total_size(database: Path) -> int:
    """Bytes of a store on disk: the database and the files next to it that start with its name."""
    return sum(path.stat().st_size for path in database.parent.glob(f"{database.name}*"))
