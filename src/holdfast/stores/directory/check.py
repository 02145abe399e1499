"""Check the directory store: find damage, and what it affects."""

from __future__ import annotations

import os
from collections.abc import Iterator

from holdfast.errors import HoldfastError
from holdfast.stores.directory import files
from holdfast.stores.directory.names import LOG, folder_name, name_of
from holdfast.stores.directory.replay import Thread
from holdfast.stores.directory.space import Followed, Space
from holdfast.types import Problem


def problems(space: Space) -> Iterator[Problem]:
    space.ledger_log.catch_up()
    for damage in [*space.ledger.damages, space.ledger.tail_damage]:
        if damage is not None:
            yield Problem(None, (), str(damage))
    known: dict[int, Followed] = {}
    for found in space.everything():
        known[found.thread.number] = found
        yield from _thread(found)
    told = {found.folder for found in known.values()}
    for unread in space.unread:
        told.add(unread.folder)
        yield Problem(name_of(os.path.basename(unread.folder)), (), f"{unread.folder}: {unread.error}")
    strangers = [folder for folder in space.folders() if folder not in told and _has_log(folder)]
    if strangers:  # or created or moved while this was checking: read again
        told = {found.folder for found in space.everything()} | {unread.folder for unread in space.unread}
    for folder in strangers:
        if folder not in told and _has_log(folder):
            yield from _stranger(space, folder)


def _has_log(folder: str) -> bool:
    return files.is_there(os.path.join(folder, LOG))


def _stranger(space: Space, folder: str) -> Iterator[Problem]:
    """Check a folder whose log could not be followed, or that holds another thread's log."""
    found = Followed(folder, space.form)
    try:
        found.log.catch_up()
        thread = found.thread
        if thread.number:
            yield Problem(None, (), f"{folder}: a copy of the thread with number {thread.number}, or a renamed folder")
        elif thread.tail_damage is not None:
            yield Problem(None, (), str(thread.tail_damage))
    except HoldfastError as error:
        yield Problem(None, (), f"{folder}: {error}")
    finally:
        found.log.close()


def _thread(found: Followed) -> Iterator[Problem]:
    thread = found.thread
    name = thread.name
    for damage in thread.damages:
        yield Problem(name, (), str(damage))
    if thread.tail_damage is not None:
        yield Problem(name, (), f"{thread.tail_damage}, and no complete group follows")
    if name is not None and os.path.basename(found.folder) != folder_name(name):
        yield Problem(name, (), f"{found.folder}: the folder has the name of another thread")
    if thread.is_gone or thread.stand is None or thread.tail_damage is not None or thread.stand_damage is not None:
        return
    yield from _history(thread, name)
    if len(thread.entries) != thread.newest_entry:
        yield Problem(name, (), "journal entries are missing")
    if thread.run_row is None and thread.run_damage is None and thread.entries:
        yield Problem(name, (), "the thread has a journal but no run")
    if thread.run_row is not None and thread.run_row.thread != thread.number:
        yield Problem(name, (), "the run belongs to another thread")


def _history(thread: Thread, name: str | None) -> Iterator[Problem]:
    at = thread.at
    lost = tuple(seq for seq in range(1, at.last + 1) if seq not in thread.rows)
    if lost:
        yield Problem(name, lost, "checkpoints are missing")
    elif len(thread.rows) != at.last:
        yield Problem(name, (), "the checkpoints do not match their numbers")
    elif not thread.has(at.head):
        yield Problem(name, (at.head,), "the checkpoint at the head is missing or deleted")
    elif at.count != sum(row.place is not None for row in thread.rows.values()):
        yield Problem(name, (), "the number of checkpoints differs from the thread's record")
