"""The rules that every store applies before it writes (the form of a commit, fences, leases), and its errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from msgspec.structs import replace

from holdfast.errors import (
    ActHeld,
    AlreadyExists,
    Busy,
    Closed,
    Conflict,
    Damaged,
    HoldfastError,
    InvalidArgument,
    JournalAhead,
    LeaseHeld,
    LeaseLost,
    NewerFormat,
    NotFound,
    OutcomeUnknown,
    Protected,
    ReadOnly,
    StoreError,
    StoreFull,
)
from holdfast.stores.contract import Commit
from holdfast.stores.contract_runs import ActClaim, ActRow, Clock, Entry, EntryStatus, Progress, RunRow
from holdfast.text import quoted

E = TypeVar("E", bound=HoldfastError)

MAX_PIECE: Final = 8 << 20
# Where copies of erased data remain that a store on a file system cannot reach.
BEYOND_FILES: Final = "freed disk blocks that are not overwritten yet, file system snapshots, and backups"


# -- the form of a commit -------------------------------------------------------------------------------------------


def check_together(commits: Sequence[Commit]) -> None:
    """`InvalidArgument` unless there are commits, each of another thread."""
    if not commits or len({commit.name for commit in commits}) < len(commits):
        raise InvalidArgument("commits made together need one or more threads, each of them once; nothing was saved")


def only(commits: Sequence[Commit]) -> Commit:
    """The only commit, for a store that commits one thread at a time. `InvalidArgument` if there are more."""
    check_together(commits)
    if len(commits) > 1:
        raise InvalidArgument(
            "this store cannot save several threads together, because each has a log of its own; nothing was saved. "
            "Use a SQLite, memory: or PostgreSQL store, or save one thread after the other."
        )
    return commits[0]


def check_form(commit: Commit) -> None:
    """`InvalidArgument` if a commit contradicts itself."""
    row, run, fence, expect = commit.row, commit.run, commit.fence, commit.expect
    last, move = (0, 0) if expect is None else (expect.last, expect.move)
    if row.seq != last + 1 or row.move != move + 1:
        raise InvalidArgument("a commit's seq and move must follow those it expects; nothing was stored")
    if not 0 <= row.step < 1 << 63:
        raise InvalidArgument("a step is a whole number from 0 to 2**63 - 1; nothing was stored")
    if row.deleted:
        raise InvalidArgument("a commit cannot contain a deleted checkpoint; nothing was stored")
    if commit.key is not None and expect is not None:
        raise InvalidArgument("only a commit that creates a thread can contain its key; nothing was stored")
    ends: dict[int, int] = {}
    for append in commit.appends:
        if append.refs and len(append.refs) != len(append.cells):
            raise InvalidArgument("an append's refs must be empty or have one entry per cell; nothing was stored")
        if append.log < 0 or append.start < 0:
            raise InvalidArgument("an append's log and start cannot be negative; nothing was stored")
        # Checked within this commit only: reading where the stored logs end would cost too much on every save.
        if append.start < ends.get(append.log, 0):
            raise cells_exist(append.log, append.start)
        ends[append.log] = append.start + len(append.cells)
    for blob in commit.blobs:
        if any(len(piece) > MAX_PIECE for piece in blob.pieces):
            raise InvalidArgument("a piece of a blob is larger than 8 MiB; nothing was stored")
    if run is not None:
        if fence is not None and run.fence != fence:
            raise InvalidArgument("a commit's run must have the commit's fence; nothing was stored")
        if run.thread and (expect is None or run.thread != expect.thread):
            raise InvalidArgument("a commit's run must belong to the commit's thread; nothing was stored")
    if commit.entries or commit.last_entry is not None:
        if fence is None and run is None and commit.entries:
            raise InvalidArgument("only a commit inside a run can contain journal entries; nothing was stored")
        check_journal(commit.entries, newest_seen(commit))


def newest_seen(commit: Commit) -> int | None:
    """The number of the newest journal entry that the writer of a commit has seen; None if it is not compared."""
    return 0 if commit.expect is None else commit.last_entry


# -- fences and leases ----------------------------------------------------------------------------------------------


def check_claim(expect: RunRow | None, row: RunRow) -> None:
    """`InvalidArgument` if `row` cannot follow `expect`."""
    if expect is not None and expect.thread != row.thread:
        raise InvalidArgument("a claim must be for the thread of the run it expects; nothing was changed")
    if row.fence != (1 if expect is None else expect.fence + 1):
        raise InvalidArgument("a claim's fence must be one higher than that of the run it expects; nothing was changed")


def start_lease(row: RunRow, clock: Callable[[], Clock]) -> RunRow:
    """The record that a claim stores: if it has an owner and no clock, `lease_until` is counted from now."""
    if row.owner is None or row.clock or row.status != "running":
        return row
    now = clock()
    until = now.now + row.lease_until
    return replace(row, clock=now.id, lease_until=until, lease_first=until)


def check_post(row: Entry, run: RunRow | None, then: RunRow | None) -> None:
    """`InvalidArgument` if an entry to post has no number, or `then` cannot replace `run`."""
    if row.number < 1:
        raise _no_number()
    if then is not None:
        if run is None:
            raise InvalidArgument("then= requires run=, the run that it replaces; nothing was changed")
        check_claim(run, then)
        if then.status == "running":
            raise InvalidArgument("then= cannot be running; nothing was changed. Post the entry, then claim the run.")


def require_expected(found: RunRow | None, expect: RunRow | None) -> None:
    """`Conflict` unless the run is exactly the one that the claim expects."""
    if found != expect:
        raise Conflict("the run was claimed, renewed or ended by another process; nothing was changed. Read it again.")


def require_run(thread: int, found: RunRow | None) -> RunRow:
    """The run of a journal that is written from outside the run, without a fence."""
    if found is None:
        raise no_run(thread)
    return found


def require_fence(found: RunRow | None, fence: int) -> RunRow:
    """The run, if it is running with this fence; else `LeaseLost`. An expired lease still counts."""
    if found is None or found.fence != fence or found.status != "running":
        raise LeaseLost(
            "the run was ended, or claimed by another process; nothing was changed. Leave its block; hf.run resumes it "
            "when it is free."
        )
    return found


def keep_lease(found: RunRow, row: RunRow) -> RunRow:
    """The record that replaces `found`: a lease that continues never ends earlier than before.

    `row` may have been prepared before a renewal and reach the store after it.
    """
    if found.status == row.status == "running" and found.clock == row.clock and row.lease_until < found.lease_until:
        return replace(row, lease_until=found.lease_until)
    return row


def renewed(found: RunRow, until: int, progress: Progress | None) -> RunRow:
    """The record of a run with an extended lease. If `progress` is None, the stored progress stays."""
    return keep_lease(found, replace(found, lease_until=until, progress=progress or found.progress))


def is_timed(row: RunRow) -> bool:
    """Whether a run waits for a time, alone or in addition to an answer, or is queued for a time."""
    return row.status in ("waiting", "queued") and row.wake_at > 0


def is_ready(row: RunRow) -> bool:
    """Whether a worker may claim the run without waiting for a time, an answer or the end of a lease."""
    return row.status in ("queued", "released", "failed") and not is_timed(row)


def queue_of(row: RunRow) -> str | None:
    """The name of the handler for which a run is claimed; None if no worker claims it.

    It is "" for a queued child: its parent claims it, and workers make sure that the parent was woken.
    """
    if row.parent is not None:
        return "" if row.status == "queued" else None
    return row.handler or row.agent


def queue_place(row: RunRow) -> tuple[int, int, int]:
    """The place of a run in the order of `Store.queue`."""
    return -row.priority, row.updated_at, row.thread


def overdue(row: RunRow, clock: Clock, wall: int) -> int:
    """How many µs ago the run was certainly due; negative if it is not due yet."""
    return (clock.latest_certain - row.wake_at) * 1000 if row.clock == clock.id else wall - row.wake_wall


def require_free(found: RunRow | None, clock: Clock, name: str | None = None) -> None:
    """`LeaseHeld` if another process's lease on the thread has not ended."""
    if (
        found is not None
        and found.status == "running"
        and found.owner is not None
        and found.clock == clock.id
        and not clock.has_reached(found.lease_until)
    ):
        which = "the thread" if name is None else f"thread {quoted(name)}"
        raise LeaseHeld(f"another process holds {which}; nothing was changed. Wait until its run or its lease ends.")


