"""Claiming: resume or start. One worker gets the run; the others hear who is in the way."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from holdfast.codec import msgpack
from holdfast.errors import Conflict, Damaged, Incompatible, InvalidArgument, LeaseHeld, NotFound, Unfinished
from holdfast.runs.journal import now
from holdfast.runs.lease import Lease, is_over, local_seconds
from holdfast.stores.contract import Store, ThreadRow
from holdfast.stores.running import Claim, Clock, RunRow
from holdfast.text import shown
from holdfast.threads.ancestry import Ancestry, branch_of
from holdfast.threads.process import is_dead, this_process
from holdfast.threads.save import NEW, Saver

_POLL_SECONDS = 0.05
OUTRUN_MOST = 1000  # times that somebody else may be faster before it is not believed that anybody was
_ENDED = ("completed", "halted", "dead")
_CLAIMS_KEPT = 24  # of those that went on with a run: its record is written with every checkpoint
_LOOKED_THROUGH = 256  # journal entries that are looked at where the index of marks has no such turn


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """How a run is to be held: what `hf.run` was told besides the thread and its start."""

    lease: float
    wait: float = 0.0
    agent: str | None = None
    version: str | None = None
    handler: str | None = None
    turn: str | None = None
    trace: str | None = None
    parent: str | None = None

    def __post_init__(self) -> None:
        for name in ("agent", "version", "handler", "turn"):
            text = getattr(self, name)
            if text is not None and (type(text) is not str or not text):
                raise InvalidArgument(f"{name} must be a text that is not empty")
        if type(self.lease) not in (int, float) or not 0.05 <= self.lease <= 86_400:
            raise InvalidArgument("lease must be seconds, from 0.05 to a day")
        if type(self.wait) not in (int, float) or not 0 <= self.wait < float("inf"):
            raise InvalidArgument("wait must be seconds, 0 or more")


class Claimed(NamedTuple):
    """A run that was claimed. No lease if it is completed; resumed if it was begun before.

    `before` is the trace of its last claim, or of who submitted it.
    """

    lease: Lease | None
    row: RunRow
    resumed: bool
    before: str | None = None


def is_free(store: Store, row: RunRow, clock: Clock | None = None) -> bool:
    """Whether nobody holds a run: it is not running, its lease has ended, or its owner is proven dead.

    `clock` for whoever looks at many: reading it may be a round trip.
    """
    if row.status != "running" or row.owner is None:
        return True
    return is_over(row, clock or store.clock()) or is_dead(row.owner)


def start_digest(plain: Any) -> bytes:
    """What a run was started with, to tell a second submission of the same from one of another."""
    return hashlib.sha256(msgpack.encode(plain)).digest()


def claim(
    store: Store,
    saver: Saver,
    name: str,
    start: Any,
    terms: Terms,
    *,
    has_start: bool,
    check: Callable[[], None],
    expect: RunRow | None = None,
) -> Claimed:
    """Take the run of a thread, creating thread and run from `start` if there is nothing yet.

    No lease if the run is completed. LeaseHeld if another worker holds it for longer than `terms.wait`; NotFound if
    there is nothing and no start; Incompatible if it was begun by another version and is not finished. `check` may
    refuse what is there, too, before it is claimed. With `expect`, also LeaseHeld if the run's record is not that any
    more.
    """
    deadline = time.monotonic() + terms.wait
    outrun = 0
    while True:
        try:
            return _claim(store, saver, name, start, terms, has_start=has_start, check=check, expect=expect)
        except Unfinished:
            raise
        except Conflict:
            # Somebody was faster, and what they did decides what happens next; or records contradict each other.
            outrun += 1
            if outrun == OUTRUN_MOST:
                raise
            continue
        except LeaseHeld:
            if time.monotonic() >= deadline:
                raise
            time.sleep(min(_POLL_SECONDS, max(deadline - time.monotonic(), 0)))


def _claim(
    store: Store,
    saver: Saver,
    name: str,
    start: Any,
    terms: Terms,
    *,
    has_start: bool,
    check: Callable[[], None],
    expect: RunRow | None,
) -> Claimed:
    thread = store.thread(name)
    taken_at = local_seconds()
    if thread is None:
        if not has_start:
            raise NotFound(f"there is no thread {shown(name)} to resume; pass start= to begin one")
        row = RunRow(thread=0, status="running", fence=1, attempt=1, branch=0, began=1, created_at=now())
        row = _held(store, terms, row)
        request = saver.request(start, trigger="start", step=0, agent=terms.agent)
        saver.commit(saver.prepare(request, NEW), run=replace(row, start=start_digest(request.state)))
        created = store.thread(name)
        known = None if created is None else store.run(created.position.thread)
        if known is None or (known.owner, known.fence) != (row.owner, row.fence):
            raise Conflict("the run was taken as soon as it was there")
        return Claimed(Lease(store, known, terms.lease, taken_at), known, resumed=False)
    known = store.run(thread.position.thread)
    if expect is not None and known != expect:
        raise LeaseHeld(f"the run of thread {shown(name)} was taken or ended by another worker")
    if known is not None and known.parent != terms.parent:
        _refuse_other_parent(name, known)
    branch = branch_of(thread.position)
    done = _already_done(store, thread, known, terms.turn)
    if done is not None:
        return Claimed(None, done, resumed=True, before=done.trace)
    if known is not None and not is_free(store, known):
        raise LeaseHeld(f"thread {shown(name)} is being run by another worker; try again when it is done")
    is_new_turn = known is not None and _is_new_turn(name, known, terms.turn)
    if known is not None and not is_new_turn:
        _require_version(name, known, terms.version)
    check()
    if known is None:
        row = RunRow(
            thread=thread.position.thread,
            status="running",
            fence=1,
            attempt=1,
            branch=branch,
            began=thread.position.head,
            created_at=now(),
        )
    else:
        # Whoever waited for an answer did not fail. Everybody else counts, until a checkpoint shows progress.
        attempt = 1 if is_new_turn else known.attempt + (known.status != "waiting")
        row = replace(known, status="running", fence=known.fence + 1, attempt=attempt, reason=None, wake_at=0)
        row = replace(row, wake_wall=0, question=0, branch=branch, result=None, progress=None)
        row = replace(row, presumed_until=presumed_until(store, known), held=0 if is_new_turn else _held_before(known))
        # Whoever waited got somewhere; who gave the run back in peace left it for another first attempt.
        row = replace(row, tried_at=0 if attempt <= 1 or known.status == "waiting" else known.tried_at)
        if is_new_turn:
            # Halted in the middle of a step, the turn before may have left entries open that are none of this one's.
            row = replace(row, closed=store.last_effect(known.thread))
        if is_new_turn or branch != known.branch:
            row = replace(row, began=thread.position.head)
    # A run that was submitted has its first fence from that; nobody has begun it.
    begun = known is not None and not is_new_turn and (known.fence > 1 or known.status != "queued")
    row = _held(store, terms, row)
    if known is not None and begun:
        row = _with_claim(row, known, thread.position.head)
    store.claim(known, row)
    row = _on_its_branch(store, name, row)
    before = None if known is None else known.trace
    return Claimed(Lease(store, row, terms.lease, taken_at), row, resumed=begun, before=before)


def _with_claim(row: RunRow, known: RunRow, head: int) -> RunRow:
    """The record of a run that is gone on with, telling of that."""
    claims = (*known.claims, Claim(row.fence, row.updated_at, head, row.branch, known.status))
    crashed = known.crashed + (known.status == "running")
    return replace(row, claims=claims[-_CLAIMS_KEPT:], resumed=known.resumed + 1, crashed=crashed)


def _on_its_branch(store: Store, name: str, row: RunRow) -> RunRow:
    """The record of a run that was just claimed, on the branch of its thread: it may have been rewound until then."""
    thread = store.thread(name)
    if thread is None or branch_of(thread.position) == row.branch:
        return row
    row = replace(row, branch=branch_of(thread.position), began=thread.position.head)
    store.update_run(row)
    return row


def _refuse_other_parent(name: str, known: RunRow) -> None:
    if known.parent is not None:
        raise InvalidArgument(
            f"thread {shown(name)} is a child of {shown(known.parent)}, and run only by that; run {shown(known.parent)}"
        )
    raise InvalidArgument(f"thread {shown(name)} has a run of its own, so it is no child; give the child another name")


def _require_version(name: str, known: RunRow, version: str | None) -> None:
    """What an open step did is only known to the program that did it. Where one side names no version, they fit."""
    if version is not None and known.version is not None and version != known.version:
        raise Incompatible(
            f"the run of thread {shown(name)} was begun by version {shown(known.version)}, and this is version "
            f"{shown(version)}; finish it with version {shown(known.version)}, or leave version= away to go on with it "
            "all the same"
        )


def turn_mark(turn: str) -> str:
    """Under what the result of a turn is found."""
    return f"turn/{turn}"


def _already_done(store: Store, thread: ThreadRow, known: RunRow | None, turn: str | None) -> RunRow | None:
    """The record of what is asked for as it was completed; None if it was not, or was rewound."""
    if known is None:
        return None
    branch = branch_of(thread.position)
    if known.status == "completed" and known.branch == branch and turn in (None, known.turn):
        return known
    if turn is None or (turn == known.turn and known.status != "completed"):
        return None
    mark = turn_mark(turn)
    rows = store.marked(thread.position.thread, mark)
    if not rows:
        _confirm_none(store, thread.position.thread, mark)
    line = Ancestry.of(store, thread.position) if rows else None
    for row in rows:
        if line is not None and line.holds(row.branch, row.step):
            return replace(known, status="completed", turn=turn, result=row.result, reason=None)
    return None


def _confirm_none(store: Store, number: int, mark: str) -> None:
    """A turn that was done is not to be done again because an index lost it: of the newest entries each is looked at.

    Whoever asks again does so soon; to look at all of them would take longer with every turn.
    """
    newest = max(store.last_effect(number) - _LOOKED_THROUGH, 0)
    if any(row.mark == mark for row in store.effects(number, after=newest, limit=_LOOKED_THROUGH)):
        raise Damaged("a journal entry is missing from the index of marks; hf.verify() shows what is hurt")


def _is_new_turn(name: str, known: RunRow, turn: str | None) -> bool:
    """Whether a turn begins here. Unfinished if the thread is busy with another."""
    if turn is None or turn == known.turn:
        return known.status == "completed"
    if known.status not in _ENDED:
        busy = "work that is no turn" if known.turn is None else f"turn {shown(known.turn)}"
        raise Unfinished(
            f"thread {shown(name)} is {known.status} with {busy}; finish that first, or hf.cancel it", known.turn
        )
    return True


def presumed_until(store: Store, known: RunRow) -> int:
    """Until when an owner that is not proven dead may have begun something: then its lease ended."""
    if known.clock != store.clock().id:
        return 0  # its machine was started again: whoever ran there is gone
    if known.status != "running" or known.owner is None or is_dead(known.owner):
        return known.presumed_until
    return max(known.presumed_until, known.lease_until)


def _held_before(known: RunRow) -> int:
    """For how many ms a run was held; by a process that did not give it back, until that last renewed its lease."""
    was_renewed = known.status == "running" and known.lease_first > 0
    return known.held + (max(known.lease_until - known.lease_first, 0) if was_renewed else 0)


def _held(store: Store, terms: Terms, row: RunRow) -> RunRow:
    clock = store.clock()
    until = clock.now + round(terms.lease * 1000)
    return replace(
        row,
        owner=this_process(),
        clock=clock.id,
        lease_until=until,
        lease_first=until,
        updated_at=now(),
        tried_at=row.tried_at or now(),
        agent=terms.agent or row.agent,
        version=terms.version or row.version,
        handler=terms.handler or row.handler,
        turn=terms.turn or row.turn,
        trace=terms.trace or row.trace,
        parent=terms.parent,
        nonce=os.urandom(8),
    )
