"""The open entries of a journal: recorded calls that answer repeated ones, calls in doubt, and cancellations."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from msgspec.structs import replace

from holdfast.errors import Damaged
from holdfast.runs.identity import STREAM, identity_in, own_key
from holdfast.runs.lease import Lease
from holdfast.runs.record import CALLS, CANCEL, DOUBTFUL, resume_step
from holdfast.stores.contract import Store, ThreadRow
from holdfast.stores.contract_runs import Entry, RunRow
from holdfast.threads import scan
from holdfast.threads.ancestry import Ancestry, boundary_of
from holdfast.threads.effects import undo_topic
from holdfast.threads.metadata import decode
from holdfast.threads.save import RUN_TRIGGERS
from holdfast.threads.scan import checkpoint_at

POSTED: Final = ("answer", "cancel")  # kinds of entries that are written from outside the run

PAGE: Final = 500
_FIRST_PAGE: Final = 32
_NONE_CLOSED: Final = -1  # before the first step

Place = tuple[int, str]


def place_of(row: Entry) -> Place:
    """The place by which a call is found: its step and its key. Outside of steps, `-outside` stands for the step."""
    return (-row.outside if row.outside else row.step, row.key)


def open_entries(store: Store, thread: int, closed: int, last: int, closed_step: int, branch: int) -> list[Entry]:
    """The entries of a branch after a step, with numbers above `closed` up to `last`, without those that were undone.

    The journal is read from its end, and only as far as needed. Branches and steps grow along a journal, except for
    late entries, entries from outside, undos, streams, and calls outside of steps.
    """
    return split_undone(read_open_entries(store, thread, closed, last, closed_step, branch).entries)[0]


def still_doubtful(store: Store, thread: int, numbers: Sequence[int]) -> list[Entry]:
    """Those of these calls that are in doubt, and that no later call has taken over."""
    if not numbers:
        return []
    rows = list(scan.entries(store, thread, min(numbers) - 1))
    taken = {row.matches for row in rows if row.kind in CALLS and not row.matches_thread}
    return [row for row in rows if row.number in numbers and row.status in DOUBTFUL and row.number not in taken]


def doubts_of(store: Store, run: RunRow, thread: ThreadRow) -> tuple[int, ...]:
    """The irreversible calls in doubt of a run that no process holds: of its open steps, and of earlier turns."""
    last = store.last_entry(run.thread)
    step = _NONE_CLOSED if is_saved_outside(store, run, thread) else resume_step(run, thread)
    rows = open_entries(store, run.thread, run.closed, last, step, run.branch)
    newest = {place_of(row): row for row in rows}.values()
    numbers = [*run.doubts, *(row.number for row in newest if row.kind == "irreversible")]
    return tuple(row.number for row in still_doubtful(store, run.thread, numbers))


def pending_cancel(store: Store, run: RunRow) -> Entry | None:
    """A cancellation that the run has not carried out yet."""
    return first_pending(scan.entries(store, run.thread, run.closed, CANCEL), run)


def first_pending(rows: Iterable[Entry], run: RunRow) -> Entry | None:
    for row in rows:
        if row.kind == "cancel" and row.status == "asked" and row.number > run.closed:
            return row
    return None


class EntriesRead(NamedTuple):
    """The open entries, with those that were undone; and the entries from outside that were read on the way.

    `posted` also has the undos without an outcome, of any step. All entries after the number `after` were read.
    """

    entries: list[Entry]
    posted: list[Entry]
    after: int


def read_open_entries(store: Store, thread: int, closed: int, last: int, closed_step: int, branch: int) -> EntriesRead:
    """Read the open entries, as `open_entries` describes. Most runs have few, so the first page is short."""
    entries: list[Entry] = []
    posted: list[Entry] = []
    page, is_older = _FIRST_PAGE, False
    while last > closed and not is_older:
        first = max(last - page, closed)
        found: list[Entry] = []
        from_outside: list[Entry] = []
        for row in store.entries(thread, after=first, limit=last - first):
            if row.kind in POSTED or (row.kind == "undo" and row.status in DOUBTFUL):
                from_outside.append(row)
            elif row.status != "late":
                if row.branch == branch and row.step > closed_step:
                    found.append(row)
                # An undo has the step of its call, a call outside of steps that of its first try, and a stream may end
                # in a later step: entries of the open step may be before them.
                is_in_order = row.kind != "undo" and not row.outside and not row.key.startswith(STREAM)
                is_older = is_older or (is_in_order and (row.branch, row.step) <= (branch, closed_step))
        entries[:0] = found
        posted[:0] = from_outside
        last, page = first, min(page * 4, PAGE)
    return EntriesRead(entries, posted, last)


def split_undone(rows: list[Entry]) -> tuple[list[Entry], dict[Place, int]]:
    """The entries that were not undone, and for each call the number of its newest entry that was undone."""
    numbers = {row.matches for row in rows if row.kind == "undo" and row.status == "done"}
    if not numbers:
        return [row for row in rows if row.kind != "undo"], {}
    undone = {place_of(row): row.number for row in rows if row.number in numbers}
    is_open = [row for row in rows if row.kind != "undo" and row.number > undone.get(place_of(row), 0)]
    return is_open, undone


def is_saved_outside(store: Store, run: RunRow, thread: ThreadRow) -> bool:
    """Whether the head was saved from outside the run, and the run has not closed its entries since."""
    position = thread.position
    if run.closed_at == position.head or boundary_of(run, position) is not None:
        return False
    with suppress(Damaged):  # a damaged head does not hide calls of the run: its step is known
        head = checkpoint_at(store, position.thread, position.head)
        return head is not None and decode(head).trigger not in RUN_TRIGGERS
    return False


def unsettled_before(store: Store, run: RunRow, last: int) -> Entry | None:
    """An irreversible call of a run with an unknown outcome, whose head was saved from outside the run."""
    rows = open_entries(store, run.thread, run.closed, last, _NONE_CLOSED, run.branch)
    newest = {place_of(entry): entry for entry in rows}.values()
    return next(
        (each for each in newest if each.kind == "irreversible" and each.status in ("started", "in_doubt")), None
    )


def close_entries(store: Store, lease: Lease, head: int, last: int) -> Entry | None:
    """Close all entries, because the head was saved from outside the run and its state does not include them.

    Returns an irreversible call with an unknown outcome, if there is one: it still has to be settled. Then nothing is
    closed, so that the next claim finds the call too.
    """
    row = lease.row
    unsettled = unsettled_before(store, row, last)
    if unsettled is None:
        store.journal(row.thread, row.fence, (), last=None, run=lease.changed(closed=last, closed_at=head))
    return unsettled


# -- calls outside of steps, which are answered for the whole turn ------------------------------------------------

_SPANS_MAX: Final = 32
_UNDOABLE: Final = ("idempotent", "irreversible", "child")

Spans = tuple[tuple[int, int], ...]


class KeptCalls:
    """The calls outside of steps in one turn: those in `RunRow.kept`, and those that the next checkpoint adds to it."""

    def __init__(self, store: Store, run: RunRow, ancestry: Callable[[], Ancestry]) -> None:
        """`ancestry` reads the ancestry of the thread's head, which a rewind may have changed."""
        self._store = store
        self._thread = run.thread
        self.tries: Final[dict[Place, list[Entry]]] = {}  # of each call that this claim has not repeated, oldest first
        self._open: dict[int, int] = {}  # by number: the steps of those that are not in `RunRow.kept`
        for row in _rows(store, run, ancestry) if run.kept else ():
            self.tries.setdefault(place_of(row), []).append(row)

    def is_undone(self, row: Entry) -> bool:
        """Whether a call was undone."""
        if row.kind not in _UNDOABLE:
            return False
        topics = [undo_topic(number) for number in (row.number, row.matches) if number]
        return any(
            undo.status == "done" for topic in topics for undo in scan.entries(self._store, self._thread, 0, topic)
        )

    def reply_of(self, identity: str, inside: Place | None) -> Entry | None:
        """The oldest reply of a model function to a call without a key, made inside this tool call."""
        places = [at for at in self.tries if identity_in(at[1]) == identity and own_key(at[1]) is None]
        rows = [row for at in places if (row := self.tries[at][-1]).inside == inside]
        replies = [row for row in rows if row.status in ("done", "unstored")]
        return min(replies, key=lambda row: row.number, default=None)

    def note_written(self, row: Entry) -> None:
        """Note an entry of a call outside of steps."""
        self._open[row.number] = row.step

    def spans_at(self, kept: Spans, step: int) -> Spans:
        """`RunRow.kept` when a step is closed and the run resumes after it."""
        numbers = [number for number, at in self._open.items() if at <= step]
        return _joined(kept, numbers) if numbers else kept

    def note_closed(self, step: int) -> None:
        """Note that the record of the run keeps the calls up to a step."""
        self._open = {number: at for number, at in self._open.items() if at > step}


