"""At durability "normal", sync an append before anything durable depends on it.

Otherwise a power cut could leave a fork without the cells it uses, or restore a checkpoint whose cells were removed.
Then the store would not be in any state it was in before.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from holdfast.errors import Damaged
from holdfast.stores.directory import files
from holdfast.stores.directory.space import Followed, Space


def settle(space: Space, numbers: Iterable[int] | None = None) -> None:
    """Sync what was appended to these threads, or to all. The caller holds the gate."""
    if not space.is_lazy:
        return
    if numbers is None:
        for found in space.everything():
            settle_log(space, found)
        return
    for number in numbers:
        # No durable record depends on an unreadable log.
        with suppress(Damaged):
            found_one = space.numbered(number)
            if found_one is not None:
                settle_log(space, found_one)


def settle_users(space: Space, number: int) -> None:
    """Sync what was appended to a thread and to all that use, or used, its cells. The caller holds the gate."""
    ledger = space.ledger
    is_known = not ledger.is_partial and not ledger.lost
    settle(space, sorted({number, *ledger.forks.get(number, ())}) if is_known else None)


def settle_log(space: Space, found: Followed) -> None:
    """Sync what was appended to one log."""
    if space.is_lazy:
        files.sync_data(found.log.descriptor())