def fence_of(run: RunRow) -> int | None:
    """The fence to store in the record of a thread. A commit with the same fence, or both None, need not read the run.

    It is the run's fence while the run is running, and None if it is completed. Otherwise it is negative, so that no
    commit has it, and every commit reads the run.
    """
    return run.fence if run.status == "running" else None if run.status == "completed" else -run.fence


def is_due(run: RunRow) -> bool:
    """Whether any worker may claim the run at once."""
    return run.status == "queued" and not run.wake_at


def check_commit(found: RunRow | None, commit: Commit, clock: Callable[[], Clock]) -> None:
    """Raise `LeaseLost`, `Conflict` or `LeaseHeld` if the thread's run does not allow the commit."""
    if commit.fence is not None:
        require_fence(found, commit.fence)
    elif commit.run is not None:
        if found is not None:
            raise Conflict("the thread already has a run; nothing was stored. Claim that run.")
    elif found is not None:
        require_free(found, clock())
        if found.status != "completed" and commit.last_entry is None:
            raise JournalAhead(
                "the thread has an unfinished run, and this save would close its journal; nothing was stored. "
                "Read the journal, and pass the number of its newest entry."
            )


# -- journal entries ------------------------------------------------------------------------------------------------


def check_journal(
    entries: Sequence[Entry], last: int | None, run: RunRow | None = None, thread: int = 0, fence: int | None = 0
) -> None:
    """`InvalidArgument` unless new entries are numbered from `last` + 1 on, and the others replace an entry.

    A run's record must have the thread and the fence of the journal.
    """
    if run is not None and (run.thread, run.fence) != (thread, fence):
        raise InvalidArgument("the run's record must have the thread and the fence of the journal; nothing was stored")
    following = last
    for entry in entries:
        if following is not None and last is not None and entry.number > last:
            following += 1
            if entry.number != following:
                raise InvalidArgument("new journal entries must be numbered in order; nothing was stored")
        elif entry.number < 1:
            raise _no_number()


