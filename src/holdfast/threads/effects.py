"""Effects of a thread's run: the calls of tools after a checkpoint, which a rewind does not undo."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from holdfast.errors import EffectsAhead
from holdfast.stores.contract import CheckpointRow, Hashing, Store, ThreadRow
from holdfast.stores.contract_runs import Entry, RunRow
from holdfast.text import quoted, to_utf8
from holdfast.threads.ancestry import Ancestry, boundary_of
from holdfast.threads.scan import checkpoint_at, entries, thread_named

_ACTING = ("idempotent", "irreversible")
_WITHOUT_OUTCOME = ("failed", "late", "asked")
IDENTITY_REDACTED = 4  # in `Entry.redacted`: the readable identity of its act
TOOL_BYTES = 8  # of the key of an act: the start of the keys of all acts of its tool
_END = 1 << 62

Root = tuple[int, int]  # the call that entries are about: the thread of its journal, and its number there


class Action(msgspec.Struct, frozen=True):
    """A call that had an effect, or may have had one."""

    thread: ThreadRow
    topic: str  # of the entry that undoes it
    entry: Entry  # its newest entry in the ancestry of the head
    outcome: Entry  # the newest entry with its outcome


class Ended(msgspec.Struct, frozen=True):
    """A child that completed. `entry` is its parent's entry, whose result may depend on the effects of the child."""

    thread: ThreadRow
    topic: str  # of the entry that undoes it
    entry: Entry
    below: tuple[Action, ...]
    is_undone_in_part: bool


def require_none_ahead(store: Store, thread: ThreadRow, to: CheckpointRow) -> None:
    """Raise EffectsAhead if an irreversible call was made after a checkpoint, on the way to the thread's head."""
    actions = [action for action in actions_ahead(store, thread, to) if isinstance(action, Action)]
    ahead = sorted({action.entry.name for action in actions if action.entry.kind == "irreversible"})
    if ahead:
        raise EffectsAhead(
            f"thread {quoted(thread.name)}: {', '.join(ahead)} ran after that checkpoint, and a rewind does not undo "
            "it; nothing was changed. Call hf.undo(), or pass past_effects=True (--past-effects)."
        )


def require_none_open(store: Store, thread: ThreadRow, run: RunRow) -> None:
    """Raise EffectsAhead if the open step of a run has made an irreversible call, which a save would drop."""
    number, boundary = thread.position.thread, boundary_of(run, thread.position)
    to = checkpoint_at(store, number, thread.position.head if boundary is None else boundary.seq)
    target = None if to is None else Ancestry.to(store, number, to)

    def is_open(row: Entry) -> bool:
        return row.number > run.closed and (target is None or not target.holds(row.branch, row.step))

    actions = [action for action in _actions(store, thread, is_open) if isinstance(action, Action)]
    if ahead := sorted({action.entry.name for action in actions if action.entry.kind == "irreversible"}):
        raise EffectsAhead(
            f"thread {quoted(thread.name)}: the open step of its run has called {', '.join(ahead)}; after a save the "
            "run would call it again, so nothing was saved. Resume the run first, or pass past_effects=True if the "
            "state includes the call."
        )


def actions_ahead(store: Store, thread: ThreadRow, to: CheckpointRow) -> list[Action | Ended]:
    """The calls that a rewind from the head to a checkpoint would abandon, oldest first. Undone ones are left out.

    The calls of a child count where its parent started it.
    """
    target = Ancestry.to(store, thread.position.thread, to)
    return _actions(store, thread, lambda row: not target.holds(row.branch, row.step))


# -- the journal of a thread ------------------------------------------------------------------------------------------


class ChildEntries(msgspec.Struct, frozen=True):
    """The entries of a child that belong to one entry of its parent: those above `since`, up to `until`."""

    entry: Entry
    since: int
    until: int

    def holds(self, row: Entry) -> bool:
        return self.since < row.number <= self.until


