"""Recording what calls gave: results before anybody sees them, failures with what comes next."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from holdfast.codec import packed
from holdfast.codec.typed import StateType
from holdfast.errors import Damaged, HoldfastError, LeaseLost, OutcomeUnknown, Replaced, StoreError, Unsupported
from holdfast.redaction import Redaction
from holdfast.runs.failures import again, behind, text_of
from holdfast.runs.journal import Journal, now
from holdfast.runs.lease import Lease
from holdfast.runs.spending import Spending
from holdfast.runs.watch import Watch
from holdfast.stores.running import EffectRow

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
            packed.check(plain)
            recorded = self.redaction.restorable(plain, lambda plain: _restored(plain, conversion))
            encoded = packed.encode(recorded)
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
        plain = packed.decode(encoded)
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
    return _restored(packed.decode(encoded), conversion)


def _restored(plain: Any, conversion: StateType | None) -> Any:
    return plain if conversion is None else conversion.from_plain(plain)
