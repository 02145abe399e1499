"""At "normal", appends are left to the system. Before something durable relies on one, it is made durable itself.

A fork that is there while the cells it uses are not, or cells that are gone while a checkpoint is back that uses them,
would be no store as it was some moments earlier.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from holdfast.errors import Damaged
from holdfast.stores.directory import files
from holdfast.stores.directory.space import Followed, Space


def settle(space: Space, numbers: Iterable[int] | None = None) -> None:
    """Make durable what was appended to these threads, or to all of them. Only under the gate."""
    if not space.is_lazy:
        return
    if numbers is None:
        for found in space.everything():
            settle_log(space, found)
        return
    for number in numbers:
        # Of one that cannot be read, nothing that it says is relied on.
        with suppress(Damaged):
            found_one = space.numbered(number)
            if found_one is not None:
                settle_log(space, found_one)


def settle_users(space: Space, number: int) -> None:
    """Make durable what was appended to a thread, and to all that use its cells, or did. Only under the gate."""
    ledger = space.ledger
    is_known = not ledger.is_partial and not ledger.lost
    settle(space, sorted({number, *ledger.forks.get(number, ())}) if is_known else None)


def settle_log(space: Space, found: Followed) -> None:
    """Make durable what was appended to one log."""
    if space.is_lazy:
        files.sync_data(found.log.descriptor())
