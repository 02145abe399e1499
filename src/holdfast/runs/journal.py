"""The journal of a run: its open entries, and the results and failures of its calls."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, Literal, TypeVar

from msgspec.structs import replace

from holdfast.codec import msgpack
from holdfast.codec.typed import StateType
from holdfast.errors import (
    Closed,
    Conflict,
    Damaged,
    HoldfastError,
    LeaseLost,
    OutcomeUnknown,
    Replaced,
    StoreError,
    Unsupported,
)
from holdfast.redaction import Redaction
from holdfast.runs.drivers import CALL, ToolThread
from holdfast.runs.flusher import flusher
from holdfast.runs.guards import Watch
from holdfast.runs.lease import Lease, local_seconds, now, posts
from holdfast.runs.open_entries import (
    PAGE,
    POSTED,
    OpenEntries,
    Spans,
    added,
    first_pending,
    is_raised_failure,
    pending_cancel,
    place_of,
    read_open_entries,
    split_undone,
)
from holdfast.runs.record import CALLS, DOUBTFUL, MAX_RACES, causes, error_of, text_of
from holdfast.runs.results import (
    consequence,
    encoded_result,
    log_unrecorded,
    refusal_of,
    restored_result,
    unrecorded_error,
)
from holdfast.signals import shield, sleep
from holdfast.stores.contract import Store
from holdfast.stores.contract_runs import ActClaim, ActRow, Entry, EntryKind, EntryStatus, RunRow
from holdfast.threads.ancestry import Ancestry

T = TypeVar("T")
When = Literal["now", "soon", "with next"]
"""When a result is written: before the call returns it, soon after (`Journal.end_soon`), or with the next entry."""

_Expected = tuple[ActRow | None] | None  # the claim to replace, in a tuple; None if the entry claims nothing

CALL_REDACTED: Final = 1  # in `Entry.redacted`
RESULT_REDACTED: Final = 2

_POLL_SECONDS = 0.05  # between two reads of entries that other processes post
_RETRY_SECONDS: Final = 0.05


class Journal(OpenEntries):
    """Finds and writes the entries of a run's open steps. Entries that a checkpoint closed are not found again.

    Results of reads are not committed one by one. They are written with the next entry. If a crash comes first, the
    tool is called again. A model's reply, and the result of a tool that may be called again or probed, waits for a few
    milliseconds, so that the checkpoint of its step or the intent of the next call takes it along.
    """

    def __init__(
        self,
        store: Store,
        lease: Lease,
        closed_step: int,
        last: int,
        watch: Watch,
        redaction: Redaction,
        ancestry: Callable[[], Ancestry],
    ) -> None:
        """`last` is the number of the newest entry at the claim, `ancestry` reads that of the thread's head."""
        super().__init__(store, lease, ancestry)
        self.redaction: Final = redaction
        self.children_before: set[str] = set()  # threads of the children that earlier claims started
        self.undoing: Entry | None = None  # an undo without an outcome: it is unknown whether its call still counts
        self.cancel: Entry | None = None  # a cancellation of the run that is not done yet
        self._store = store
        self._thread = lease.row.thread
        self._branch = lease.row.branch
        self._watch = watch
        self.has_topics = False
        self._unwritten: list[Entry] = []
        self._pending_since = 0.0
        self._pending_result: Entry | None = None  # the one of them that waits at most a few milliseconds
        self._maybe_written: list[Entry] = []  # entries of a write with an unknown outcome, as they may be stored
        self._raised: list[tuple[BaseException, Entry]] = []
        self.running: Final[dict[int, ToolThread]] = {}  # by number: functions that may outlive their calls
        self.last = last  # the number of the newest entry that this run has seen
        self._polled = lease.taken_at
        self._read(closed_step)

    def _read(self, closed_step: int) -> None:
        run = self._lease.row
        read = read_open_entries(self._store, self._thread, run.closed, self.last, closed_step, self._branch)
        for row in read.posted:
            if row.kind == "undo":
                self.undoing = row
        is_all = read.after <= run.closed
        self.cancel = first_pending(read.posted, run) if is_all else pending_cancel(self._store, run)
        rows, self._undone = split_undone(read.entries)
        if rows and rows[-1].error and is_raised_failure(rows[-1]):
            # The program did not continue after it, so the call is made again. The next write says so, because then
            # entries follow, and a later resume would raise the error.
            rows[-1] = replace(rows[-1], heard=False, tries=0, again=None)
            self._unwritten.append(rows[-1])
        for row in rows:
            if row.kind == "child":
                self.children_before.add(row.name)
            if is_raised_failure(row):
                self._note_failure(row)
            if row.inside is not None:
                self._inner.setdefault(row.inside, []).append(row)
        self._note_written(rows)
        self._unrepeated = dict.fromkeys(self._entries)

    def use_topics(self) -> None:
        """From now on, write entries so that `Store.entries` finds them by their keys, even when closed."""
        self.has_topics = True

    # -- writing --------------------------------------------------------------------------------------------------

    def new(self, step: int, key: str, name: str, kind: EntryKind, status: EntryStatus, arguments: bytes) -> Entry:
        """An entry of this branch, not yet written."""
        return Entry(
            branch=self._branch,
            step=step,
            key=key,
            name=name,
            kind=kind,
            status=status,
            arguments=arguments,
            fence=self._lease.fence,
            started_at=now(),
            outside=self.outside.get(key, 0),
            inside=None if (outer := CALL.get()) is None or outer.journal is not self else place_of(outer.entry),
        )

    def write(self, row: Entry, *with_it: Entry, claim: _Expected = None) -> Entry:
        """Write an entry durably, with those that wait for a write. LeaseLost if another process has the run.

        With `claim`, the entry claims its act. ActHeld if that is claimed by another entry than the one in `claim`.
        """
        with shield, self._lock:
            try:
                return self._write([*with_it, self._stamped(row)], claim)[0][-1]
            except BaseException as error:
                self._note_unsure(error)
                raise

    def write_with_next(self, row: Entry) -> Entry:
        """Write an entry together with the next one."""
        with self._lock:
            row = self._stamped(row)
            self._unwritten.append(row)
            self._entries[place_of(row)] = row
            return row

    def end_soon(self, row: Entry) -> Entry:
        """Record how a call ended with the next write, or a few milliseconds from now if there is none.

        Call it only if no other call is under way, and if the call may be repeated or probed after a crash.
        """
        if self._lease.must_stop():
            return self.end(row)  # raises LeaseLost now
        with shield:
            self._pending_since = time.monotonic()
            self._pending_result = row = self.write_with_next(row)
            flusher.add(self)
            return row

    @property
    def pending_since(self) -> float | None:
        """The monotonic time since which a result waits for a write; None if none waits."""
        return None if self._pending_result is None else self._pending_since

    def write_pending(self) -> bool:
        """Write the result that waits, in the thread of the flusher. False if it is to be tried again.

        The next call of the program, or the end of its block, reports a failure that lasts.
        """
        if self._pending_result is not None and not self._lease.is_stopped:
            try:
                with self._lease.limit:
                    self.flush()
            except (LeaseLost, Closed):
                return True
            except HoldfastError:
                return False
        return True

    def write_results(self) -> None:
        """Write the result that waits, before anything else is done. A store that fails is tried again, as by `end`."""
        row = self._pending_result
        if row is not None:
            self._write_until_lease_ends(row, self.flush)

    def write_expecting(self, row: Entry, last: int) -> Entry:
        """Write an entry if none was posted since `last` was the newest; else Conflict."""
        with self._writing():
            row = self._stamped(row) if row.number else replace(self._stamped(row), number=last + 1)
            self._store.journal(self._thread, self._lease.fence, [row], last=last)
            self._note_written([row])
            return row

    def amend(self, row: Entry) -> None:
        """Replace an entry, which may no longer be the newest of its call."""
        with self._writing():
            self._store.journal(self._thread, self._lease.fence, [row], last=None)
            newest = self._entries.get(place_of(row))
            if newest is not None and newest.number == row.number:
                self._entries[place_of(row)] = row

    def put_run(self, run: RunRow, *rows: Entry, last: int | None = None) -> None:
        """Replace the run's record and write entries with it. Conflict if `last` is given and not the newest entry.

        The block ends. So the functions of its calls have ended, except those in threads of their own.
        """
        written = {row.number for row in rows}
        with self._lock:
            ended = [
                row
                for row in self._entries.values()
                if row.owner is not None and row.fence == run.fence and row.number not in written
                if row.number not in self.running or not self.running[row.number].is_started
            ]
        # As they are stored: an interrupted write may have recorded a result that is not known here.
        unended = (*DOUBTFUL, "given_up")
        stored = [replace(row, owner=None) for row in self._stored(ended) if row.status in unended]
        self._store.journal(self._thread, self._lease.fence, (*rows, *stored), last=last, run=run)

    def _stored(self, rows: Iterable[Entry]) -> list[Entry]:
        """Entries as they are in the store now."""
        return [each for row in rows for each in self._store.entries(self._thread, after=row.number - 1, limit=1)]

    def _read_again(self) -> None:
        """After a write with an unknown outcome, read the calls that it may have ended."""
        with shield, self._lock:
            unended = [row for row in self._entries.values() if row.number and row.status in (*DOUBTFUL, "asked")]
            for row in self._stored(unended):
                self._entries[place_of(row)] = row
            self._is_unsure = False

    @contextmanager
    def _writing(self) -> Generator[None]:
        """A write to the store, and its note in memory."""
        with shield, self._lock:
            try:
                yield
            except BaseException as error:
                self._note_unsure(error)
                raise

    def _note_unsure(self, error: BaseException) -> None:
        """Note that the outcome of a write is unknown, if this error leaves it unknown."""
        self._is_unsure |= _is_unknown(error)

    def _note_failed(self, error: BaseException, rows: list[Entry]) -> None:
        """Note the entries of a write that failed, if they may be stored: they must not be written again then."""
        if _is_unknown(error):
            self._maybe_written = rows

    def _note_stored(self, rows: Sequence[Entry]) -> None:
        """Note that a write with an unknown outcome has stored these entries."""
        stored = {_waited_as(row) for row in rows}
        self._unwritten = [row for row in self._unwritten if _waited_as(row) not in stored]
        self._pending_result = self._pending_result if self._pending_result in self._unwritten else None
        self._note_written(rows)

    def flush(self) -> list[Entry]:
        """Write the entries that wait for a write. Return those from outside that were read meanwhile."""
        with self._writing():
            return self._write()[1]

    def commit(self, write: Callable[[tuple[Entry, ...], int | None], T], *more: Entry) -> T:
        """Write the entries that wait for a write, and others, with a checkpoint that closes them.

        `write` gets the numbered entries and the newest number before them. It is repeated if an entry was posted.
        """
        while True:
            with self._lock:
                last = self.last
                taken, self._unwritten = self._unwritten, []
                waiting, self._pending_result = self._pending_result, None
            rows = self.numbered((*taken, *more), last)
            try:
                answer = write(tuple(rows), last if rows else None)
            except BaseException as error:
                with self._lock:
                    self._unwritten[:0] = taken
                    self._pending_result = waiting
                    self._note_failed(error, rows)
                if waiting is not None:
                    flusher.add(self)
                if isinstance(error, Conflict) and rows:
                    self.poll(at_once=True)
                    if self.last != last:
                        continue
                raise
            with self._lock:
                self._note_written(rows)
            return answer

    def resolve_commit(self, find: Callable[[], T | None], note: Callable[[T], None]) -> None:
        """Note a commit that failed with an unknown outcome, if `find` finds its checkpoint."""
        with shield:
            found = find()
            if found is None:
                return
            with self._lock:
                self._note_stored(self._maybe_written)
            note(found)

    def close(self, step: int) -> None:
        """Forget the entries of a step and those before it, because a checkpoint closed them."""
        with self._lock:
            self._entries = {at: row for at, row in self._entries.items() if row.step > step}
            self._unrepeated = {at: None for at in self._unrepeated if at in self._entries}
            self._changing &= self._entries.keys()

    def kept_at(self, step: int) -> Spans:
        """`RunRow.kept` for a checkpoint that closes a step. Calls that have no number yet are written first."""
        with self._lock:
            is_unwritten = any(row.outside and row.step <= step for row in self._unwritten)
        if is_unwritten:
            self.flush()
        with self._lock:
            return self.kept.spans_at(self._lease.row.kept, step)

    def _note_written(self, rows: Iterable[Entry]) -> None:
        for row in rows:
            self._entries[place_of(row)] = row
            self.last = max(self.last, row.number)
            if row.outside:
                self.kept.note_written(row)

    def _stamped(self, row: Entry) -> Entry:
        if self._watch.meter is not None:  # so that a resumed run can count the time for which it was held
            row = replace(row, held=self._watch.meter.held_ms)
        if self._replayed != (0, 0):
            row = replace(row, replayed=added(row.replayed, self._replayed))
            self._replayed = (0, 0)
        return replace(row, topic=row.key) if self.has_topics else row

    def numbered(self, rows: Sequence[Entry], last: int) -> list[Entry]:
        """The entries as they will be stored: new ones get the numbers after `last`."""
        numbered: list[Entry] = []
        for row in rows:
            last += not row.number
            numbered.append(row if row.number else replace(row, number=last))
        return numbered

    def _write(self, more: Sequence[Entry] = (), claim: _Expected = None) -> tuple[list[Entry], list[Entry]]:
        """Write the entries that wait and more, the last of which may claim its act.

        Return them as they are stored, and those that were posted meanwhile: they are written after these.
        """
        posted: list[Entry] = []
        for row in more:
            if row.number > self.last:  # an answer that was found by its topic
                posted += self._catch_up()
        while True:
            last, moment = self.last, local_seconds()
            numbered = self.numbered((*self._unwritten, *more), last)
            if not numbered:
                self._pending_result = None
                return numbered, posted
            try:
                claims = () if claim is None else (ActClaim(numbered[-1].number, *claim),)
                self._store.journal(self._thread, self._lease.fence, numbered, last=last, claims=claims)
                break
            except LeaseLost:
                self._lease.lose()
                raise
            except Conflict:
                posted += self._catch_up()
                if self.last == last:
                    raise
            except BaseException as error:
                self._note_failed(error, numbered)
                raise
        self._unwritten.clear()
        self._pending_result = None
        self._polled = moment  # no entry was posted before, so this write replaces a poll
        self._note_written(numbered)
        return numbered, posted

    # -- entries from outside -------------------------------------------------------------------------------------

    def poll(self, *, at_once: bool = False) -> list[Entry]:
        """Read the entries that were posted from outside the run since the last time: cancellations and answers.

        Entries of this process are read at the next call. Entries of other processes are looked for every 50 ms: with
        many runs at the same time, a read before every call would take longer than recording it.
        """
        with self._lock:
            is_recent = local_seconds() < self._polled + _POLL_SECONDS and posts.at < self._polled
            if is_recent and not at_once:
                return []
            with self._lease.limit:
                return self._catch_up()

    def _catch_up(self) -> list[Entry]:
        """Read the new entries, and return those from outside."""
        self._polled = local_seconds()
        posted: list[Entry] = []
        while page := self._store.entries(self._thread, after=self.last, limit=PAGE):
            self.last = page[-1].number
            posted += [row for row in page if row.kind in POSTED]
            if self._maybe_written:
                stored = set(map(_written_as, page))
                self._note_stored([row for row in self._maybe_written if _written_as(row) in stored])
        if self.cancel is None:
            self.cancel = next((row for row in posted if row.kind == "cancel"), None)
        return posted

    # -- results --------------------------------------------------------------------------------------------------

    def record(
        self, row: Entry, result: Any, conversion: StateType | None = None, *, when: When = "now", **how: bool
    ) -> Any:
        """Record a result and return it as recorded, so that a call returns the same as its replay.

        `how` are the options of `encoded_result`.
        """
        try:
            encoded = encoded_result(result, conversion, self.redaction, **how)
        except Unsupported as refused:
            error = refusal_of(row, result, refused)
            if row.kind in ("model", "read"):
                self.fail(row, error)  # nothing was done: it is called again when the program can record the reply
            else:
                self.end(replace(row, status="unstored", error=self.redaction.message(str(refused))))
            raise error from refused
        if encoded.is_redacted:
            row = replace(row, redacted=row.redacted | RESULT_REDACTED)
        if encoded.type is not None:
            row = replace(row, type=encoded.type)
        plain = self.record_encoded(row, encoded.data, when)
        return plain if encoded.conversion is None else encoded.conversion.from_plain(plain)

    def record_encoded(self, row: Entry, encoded: bytes, when: When = "now") -> Any:
        """Record a result that is redacted and encoded, and return it as plain data."""
        row = replace(row, result=encoded, error=None, ended_at=now())
        plain = msgpack.decode(encoded)
        if row.settled in ("probe", "give_up"):
            self.accept_inner(row)
        if row.kind == "model":
            row = self._watch.replied(row, plain)
        {"now": self.end, "soon": self.end_soon, "with next": self.write_with_next}[when](row)
        return plain

    def recorded(self, row: Entry, conversion: StateType | None = None) -> Any:
        """The result of a call from the journal."""
        return restored_result(row, self.recorded_plain(row), conversion)

    def recorded_plain(self, row: Entry) -> Any:
        """The result of a call from the journal, as plain data. Counts the call as replayed."""
        if row.status == "unstored" or row.result is None:
            raise HoldfastError(
                f"{row.name} ran, but its result could not be recorded ({row.error}); it was not called again. "
                f"Settle call {row.number} with hf.settle, then run the thread again."
            )
        if row.fence != self._lease.fence and row.kind in CALLS:
            with self._lock:
                self._replayed = added(self._replayed, (1, 0) if row.kind == "model" else (0, 1))
        if self._inner:
            self.accept_inner(row)
        return msgpack.decode(row.result)

    def end(self, row: Entry, *with_it: Entry) -> Entry:
        """Record how a call ended. A store that fails is tried again, for at most the length of the lease.

        The model's reply is paid for, or the tool has acted: to give up at the first failure would lose the reply, or
        leave the tool's call in doubt. Renewals may succeed all that time, as on a disk with little room.
        """
        row = row if row.ended_at is not None else replace(row, ended_at=now())
        return self._write_until_lease_ends(row, functools.partial(self.write, row, *with_it))

    def _write_until_lease_ends(self, row: Entry, write: Callable[[], T]) -> T:
        """Call `write` until it succeeds, as `end` describes. `row` is the entry of the call."""
        until = local_seconds() + self._lease.seconds
        while True:
            try:
                written = write()
            except LeaseLost as lost:
                raise self._lost_error(row, lost) from lost
            except StoreError as error:
                if isinstance(error, Damaged | OutcomeUnknown | Replaced):
                    raise unrecorded_error(row, error) from error  # waiting does not help
                if not self._lease.is_write_failing:
                    self._lease.is_write_failing = True
                    log_unrecorded(row, error)
                try:
                    self._lease.check()
                except LeaseLost as lost:
                    raise self._lost_error(row, lost) from error
                if local_seconds() > until:
                    raise unrecorded_error(row, error) from error
                sleep(_RETRY_SECONDS)
            else:
                self._lease.is_write_failing = False
                return written

    def _lost_error(self, row: Entry, lost: LeaseLost) -> LeaseLost:
        """The error of a call that ended after this process lost the run. Its result is kept for a person to see."""
        if row.kind not in CALLS or row.status == "not_done":
            return lost  # nothing was done that a person would look for
        number = self._post_late_result(row)
        kept = "could not be kept" if number is None else f"is kept as call {number}, with status 'late'"
        return LeaseLost(
            f"{row.name} was called, and this process lost the run before its result was recorded; {consequence(row)}. "
            f"The result {kept}. This process does nothing more; call hf.run again to resume the run."
        )

    def _post_late_result(self, row: Entry) -> int | None:
        """Keep the result of a call although the run is lost. Return the number of its entry; None if that failed."""
        self._pending_result = None if row is self._pending_result else self._pending_result
        if not self._lease.fence:
            return None  # a forked child: the call is its parent's
        with suppress(StoreError):  # the caller needs LeaseLost
            for _ in range(MAX_RACES):
                with suppress(Conflict):  # another entry was posted meanwhile
                    number = self._store.last_entry(self._thread) + 1
                    self._store.post(self._thread, replace(row, status="late", number=number))
                    return number
        return None

    # -- failures -------------------------------------------------------------------------------------------------

    def fail(self, row: Entry, error: Exception) -> None:
        """Record a failure with the next entry: until then, nothing depends on it."""
        row = replace(row, status="failed", error=text_of(error, self.redaction), ended_at=now())
        self.note(error, self.write_with_next(row))

    def note(self, error: BaseException, row: Entry) -> None:
        """Remember the call that raised an error."""
        self._raised.append((error, row))

    def forget_errors(self) -> None:
        """Forget which calls raised errors, because their step is over."""
        self._raised.clear()

    def raise_again(self, row: Entry) -> None:
        """Raise the next recorded failure of a call, if there is one.

        These are failures after which an earlier process continued. Each is raised once, in order: the program tries
        again as it did then.
        """
        with self._lock:
            failures = self._failures.get(place_of(row))
            failure = failures.pop(0) if failures else None
        if failure is not None and failure.error is not None:
            error = error_of(failure.error)
            self.note(error, failure)
            self.accept_inner(row, can_be_repeated=True)
            raise error

    def reopen(self, error: BaseException) -> None:
        """Let the calls that caused an error be made again, because the run ends with it."""
        ended = {id(each) for each in causes(error)}
        with suppress(LeaseLost, StoreError):  # then a resume raises the errors once more
            for raised, row in self._raised:
                if id(raised) not in ended:
                    continue
                known = row if row.number else self._entries.get(place_of(row))
                if known is not None and known.status in ("failed", "not_done") and known.number and known.error:
                    self.amend(replace(known, error=None))


def _is_unknown(error: BaseException) -> bool:
    """Whether a write that failed may have been made. Only an error of the store says that nothing was written."""
    return not isinstance(error, HoldfastError) or isinstance(error, OutcomeUnknown)


def _waited_as(row: Entry) -> tuple[Any, ...]:
    """The fields by which an entry is recognized before it has a number."""
    return place_of(row), row.started_at, row.status


def _written_as(row: Entry) -> tuple[Any, ...]:
    """The fields by which a stored entry is recognized."""
    return row.number, row.fence, *_waited_as(row)