def _rows(store: Store, run: RunRow, ancestry: Callable[[], Ancestry]) -> list[Entry]:
    rows: list[Entry] = []
    for first, last in run.kept:
        after = first - 1
        while after < last and (page := store.entries(run.thread, after=after, limit=min(last - after, PAGE))):
            rows += [row for row in page if row.outside and row.status != "late"]
            after = page[-1].number
    if all(row.branch == run.branch for row in rows):
        return rows
    found = ancestry()
    return [row for row in rows if found.holds(row.branch, row.step)]


def _joined(spans: Spans, numbers: Iterable[int]) -> Spans:
    """Spans that also hold these numbers. Above the limit, the nearest spans are joined.

    The entries in between do no harm: `Entry.outside` is checked when a span is read.
    """
    joined: list[tuple[int, int]] = []
    for first, last in sorted([*spans, *((number, number) for number in numbers)]):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    while len(joined) > _SPANS_MAX:
        gaps = [after[0] - before[1] for before, after in itertools.pairwise(joined)]
        at = gaps.index(min(gaps))
        joined[at : at + 2] = [(joined[at][0], joined[at + 1][1])]
    return tuple(joined)


# -- the open entries of a held run -------------------------------------------------------------------------------

_MAY_HAVE_HAPPENED: Final = ("started", "in_doubt", "done", "given_up", "unstored")
_ACTED: Final = {"idempotent": _MAY_HAVE_HAPPENED, "irreversible": _MAY_HAVE_HAPPENED, "child": ("done",)}


