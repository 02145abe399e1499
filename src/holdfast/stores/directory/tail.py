"""The tail of a log: what lies behind its last whole group.

A crash leaves half a group there, or zeros where the file grew before its bytes came: never acknowledged, so it is
set aside, not read. A whole line that is wrong is something else: it was written whole, and has changed since.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from holdfast.stores.directory import files
from holdfast.stores.directory.lines import Line, has_holes, is_whole


def damage(rest: bytes, lines: Sequence[Line], offset: int) -> tuple[int, int] | None:
    """Where (offset and length) a tail that lies at `offset` is damaged, and not only torn; None if it is not."""
    end = offset + len(rest)
    for line in lines:
        at = line.offset - offset
        if line.body is None and not has_holes(rest[at : at + line.length], line.offset, offset, end):
            return line.offset, line.length
    last = rest.rpartition(b"\n")[2]
    is_torn = has_holes(last, end - len(last), offset, end)
    if b"\0" in last and not is_torn:
        return end - len(last), len(last)
    if last and not is_torn and is_whole(last[:-1]):
        return end - 1, 1  # only the line break of a line that is whole has changed
    return None


def is_torn(data: bytes, lines: Sequence[Line], offset: int, start: int) -> bool:
    """Whether the last group of a log was never written whole: sectors are missing before its end, which is there.

    `data` lies at `offset`, the group's `lines` from `start` on.
    """
    end = offset + len(data)
    bad = [line for line in lines if line.body is None]
    return bool(bad) and all(
        has_holes(data[line.offset - offset : line.offset - offset + line.length], line.offset, start, end)
        for line in bad
    )


def set_aside(path: str, descriptor: int, end: int, *, sync: bool) -> str:
    """Move what follows the last whole group into a file of its own beside the log; the path of that file."""
    rest = files.stretches(descriptor, end, os.fstat(descriptor).st_size)
    aside = _free_name(os.path.dirname(path), end)
    files.replace_file(aside, rest, sync=sync)
    os.ftruncate(descriptor, end)
    if sync:
        files.sync_data(descriptor)
    return aside


def _free_name(folder: str, end: int) -> str:
    number = 1
    while files.is_there(path := os.path.join(folder, f"torn-{end}-{number}")):
        number += 1
    return path
