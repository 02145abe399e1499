"""Retention: which checkpoints to keep, and deleting the others, also in the background."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

import msgspec

from holdfast import forksafe
from holdfast.errors import InvalidArgument
from holdfast.stores.contract import Store
from holdfast.threads.gc import live_of
from holdfast.types import Checkpoint

_BATCH = 200  # checkpoints deleted in one transaction, which must be short for other writers


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """Checkpoints to keep: the newest `keep_last`, and those not older than `older_than`. The others are deleted.

    The head, every checkpoint at which a fork starts, and the one from which the thread's run resumes always stay. By
    default, the newest completed checkpoint and those with a label stay, too. One of the two limits is needed: without
    a limit all other checkpoints would be deleted.

    >>> Retention(keep_last=50)
    Retention(keep_last=50, older_than=None, keep_newest_completed=True, keep_labelled=True)
    """

    keep_last: int | None = None
    older_than: timedelta | float | None = None
    keep_newest_completed: bool = True
    keep_labelled: bool = True

    def __post_init__(self) -> None:
        keep, older = self.keep_last, self.older_than
        if keep is None and older is None:
            raise InvalidArgument(
                "a Retention without a limit would delete all checkpoints that are not protected; nothing was deleted. "
                "Give keep_last, older_than or both."
            )
        if keep is not None and (type(keep) is not int or keep < 0):
            raise InvalidArgument("keep_last must be a whole number, 0 or more")
        if older is not None:
            seconds = older.total_seconds() if isinstance(older, timedelta) else older
            if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
                raise InvalidArgument("older_than must be a timedelta or a number of seconds, 0 or more")


def removable(
    retention: Retention, history: Iterable[Checkpoint], *, head: int, origins: set[int], now: datetime
) -> list[Checkpoint]:
    """The checkpoints of a history, newest first, that may be deleted. `origins` are the seqs at which forks start."""
    cutoff = None if retention.older_than is None else _moment_before(now, retention.older_than)
    found = []
    completed_seen = False
    for place, checkpoint in enumerate(history):
        newest_completed = checkpoint.status == "completed" and not completed_seen
        completed_seen = completed_seen or newest_completed
        if (
            checkpoint.seq == head
            or checkpoint.seq in origins
            or (retention.keep_last is not None and place < retention.keep_last)
            or (cutoff is not None and checkpoint.created_at > cutoff)
            or (retention.keep_newest_completed and newest_completed)
            or (retention.keep_labelled and checkpoint.label is not None)
        ):
            continue
        found.append(checkpoint)
    return found


def _moment_before(now: datetime, age: timedelta | float) -> datetime:
    try:
        return now - (age if isinstance(age, timedelta) else timedelta(seconds=age))
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)


def remove(store: Store, thread: int, seqs: list[int]) -> None:
    """Delete checkpoints, oldest first, and then the cells that are no longer used, in short transactions.

    If the process dies meanwhile, the next prune or `optimize()` removes the cells that are left.
    """
    seqs = sorted(seqs)
    for at in range(0, len(seqs), _BATCH):
        store.delete(thread, seqs[at : at + _BATCH])
    store.sweep(thread, live_of(store, thread))


# -- retention in the background --------------------------------------------------------------------------------------

QUIET_SECONDS = 1.0  # a thread is pruned this long after a save; saves in between share one pruning


class BackgroundRetention:
    """Applies a retention to the threads that were saved, in a background thread that ends when there is no work.

    `run_now()`, which `hf.close()` calls, raises a failure of the background thread. No save fails because of it.
    """

    def __init__(self, prune: Callable[[str], int], quiet_seconds: float = QUIET_SECONDS) -> None:
        self._prune = prune
        self._quiet_seconds = quiet_seconds
        self._lock = threading.Lock()
        self._due: set[str] = set()
        self._worker: threading.Thread | None = None
        self._stop = threading.Event()
        self._failure: Exception | None = None
        forksafe.renew_in_child(self)

    def renew(self) -> None:
        """Replace the lock and the background thread in a forked child: both are the parent's."""
        self._lock = threading.Lock()
        self._worker = None

    def note(self, name: str) -> None:
        """Record that a thread was saved, so it is due."""
        with self._lock:
            self._due.add(name)
            if self._stop.is_set() or self._worker is not None:
                return
            self._worker = threading.Thread(target=self._work, name="holdfast-retention", daemon=True)
            self._worker.start()

    def run_now(self) -> int:
        """Prune what is due, in the calling thread. Return how many checkpoints that removed.

        Raises an error of its own or of the background thread.
        """
        pruned = 0
        while (name := self._next()) is not None:
            pruned += self._prune(name)
        with self._lock:
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        return pruned

    def stop(self) -> None:
        """Let the background thread end, then prune what is left."""
        self._stop.set()
        with self._lock:
            worker = self._worker
        if worker is not None:
            worker.join()
        self.run_now()

    def _work(self) -> None:
        while not self._stop.wait(self._quiet_seconds):
            while not self._stop.is_set() and (name := self._next()) is not None:
                try:
                    self._prune(name)
                except Exception as failure:  # noqa: BLE001 - run_now() raises it
                    self._failure = failure
            with self._lock:
                if not self._due:
                    self._worker = None
                    return

    def _next(self) -> str | None:
        with self._lock:
            return self._due.pop() if self._due else None
