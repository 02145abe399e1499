"""The tail of a log: the bytes after its last complete group.

A crash leaves half a group there, or zeros where the file grew before its data was written. Such a tail was never
acknowledged, so it is set aside and not read. A complete line with a wrong checksum is different: it was written
completely and has changed since, so it is damage.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from holdfast.stores.directory import files
from holdfast.stores.directory.lines import Line, has_holes, is_whole


def damage(rest: bytes, lines: Sequence[Line], offset: int) -> tuple[int, int] | None:
    """The offset and length of damage in a tail at `offset`; None if the tail is only torn."""
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
        return end - 1, 1  # only the line break after a complete line has changed
    return None


def is_torn(data: bytes, lines: Sequence[Line], offset: int, start: int) -> bool:
    """Whether the last group of a log was never completely written: its end line exists, but sectors before it do not.

    `data` is at `offset` in the file; the group's `lines` are at `start`.
    """
    end = offset + len(data)
    bad = [line for line in lines if line.body is None]
    return bool(bad) and all(
        has_holes(data[line.offset - offset : line.offset - offset + line.length], line.offset, start, end)
        for line in bad
    )


def set_aside(path: str, descriptor: int, end: int, *, sync: bool) -> str:
    """Move the bytes after the last complete group to a separate file next to the log; return its path."""
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
