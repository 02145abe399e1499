"""Pending writes: each `put_writes` is one entry in the journal of its thread, found by the id of its checkpoint."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from operator import is_
from typing import Any, Final, NamedTuple, TypeAlias

from langgraph.checkpoint.base import writes_sort_key
from msgspec.structs import replace

from holdfast.adapters.langgraph.messages import SENT, StoredValue, are_messages
from holdfast.adapters.langgraph.serde import EXT, PAYLOAD
from holdfast.adapters.langgraph.stored import Left, Stored
from holdfast.codec import msgpack
from holdfast.errors import Conflict, Damaged, NotFound
from holdfast.stores.contract_runs import Entry, RunRow
from holdfast.threads.context import MAX_RETRIES, Context, ThreadLock
from holdfast.threads.scan import PAGE

KIND: Final = "write"
COPIED: Final = "$copied"
"""The key of an entry that marks a copied thread: its own journal has the writes of its first checkpoint."""
_DEEPEST: Final = 5  # steps of a path: what is sent to a tool has the state in a dict
_STR: Final = frozenset((str,))
_KNOWN_MAX: Final = 1024  # checkpoints whose writes are cached …
_KNOWN_BYTES: Final = 4_194_304  # … if these take no more bytes


class Write(NamedTuple):
    """One value that a task wrote: to a channel, or an error, an interrupt or its answer (with a negative index)."""

    task: str
    path: str
    number: int
    channel: str
    value: StoredValue


def entry_of(checkpoint: str, task: str, path: str, content: Any) -> Entry:
    """The journal entry of a task's writes. The store numbers it."""
    now = time.time_ns() // 1000
    return Entry(
        branch=1,
        step=0,
        key=task,
        name=path,
        kind=KIND,
        status="done",
        arguments=b"",
        fence=0,
        started_at=now,
        ended_at=now,
        result=msgpack.encode(content),
        topic=checkpoint,
    )


Find: TypeAlias = Callable[[list[Any]], "tuple[str, int, int] | None"]
"""Find a stored list that starts with the same messages as a list: its key, how many are the same, and a checksum."""


def shortened(value: Any, find: Find, left: list[Left], path: tuple[Any, ...] = ()) -> Any:
    """Leave out of each list of messages in a value those that `find` finds, and add what was left out to `left`.

    Unchanged parts are not copied. Lists are looked for in dicts, and in what is sent to a task.
    """
    kind = type(value)
    if kind is list:
        # A single message is mostly new.
        found = find(value) if len(value) > 1 and are_messages(value) else None
        if found is not None:
            left.append([path, *found])
            return value[found[1] :]
    elif kind is dict and len(path) < _DEEPEST and EXT not in value and _STR.issuperset(map(type, value)):
        members = {key: shortened(member, find, left, (*path, key)) for key, member in value.items()}
        if not all(map(is_, members.values(), value.values())):
            return members
    elif (kind.__module__, kind.__name__) == SENT:
        argument = shortened(value.arg, find, left, (*path, PAYLOAD, 2, 1))
        if argument is not value.arg:
            sent = copy(value)
            sent.arg = argument
            return sent
    return value


def idle_run(thread: int = 0) -> RunRow:
    """The run of a thread of a graph while no invocation is under way. A journal belongs to a run."""
    now = time.time_ns() // 1000
    return RunRow(thread=thread, status="completed", fence=1, created_at=now, updated_at=now)


def content_of(entry: Entry) -> Any:
    """The content of an entry. Damaged if it is not what `entry_of` wrote."""
    try:
        return None if entry.result is None else msgpack.decode(entry.result)
    except ValueError as error:
        raise Damaged(f"journal entry {entry.number} cannot be read") from error