def require_entries(thread: int, newest: int, entries: Sequence[Entry], last: int | None) -> None:
    """`Conflict` if the newest journal entry is not `last`; `NotFound` if an entry to replace does not exist."""
    if last is not None:
        if newest != last:
            raise _entry_added()
        return
    for entry in entries:
        if entry.number > newest:
            raise _no_entry(thread, entry.number)


def require_post(
    found: RunRow | None,
    newest: int,
    row: Entry,
    status_of: Callable[[int], str],
    *,
    thread: int,
    status: EntryStatus | None,
    run: RunRow | None,
) -> None:
    """`NotFound` or `Conflict` if an entry cannot be posted. `status_of` reads the status of a stored entry."""
    if found is None:
        raise no_run(thread)
    if status is None:
        if newest != row.number - 1:
            raise _entry_added()
    elif row.number > newest:
        raise _no_entry(thread, row.number)
    elif status_of(row.number) != status:
        raise Conflict("the journal entry was updated by another process; nothing was changed. Read it again.")
    if run is not None:
        require_expected(found, run)


# -- acts -----------------------------------------------------------------------------------------------------------

ACT_BYTES: Final = 32  # of a key


def check_act(key: bytes) -> None:
    """`InvalidArgument` if a key of an act has another length."""
    if len(key) != ACT_BYTES:
        raise InvalidArgument(f"the key of an act has {ACT_BYTES} bytes; nothing was stored")


def claimed_acts(
    thread: int, entries: Sequence[Entry], claims: Sequence[ActClaim]
) -> list[tuple[ActRow, ActRow | None]]:
    """The claims of a journal write, each with the one that it replaces. `InvalidArgument` if one is not valid."""
    acts = {entry.number: entry.act for entry in entries}
    found: list[tuple[ActRow, ActRow | None]] = []
    for claim in claims:
        act = acts.pop(claim.number, None)
        if act is None or act in {row.key for row, _ in found}:
            raise InvalidArgument(
                "a claim must be for an entry of the write, with an act of its own; nothing was stored"
            )
        check_act(act)
        if claim.expect is not None and claim.expect.key != act:
            raise InvalidArgument("a claim must expect a claim of the same act; nothing was stored")
        found.append((ActRow(act, thread, claim.number), claim.expect))
    return found


