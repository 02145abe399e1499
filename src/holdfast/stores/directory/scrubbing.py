"""Scrub the files of dropped threads: only the cells that forks use remain."""

from __future__ import annotations

import os
from typing import Final

from holdfast.errors import Damaged, NewerFormat
from holdfast.stores.directory import files
from holdfast.stores.directory.maintenance import can_be_rewritten, sweep_leftovers, unlink_unless_locked
from holdfast.stores.directory.names import LOG
from holdfast.stores.directory.rewriting import Rewriting
from holdfast.stores.directory.space import Space

BEYOND: Final = ("freed disk blocks that are not overwritten yet, file system snapshots, and backups",)


def clear(space: Space) -> tuple[list[int], list[str]]:
    """Remove unneeded data. Return the dropped threads that stay, and what could not be removed.

    The caller holds the gate.
    """
    left: list[str] = []
    try:
        sweep_leftovers(space)
    except (Damaged, NewerFormat):
        left.append(f"{space.path}: a log cannot be read, so cells of dropped threads that it may use were kept")
    gone = [found.thread.number for found in space.everything() if found.thread.is_gone]
    left += [f"{other.folder}: the log cannot be read; it was left unchanged" for other in space.unread]
    return gone, left


def plan(space: Space, number: int) -> tuple[Rewriting | None, list[str]]:
    """The rewrite of a dropped thread's log to cells alone, and what cannot be removed. The caller holds the gate."""
    found = space.numbered(number)
    if found is None or not found.thread.is_gone:
        return None, []
    path = found.log.path
    if not can_be_rewritten(found.thread):
        return None, [f"{path}: the log is damaged; it was left unchanged"]
    left = [f"{path}: damaged lines of the log were left unchanged"] if found.thread.damages else []
    return Rewriting(space, found, frozenset()), left


def tidy(space: Space) -> list[str]:
    """Remove other files in the folders of dropped threads, durably; return what could not be removed."""
    left: list[str] = []
    for folder in list(space.folders()):
        if os.path.basename(os.path.dirname(folder)) != "dropped":
            continue
        names = os.listdir(folder)
        for name in names:
            path = os.path.join(folder, name)
            if name != LOG:
                unlink_unless_locked(path)
                if files.is_there(path):
                    left.append(f"{path}: another process is writing the file. Erase again when it has finished.")
        if LOG not in names:
            left.append(f"{folder}: the folder cannot be removed")
        if space.sync:
            files.sync_folder(folder)
    space.tidy_ledger(is_forced=True)
    for kind in ("threads", "dropped"):
        if space.sync and os.path.isdir(folder := os.path.join(space.path, kind)):
            files.sync_folder(folder)
    return left
