"""Logs that cannot be followed: what is known of them all the same, so that nothing goes which they may need."""

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
# What is wrong with this process, and not with the file that it could not open.
_NOT_THE_FILES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class Unread(NamedTuple):
    """A folder with a log that cannot be followed. `number` is None where not even its first line says it."""

    folder: str
    number: int | None
    error: HoldfastError

    def refusal(self) -> Damaged:
        """The error for who was about to remove what this one may need."""
        if isinstance(self.error, Damaged):
            return self.error
        return Damaged(f"{self.folder}: what it needs cannot be known, so nothing was removed. {self.error}")


def unread(folder: str, error: HoldfastError | OSError) -> Unread:
    """What there is to know of a log that cannot be followed for this reason."""
    if isinstance(error, OSError):
        if error.errno in _NOT_THE_FILES:
            raise error
        translated = files.translate(error, folder)
        return Unread(folder, None, translated if isinstance(translated, ReadOnly) else Damaged(str(translated)))
    return Unread(folder, first_number(folder), error)


def lost(path: str, tail: Damage | None) -> Damaged:
    """The error for a log that has no group left that is whole: none was ever put in its place without one."""
    if tail is not None:
        return Damaged(f"{tail}; nothing before it says which thread this is")
    return Damaged(
        f"{path}: no group of its lines is whole, so that the thread in it is lost. Put a copy of the file in its "
        "place, or move its folder out of the store"
    )


def first_number(folder: str) -> int | None:
    """The number that the first line of a log says; None if it does not."""
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
