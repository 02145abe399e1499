"""What a store checks before it writes for a run: the rules of fences and leases, the same on every store."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from holdfast.errors import Conflict, InvalidArgument, LeaseHeld, LeaseLost, NotFound
from holdfast.stores.contract import Commit
from holdfast.stores.running import Clock, Progress, RunRow


def check_form(commit: Commit) -> None:
    """`InvalidArgument` if what a commit brings for a run contradicts itself."""
    run, fence, expect = commit.run, commit.fence, commit.expect
    if run is not None:
        if fence is not None and run.fence != fence:
            raise InvalidArgument("a commit's run must have the commit's fence; nothing was stored")
        if run.thread and (expect is None or run.thread != expect.thread):
            raise InvalidArgument("a commit's run must be that of its thread; nothing was stored")
    if commit.effects and fence is None and run is None:
        raise InvalidArgument("only a commit inside a run can bring effects; nothing was stored")


def check_claim(expect: RunRow | None, row: RunRow) -> None:
    """`InvalidArgument` if `row` cannot follow `expect`."""
    if expect is not None and expect.thread != row.thread:
        raise InvalidArgument("a claim must be of the run it expects; nothing was changed")
    if row.fence != (1 if expect is None else expect.fence + 1):
        raise InvalidArgument("a claim's fence must be one higher than the one it expects; nothing was changed")


def check_then(run: RunRow | None, then: RunRow | None) -> None:
    """`InvalidArgument` if `then` cannot follow the run that somebody settles an entry of."""
    if then is not None:
        if run is None:
            raise InvalidArgument("what is to follow a run needs the run it follows; nothing was changed")
        check_claim(run, then)


def require_expected(found: RunRow | None, expect: RunRow | None) -> None:
    """`Conflict` unless the run is exactly as a claim expects it."""
    if found != expect:
        raise Conflict("the run was claimed, renewed or ended by somebody else; nothing was changed. Read it again")


def require_none(found: RunRow | None) -> None:
    """`Conflict` if there is a run where one is to be created."""
    if found is not None:
        raise Conflict("the thread has a run already; nothing was stored. Claim that one")


def require_fence(found: RunRow | None, fence: int) -> RunRow:
    """The run, if it is running and its fence is this one; else `LeaseLost`. An expired lease is still a lease."""
    if found is None or found.fence != fence or found.status != "running":
        raise LeaseLost("this worker no longer holds the thread: the run was ended or taken over. Nothing was changed")
    return found


def require_last(found: int, last: int) -> None:
    """`Conflict` unless the newest journal entry has this number."""
    if found != last:
        raise Conflict("the journal has grown meanwhile; nothing was changed. Read what is new in it")


def keep_lease(found: RunRow, row: RunRow) -> RunRow:
    """The record that replaces `found`: a lease that goes on does not end earlier than it already does.

    Whoever made `row` may have begun before a renewal and come to the store after it.
    """
    if found.status == row.status == "running" and found.clock == row.clock and row.lease_until < found.lease_until:
        return replace(row, lease_until=found.lease_until)
    return row


def renewed(found: RunRow, until: int, progress: Progress | None) -> RunRow:
    """The record of a run whose lease goes on; how far it says it is stays as it was where that is None."""
    return keep_lease(found, replace(found, lease_until=until, progress=progress or found.progress))


def is_timed(row: RunRow) -> bool:
    """Whether a run waits for a time, be it beside an answer."""
    return row.status == "waiting" and row.wake_at > 0


def overdue(row: RunRow, clock: Clock, wall: int) -> int:
    """For how many µs the time that a run waits for has come; negative if it has not."""
    return (clock.now - row.wake_at) * 1000 if row.clock == clock.id else wall - row.wake_wall


def require_free(found: RunRow | None, clock: Clock) -> None:
    """`LeaseHeld` if somebody's lease on the thread has not ended."""
    if (
        found is not None
        and found.status == "running"
        and found.owner is not None
        and found.clock == clock.id
        and found.lease_until > clock.now
    ):
        raise LeaseHeld("another worker holds the thread; nothing was changed. Wait until its run or its lease ends")


def no_run(thread: int) -> NotFound:
    return NotFound(f"thread number {thread} has no run; nothing was changed")


def no_effect(thread: int, number: int) -> NotFound:
    return NotFound(f"thread number {thread} has no journal entry {number}; nothing was changed")


def settled_otherwise() -> Conflict:
    return Conflict("the journal entry, or its run, has moved on meanwhile; nothing was changed. Read it again")


def check_commit(found: RunRow | None, commit: Commit, clock: Callable[[], Clock]) -> None:
    """Whether the thread's run allows a commit."""
    if commit.fence is not None:
        require_fence(found, commit.fence)
    elif commit.run is not None:
        require_none(found)
    elif found is not None:
        require_free(found, clock())