class OpenEntries:
    """The recorded calls of a run's open steps, and which of them the program has repeated. `Journal` writes them."""

    def __init__(self, store: Store, lease: Lease, ancestry: Callable[[], Ancestry]) -> None:
        self.outside: Final[dict[str, int]] = {}  # by key: `Entry.outside` of the calls outside of steps
        self.has_called = False  # whether the program has made a call of the open steps
        # Whether the last checkpoint is a save. Then the entries after it show a resume how far the program was.
        self.is_after_save = False
        self.kept: Final = KeptCalls(store, lease.row, ancestry)
        self._lease = lease
        self._lock = threading.Lock()
        self._entries: dict[Place, Entry] = {}
        self._failures: dict[Place, list[Entry]] = {}
        self._unrepeated: dict[Place, None] = {}  # calls of earlier claims that this one has not made
        self._inner: dict[Place, list[Entry]] = {}  # by place of a tool call: those of them that its function made
        self._undone: dict[Place, int] = {}
        self._changing: set[Place] = set()  # model calls with on_change="rerun"
        self._replayed = (0, 0)  # model and tool calls answered from the journal that no stored record counts yet
        self._is_unsure = False  # whether a write has an unknown outcome

    def _read_again(self) -> None:
        """Read what a write with an unknown outcome stored."""
        raise NotImplementedError

    def _note_failure(self, row: Entry) -> None:
        """Note a failure of an earlier claim, to be raised again."""
        self._failures.setdefault(place_of(row), []).append(row)

    def find(self, step: int, key: str) -> Entry | None:
        """The newest entry of a call that the program makes; None if it is a new call.

        A call outside of steps may have been recorded in a step that is closed.
        """
        if self._is_unsure:
            self._read_again()
        outside = self.outside.get(key)
        place = (-outside, key) if outside else (step, key)
        if place in self.kept.tries and place not in self._entries:
            self._reopen_kept(place)
        else:
            self.has_called = True
        with self._lock:
            if place not in self._entries and (-1, key) in self._unrepeated and self._entries[-1, key].step == step:
                place = (-1, key)  # the program was changed: it made this call before its loop
            self._unrepeated.pop(place, None)
            return self._entries.get(place)

    def _reopen_kept(self, place: Place) -> None:
        """Answer a call outside of steps although its step is closed, unless it was undone."""
        if self.kept.is_undone((rows := self.kept.tries.pop(place))[-1]):
            self._undone[place] = rows[-1].number
            return
        with self._lock:
            self._entries[place] = rows[-1]
        for row in filter(is_raised_failure, rows):
            self._note_failure(row)

    def kept_reply(self, step: int, identity: str, inside: Place | None) -> Entry | None:
        """The oldest reply of a model function outside of steps, to a call without a key, if its step is closed."""
        oldest = self.kept.reply_of(identity, inside)
        if oldest is not None:
            self.outside[oldest.key] = oldest.outside
        return None if oldest is None else self.find(step, oldest.key)

    def has_unrepeated(self, first: int, last: int | None = None) -> bool:
        """Whether an earlier claim made calls in steps from `first` to `last` that this one has not repeated."""
        with self._lock:
            steps = [self._entries[at].step for at in self._unrepeated]
        return any(first <= step and (last is None or step <= last) for step in steps)

    def unrepeated(self, until: int | None = None) -> list[Entry]:
        """The calls of earlier claims that acted, and that this one has not repeated, up to a step, oldest first."""
        if not self._unrepeated:
            return []
        if self._is_unsure:
            self._read_again()
        with self._lock:
            rows = [self._entries[at] for at in self._unrepeated]
            rows = [row for row in rows if until is None or row.step <= until]
        # A child that has not completed is a run of its own, which is listed as interrupted or waiting.
        acted = [row for row in rows if row.status in _ACTED.get(row.kind, ())]
        return sorted(acted, key=lambda row: row.number)

    def unrepeated_reply(self, identity: str, new: Entry, *, is_outside: bool) -> Entry | None:
        """A reply that an earlier claim recorded for a model function, and that this one has not used, for a new call.

        It was made in the same step, and inside the same tool call. A reply to the same arguments is preferred; else it
        is the oldest. With `is_outside`, only replies to calls outside of steps.
        """
        with self._lock:
            rows = [self._entries[at] for at in self._unrepeated if identity_in(at[1]) == identity]
            rows = [row for row in rows if (row.step, row.inside) == (new.step, new.inside) and self._has_answer(row)]
        rows = [row for row in rows if row.outside >= is_outside]
        same = [row for row in rows if row.arguments == new.arguments]
        return min(same or rows, key=lambda row: row.number, default=None)

    def unrepeated_of_key(self, step: int, key: str) -> list[Entry]:
        """The replies that an earlier claim recorded with a key, and that this one has not used."""
        with self._lock:
            rows = [self._entries[at] for at in self._unrepeated if own_key(at[1]) == key]
        return [row for row in rows if row.kind == "model" and row.step == step]

    def _has_answer(self, row: Entry) -> bool:
        return row.status in ("done", "unstored") or bool(self._failures.get(place_of(row)))

    def accept_unrepeated(self, rows: Iterable[Entry]) -> None:
        """Count calls as repeated."""
        with self._lock:
            for row in rows:
                self._unrepeated.pop(place_of(row), None)

    def accept_inner(self, call: Entry, *, can_be_repeated: bool = False) -> None:
        """Count the calls that the function of a tool call made as repeated: it is not called again.

        With `can_be_repeated`, it may be called again after its recorded error: then it gets the replies of models.
        """
        place = place_of(call)
        inner = self._inner.pop(place, [])
        self.accept_unrepeated(row for row in inner if not can_be_repeated or row.kind in _ACTED)
        for row in inner:
            self.accept_inner(row, can_be_repeated=can_be_repeated)
        if can_be_repeated:
            self._inner[place] = inner

    def entries(self) -> list[Entry]:
        """The newest entry of each call of the open steps, oldest first."""
        with self._lock:
            return sorted(self._entries.values(), key=lambda row: row.number)

    def has_calls_after(self, step: int) -> bool:
        """Whether a call of a later step is recorded. A call outside of steps may be recorded in an earlier step."""
        with self._lock:
            return any(row.step > step for row in self._entries.values())

    def last_invalid_number(self, row: Entry) -> int:
        """The number of the newest entry that no longer answers a call: it is of an earlier turn, or was undone."""
        undone = self._undone.get(place_of(row)) if self._undone else None
        return self._lease.row.closed if undone is None else undone

    def has_acted(self, step: int) -> bool:
        """Whether anything but model calls and reads happened in a step or a later one."""
        with self._lock:
            return any(
                row.step >= step and row.kind not in ("model", "read") and row.status != "not_done"
                for row in self._entries.values()
            )

    def decided_after(self, row: Entry) -> bool:
        """Whether something was started or asked after an entry. That may depend on the result in the entry."""
        with self._lock:
            return any(later.number > row.number and _decides(later) for later in self._entries.values())

    def note_changing(self, row: Entry) -> None:
        """Note a model call that is made again if its arguments change before its step acts."""
        with self._lock:
            self._changing.add(place_of(row))

    def has_undecided(self, step: int) -> bool:
        """Whether an entry must be written before the next call, so that a resume makes that call in the same way.

        A read or a failed call that the resume repeats may have another outcome. And a resume makes the save before
        this call again, if no later entry shows that the program passed it.
        """
        with self._lock:
            rows = self._entries.items()
            if self.is_after_save and not any(row.step >= step for _, row in rows):
                return True
            decided = max((row.number for _, row in rows if _decides(row)), default=0)
            return any(
                (row.kind == "read" or row.status in ("failed", "not_done") or at in self._changing)
                and (not row.number or row.number >= decided)
                for at, row in rows
            )

    def doubtful(self) -> list[Entry]:
        """The irreversible calls of the open steps with an unknown outcome."""
        if self._is_unsure:
            self._read_again()
        with self._lock:
            rows = self._entries.values()
            return [row for row in rows if row.kind == "irreversible" and row.status in ("started", "in_doubt")]

    def unsettled(self) -> list[Entry]:
        """The calls of the open steps for a person to settle: those in doubt, and those with an unstored result."""
        with self._lock:
            unstored = [row for row in self._entries.values() if row.status == "unstored"]
        return [*self.doubtful(), *unstored]

    def doubtful_like(self, identity: str, arguments: bytes) -> Entry | None:
        """A call of this tool with these arguments that is in doubt and not under way."""
        with self._lock:
            for row in self._entries.values():
                like = (row.kind, row.arguments) == ("irreversible", arguments) and identity_in(row.key) == identity
                if like and (row.status == "in_doubt" or (row.status == "started" and row.fence != self._lease.fence)):
                    return row
            return None

    # -- counts of replayed calls ---------------------------------------------------------------------------------

    @property
    def has_uncounted(self) -> bool:
        """Whether calls were answered from the journal that no stored record counts."""
        return self._replayed != (0, 0)

    def counted(self, row: RunRow) -> RunRow:
        """A run's record with these calls."""
        return replace(row, replayed=added(row.replayed, self._replayed))

    def note_counted(self, before: RunRow, after: RunRow) -> None:
        """Note that a record which counts them is stored."""
        with self._lock:
            more = (before.replayed[0] - after.replayed[0], before.replayed[1] - after.replayed[1])
            self._replayed = added(self._replayed, more)


def is_raised_failure(row: Entry) -> bool:
    """Whether a call failed and its error was raised to the program."""
    return row.status in ("failed", "not_done") and row.error is not None and row.heard


def _decides(row: Entry) -> bool:
    """Whether an entry may depend on results before it. A sleep asks nothing, so it depends on nothing."""
    is_sleep = row.kind == "wait" and row.call is None
    return row.kind not in ("model", "read") and row.status != "not_done" and not is_sleep


def added(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """The sum of two counts of model and tool calls."""
    return one[0] + other[0], one[1] + other[1]
