"""The tail of a log: what lies behind its last whole group.

A crash leaves half a group there, or zeros where the file grew before its bytes came: never acknowledged, so it is
set aside, not read. A whole line that is wrong is something else: it was written whole, and has changed since.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from holdfast.stores.directory import files
from holdfast.stores.directory.lines import Line, is_torn, open_line


def damage(rest: bytes, lines: Sequence[Line], offset: int) -> tuple[int, int] | None:
    """Where (offset and length) a tail that lies at `offset` is damaged, and not only torn; None if it is not."""
    for line in lines:
        at = line.offset - offset
        if line.body is None and not is_torn(rest[at : at + line.length]):
            return line.offset, line.length
    last = rest.rpartition(b"\n")[2]
    if last and last[-1:] != b"\0" and open_line(last[:-1]) is not None:
        return offset + len(rest) - 1, 1  # only the line break of a line that is whole has changed
    return None


def set_aside(path: str, descriptor: int, end: int, *, sync: bool) -> str:
    """Move what follows the last whole group into a file of its own beside the log; the path of that file."""
    rest = os.pread(descriptor, os.fstat(descriptor).st_size - end, end)
    aside = _free_name(os.path.dirname(path), end)
    files.replace_file(aside, [rest], sync=sync)
    os.ftruncate(descriptor, end)
    if sync:
        files.sync_data(descriptor)
    return aside


def _free_name(folder: str, end: int) -> str:
    number = 1
    while os.path.exists(path := os.path.join(folder, f"torn-{end}-{number}")):
        number += 1
    return path
