"""Claiming: resume or start. One worker gets the run; the others hear who is in the way."""

from __future__ import annotations

import hashlib
import time
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from holdfast.codec import packed
from holdfast.errors import Conflict, InvalidArgument, LeaseHeld, NotFound
from holdfast.runs.journal import now
from holdfast.runs.lease import Lease, is_over, local_seconds
from holdfast.runs.owner import is_dead, this_process
from holdfast.stores.contract import Position, Store
from holdfast.stores.running import RunRow
from holdfast.threads.references import shown
from holdfast.threads.saver import NEW, Saver

_POLL_SECONDS = 0.05


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """How a run is to be held: what `hf.run` was told besides the thread and its start."""

    lease: float
    wait: float = 0.0
    agent: str | None = None
    version: str | None = None
    handler: str | None = None

    def __post_init__(self) -> None:
        for name in ("agent", "version", "handler"):
            text = getattr(self, name)
            if text is not None and (type(text) is not str or not text):
                raise InvalidArgument(f"{name} must be a text that is not empty")
        if type(self.lease) not in (int, float) or not 0.05 <= self.lease <= 86_400:
            raise InvalidArgument("lease must be seconds, from 0.05 to a day")
        if type(self.wait) not in (int, float) or not 0 <= self.wait < float("inf"):
            raise InvalidArgument("wait must be seconds, 0 or more")


class Claimed(NamedTuple):
    """A run that was claimed. No lease if it is completed; resumed if it was begun before."""

    lease: Lease | None
    row: RunRow
    resumed: bool


def is_free(store: Store, row: RunRow) -> bool:
    """Whether nobody holds a run: it is not running, its lease has ended, or its owner is proven dead."""
    if row.status != "running" or row.owner is None:
        return True
    return is_over(row, store.clock()) or is_dead(row.owner)


def branch_of(position: Position) -> int:
    """How often a thread was rewound: a save counts as a move and gives out a seq, a rewind is a move only."""
    return position.move - position.last


def start_digest(plain: Any) -> bytes:
    """What a run was started with, to tell a second submission of the same from one of another."""
    return hashlib.sha256(packed.encode(plain)).digest()


def claim(
    store: Store,
    saver: Saver,
    name: str,
    start: Any,
    terms: Terms,
    *,
    has_start: bool,
    expect: RunRow | None = None,
) -> Claimed:
    """Take the run of a thread, creating thread and run from `start` if there is nothing yet.

    No lease if the run is completed. LeaseHeld if another worker holds it for longer than `terms.wait`; NotFound if
    there is nothing and no start. With `expect`, also LeaseHeld if the run's record is not that any more.
    """
    deadline = time.monotonic() + terms.wait
    while True:
        try:
            return _claim(store, saver, name, start, terms, has_start=has_start, expect=expect)
        except Conflict:
            # Somebody was faster. What they did decides what happens next.
            continue
        except LeaseHeld:
            if time.monotonic() >= deadline:
                raise
            time.sleep(min(_POLL_SECONDS, max(deadline - time.monotonic(), 0)))


def _claim(
    store: Store, saver: Saver, name: str, start: Any, terms: Terms, *, has_start: bool, expect: RunRow | None
) -> Claimed:
    thread = store.thread(name)
    taken_at = local_seconds()
    if thread is None:
        if not has_start:
            raise NotFound(f"there is no thread {shown(name)} to resume; pass start= to begin one")
        row = _held(store, terms, RunRow(thread=0, status="running", fence=1, attempt=1, branch=0, created_at=now()))
        plain, details = saver.request(start, {"trigger": "start", "step": 0, "agent": terms.agent})
        saver.commit(saver.prepare(plain, details, NEW), run=replace(row, start=start_digest(plain)))
        created = store.thread(name)
        known = None if created is None else store.run(created.position.thread)
        if known is None or (known.owner, known.fence) != (row.owner, row.fence):
            raise Conflict("the run was taken as soon as it was there")
        return Claimed(Lease(store, known, terms.lease, taken_at), known, resumed=False)
    known = store.run(thread.position.thread)
    if expect is not None and known != expect:
        raise LeaseHeld(f"the run of thread {shown(name)} was taken or ended by another worker")
    branch = branch_of(thread.position)
    if known is not None and known.status == "completed" and known.branch == branch:
        return Claimed(None, known, resumed=True)
    if known is not None and not is_free(store, known):
        raise LeaseHeld(f"thread {shown(name)} is being run by another worker; try again when it is done")
    if known is None:
        row = RunRow(
            thread=thread.position.thread, status="running", fence=1, attempt=1, branch=branch, created_at=now()
        )
    else:
        # Whoever waited for an answer did not fail. Everybody else counts, until a checkpoint shows progress.
        attempt = known.attempt + (known.status != "waiting")
        row = replace(known, status="running", fence=known.fence + 1, attempt=attempt, reason=None, wake_at=0)
        row = replace(row, branch=branch, result=None)
    row = _held(store, terms, row)
    store.claim(known, row)
    # A run that was submitted has its first fence from that; nobody has begun it.
    begun = known is not None and (known.fence > 1 or known.status != "queued")
    return Claimed(Lease(store, row, terms.lease, taken_at), row, resumed=begun)


def _held(store: Store, terms: Terms, row: RunRow) -> RunRow:
    clock = store.clock()
    return replace(
        row,
        owner=this_process(),
        clock=clock.id,
        lease_until=clock.now + round(terms.lease * 1000),
        updated_at=now(),
        agent=terms.agent or row.agent,
        version=terms.version or row.version,
        handler=terms.handler or row.handler,
    )
