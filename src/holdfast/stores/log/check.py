"""Check the logs of a namespace: find damage, and what it affects."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.errors import HoldfastError
from holdfast.stores.log.device import Moved, name_in, thread_key
from holdfast.stores.log.namespace import Namespace, ThreadLog
from holdfast.stores.log.replay import ReplayedThread
from holdfast.types import Problem


def problems(space: Namespace) -> Iterator[Problem]:
    space.ledger_log.catch_up()
    for damage in [*space.ledger.damages, space.ledger.tail_damage]:
        if damage is not None:
            yield Problem(None, (), str(damage))
    known: set[str] = set()
    for found in space.everything():
        known.add(found.key)
        yield from _thread(found)
    for unread in space.unread:
        known.add(unread.key)
        yield Problem(name_in(unread.key), (), f"{unread.path}: {unread.error}")
    strangers = [key for key in space.log_keys() if key not in known and _is_there(space, key)]
    if strangers:  # or created or moved while this was checking: read again
        known = {found.key for found in space.everything()} | {unread.key for unread in space.unread}
        known.update(space.leftovers)
    for key in strangers:
        if key not in known and _is_there(space, key):
            yield from _stranger(space, key)


def _is_there(space: Namespace, key: str) -> bool:
    return space.device.log(key).stat() is not None


def _stranger(space: Namespace, key: str) -> Iterator[Problem]:
    """Check a log that could not be followed, or that is under the key of another thread."""
    found = ThreadLog(key, space.device.log(key), lambda _: False)
    try:
        found.catch_up()
        if found.thread.number:
            number = found.thread.number
            yield Problem(None, (), f"{found.path}: a copy of the thread with number {number}, or a renamed folder")
        elif found.thread.tail_damage is not None:
            yield Problem(None, (), str(found.thread.tail_damage))
    except (HoldfastError, Moved) as error:
        yield Problem(None, (), f"{found.path}: {error}")
    finally:
        found.close()


def _thread(found: ThreadLog) -> Iterator[Problem]:
    thread = found.thread
    name = thread.name
    for damage in thread.damages:
        yield Problem(name, (), str(damage))
    if thread.tail_damage is not None:
        yield Problem(name, (), f"{thread.tail_damage}, and no complete group follows")
    if name is not None and found.key != thread_key(name):
        yield Problem(name, (), f"{found.path}: the folder has the name of another thread")
    if thread.is_gone or thread.stand is None or thread.tail_damage is not None or thread.stand_damage is not None:
        return
    yield from _history(thread, name)
    if len(thread.entries) != thread.newest_entry:
        yield Problem(name, (), "journal entries are missing")
    if thread.run_row is None and thread.run_damage is None and thread.entries:
        yield Problem(name, (), "the thread has a journal but no run")
    if thread.run_row is not None and thread.run_row.thread != thread.number:
        yield Problem(name, (), "the run belongs to another thread")


def _history(thread: ReplayedThread, name: str | None) -> Iterator[Problem]:
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
