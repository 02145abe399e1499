"""Optional abilities of stores beyond the contract. Callers check with isinstance() before they use one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from holdfast.stores.contract import CheckpointRow, Store
from holdfast.stores.contract_runs import Entry, RunRow
from holdfast.types import Problem


@runtime_checkable
class Announcing(Protocol):
    """A store that can announce new work, so that an idle worker need not wait for its next poll."""

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake`, in another Python thread, whenever a run of this namespace may have been queued.

        Returns a function that stops the calls. Calls may be missing, late or without cause, so no caller may depend on
        them. If the store cannot listen, it raises no error and never calls `wake`.
        """
        ...


@runtime_checkable
class Expiring(Protocol):
    """A store that finds runs of dead processes without reading all running runs."""

    def expired(self) -> list[tuple[str, RunRow]]:
        """Running runs whose leases may have ended, with the names of their threads, in the order of `Store.queue`."""
        ...


class Searched(NamedTuple):
    """The result of `Searching.search`: checkpoints, each with the number of its thread.

    `unread` is how many checkpoints of each thread cannot be read. `last` is the number of the last thread that was
    searched, 0 at the end.
    """

    found: list[tuple[int, CheckpointRow]]
    unread: dict[int, int]
    last: int


@runtime_checkable
class Searching(Protocol):
    """A store that can read the metadata of many threads at once."""

    def search(self, having: bytes, *, after: int) -> Searched | None:
        """Search threads with numbers above `after` for checkpoints whose metadata contain the bytes `having`.

        The checkpoints have no refs and skeletons. `Damaged` if the threads are not all known. None if this store
        encrypts another one that cannot be searched: the caller reads the threads one by one.
        """
        ...


@runtime_checkable
class Rewrapping(Protocol):
    """A store whose content is encrypted by keys that it keeps wrapped."""

    def rewrap(self, progress: Callable[[int], None] | None = None) -> int:
        """Wrap every stored key with the user's current key; return how many had another one.

        `Damaged`, after all other keys were wrapped, if some cannot be unwrapped. `Conflict` if other processes keep
        wrapping keys with another key.
        """
        ...

    @property
    def underlying(self) -> Store:
        """The underlying store, which holds the encrypted content."""
        ...

    def over(self, store: Store) -> Store:
        """Open another store with the same cipher: a copy of this store, or an empty store that will become one.

        The other store gets the key of the namespace. `WrongKey`, with nothing changed, if it already has a different
        one.
        """
        ...


@runtime_checkable
class Mending(Protocol):
    """A store that keeps some records twice, and can restore damaged ones from their duplicates."""

    def mended(self, folder: str) -> tuple[Store, list[Problem]]:
        """Repair a copy of the store in a folder as far as possible; return it and the problems that remain.

        The caller closes the copy. Use it only to salvage the content of this handle's namespace.
        """
        ...


@runtime_checkable
class BackingUp(Protocol):
    """A store that can copy itself while other processes write to it."""

    kind: str  # the URL scheme of such a store, or "sqlite"

    @property
    def path(self) -> str:
        """The file or folder of the store, with links resolved."""
        ...

    def backup(self, path: str, progress: Callable[[int, int], None] | None = None) -> int:
        """Copy the whole store, as it is at one moment, to an unused path; return the size in bytes.

        The copy has all namespaces, and encrypted content stays encrypted. `progress` is called with the amount done
        and the total. On an error, an incomplete copy may be left at the path.
        """
        ...


class Scanned(NamedTuple):
    """A whole thread: all checkpoints with tombstones, its run and journal, and whether it has forks."""

    checkpoints: Sequence[CheckpointRow]
    run: RunRow | None
    entries: Sequence[Entry]
    has_forks: bool


@runtime_checkable
class Scanning(Protocol):
    """A store that can read many threads at once, for which it needs much less time than for one after the other."""

    def scan(self, numbers: Sequence[int]) -> dict[int, Scanned]:
        """Read the threads with these numbers, given in order.

        Threads that are long or dropped, or of which a record is damaged or missing, are left out: the verbs of the
        contract read them, and report the damage.
        """
        ...


class Totals(NamedTuple):
    """The threads of a namespace: how many have each status, and the sum of the sizes of their heads."""

    statuses: dict[str, int]
    size: int


@runtime_checkable
class Totalling(Protocol):
    """A store that can add up its threads, and read the metadata of all checkpoints at once."""

    def totals(self, read: Callable[[Sequence[bytes], Sequence[bool]], None]) -> Totals:
        """Call `read` with the metadata of checkpoints, many at a time, and whether each of them is a head.

        A deleted checkpoint has no metadata. All is of one moment. `Damaged` if a checkpoint is missing or is not what
        was written. The records of threads are not verified: the caller compares `size` with the metadata of the heads.
        """
        ...

    def tally(self) -> dict[tuple[str, str | None], int]:
        """The number of threads by status and agent, from one query. Their records are not verified."""
        ...


class StoreSettings(NamedTuple):
    """The settings that decide whether acknowledged writes survive a power failure. `are_right`: they do."""

    are_right: bool
    shown: str


@runtime_checkable
class Configured(Protocol):
    """A store with such settings."""

    def settings(self) -> StoreSettings:
        """Read the settings, on a connection like those of the handle."""
        ...


@runtime_checkable
class Addressed(Protocol):
    """A store on a server. Its address may contain a password, so the store does not return it."""

    def is_at(self, address: str) -> bool:
        """Whether an address names this store. False if the address is not valid."""
        ...
