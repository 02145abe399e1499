"""Logs that cannot be followed. They are recorded, so that nothing they may need is removed."""

from __future__ import annotations

import errno
import os
from typing import Final, NamedTuple

from holdfast.errors import Damaged, HoldfastError, ReadOnly
from holdfast.stores.directory import files, lines
from holdfast.stores.directory import records as r
from holdfast.stores.directory.lines import Damage
from holdfast.stores.directory.names import LOG

_USUAL_LINE: Final = 512
_LONGEST_LINE: Final = 1 << 20
# Errors of this process, not of the file.
_NOT_THE_FILES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class Unread(NamedTuple):
    """A folder with a log that cannot be followed. `number` is None if not even its first line gives it."""

    folder: str
    number: int | None
    error: HoldfastError

    def refusal(self) -> Damaged:
        """The error for a caller that was about to remove data that this thread may need."""
        if isinstance(self.error, Damaged):
            return self.error
        return Damaged(
            f"{self.folder}: the log cannot be read ({self.error}), so it is unknown which data it needs; nothing was "
            "removed"
        )


def unread(folder: str, error: HoldfastError | OSError) -> Unread:
    """Describe a log that cannot be followed because of this error."""
    if isinstance(error, OSError):
        if error.errno in _NOT_THE_FILES:
            raise error
        translated = files.translate(error, folder)
        return Unread(folder, None, translated if isinstance(translated, ReadOnly) else Damaged(str(translated)))
    return Unread(folder, first_number(folder), error)


def lost(path: str, tail: Damage | None) -> Damaged:
    """The error for a log without any complete group."""
    if tail is not None:
        return Damaged(f"{tail}; no line before the damage names the thread")
    return Damaged(
        f"{path}: the log has no undamaged group, so the thread is lost. Restore the file from a copy, or move its "
        "folder out of the store."
    )


def first_number(folder: str) -> int | None:
    """The number in the first line of a log; None if it cannot be read."""
    try:
        descriptor = os.open(os.path.join(folder, LOG), os.O_RDONLY | files.NO_LINK)
    except OSError:
        return None
    try:
        line, end, _ = os.pread(descriptor, _USUAL_LINE, 0).partition(b"\n")
        if not end:
            line, end, _ = os.pread(descriptor, _LONGEST_LINE, 0).partition(b"\n")
        record = r.replayed(line) if lines.is_whole(line) else None
    except (Damaged, OSError):
        return None
    finally:
        os.close(descriptor)
    return record.number if isinstance(record, r.ThreadLine) else None
