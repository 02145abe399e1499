"""Deeds: what runs did to the world, and may have done, told apart from the entries that only took its result."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from holdfast.errors import EffectsAhead
from holdfast.stores.contract import CheckpointRow, Store, ThreadRow
from holdfast.stores.running import EffectRow
from holdfast.text import quoted
from holdfast.threads.ancestry import Ancestry

_PAGE = 200
_ACTING = ("idempotent", "irreversible")
_SAYS_NOTHING = ("failed", "late", "asked")
_END = 1 << 62

Root = tuple[int, int]


class ChildEntries(msgspec.Struct, frozen=True):
    """What a child did for one entry of its parent: its entries above `since`, up to `until`."""

    entry: EffectRow
    since: int
    until: int

    def holds(self, row: EffectRow) -> bool:
        return self.since < row.number <= self.until


class Record:
    """The journal of a thread, as far as it is about the world."""

    def __init__(self, store: Store, thread: int) -> None:
        self.thread = thread
        self.rows: dict[int, EffectRow] = {}
        self.undone: set[int] = set()
        children: list[EffectRow] = []
        after = 0
        while page := store.effects(thread, after=after, limit=_PAGE):
            after = page[-1].number
            for row in page:
                if row.kind == "undo" and row.status == "done":
                    self.undone.add(row.matches)
                elif row.kind in _ACTING and row.status != "late":
                    self.rows[row.number] = row
                elif row.kind == "child":
                    children.append(row)
        # Taken from outside the journal, so looked up there.
        for row in self.rows.values():
            if row.of and any(known.status == "done" for known in store.marked(row.of, undo_mark(row.matches))):
                self.undone.add(row.number)
        self.children: list[ChildEntries] = []
        ends: dict[str, int] = {}
        for row in reversed(children):
            self.children.insert(0, ChildEntries(row, row.since, ends.get(row.name, _END)))
            ends[row.name] = row.since

    def root_of(self, row: EffectRow) -> Root:
        """What an entry is about: the call that was made, as its journal's thread and its number there."""
        while row.matches and not row.of and row.matches in self.rows:
            row = self.rows[row.matches]
        return (row.of or self.thread, row.matches or row.number)

    def by_root(self) -> dict[Root, list[EffectRow]]:
        """The entries that are about the same call, oldest first."""
        roots: dict[Root, list[EffectRow]] = {}
        for row in self.rows.values():
            roots.setdefault(self.root_of(row), []).append(row)
        return roots


class Action(msgspec.Struct, frozen=True):
    """One thing that was done, or may have been."""

    thread: ThreadRow
    mark: str  # of the undoing of it
    entry: EffectRow  # that stands for it on the line
    outcome: EffectRow  # the newest that says what became of it


class Ended(msgspec.Struct, frozen=True):
    """That a child completed: the entry of its parent, whose result may speak of what it did."""

    thread: ThreadRow
    mark: str
    entry: EffectRow
    below: tuple[Action, ...]
    is_undone_in_part: bool


def undo_mark(number: int) -> str:
    """Under what the undoing of an entry is found."""
    return f"undo/{number}"


def outcome_of(rows: list[EffectRow]) -> EffectRow | None:
    """What became of a call, by all its entries, oldest first; None if nothing happened."""
    newest = next((row for row in reversed(rows) if row.status not in _SAYS_NOTHING), None)
    return None if newest is None or newest.status == "not_done" else newest


def origin_of(store: Store, thread: int) -> tuple[int, int] | None:
    """The checkpoint that a thread was forked from; None if it was not."""
    first = store.checkpoint(thread, 1)
    return None if first is None or first.parent is None or not first.parent[0] else first.parent


def actions_ahead(store: Store, thread: ThreadRow, to: CheckpointRow) -> list[Action | Ended]:
    """What was done on the way to the head of a thread and not to a checkpoint, and was not undone, oldest first.

    What children did lies where they were begun.
    """
    target = Ancestry.to(store, thread.position.thread, to)
    return _actions(store, thread, lambda row: not target.holds(row.branch, row.step))


def require_none_ahead(store: Store, thread: ThreadRow, to: CheckpointRow) -> None:
    """`EffectsAhead` if something irreversible was done on the way to the head of a thread and not to a checkpoint."""
    deeds = [deed for deed in actions_ahead(store, thread, to) if isinstance(deed, Action)]
    ahead = sorted({deed.entry.name for deed in deeds if deed.entry.kind == "irreversible"})
    if ahead:
        raise EffectsAhead(
            f"thread {quoted(thread.name)}: {', '.join(ahead)} ran after that checkpoint and cannot be taken back by "
            "rewinding; hf.undo what can be undone, or pass past_effects=True (--past-effects)"
        )


def _actions(store: Store, thread: ThreadRow, is_ahead: Callable[[EffectRow], bool]) -> list[Action | Ended]:
    number = thread.position.thread
    record = Record(store, number)
    line = Ancestry.of(store, thread.position)
    found: list[tuple[int, list[Action | Ended]]] = []
    origin = origin_of(store, number) if any(row.of for row in record.rows.values()) else None
    for root, rows in record.by_root().items():
        here = [row for row in rows if line.holds(row.branch, row.step)]
        outcome = outcome_of(rows)
        if outcome is None or not here or not all(map(is_ahead, here)) or any(r.number in record.undone for r in rows):
            continue
        if origin is None or root[0] != origin[0]:  # what its origin did is its origin's
            found.append((here[-1].number, [Action(thread, undo_mark(rows[0].number), here[-1], outcome)]))
    for span in record.children:
        if line.holds(span.entry.branch, span.entry.step) and is_ahead(span.entry):
            found.append((span.entry.number, list(_of_child(store, thread, span))))
            if span.entry.status == "done" and span.entry.number not in record.undone:
                found.append((span.entry.number, [_ended(store, thread, record, span)]))
    return [deed for _, deeds in sorted(found, key=lambda each: each[0]) for deed in deeds]


def _ended(store: Store, thread: ThreadRow, record: Record, span: ChildEntries) -> Ended:
    """A child that failed and was run again did its work for several entries."""
    place = (span.entry.branch, span.entry.step, span.entry.key)
    spans = [each for each in record.children if (each.entry.branch, each.entry.step, each.entry.key) == place]
    begun = max((each.entry.number for each in spans if each.entry.number in record.undone), default=0)
    spans = [each for each in spans if begun < each.entry.number <= span.entry.number]
    below = [deed for each in spans for deed in _of_child(store, thread, each) if isinstance(deed, Action)]
    is_undone = any(_is_undone_in_part(store, each) for each in spans)
    return Ended(thread, undo_mark(span.entry.number), span.entry, tuple(below), is_undone)


def _of_child(store: Store, parent: ThreadRow, span: ChildEntries) -> Iterator[Action | Ended]:
    child = store.thread(span.entry.name)
    run = None if child is None else store.run(child.position.thread)
    if child is not None and run is not None and run.parent == parent.name:
        yield from _actions(store, child, span.holds)


def _is_undone_in_part(store: Store, span: ChildEntries) -> bool:
    child = store.thread(span.entry.name)
    record = None if child is None else Record(store, child.position.thread)
    return record is not None and (
        any(span.since < number <= span.until for number in record.undone)
        or any(span.holds(below.entry) and _is_undone_in_part(store, below) for below in record.children)
    )