def check_put_act(key: bytes, row: ActRow | None) -> None:
    """`InvalidArgument` if a claim to store has another key."""
    check_act(key)
    if row is not None and row.key != key:
        raise InvalidArgument("the claim has the key of another act; nothing was stored")


def require_claim(found: ActRow | None, row: ActRow, expect: ActRow | None) -> None:
    """`ActHeld` if an act is claimed by another entry than `row` or the expected one."""
    if found is None or found in (expect, row):
        return
    raise ActHeld(
        f"the act is claimed by entry {found.number} of the thread with number {found.thread}; nothing was stored",
        found.thread,
        found.number,
    )


# -- errors ---------------------------------------------------------------------------------------------------------


def _error(kind: type[E], text: str) -> Callable[..., E]:
    """A function that makes an error with this text, from the values for its braces."""
    return lambda *values: kind(text.format(*values))


no_thread = _error(NotFound, "the thread with number {} does not exist; nothing was changed")
no_checkpoint = _error(NotFound, "checkpoint {} of the thread does not exist or was deleted; nothing was changed")
no_run = _error(NotFound, "the thread with number {} has no run; nothing was changed")
_no_entry = _error(NotFound, "the thread with number {} has no journal entry {}; nothing was changed")
_no_number = _error(InvalidArgument, "a journal entry must have a number, 1 or more; nothing was stored")
thread_exists = _error(
    AlreadyExists,
    "a thread with that name already exists; nothing was stored. Choose another name, or save to that thread.",
)
thread_changed = _error(
    Conflict, "the thread was changed or dropped by another writer; nothing was changed. Read it again."
)
base_deleted = _error(
    Conflict,
    "a checkpoint whose cells this commit reuses was deleted; nothing was stored. Call latest() and save again.",
)
origin_dropped = _error(
    Conflict,
    "a thread whose cells this commit uses no longer exists; nothing was stored. Call latest() and save again.",
)
_entry_added = _error(
    Conflict, "another entry was added to the journal; nothing was changed. Read the new entries and retry."
)
head_protected = _error(
    Protected, "the head of a thread cannot be deleted; nothing was changed. Rewind or drop the thread instead."
)
in_signal_handler = _error(
    Busy,
    "a signal handler used the store while it interrupted a call of the same Python thread; nothing was stored. "
    "Set a flag in the handler and save later.",
)
cells_exist = _error(InvalidArgument, "log {} already has cells at {}; nothing was stored")
cells_lost = _error(Damaged, "cells of the thread with number {} are missing: the thread does not exist")
store_full = _error(StoreFull, "{}: no space left for the write; nothing was changed. Free space and try again.")
read_only = _error(
    ReadOnly,
    "{}: this process has no permission to write the store; nothing was changed. Change the permissions of its files, "
    "or run as their owner.",
)
tables_differ = _error(Damaged, "{}: the tables contradict each other ({}); run hf.verify() to see what is affected")
closed = _error(Closed, "{}: the store was closed; nothing was done. Open it again.")
newer_format = _error(
    NewerFormat,
    "{}: written by a newer Holdfast (format {}, this one reads up to {}); it was left unchanged. Upgrade Holdfast.",
)
older_format = _error(
    StoreError,
    "{}: the store has format {}, and this Holdfast uses format {}; it was left unchanged. Run `holdfast optimize` to "
    "upgrade it. A program that opens it upgrades it, too.",
)
damaged = _error(Damaged, "{}; run hf.verify() to see what is affected")
damaged_at_open = _error(
    Damaged, "{}: the database is damaged ({}); try the command `holdfast repair TARGET`, or restore a backup"
)
forked = _error(
    StoreError,
    "{}: this process was forked during a call and cannot use the store; nothing was done. Use it in the parent.",
)
write_failed = _error(  # of a store whose last write has an unknown outcome
    OutcomeUnknown,
    "{}: the store failed while writing, so the last write may or may not have happened. "
    "Close this handle and open the store again to find out.",
)
