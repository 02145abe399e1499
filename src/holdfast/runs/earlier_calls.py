"""Earlier calls: those of abandoned branches and unfinished turns, which a run must not repeat without asking."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from typing import Final, Literal, NamedTuple, Protocol

from msgspec.structs import replace

from holdfast.errors import InvalidArgument
from holdfast.runs.identity import identity_in
from holdfast.runs.open_entries import Spans, still_doubtful
from holdfast.runs.record import DOUBTFUL, child_name
from holdfast.stores.contract import Store, ThreadRow
from holdfast.stores.contract_runs import Entry, RunRow
from holdfast.threads import scan
from holdfast.threads.ancestry import Ancestry, branch_of
from holdfast.threads.effects import (
    ChildEntries,
    Record,
    Root,
    calls_of_child,
    origin_of,
    outcome_of,
)
from holdfast.threads.scan import checkpoint_at, thread_named

_ABANDONED: Final = "an abandoned branch"
_UNFINISHED: Final = "an earlier turn, which did not complete,"
_MAX_SPANS: Final = 50  # of unfinished turns; above, the newest are joined with the turns between them

CallMode = Literal["live", "recorded", "ask"]


def checked_effects(effects: CallMode | None) -> CallMode | None:
    if effects not in (None, "live", "recorded", "ask"):
        raise InvalidArgument('effects must be "live", "recorded" or "ask"')
    return effects


class EarlierCalls:
    """Calls of a thread's abandoned branches, calls in doubt of its earlier turns, and whether its run may act.

    Read when it is first needed: most threads were neither rewound nor forked, and most runs only read and ask models.
    """

    def __init__(
        self,
        store: Store,
        thread: str,
        effects: CallMode | None,
        doubts: tuple[int, ...] = (),
        unfinished: Spans = (),
    ) -> None:
        """`effects` None means "ask" on a fork. Elsewhere it means "live", and asks before a call that may repeat one.

        `doubts` are calls in doubt of earlier turns.
        `unfinished` are the entries of earlier turns that did not complete, as in `RunRow`.
        """
        self._store = store
        self._thread = thread
        self._given: Final = effects
        self.is_only_recorded: Final = effects == "recorded"  # whether acting tools are only replayed
        self._doubts: Final = doubts
        self._unfinished: Final = unfinished
        self.parent_calls: EarlierCalls | None = None  # of the parent, if this run is a child
        self._earlier: dict[str, list[EarlierCall]] = {}  # by identity: irreversible calls to ask about, oldest first
        # By identity: the entries in which a person has allowed a call, and when the person was asked.
        self._allowed: dict[str, dict[tuple[str, int], int]] = {}
        self._lock = threading.Lock()
        self.taken: Final[set[int]] = set()  # abandoned calls that `GraphEarlierCalls.take` has returned
        self._rows: dict[tuple[str, bytes], list[Entry]] | None = None
        self._number = 0  # of the thread
        self._origin = 0
        self._effects: CallMode = effects or "live"

    @property
    def effects(self) -> CallMode:
        """Whether acting tools are called ("live"), only replayed ("recorded") or asked about first ("ask")."""
        if self._rows is None:
            self._read()
        return self._effects

    @property
    def inherited(self) -> CallMode | None:
        """The `effects` for a child; None if this run acts by default: then the child also asks about similar calls."""
        return None if self._given is None and self.effects == "live" else self.effects

    @property
    def has_similar(self) -> bool:
        """Whether there are calls that `similar` returns, for any tool."""
        if self._rows is None:
            self._read()
        is_above = self.parent_calls is not None and self.parent_calls.has_similar
        return self._given != "live" and (is_above or any(self._earlier.values()))

    def take(self, identity: str, arguments: bytes) -> Entry | None:
        """The oldest abandoned call of this tool with these arguments. Each is returned once.

        The entry has the newest outcome of the call, and the number of its first entry in the journal of
        `matches_thread`.
        """
        if self._rows is None:
            self._read()
        with self._lock:
            rows = (self._rows or {}).get((identity, arguments))
            if not rows:
                return None
            row = rows.pop(0)
        self._forget(identity, (row.matches_thread or self._number, row.number))
        return row

    def _forget(self, identity: str, root: Root) -> None:
        """Do not ask about a call, in this run or its parents: its result answers a new call."""
        with self._lock:
            self._earlier[identity] = [each for each in self._earlier.get(identity, ()) if each.root != root]
        if self.parent_calls is not None:
            self.parent_calls._forget(identity, root)

    def similar(self, identity: str) -> list[EarlierCall]:
        """The irreversible calls of this tool that a new call may repeat in other words, oldest first.

        They are of an abandoned branch, or of an earlier turn that did not complete. A person who allows a new call
        does not say which of them it repeats. So all of them are returned until as many new calls were allowed. With
        effects="live" there are none: the program declares that its calls are new ones.
        """
        if self._given == "live":
            return []
        if self._rows is None:
            self._read()
        above = [] if self.parent_calls is None else self.parent_calls.similar(identity)
        with self._lock:
            own = self._earlier.get(identity, [])
            known = {each.root for each in own}
            left = [*(each for each in above if each.root not in known), *own]
            oldest = min((each.row.started_at for each in left), default=0)
            allowed = sum(asked_at >= oldest for asked_at in self._allowed.get(identity, {}).values())
            return left if allowed < len(left) else []

    def note_allowed(self, identity: str, row: Entry) -> None:
        """Note that a person has allowed a call of an irreversible tool."""
        self._note_allowed(identity, (self._thread, row.number), row.started_at)

    def _note_allowed(self, identity: str, entry: tuple[str, int], asked_at: int) -> None:
        with self._lock:
            self._allowed.setdefault(identity, {})[entry] = asked_at
        if self.parent_calls is not None:
            self.parent_calls._note_allowed(identity, entry, asked_at)

    def is_of_origin(self, row: Entry) -> bool:
        """Whether an entry is about a call of the thread that this one was forked from."""
        if self._rows is None:
            self._read()
        return bool(row.matches_thread) and row.matches_thread == self._origin

    def first(self, row: Entry) -> Entry:
        """The abandoned call that an entry repeats; the entry itself if there is none."""
        thread = thread_named(self._store, self._thread) if row.matches and not row.matches_thread else None
        while thread is not None and 0 < row.matches < row.number and not row.matches_thread:
            [row] = self._store.entries(thread.position.thread, after=row.matches - 1, limit=1)
        return row

    def _read(self) -> None:
        with self._lock:
            if self._rows is not None:
                return
            rows: dict[tuple[str, bytes], list[Entry]] = {}
            thread = thread_named(self._store, self._thread)
            if thread is not None:
                self._number = thread.position.thread
                for row in self._abandoned(thread):
                    rows.setdefault((identity_in(row.key), row.arguments), []).append(row)
                    self._note_earlier(row, (row.matches_thread or self._number, row.number), _ABANDONED)
                if self._unfinished:
                    self._read_unfinished(self._unfinished)
                self._read_children(thread)
                for row in still_doubtful(self._store, self._number, self._doubts):
                    rows.setdefault((identity_in(row.key), row.arguments), []).append(row)
                    self._note_earlier(row, (row.matches_thread or self._number, row.number), _UNFINISHED)
            self._rows = rows

    def _note_earlier(self, row: Entry, root: Root, place: str) -> None:
        calls = self._earlier.setdefault(identity_in(row.key), [])
        if row.kind == "irreversible" and all(each.root != root for each in calls):
            calls.append(EarlierCall(row, place, root))

    def _read_unfinished(self, spans: Spans) -> None:
        """Read the calls of earlier turns that did not complete, except those in doubt, which `_read` adds."""
        record = Record(self._store, self._number)
        for row in record.rows.values():
            self._note_if_allowed(row)
        for root, rows in record.by_root().items():
            done = outcome_of(rows)
            if done is None or done.status in DOUBTFUL or root[0] != self._number:
                continue
            is_undone = any(each.number in record.undone for each in rows)
            if _is_in(spans, done) and not is_undone:
                self._note_earlier(done, root, _UNFINISHED)

    def _read_children(self, thread: ThreadRow) -> None:
        """Read the calls of children that were started on an abandoned branch, or in a turn that did not complete."""
        is_rewound = branch_of(thread.position)
        record = Record(self._store, self._number) if is_rewound or self._unfinished else None
        if record is None or not record.children:
            return
        ancestry = Ancestry.of(self._store, thread.position) if is_rewound else None
        places: dict[Root, str] = {}
        roots: dict[Root, list[Entry]] = {}
        gone: set[Root] = set()
        for child in record.children:
            is_abandoned = ancestry is not None and not ancestry.has(child.entry)
            place = _ABANDONED if is_abandoned else _UNFINISHED if _is_in(self._unfinished, child.entry) else None
            for root, row, is_undone in calls_of_child(self._store, thread, child):
                roots.setdefault(root, []).append(row)
                if is_undone or place is None:
                    gone.add(root)  # a call that counts may have been answered with its result
                else:
                    places[root] = place
        for root, rows in roots.items():
            outcome = outcome_of(rows)
            if outcome is not None and root not in gone:
                self._note_earlier(outcome, root, places[root])

    def _note_if_allowed(self, row: Entry) -> None:
        if row.kind == "irreversible" and row.settled == "allowed":
            self._allowed.setdefault(identity_in(row.key), {})[self._thread, row.number] = row.started_at

    def _abandoned(self, thread: ThreadRow) -> Iterator[Entry]:
        """The calls that do not lead to the head of the thread."""
        number = thread.position.thread
        roots: dict[Root, list[Entry]] = {}
        gone: set[Root] = set()
        for source in self._sources(thread):
            record = Record(self._store, source.thread)
            for row in record.rows.values():
                if source.span is not None and not source.span.holds(row):
                    continue
                root = record.root_of(row)
                roots.setdefault(root, []).append(row)
                is_live = source.ancestry is not None and source.ancestry.has(row)
                if source.thread == number and is_live:
                    self._note_if_allowed(row)
                if is_live or row.number in record.undone:
                    gone.add(root)
        for root, rows in roots.items():
            outcome = outcome_of(rows)
            if outcome is not None and root not in gone:
                yield replace(outcome, number=root[1], matches_thread=0 if root[0] == number else root[0])

    def _sources(self, thread: ThreadRow) -> Iterator[EarlierJournal]:
        """The journals to read, oldest first, the thread's own last.

        There are none if neither the thread nor a parent of it was rewound or forked.
        """
        store, number = self._store, thread.position.thread
        origin = origin_of(store, number)
        if origin is not None:
            self._origin = origin[0]
            if self._given is None:
                self._effects = "ask"
            at = checkpoint_at(store, *origin)
            if self._effects != "live" and at is not None:
                # With "live", a fork acts for itself and the calls of its origin do not count.
                yield EarlierJournal(origin[0], None, Ancestry.to(store, origin[0], at))
        siblings = [each for each in _siblings(store, thread) if each.thread != number]
        yield from siblings
        if siblings or origin is not None or branch_of(thread.position):
            yield EarlierJournal(number, None, Ancestry.of(store, thread.position))


def unfinished_at(store: Store, run: RunRow, last: int) -> Spans:
    """`RunRow.unfinished` after a turn that did not complete, whose newest entry is `last`."""
    if not any(row.kind in ("irreversible", "child") for row in scan.entries(store, run.thread, run.closed)):
        return run.unfinished
    *before, (first, until) = *run.unfinished, (run.closed, last)
    if before and (before[-1][1] == first or len(before) >= _MAX_SPANS):
        first = before.pop()[0]
    return (*before, (first, until))


class EarlierCall(NamedTuple):
    """An irreversible call that a new one may repeat, and where it was made."""

    row: Entry
    place: str
    root: Root


def _is_in(spans: Spans, row: Entry) -> bool:
    return any(above < row.number <= until for above, until in spans)


class HasEntries(Protocol):
    """A part of a journal."""

    def has(self, row: Entry, /) -> bool: ...


class EarlierJournal(NamedTuple):
    """A journal that may hold abandoned calls."""

    thread: int
    span: ChildEntries | None  # which of its entries; None: all
    ancestry: HasEntries | None  # the entries that were not abandoned; None: all were abandoned


def _siblings(store: Store, thread: ThreadRow) -> Iterator[EarlierJournal]:
    """The journals of earlier children of the same name: of its parent, or of a run that its parent replaces."""
    run = store.run(thread.position.thread)
    parent = None if run is None or run.parent is None else thread_named(store, run.parent)
    if parent is None:
        return
    above = list(_siblings(store, parent))
    if not above and not branch_of(parent.position):
        return  # no parent was rewound
    for each in (*above, EarlierJournal(parent.position.thread, None, Ancestry.of(store, parent.position))):
        for span in Record(store, each.thread).children:
            child = thread_named(store, span.entry.name) if each.span is None or each.span.holds(span.entry) else None
            if child is not None and child_name(child.name) == child_name(thread.name):
                is_in_ancestry = each.ancestry is not None and each.ancestry.has(span.entry)
                yield EarlierJournal(
                    child.position.thread, span, Ancestry.of(store, child.position) if is_in_ancestry else None
                )


# -- in a graph: frameworks such as LangGraph have branches that the journal does not know ------------------------


class Lineage(Protocol):
    """The place of a call in the framework's history. That history has branches that the journal does not know."""

    @property
    def place(self) -> str:
        """The framework's checkpoint in which the call is made."""
        ...

    def nearest(self, places: Collection[str]) -> str | None:
        """The first of these places on the way from this place to its ancestors; None if there is none."""
        ...


