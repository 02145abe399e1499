"""The calls of a run's open steps that are recorded, and which of them the program has asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final

from msgspec.structs import replace

from holdfast.runs.identity import identity_in, own_key
from holdfast.runs.kept_calls import KeptCalls
from holdfast.runs.lease import Lease
from holdfast.runs.open_entries import Place, place_of
from holdfast.stores.contract import Store
from holdfast.stores.contract_runs import Entry, RunRow
from holdfast.threads.ancestry import Ancestry

_UNLESS_NOT_DONE: Final = ("begun", "in_doubt", "done", "given_up", "unstored")
_ACTED: Final = {"idempotent": _UNLESS_NOT_DONE, "irreversible": _UNLESS_NOT_DONE, "child": ("done",)}


class RecordedCalls:
    """Finds the entries of a run's open steps. `Journal` reads and writes them."""

    def __init__(self, store: Store, lease: Lease, ancestry: Callable[[], Ancestry]) -> None:
        self.outside: Final[dict[str, int]] = {}  # by key: `Entry.outside` of the calls outside of steps
        self.has_asked = False  # whether the program has made a call of the open steps
        # Whether the last checkpoint is a save. Then the entries after it show a resume how far the program was.
        self.is_after_save = False
        self.kept: Final = KeptCalls(store, lease.row, ancestry)
        self._lease = lease
        self._lock = threading.Lock()
        self._entries: dict[Place, Entry] = {}
        self._failures: dict[Place, list[Entry]] = {}
        self._unasked: dict[Place, None] = {}  # calls of earlier claims that this one has not asked for
        self._undone: dict[Place, int] = {}
        self._changing: set[Place] = set()  # model calls with on_change="rerun"
        self._replayed = (0, 0)  # model and tool calls answered from the journal that no stored record counts yet
        self._is_unsure = False  # whether a write has an unknown outcome

    def _read_again(self) -> None:
        """Read what a write with an unknown outcome stored."""
        raise NotImplementedError

    def _note_failure(self, row: Entry, *, is_last: bool = False) -> None:
        """Note a failure of an earlier claim. After the last entry of all, the program did not continue."""
        place = place_of(row)
        if row.status in ("failed", "not_done") and row.error is not None and row.heard and not is_last:
            self._failures.setdefault(place, []).append(row)

    def ask(self, step: int, key: str) -> Entry | None:
        """The newest entry of a call that the program asks for; None if it is a new call.

        A call outside of steps may have been recorded in a step that is closed.
        """
        if self._is_unsure:
            self._read_again()
        outside = self.outside.get(key)
        place = (-outside, key) if outside else (step, key)
        if place in self.kept.tries and place not in self._entries:
            self._reopen_kept(place)
        else:
            self.has_asked = True
        with self._lock:
            if place not in self._entries and (-1, key) in self._unasked and self._entries[-1, key].step == step:
                place = (-1, key)  # the program was changed: it made this call before its loop
            self._unasked.pop(place, None)
            return self._entries.get(place)

    def _reopen_kept(self, place: Place) -> None:
        """Answer a call outside of steps although its step is closed, unless it was undone."""
        if self.kept.is_undone((rows := self.kept.tries.pop(place))[-1]):
            self._undone[place] = rows[-1].number
            return
        with self._lock:
            self._entries[place] = rows[-1]
        for row in rows:
            self._note_failure(row)

    def kept_reply(self, step: int, identity: str) -> Entry | None:
        """The oldest reply of a model function outside of steps, to a call without a key, if its step is closed."""
        oldest = self.kept.reply_of(identity)
        if oldest is not None:
            self.outside[oldest.key] = oldest.outside
        return None if oldest is None else self.ask(step, oldest.key)

    def has_unasked(self, first: int, last: int | None = None) -> bool:
        """Whether an earlier claim made calls in steps from `first` to `last` that this one has not asked for."""
        with self._lock:
            steps = [self._entries[at].step for at in self._unasked]
        return any(first <= step and (last is None or step <= last) for step in steps)

    def unasked(self, until: int | None = None) -> list[Entry]:
        """The calls of earlier claims that acted, and that this one has not asked for, up to a step, oldest first."""
        if not self._unasked:
            return []
        if self._is_unsure:
            self._read_again()
        with self._lock:
            rows = [self._entries[at] for at in self._unasked]
            rows = [row for row in rows if until is None or row.step <= until]
        # A child that has not completed is a run of its own, which is listed as interrupted or waiting.
        acted = [row for row in rows if row.status in _ACTED.get(row.kind, ())]
        return sorted(acted, key=lambda row: row.number)

    def unasked_reply(self, step: int, identity: str, arguments: bytes, *, is_outside: bool) -> Entry | None:
        """A reply that an earlier claim recorded for a model function, and that this one has not asked for.

        A reply to the same arguments is preferred; else it is the oldest. With `is_outside`, only replies to calls
        outside of steps.
        """
        with self._lock:
            rows = [self._entries[at] for at in self._unasked if identity_in(at[1]) == identity]
            rows = [row for row in rows if row.step == step and self._has_answer(row) and row.outside >= is_outside]
        same = [row for row in rows if row.arguments == arguments]
        return min(same or rows, key=lambda row: row.number, default=None)

    def unasked_of_key(self, step: int, key: str) -> list[Entry]:
        """The replies that an earlier claim recorded with a key, and that this one has not asked for."""
        with self._lock:
            rows = [self._entries[at] for at in self._unasked if own_key(at[1]) == key]
        return [row for row in rows if row.kind == "model" and row.step == step]

    def _has_answer(self, row: Entry) -> bool:
        return row.status in ("done", "unstored") or bool(self._failures.get(place_of(row)))

    def accept_unasked(self, rows: Iterable[Entry]) -> None:
        """Count calls as asked for."""
        with self._lock:
            for row in rows:
                self._unasked.pop(place_of(row), None)

    def entries(self) -> list[Entry]:
        """The newest entry of each call of the open steps, oldest first."""
        with self._lock:
            return sorted(self._entries.values(), key=lambda row: row.number)

    def has_calls_after(self, step: int) -> bool:
        """Whether a call of a later step is recorded. A call outside of steps may be recorded in an earlier step."""
        with self._lock:
            return any(row.step > step for row in self._entries.values())

    def newest_void(self, row: Entry) -> int:
        """The number of the newest entry that no longer answers a call: it is of an earlier turn, or was undone."""
        return self._undone.get(place_of(row), self._lease.row.closed)

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
        """Whether a resume may reach the call that is made now in another way, unless an entry is written first.

        It may repeat a read or a failed call with another outcome, or a save without later calls in another step.
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
            return [row for row in rows if row.kind == "irreversible" and row.status in ("begun", "in_doubt")]

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
                if like and (row.status == "in_doubt" or (row.status == "begun" and row.fence != self._lease.fence)):
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


def _decides(row: Entry) -> bool:
    """Whether an entry may depend on results before it. A sleep asks nothing, so it depends on nothing."""
    is_sleep = row.kind == "wait" and row.call is None
    return row.kind not in ("model", "read") and row.status != "not_done" and not is_sleep


def added(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """The sum of two counts of model and tool calls."""
    return one[0] + other[0], one[1] + other[1]
