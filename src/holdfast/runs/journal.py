"""The journal of a run: open entries, recorded results, failures as text."""

from __future__ import annotations

import builtins
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import ModuleType
from typing import Any

from msgspec.structs import replace

from holdfast.codec import msgpack
from holdfast.codec.typed import StateType
from holdfast.errors import (
    CallFailed,
    Damaged,
    HoldfastError,
    LeaseLost,
    OutcomeUnknown,
    Replaced,
    StoreError,
    Unsupported,
)
from holdfast.redaction import AS_IS, Redaction
from holdfast.runs.guards.usage import Spending
from holdfast.runs.guards.watch import Watch
from holdfast.runs.lease import Lease, both
from holdfast.stores.contract import Store
from holdfast.stores.running import EffectClass, EffectRow, EffectStatus

_TEXT_CHARACTERS = 500


def text_of(error: BaseException, redaction: Redaction = AS_IS) -> str:
    """An error as a journal keeps it: where its class is from, and its message, redacted before it is cut."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"{name}: {redaction.message(str(error))}"[:_TEXT_CHARACTERS]


def again(text: str) -> Exception:
    """The error of a text, of the class it had if the program has loaded that, else CallFailed.

    Nothing is imported for a stored name, and no code of the class is run to make it: attributes are not kept.
    """
    name, _, message = text.partition(": ")
    kind = _loaded(name)
    if kind is None:
        return CallFailed(text)
    native: Any = next(base for base in kind.__mro__ if base.__module__ == "builtins")
    try:
        error: Exception = native.__new__(kind)
        error.args = (message,)
        str(error)
    except Exception:  # noqa: BLE001 - made in a way of its own, or shows itself by attributes it does not have
        return CallFailed(text)
    return error


def behind(error: BaseException) -> Iterator[BaseException]:
    """An error and everything that led to it."""
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        found = todo.pop()
        if found is not None and id(found) not in seen:
            seen.add(id(found))
            yield found
            todo += [found.__cause__, found.__context__]
            if isinstance(found, BaseExceptionGroup):
                todo += found.exceptions


def _loaded(name: str) -> type[Exception] | None:
    """The exception class of a name in a module that was imported already.

    Only what stands there is looked up: asked for an attribute, a module may import what it was told to.
    """
    if len(name) > _TEXT_CHARACTERS:
        return None
    module, _, rest = name.rpartition(".")
    found: object = vars(builtins).get(rest) if not module else None
    while module and found is None:
        if module in sys.modules:
            found = sys.modules[module]
            for part in rest.split("."):
                found = vars(found).get(part) if isinstance(found, ModuleType | type) else None
            break
        module, _, outer = module.rpartition(".")
        rest = f"{outer}.{rest}"
    return found if isinstance(found, type) and issubclass(found, Exception) else None


_PAGE = 500
_LOOK_SECONDS = 0.05  # between two looks for what other processes told
_FROM_OUTSIDE = ("answer", "cancel")


class _Told:
    """How often this process told any run something."""

    count = 0


_told = _Told()


def note_told() -> None:
    """Something was told from outside a run by this process: whoever runs it here hears of it at the next call."""
    _told.count += 1


class Journal:
    """Finds and writes entries of the open steps of one branch. Entries that a checkpoint closed never match again.

    Results of reads need no commit of their own: they wait for the next one, and are read again if a crash comes first.
    """

    def __init__(
        self,
        store: Store,
        lease: Lease,
        branch: int,
        closed_step: int,
        stamp: Callable[[EffectRow], EffectRow] = lambda row: row,
    ) -> None:
        """`stamp` adds to each entry of this claim what is to be kept with it."""
        self.store = store
        self._lease = lease
        self._thread = lease.row.thread
        self._branch = branch
        self._stamp_given = stamp
        self._is_marking = False
        self._lock = threading.Lock()
        self._entries: dict[tuple[int, str], EffectRow] = {}
        self._waiting: list[EffectRow] = []
        self._told, self._looked = _told.count, time.monotonic()
        self._last = store.last_effect(self._thread)
        rows, self._undone = _split_undone(
            _open_rows(store, self._thread, lease.row.closed, self._last, closed_step, branch)
        )
        self._failures: dict[tuple[int, str], list[EffectRow]] = {}
        for row in rows:
            self._entries[row.step, row.key] = row
            if row.status in ("failed", "not_done") and row.error is not None and row.heard and row is not rows[-1]:
                self._failures.setdefault((row.step, row.key), []).append(row)

    def mark(self) -> None:
        """From here on, entries can be found by their keys when they are closed, too: `Store.marked`."""
        self._is_marking = True

    def _stamp(self, row: EffectRow) -> EffectRow:
        row = self._stamp_given(row)
        if self._lease.has_uncounted:
            row = replace(row, known=both(row.known, self._lease.take_known()))
        return replace(row, mark=row.key) if self._is_marking else row

    def find(self, step: int, key: str) -> EffectRow | None:
        with self._lock:
            return self._entries.get((step, key))

    def entries(self) -> list[EffectRow]:
        """The newest entry of each call of the open steps, oldest first."""
        with self._lock:
            return sorted(self._entries.values(), key=lambda row: row.number)

    def since(self, step: int, key: str) -> int:
        """The newest entry that a new one in this place does not come from: of a turn before, or undone."""
        return self._undone.get((step, key), self._lease.row.closed)

    def has_begun(self, step: int) -> bool:
        """Whether anything but model calls and reads happened in a step, or in one after it."""
        with self._lock:
            return any(
                row.step >= step and row.kind not in ("model", "read") and row.status != "not_done"
                for row in self._entries.values()
            )

    def decided_after(self, row: EffectRow) -> bool:
        """Whether anything was begun, or asked, after an entry that may have been decided by it."""
        with self._lock:
            return any(
                later.number > row.number
                and later.kind not in ("model", "read")
                and later.status != "not_done"
                # A sleep is decided by nothing and decides nothing: it has no question that anybody is asked.
                and not (later.kind == "wait" and later.call is None)
                for later in self._entries.values()
            )

    def next_failure(self, step: int, key: str) -> EffectRow | None:
        """The next failure of a call that a process which is gone heard of, and went on from: something came after it.

        Each is given once, in order: whoever tried again then, and again, does so now.
        """
        with self._lock:
            failures = self._failures.get((step, key))
            return failures.pop(0) if failures else None

    def doubtful(self) -> list[EffectRow]:
        """The calls of the open steps that may have acted, and of which nobody knows."""
        with self._lock:
            rows = self._entries.values()
            return [row for row in rows if row.kind == "irreversible" and row.status in ("begun", "in_doubt")]

    def doubtful_like(self, name: str, arguments: bytes) -> EffectRow | None:
        """A call of this tool with these arguments that may have acted, is not under way, and of which nobody knows."""
        with self._lock:
            return next(
                (
                    row
                    for row in self._entries.values()
                    if (row.kind, row.name, row.arguments) == ("irreversible", name, arguments)
                    and (row.status == "in_doubt" or (row.status == "begun" and row.fence != self._lease.fence))
                ),
                None,
            )

    def amend(self, row: EffectRow) -> None:
        """Replace an entry that may not be the newest of its call any more."""
        with self._lock:
            self.store.journal(self._thread, self._lease.fence, [row])
            newest = self._entries.get((row.step, row.key))
            if newest is not None and newest.number == row.number:
                self._entries[row.step, row.key] = row

    def write(self, row: EffectRow, *with_it: EffectRow) -> EffectRow:
        """Record an entry durably, with the results that wait; LeaseLost if another worker has the run."""
        with self._lock:
            self._write([*self._waiting, *with_it, self._stamp(row)])
            return self._entries[row.step, row.key]

    def write_expecting(self, row: EffectRow, last: int) -> EffectRow:
        """Record an entry if nothing was told from outside since `last` was the newest; else Conflict."""
        with self._lock:
            number = self.store.park(self._lease.row, self._stamp(row), last)
            self._last = max(self._last, number)
            self._entries[row.step, row.key] = replace(row, number=number)
            return self._entries[row.step, row.key]

    def flush(self) -> None:
        """Record the results that wait: no entry is written after them in this claim."""
        with self._lock:
            if self._waiting:
                self._write(list(self._waiting))

    def _write(self, rows: list[EffectRow]) -> None:
        moment = time.monotonic()
        try:
            numbers = self.store.journal(self._thread, self._lease.fence, rows)
        except LeaseLost:
            self._lease.lose()
            raise
        self._waiting.clear()
        for written, number in zip(rows, numbers, strict=True):
            self._entries[written.step, written.key] = replace(written, number=number)
            if number == self._last + 1:
                # Nothing came between it and the entry before: that is as good as a look.
                self._last, self._looked = number, moment
            elif number > self._last:
                self._looked = moment = 0.0  # somebody wrote from outside: `heed` will read that

    def write_with_next(self, row: EffectRow) -> EffectRow:
        """Record an entry together with whatever is written next."""
        with self._lock:
            row = self._stamp(row)
            self._waiting.append(row)
            self._entries[row.step, row.key] = row
            return row

    def take_waiting(self) -> tuple[EffectRow, ...]:
        """The results that wait, for a checkpoint to carry. They are closed by it."""
        with self._lock:
            waiting, self._waiting = tuple(self._waiting), []
            return waiting

    def forget(self, closed_step: int) -> None:
        """A checkpoint closed this step and those before it: their entries are not looked for again."""
        with self._lock:
            self._entries = {at: row for at, row in self._entries.items() if at[0] > closed_step}

    def put_back(self, waiting: tuple[EffectRow, ...]) -> None:
        """Results that a checkpoint took and could not carry wait again."""
        with self._lock:
            self._waiting[:0] = waiting

    def heed(self, *, at_once: bool = False) -> list[EffectRow]:
        """What was written from outside the run since the last time: cancellations, answers.

        What this process told is heard at once, what another did at the first look that is not made right after the
        one before: with many runs beside each other, looking before every call would take longer than recording it.
        """
        with self._lock:
            told, moment = _told.count, time.monotonic()
            if told == self._told and moment < self._looked + _LOOK_SECONDS and not at_once:
                return []
            self._told, self._looked = told, moment
            outside: list[EffectRow] = []
            while page := self.store.effects(self._thread, after=self._last, limit=_PAGE):
                self._last = page[-1].number
                outside += [row for row in page if row.kind in _FROM_OUTSIDE]
            return outside

    @property
    def last(self) -> int:
        """The newest entry that this run has heard of."""
        return self._last

    def write_late(self, row: EffectRow) -> None:
        """Keep what a call gave although the run is lost: evidence for whoever has to settle it."""
        self.store.tell(self._thread, replace(row, status="late", number=0))

    def new(
        self, step: int, key: str, name: str, kind: EffectClass, status: EffectStatus, arguments: bytes
    ) -> EffectRow:
        """An entry of this branch, not yet written."""
        return EffectRow(
            branch=self._branch,
            step=step,
            key=key,
            name=name,
            kind=kind,
            status=status,
            arguments=arguments,
            fence=self._lease.fence,
            begun_at=now(),
        )


def now() -> int:
    """Microseconds since 1970: information for people, never order."""
    return time.time_ns() // 1000


def open_entries(store: Store, thread: int, closed: int, last: int, closed_step: int, branch: int) -> list[EffectRow]:
    """The entries of a branch above a step, from `closed` to `last`, read from the end: a long history costs nothing.

    Branches and steps only grow along a journal, but for what was written from outside, or too late. What was undone
    is not among them.
    """
    return _split_undone(_open_rows(store, thread, closed, last, closed_step, branch))[0]


def _split_undone(rows: list[EffectRow]) -> tuple[list[EffectRow], dict[tuple[int, str], int]]:
    """The entries that count, and up to which number those of a call do not because that was undone."""
    numbers = {row.matches for row in rows if row.kind == "undo" and row.status == "done"}
    undone = {(row.step, row.key): row.number for row in rows if row.number in numbers}
    is_open = [row for row in rows if row.kind != "undo" and row.number > undone.get((row.step, row.key), 0)]
    return is_open, undone


def _open_rows(store: Store, thread: int, closed: int, last: int, closed_step: int, branch: int) -> list[EffectRow]:
    entries: list[EffectRow] = []
    while last > closed:
        first = max(last - _PAGE, closed)
        page = [row for row in store.effects(thread, after=first, limit=last - first) if row.status != "late"]
        page = [row for row in page if row.kind not in _FROM_OUTSIDE]
        entries[:0] = [row for row in page if row.branch == branch and row.step > closed_step]
        if any((row.branch, row.step) <= (branch, closed_step) and row.kind != "undo" for row in page):
            break
        last = first
    return entries


_RETRY_SECONDS = 0.05
_CALLS = ("model", "read", "idempotent", "irreversible")

CALL_REDACTED = 1  # in `EffectRow.redacted`
RESULT_REDACTED = 2


class Recorder:
    """Writes the outcomes of a run's calls to its journal, and reads recorded ones back."""

    def __init__(self, journal: Journal, lease: Lease, watch: Watch, redaction: Redaction) -> None:
        self.redaction = redaction
        self._journal = journal
        self._watch = watch
        self._lease = lease
        self._spending = Spending(journal.store, lease.row.thread)
        self._raised: list[tuple[BaseException, EffectRow]] = []

    def record(
        self, row: EffectRow, result: Any, conversion: StateType | None = None, *, with_next: bool = False
    ) -> Any:
        """Record a result and give back what was recorded: the first call returns what its replay will."""
        try:
            plain = result if conversion is None else conversion.to_plain(result)
            msgpack.check(plain)
            recorded = self.redaction.restorable(plain, lambda plain: _restored(plain, conversion))
            encoded = msgpack.encode(recorded)
        except Unsupported as refused:
            error = self.redaction.message(str(refused))
            self.end(replace(row, status="unstored", error=error, ended_at=now()))
            raise Unsupported(
                refused.path, f"what {row.name} returned cannot be recorded: {refused.problem}"
            ) from refused
        if recorded is not plain:
            row = replace(row, redacted=row.redacted | RESULT_REDACTED)
        return self.record_encoded(row, encoded, conversion, with_next=with_next)

    def record_encoded(
        self, row: EffectRow, encoded: bytes, conversion: StateType | None = None, *, with_next: bool = False
    ) -> Any:
        """Record a result that is as it is to be recorded."""
        row = replace(row, result=encoded, error=None, ended_at=now())
        plain = msgpack.decode(encoded)
        if row.kind == "model":
            row = self._spending.with_sum(self._watch.spent(row, encoded), plain)
        if with_next:
            self._journal.write_with_next(row)
        else:
            self.end(row)
        return _restored(plain, conversion)

    def end(self, row: EffectRow, *with_it: EffectRow) -> EffectRow:
        """Record how a call ended. A store that fails for a moment is asked again while the lease lasts.

        The reply has been paid for, the tool has acted: giving up at the first try would lose the one and leave the
        other in doubt.
        """
        row = row if row.ended_at is not None else replace(row, ended_at=now())
        while True:
            try:
                return self._journal.write(row, *with_it)
            except LeaseLost:
                self._keep_evidence(row)
                raise
            except (Damaged, OutcomeUnknown, Replaced):
                raise  # neither passes by waiting
            except StoreError:
                try:
                    self._lease.check()
                except LeaseLost:
                    self._keep_evidence(row)
                    raise
                time.sleep(_RETRY_SECONDS)

    def fail(self, row: EffectRow, error: Exception, *, is_heard: bool = True) -> None:
        """Record a failure with whatever is written next: until then nobody has gone on from it.

        One that the program does not hear of, because the call is tried again at once, is not raised again later.
        """
        row = replace(row, status="failed", error=text_of(error, self.redaction), heard=is_heard, ended_at=now())
        row = self._journal.write_with_next(row)
        self.note(error, row)

    def note(self, error: BaseException, row: EffectRow) -> None:
        """Remember which call an error is of."""
        self._raised.append((error, row))

    def forget(self) -> None:
        """A checkpoint closed the step: its failures are not raised again."""
        self._raised.clear()

    def raise_again(self, row: EffectRow) -> None:
        """Raise the next failure of a call that the program went on from before its process died, if there is one."""
        failure = self._journal.next_failure(row.step, row.key)
        if failure is not None and failure.error is not None:
            error = again(failure.error)
            self.note(error, failure)
            raise error

    def reopen(self, error: BaseException) -> None:
        """A run ends with an error that nobody went on from: the calls it came from are made anew the next time."""
        ended = {id(each) for each in behind(error)}
        with suppress(LeaseLost, StoreError):  # then they fail once more, and are made after that
            for raised, row in self._raised:
                if id(raised) not in ended:
                    continue
                known = row if row.number else self._journal.find(row.step, row.key)
                if known is not None and known.status in ("failed", "not_done") and known.number and known.error:
                    self._journal.amend(replace(known, error=None))

    def recorded(self, row: EffectRow, conversion: StateType | None = None) -> Any:
        """What a call gave, from the journal."""
        if row.status == "unstored" or row.result is None:
            raise HoldfastError(
                f"{row.name} ran, but what it returned could not be recorded ({row.error}); settle it with hf.settle "
                "before the run goes on"
            )
        if row.fence != self._lease.fence and row.kind in _CALLS:
            self._lease.note_known(is_model=row.kind == "model")
        return _decoded(row.result, conversion)

    def _keep_evidence(self, row: EffectRow) -> None:
        with suppress(StoreError):  # that the lease is lost is what the caller must hear
            self._journal.write_late(row)


def _decoded(encoded: bytes, conversion: StateType | None) -> Any:
    return _restored(msgpack.decode(encoded), conversion)


def _restored(plain: Any, conversion: StateType | None) -> Any:
    return plain if conversion is None else conversion.from_plain(plain)