def merged(entries: Iterable[Entry], stored: Callable[[], Stored]) -> list[Write]:
    """The writes of entries in the order in which LangGraph applies them. `stored` loads their checkpoint.

    If two have the same task and index, the first is kept; of special ones (errors, interrupts, answers) the last.
    """
    found: dict[tuple[str, int], Write] = {}
    paths: dict[str, str] = {}
    for entry in entries:
        if entry.result is None:
            continue  # of an earlier checkpoint with the same id, which was deleted
        path = paths.setdefault(entry.key, entry.name)  # a task has one path
        for index, channel, value, *left in content_of(entry):
            place = entry.key, index
            if index < 0 or place not in found:
                if left:
                    value = stored().completed(value, left)  # noqa: PLW2901 - the value is only complete with it
                found[place] = Write(entry.key, path, index, channel, StoredValue(value))
    return sorted(found.values(), key=_order)


def _order(write: Write) -> tuple[str, str, int]:
    return writes_sort_key(write.path, write.task, write.number)


class WriteJournal:
    """The writes of one thread. Many callers may write at the same time: one of them writes the entries of all."""

    def __init__(self, context: Context, lock: ThreadLock) -> None:
        self._context = context
        self._lock = lock
        self._queue_lock = threading.Lock()
        self.queue: list[_Queued] = []
        self._thread = 0
        self._last: int | None = None  # the newest entry that was seen
        self._known: OrderedDict[str, list[Entry]] = OrderedDict()  # all entries of a checkpoint, up to `_last`
        self.size = 0  # the bytes of these
        self._merged: dict[str, tuple[int, list[Write]]] = {}  # of those in `_known`, with the newest entry of each
        self._others: set[str] = set()  # checkpoints with entries that were not in `_known` at some time
        self._is_complete = False  # whether every checkpoint with entries is in `_known` or `_others`

    def append(self, entry: Entry, thread: Callable[[int], int]) -> None:
        """Store an entry.

        `thread` returns the number of the thread, and creates the thread if it does not exist. It is called with the
        number of a thread that was deleted, or with 0.
        """
        own = _Queued(entry)
        with self._queue_lock:
            self.queue.append(own)
        with self._lock:
            if not own.is_done:
                with self._queue_lock:
                    batch, self.queue = self.queue, []
                self._flush(batch, thread)
        if own.error is not None:
            raise own.error

    def _flush(self, batch: list[_Queued], thread: Callable[[int], int]) -> None:
        for queued in batch:
            queued.is_done, queued.error = True, Conflict("the write was interrupted; nothing was stored. Try again.")
        try:
            self._write([queued.entry for queued in batch], thread)
        except Exception as error:  # noqa: BLE001 - raised in the thread that waits for it
            if len(batch) == 1:
                batch[0].error = error
                return
            for queued in batch:  # each gets its own outcome
                self._flush([queued], thread)
        else:
            for queued in batch:
                queued.error = None

    def _write(self, entries: list[Entry], thread: Callable[[int], int]) -> None:
        gone = 0
        for _ in range(MAX_RETRIES):
            number = thread(gone)
            self._at(number)
            try:
                if self._last is None:
                    self._see(self._context.store.last_entry(number))
                last = self._last or 0
                numbered = [replace(entry, number=last + at) for at, entry in enumerate(entries, 1)]
                self._context.store.journal(number, None, numbered, last=last)
            except NotFound:
                gone = 0 if self._make_run(number) else number
            except Conflict:
                self._look(number)
            else:
                self._learn(numbered)
                return
        raise Conflict(f"other writers were faster {MAX_RETRIES} times; the writes were not stored. Try again.")

    def _make_run(self, number: int) -> bool:
        """Give a thread its journal: one that Holdfast forked has none. False if the thread was deleted."""
        try:
            self._context.store.claim(None, idle_run(number))
        except NotFound:
            return False
        except Conflict:
            self._last = None
        return True

    def look(self, thread: int) -> None:
        """Read the entries that others have added since the last look. Call it with the lock held."""
        self._at(thread)
        if self._last is None:
            self._see(self._context.store.last_entry(thread))
        else:
            self._look(thread)

    def _see(self, last: int) -> None:
        self._last = last
        self._is_complete = last == 0

    def _keep(self, checkpoint: str, entries: list[Entry]) -> None:
        for entry in entries:
            self.size += len(entry.result or b"")
        self._known[checkpoint] = entries
        if len(self._known) > _KNOWN_MAX or self.size > _KNOWN_BYTES:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        """Drop cached entries until the others are few enough."""
        while self._known and (len(self._known) > _KNOWN_MAX or self.size > _KNOWN_BYTES):
            checkpoint = next(iter(self._known))
            self._others.add(checkpoint)  # first: after an interrupt or a fork() it would seem to have no writes
            self._merged.pop(checkpoint, None)
            for entry in self._known.pop(checkpoint):
                self.size -= len(entry.result or b"")
        if not self._known:
            self.size = 0  # an interrupt may have left it too large

    def of(self, thread: int, checkpoint: str) -> list[Entry]:
        """The entries of a checkpoint as of the last look, oldest first. Call it with the lock held."""
        if thread != self._thread or self._last is None:
            self.look(thread)
        known = self._known.get(checkpoint)
        if known is not None:
            self._known.move_to_end(checkpoint)
            return known
        is_none = self._is_complete and checkpoint not in self._others
        known = [] if is_none else [entry for entry in self._all(thread, checkpoint) if entry.kind == KIND]
        self._keep(checkpoint, known)
        return known

    def writes(self, thread: int, checkpoint: str, stored: Callable[[], Stored]) -> list[Write]:
        """The writes of a checkpoint as of the last look. They may be those that were returned before."""
        entries = self.of(thread, checkpoint)
        if not entries:
            return []
        last, known = self._merged.get(checkpoint, (0, []))
        if last != entries[-1].number:
            known = merged(entries, stored)
            if checkpoint in self._known:
                self._merged[checkpoint] = entries[-1].number, known
        return known

    def all(self, thread: int) -> list[Entry]:
        """All writes of the thread."""
        return [entry for entry in self._all(thread) if entry.kind == KIND and entry.result is not None]

    def blank(self, thread: int, entries: Iterable[Entry]) -> None:
        """Remove the content of entries whose checkpoints were deleted. Their numbers and topics stay."""
        now = time.time_ns() // 1000
        self.replace(thread, [replace(entry, key="", name="", result=None, ended_at=now) for entry in entries])

    def replace(self, thread: int, entries: Sequence[Entry]) -> None:
        """Store other content under the numbers of these entries."""
        for at in range(0, len(entries), PAGE):
            self._context.store.journal(thread, None, entries[at : at + PAGE], last=None)
        self.forget()

    def forget(self) -> None:
        """Read the journal anew: the thread may be another one now."""
        self._thread, self._last, self._is_complete = 0, None, False
        self._known.clear()
        self.size = 0
        self._merged.clear()
        self._others.clear()

    def _at(self, thread: int) -> None:
        if thread != self._thread:
            self.forget()
            self._thread = thread

    def _look(self, thread: int) -> None:
        after = self._last or 0
        while page := self._context.store.entries(thread, after=after, limit=PAGE):
            self._learn(page)
            after = page[-1].number
            if len(page) < PAGE:
                return

    def _learn(self, entries: list[Entry]) -> None:
        for entry in entries:
            if entry.topic is None or entry.kind != KIND:
                continue
            known = self._known.get(entry.topic)
            if known is None and self._is_complete and entry.topic not in self._others:
                self._keep(entry.topic, [entry])
            elif known is None:
                self._others.add(entry.topic)
            elif not known or known[-1].number < entry.number:
                self.size += len(entry.result or b"")
                known.append(entry)
        if entries:
            self._last = entries[-1].number
        if self.size > _KNOWN_BYTES:
            self._drop_oldest()

    def _all(self, thread: int, topic: str | None = None) -> Iterable[Entry]:
        after = 0
        while page := self._context.store.entries(thread, after=after, limit=PAGE, topic=topic):
            yield from page
            after = page[-1].number
            if len(page) < PAGE:
                return

    def renew(self) -> None:
        """Reset after fork(): the threads that held the lock or waited do not exist in the child."""
        self._queue_lock = threading.Lock()
        self.queue = []


class _Queued:
    """An entry that waits to be written, and its outcome."""

    __slots__ = ("entry", "error", "is_done")

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.is_done = False
        self.error: Exception | None = None
