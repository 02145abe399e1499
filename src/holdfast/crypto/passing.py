"""What listings pass over: a record that does not open keeps nobody from the others, and is not kept quiet about."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Final, Generic, TypeVar

from holdfast.errors import Damaged, NotEncrypted

R = TypeVar("R")
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

_KEPT: Final = 1_000


class Passed(Generic[K]):
    """What of a store was passed over, by what finds it again."""

    def __init__(self) -> None:
        self._keys: dict[K, None] = {}

    def each(
        self,
        rows: Iterable[R],
        key: Callable[[R], K],
        read: Callable[[R], T],
        salvage: Callable[[R], T | None] = lambda _: None,
    ) -> list[T]:
        """What is read of each. Those that cannot be are passed over, but for what can be salvaged of them."""
        told = [self._one(row, key(row), read, salvage) for row in rows]
        return [each for each in told if each is not None]

    def _one(self, row: R, key: K, read: Callable[[R], T], salvage: Callable[[R], T | None]) -> T | None:
        try:
            return read(row)
        except (Damaged, NotEncrypted):
            if len(self._keys) < _KEPT:
                self._keys[key] = None
            return salvage(row)

    def require_none(self, read: Callable[[K], object]) -> None:
        """Raise what is wrong with the first that still cannot be read."""
        for key in list(self._keys):
            read(key)
            self._keys.pop(key, None)