class Record:
    """The entries of a thread's journal that are about effects, and its children."""

    def __init__(self, store: Store, thread: int) -> None:
        self.thread = thread
        self.rows: dict[int, Entry] = {}
        self.undone: set[int] = set()
        children: list[Entry] = []
        for row in entries(store, thread):
            if row.kind == "undo" and row.status == "done":
                self.undone.add(row.matches)
            elif row.kind in _ACTING and row.status != "late":
                self.rows[row.number] = row
            elif row.kind == "child":
                children.append(row)
        # A result taken from another journal is undone there.
        for row in self.rows.values():
            if row.matches_thread and any(
                known.status == "done" for known in entries(store, row.matches_thread, 0, undo_topic(row.matches))
            ):
                self.undone.add(row.number)
        self.children: list[ChildEntries] = []
        ends: dict[str, int] = {}
        for row in reversed(children):
            self.children.insert(0, ChildEntries(row, row.valid_after, ends.get(row.name, _END)))
            ends[row.name] = row.valid_after

    def root_of(self, row: Entry) -> Root:
        """The call that an entry is about."""
        # A number that is not before the entry's own is damage; following it might never end.
        while 0 < row.matches < row.number and not row.matches_thread and row.matches in self.rows:
            row = self.rows[row.matches]
        return (row.matches_thread or self.thread, row.matches or row.number)

    def by_root(self) -> dict[Root, list[Entry]]:
        """The entries about each call, oldest first."""
        roots: dict[Root, list[Entry]] = {}
        for row in self.rows.values():
            roots.setdefault(self.root_of(row), []).append(row)
        return roots


def calls_of_child(store: Store, parent: ThreadRow, child: ChildEntries) -> Iterator[tuple[Root, Entry, bool]]:
    """The entries about the calls of a child and its children, with their roots, and whether each was undone."""
    thread = _thread_of(store, parent, child)
    if thread is None:
        return
    record = Record(store, thread.position.thread)
    for row in record.rows.values():
        if child.holds(row):
            yield record.root_of(row), row, row.number in record.undone
    for below in record.children:
        if child.holds(below.entry):
            yield from calls_of_child(store, thread, below)


def _thread_of(store: Store, parent: ThreadRow, child: ChildEntries) -> ThreadRow | None:
    """The thread of a child; None if it was deleted, or is not of this parent."""
    thread = thread_named(store, child.entry.name)
    run = None if thread is None else store.run(thread.position.thread)
    return thread if run is not None and run.parent == parent.name else None


def undo_topic(number: int) -> str:
    """The topic of the entry that undoes another."""
    return f"undo/{number}"


def is_undone(store: Store, thread: int, entry: Entry) -> bool:
    """Whether the call that an entry is about was undone. The undo has the topic of the first entry of the call."""
    seen: set[Root] = set()  # damaged entries may lead back to each other
    while entry.matches and (thread, entry.number) not in seen:
        seen.add((thread, entry.number))
        before = store.entries(entry.matches_thread or thread, after=entry.matches - 1, limit=1)
        if not before:
            break
        thread, entry = entry.matches_thread or thread, before[0]
    return any(row.status == "done" for row in entries(store, thread, 0, undo_topic(entry.number)))


def is_released_by(entry: Entry, other: Entry) -> bool:
    """Whether the release of another call of the same act also releases this call: it had ended by then."""
    return other.released is not None and (entry.ended_at or entry.started_at) <= other.released.at


def claim_rank(store: Store, thread: int, entry: Entry) -> int:
    """How far an entry supports a claim of its act: 2 if it did the act, 1 if it is in doubt, 0 if the act is free."""
    is_answered = entry.matches_thread and entry.settled is None  # by the call of another thread
    if entry.act is None or entry.released is not None or is_answered:
        return 0
    if entry.status in ("done", "late", "unstored"):
        return 0 if is_undone(store, thread, entry) else 2
    return 1 if entry.status in ("started", "in_doubt") else 0


