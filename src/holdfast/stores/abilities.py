"""What some stores can do beyond the contract. Nothing depends on it: whoever wants it asks whether it is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from holdfast.stores.contract import Problem, Store


@runtime_checkable
class Announcing(Protocol):
    """A store that can say when there may be work, so that an idle worker need not wait for its next look."""

    def listen(self, heard: Callable[[], None]) -> Callable[[], None]:
        """Have `heard` called, in some other thread, when a run of this namespace may have been queued.

        Calling what is returned ends that. Nothing depends on it: calls may be missing or late, or come without cause.
        So it raises nothing where it cannot be done; then nobody is called.
        """
        ...


@runtime_checkable
class Rewrapping(Protocol):
    """A store whose content is encrypted by keys that it keeps wrapped."""

    def rewrap(self, progress: Callable[[int], None] | None = None) -> int:
        """Wrap every key that it keeps by the user's current one; how many were not.

        `Damaged`, when all others are wrapped, if some cannot be; `Conflict` if others go on making keys by another.
        """
        ...

    @property
    def plain(self) -> Store:
        """The store that is encrypted."""
        ...

    def over(self, store: Store) -> Store:
        """A copy of this store, or an empty one that is to become one, behind the same cipher.

        It gets the keys of digests and values. `WrongKey`, with nothing changed, if it has others.
        """
        ...


@runtime_checkable
class Mending(Protocol):
    """A store that keeps some things twice, and can tell those that are damaged anew from the others."""

    def mended(self, folder: str) -> tuple[Store, list[Problem]]:
        """A copy of the store in a folder, mended as far as that goes, and what it cannot say. Close it.

        It is for salvaging what is in the handle's namespace, and nothing else.
        """
        ...


@runtime_checkable
class BackingUp(Protocol):
    """A store that can copy itself while others write to it."""

    kind: str  # what an address of such a store begins with, or "sqlite"

    @property
    def path(self) -> str:
        """The file or the folder that it lies in, without links."""
        ...

    def backup(self, path: str, progress: Callable[[int, int], None] | None = None) -> int:
        """Make a copy of all of the store, as it is at one moment, under a path that is free; how many bytes.

        All namespaces are in it, and what is encrypted stays so. `progress` is told how much is done, and of how much.
        `AlreadyExists` if there is something under the path; else it is there whole, or not at all.
        """
        ...
