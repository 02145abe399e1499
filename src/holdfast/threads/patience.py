"""Patience with checkpoints that cannot be read: it ends, because how many there are is itself only stored."""

from __future__ import annotations

from typing import Final

from holdfast.errors import Damaged

_MOST: Final = 2_000


class Patience:
    """Counts checkpoints that cannot be read, one behind the other.

    A thread's record that was forged may speak of 4 billion, and each would be looked for.
    """

    def __init__(self) -> None:
        self._lost = 0

    def found(self) -> None:
        self._lost = 0

    def lost(self) -> None:
        """`Damaged` if there were too many."""
        self._lost += 1
        if self._lost > _MOST:
            raise Damaged(
                f"more than {_MOST} checkpoints one behind the other cannot be read: the record of their thread is "
                "wrong, or all of it is lost; what is left can be salvaged by `holdfast repair`"
            )