def act_key(hashing: Hashing, tool: str, identity: str) -> bytes:
    """The key of an act. It starts with that of the tool, so that the acts of a tool are listed together."""
    act = hashing.signature()
    act.update(msgspec.msgpack.encode(("act", to_utf8(tool), to_utf8(identity))))
    return tool_key(hashing, tool) + act.digest()[TOOL_BYTES:]


def tool_key(hashing: Hashing, tool: str) -> bytes:
    """The start of the keys of a tool's acts."""
    found = hashing.signature()
    found.update(msgspec.msgpack.encode(("tool", to_utf8(tool))))
    return found.digest()[:TOOL_BYTES]


def outcome_of(rows: list[Entry]) -> Entry | None:
    """The newest outcome of a call, given all its entries, oldest first. None if the call did nothing."""
    newest = next((row for row in reversed(rows) if row.status not in _WITHOUT_OUTCOME), None)
    return None if newest is None or newest.status == "not_done" else newest


def origin_of(store: Store, thread: int) -> tuple[int, int] | None:
    """The checkpoint that a thread was forked from, as (thread, seq); None if it was not forked."""
    first = checkpoint_at(store, thread, 1)
    return None if first is None or first.parent is None or not first.parent[0] else first.parent


# -- actions of a thread and its children -----------------------------------------------------------------------------


def _actions(store: Store, thread: ThreadRow, is_ahead: Callable[[Entry], bool]) -> list[Action | Ended]:
    number = thread.position.thread
    record = Record(store, number)
    ancestry = Ancestry.of(store, thread.position)
    found: list[tuple[int, list[Action | Ended]]] = []
    origin = origin_of(store, number) if any(row.matches_thread for row in record.rows.values()) else None
    for root, rows in record.by_root().items():
        here = [row for row in rows if ancestry.holds(row.branch, row.step)]
        outcome = outcome_of(rows)
        if outcome is None or not here or not all(map(is_ahead, here)) or any(r.number in record.undone for r in rows):
            continue
        # Calls that the origin made are the origin's, and so are acts that another thread did.
        is_foreign = root[0] != number and (rows[0].act is not None or (origin is not None and root[0] == origin[0]))
        if not is_foreign:
            found.append((here[-1].number, [Action(thread, undo_topic(rows[0].number), here[-1], outcome)]))
    for child in record.children:
        if ancestry.holds(child.entry.branch, child.entry.step) and is_ahead(child.entry):
            found.append((child.entry.number, list(_of_child(store, thread, child))))
            if child.entry.status == "done" and child.entry.number not in record.undone:
                found.append((child.entry.number, [_ended(store, thread, record, child)]))
    return [action for _, actions in sorted(found, key=lambda each: each[0]) for action in actions]


def _ended(store: Store, thread: ThreadRow, record: Record, child: ChildEntries) -> Ended:
    """A child that completed. If it failed before and was run again, several entries share its work."""
    place = (child.entry.branch, child.entry.step, child.entry.key)
    tries = [each for each in record.children if (each.entry.branch, each.entry.step, each.entry.key) == place]
    undone = max((each.entry.number for each in tries if each.entry.number in record.undone), default=0)
    tries = [each for each in tries if undone < each.entry.number <= child.entry.number]
    below = [action for each in tries for action in _of_child(store, thread, each) if isinstance(action, Action)]
    is_undone = any(_is_undone_in_part(store, each) for each in tries)
    return Ended(thread, undo_topic(child.entry.number), child.entry, tuple(below), is_undone)


def _of_child(store: Store, parent: ThreadRow, child: ChildEntries) -> Iterator[Action | Ended]:
    thread = _thread_of(store, parent, child)
    if thread is not None:
        yield from _actions(store, thread, child.holds)


def _is_undone_in_part(store: Store, child: ChildEntries) -> bool:
    thread = thread_named(store, child.entry.name)
    record = None if thread is None else Record(store, thread.position.thread)
    return record is not None and (
        any(child.since < number <= child.until for number in record.undone)
        or any(child.holds(below.entry) and _is_undone_in_part(store, below) for below in record.children)
    )
