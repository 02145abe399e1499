"""The limits of a handler: how many of its runs may be held at a time, and how many may be claimed within a time."""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

import msgspec

from holdfast.errors import LimitReached
from holdfast.stores.contract_runs import ClaimLimit, ClaimWindow, Clock, RunRow
from holdfast.types import UNREADABLE

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(ClaimWindow).decode


def require_slot(limit: ClaimLimit, running: Iterable[RunRow], own: int, clock: Clock) -> None:
    """`LimitReached` if too many of these runs are held. The claimed thread's `own` run does not count."""
    if limit.held is None:
        return
    held = sum(
        row.thread != own and row.clock == clock.id and not clock.has_reached(row.lease_until) for row in running
    )
    if held >= limit.held:
        raise LimitReached(
            f"{held} runs of the handler are held, and its limit is {limit.held}; nothing was changed. Try again when "
            "one of them has ended."
        )


def next_window(limit: ClaimLimit, stored: bytes | None, clock: Clock, wall: int) -> bytes | None:
    """The window with a claim made now, to store; None if claims are not counted. `LimitReached` if it is full."""
    if limit.claims is None:
        return None
    times = _times(limit, stored, clock, wall)[-limit.claims :]
    if len(times) == limit.claims:
        left = times[0] + limit.within - clock.latest_certain
        if left > 0:
            raise LimitReached(
                f"{limit.claims} runs of the handler were started within {limit.within / 1000:g} seconds; nothing was "
                f"changed. The next can start in {left / 1000:g} seconds.",
                left / 1000,
            )
    data = _encode(ClaimWindow(clock.id, wall, (*times, clock.now)[-limit.claims :]))
    return b"%08x %b\n" % (crc32(data), data)


def _times(limit: ClaimLimit, stored: bytes | None, clock: Clock, wall: int) -> tuple[int, ...]:
    """The times of the stored claims, converted to this clock."""
    if stored is None:
        return ()
    window = _read(stored)
    if window is None:
        # A damaged record must not allow more than the limit, so it counts as a window that is full from now on.
        return (clock.now,) * (limit.claims or 0)
    if window.clock == clock.id or not window.times:
        return window.times
    # The machine was restarted: the wall clock tells how long ago the last claim was.
    shift = clock.now - max(wall - window.wall, 0) // 1000 - window.times[-1]
    return tuple([time + shift for time in window.times])


def _read(stored: bytes) -> ClaimWindow | None:
    """A stored window; None if it is damaged."""
    checksum, _, data = stored.rstrip(b"\n").partition(b" ")
    if checksum != b"%08x" % crc32(data):
        return None
    try:
        return _decode(data)
    except UNREADABLE:
        return None
