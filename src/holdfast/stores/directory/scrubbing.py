"""Scrubbing: of threads that were dropped, nothing stays in the files but the cells that forks use."""

from __future__ import annotations

import os
from typing import Final

from holdfast.errors import Damaged, NewerFormat
from holdfast.stores.directory import files
from holdfast.stores.directory.maintenance import can_be_rewritten, sweep_leftovers, unlink_unless_locked
from holdfast.stores.directory.names import LOG
from holdfast.stores.directory.rewriting import Rewriting
from holdfast.stores.directory.space import Space

BEYOND: Final = ("blocks that the file system has freed and not yet written over, its snapshots, and backups",)


def clear(space: Space) -> tuple[list[int], list[str]]:
    """Remove what nothing needs. The dropped threads that stay, and what is in the way. Only under the gate."""
    left: list[str] = []
    try:
        sweep_leftovers(space)
    except (Damaged, NewerFormat):
        left.append(
            f"{space.path}: something there cannot be read, so nobody knows which cells of dropped threads it uses"
        )
    gone = [found.thread.number for found in space.everything() if found.thread.is_gone]
    left += [f"{other.folder}: what is in it cannot be read, and was left as it is" for other in space.unread]
    return gone, left


def plan(space: Space, number: int) -> tuple[Rewriting | None, list[str]]:
    """How the log of a dropped thread becomes one of cells alone, and what is in the way. Only under the gate."""
    found = space.numbered(number)
    if found is None or not found.thread.is_gone:
        return None, []
    path = found.log.path
    if not can_be_rewritten(found.thread):
        return None, [f"{path}: it is damaged, and was left as it is"]
    left = [f"{path}: its damaged lines were left as they are"] if found.thread.damages else []
    return Rewriting(space, found, frozenset()), left


def tidy(space: Space) -> list[str]:
    """Remove what lies beside the logs of dropped threads, and make it durable. What is in the way."""
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
                    left.append(f"{path}: somebody is writing it; erase again when that has ended")
        if LOG not in names:
            left.append(f"{folder}: it could not be removed")
        if space.sync:
            files.sync_folder(folder)
    space.tidy_ledger(is_forced=True)
    for kind in ("threads", "dropped"):
        if space.sync and os.path.isdir(folder := os.path.join(space.path, kind)):
            files.sync_folder(folder)
    return left
