"""The past of a run: what was done on branches that were abandoned. Rewinding or forking does not take it back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Literal, NamedTuple

from msgspec.structs import replace

from holdfast.errors import InvalidArgument
from holdfast.runs.family import name_of
from holdfast.stores.contract import Store, ThreadRow
from holdfast.stores.running import EffectRow
from holdfast.threads.ancestry import Ancestry, branch_of
from holdfast.threads.effects import ChildEntries, Record, Root, origin_of, outcome_of

Effects = Literal["live", "recorded", "ask"]


def checked_effects(effects: Effects | None) -> Effects | None:
    if effects not in (None, "live", "recorded", "ask"):
        raise InvalidArgument('effects must be "live", "recorded" or "ask"')
    return effects


class Past:
    """What a run need not do again because it was done already, and whether it may act at all.

    Read when it is first needed: most threads were neither rewound nor forked, and most runs only read and ask models.
    """

    def __init__(self, store: Store, thread: str, effects: Effects | None) -> None:
        """`effects` None means: "ask" on a fork, "live" elsewhere."""
        self._store = store
        self._thread = thread
        self._given = effects
        self._lock = threading.Lock()
        self._rows: dict[tuple[str, bytes], list[EffectRow]] | None = None
        self._origin = 0
        self._effects: Effects = effects or "live"

    def effects(self) -> Effects:
        """Whether tools that act are called, only answered from what was recorded, or asked about before."""
        with self._lock:
            self._read()
            return self._effects

    def take(self, name: str, arguments: bytes) -> EffectRow | None:
        """The oldest call of this tool with these arguments that was abandoned. Each is given once.

        With its newest outcome, and as number that of the call itself, `of` the thread in whose journal that is.
        """
        with self._lock:
            rows = self._read().get((name, arguments))
            return rows.pop(0) if rows else None

    def is_of_origin(self, row: EffectRow) -> bool:
        """Whether an entry is about what was done by the thread that this one was forked from."""
        with self._lock:
            self._read()
            return bool(row.of) and row.of == self._origin

    def first(self, row: EffectRow) -> EffectRow:
        """The call that an entry took the place of, if it took that of one on an abandoned branch; else itself."""
        thread = self._store.thread(self._thread) if row.matches and not row.of else None
        while thread is not None and row.matches and not row.of:
            [row] = self._store.effects(thread.position.thread, after=row.matches - 1, limit=1)
        return row

    def _read(self) -> dict[tuple[str, bytes], list[EffectRow]]:
        if self._rows is None:
            rows: dict[tuple[str, bytes], list[EffectRow]] = {}
            thread = self._store.thread(self._thread)
            for row in [] if thread is None else self._abandoned(thread):
                rows.setdefault((row.name, row.arguments), []).append(row)
            self._rows = rows
        return self._rows

    def _abandoned(self, thread: ThreadRow) -> Iterator[EffectRow]:
        """What was done, and is not on the line of the thread."""
        number = thread.position.thread
        sources = list(self._sources(thread))
        if len(sources) == 1 and not branch_of(thread.position):
            return  # neither rewound nor forked, nor a child of what was: nothing was abandoned
        roots: dict[Root, list[EffectRow]] = {}
        gone: set[Root] = set()
        for source in sources:
            record = Record(self._store, source.thread)
            for row in record.rows.values():
                if source.span is not None and not source.span.holds(row):
                    continue
                root = record.root_of(row)
                roots.setdefault(root, []).append(row)
                if row.number in record.undone or (source.line is not None and source.line.holds(row.branch, row.step)):
                    gone.add(root)
        for root, rows in roots.items():
            outcome = outcome_of(rows)
            if outcome is not None and root not in gone:
                yield replace(outcome, number=root[1], of=0 if root[0] == number else root[0])

    def _sources(self, thread: ThreadRow) -> Iterator[_Source]:
        """The journals to look into, oldest first, the thread's own last."""
        store, number = self._store, thread.position.thread
        origin = origin_of(store, number)
        if origin is not None:
            self._origin = origin[0]
            if self._given is None:
                self._effects = "ask"
            at = store.checkpoint(*origin)
            if self._effects != "live" and at is not None:
                # Live, a fork acts for itself: what its origin did is its origin's.
                yield _Source(origin[0], None, Ancestry.to(store, origin[0], at))
        for kin in _kin(store, thread):
            if kin.thread != number:
                yield kin
        yield _Source(number, None, Ancestry.of(store, thread.position))


class _Source(NamedTuple):
    """A journal in which there may be something that was abandoned."""

    thread: int
    span: ChildEntries | None  # which of its entries; None: all
    line: Ancestry | None  # those on it count and were not abandoned; None: all were


def _kin(store: Store, thread: ThreadRow) -> Iterator[_Source]:
    """What children of the same name did for the same parent, or for one that this one is in the place of."""
    run = store.run(thread.position.thread)
    parent = None if run is None or run.parent is None else store.thread(run.parent)
    if parent is None:
        return
    above = list(_kin(store, parent))
    if not above and not branch_of(parent.position):
        return  # nothing above was rewound
    for each in (*above, _Source(parent.position.thread, None, Ancestry.of(store, parent.position))):
        for span in Record(store, each.thread).children:
            child = store.thread(span.entry.name) if each.span is None or each.span.holds(span.entry) else None
            if child is not None and name_of(child.name) == name_of(thread.name):
                is_on_line = each.line is not None and each.line.holds(span.entry.branch, span.entry.step)
                yield _Source(child.position.thread, span, Ancestry.of(store, child.position) if is_on_line else None)