class GraphEarlierCalls(EarlierCalls):
    """The calls of a journal that were made on other branches of the framework's history than the present one."""

    def __init__(self, store: Store, thread: str, lineage: Lineage, shared: EarlierCalls) -> None:
        """`shared` are the earlier calls of the run, which all concurrent calls share."""
        super().__init__(store, thread, None)
        self._lineage: Final = lineage
        self._shared: Final = shared
        self._before = ""

    def take(self, identity: str, arguments: bytes) -> Entry | None:
        """As `EarlierCalls.take`. Two concurrent calls do not get the same abandoned call."""
        while (found := super().take(identity, arguments)) is not None:
            before = len(self._shared.taken)
            self._shared.taken.add(found.number)
            if len(self._shared.taken) > before:
                break
        return found

    @property
    def place(self) -> tuple[str, str]:
        """For `Entry.place`: the place of the call, and the nearest place before it in which another call was made."""
        self._read()
        return self._lineage.place, self._before

    def _sources(self, thread: ThreadRow) -> Iterator[EarlierJournal]:
        number = thread.position.thread
        before = dict(row.place for row in scan.entries(self._store, number) if row.place is not None)
        nearest = self._lineage.nearest(before) if before else None
        self._before = nearest or ""
        if nearest is not None and nearest == self._lineage.place:
            self._before = before[nearest]  # another call of the same checkpoint
        places: set[str] = set()
        at = nearest or ""
        while at and at not in places:
            places.add(at)
            at = before.get(at, "")
        if len(places) < len(before):
            yield EarlierJournal(number, None, _Branch(places))


class _Branch:
    """The places on the present branch in which calls were made."""

    def __init__(self, places: set[str]) -> None:
        self._places = places

    def has(self, row: Entry) -> bool:
        return row.place is None or row.place[0] in self._places
