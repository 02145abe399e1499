"""Earlier calls in a graph: a framework such as LangGraph has branches of its own, unknown to the journal."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, Protocol

from holdfast.runs.earlier_calls import EarlierCalls, EarlierJournal
from holdfast.stores.contract import Store, ThreadRow
from holdfast.stores.contract_runs import Entry
from holdfast.threads import scan


class Lineage(Protocol):
    """The place of a call in the framework's history. That history has branches that the journal does not know."""

    @property
    def place(self) -> str:
        """The framework's checkpoint in which the call is made."""
        ...

    def nearest(self, places: Collection[str]) -> str | None:
        """The first of these places on the way from this place to its ancestors; None if there is none."""
        ...


class GraphEarlierCalls(EarlierCalls):
    """The calls of a journal that were made on other branches of the framework's history than the present one."""

    def __init__(self, store: Store, thread: str, lineage: Lineage, shared: EarlierCalls) -> None:
        """`shared` are the earlier calls of the run, which all concurrent calls share."""
        super().__init__(store, thread, None)
        self._lineage: Final = lineage
        self._shared: Final = shared
        self._before = ""

    def take(self, identity: str, arguments: bytes) -> Entry | None:
        """As `EarlierCalls.take`. Two concurrent calls do not get the same abandoned call."""
        while (found := super().take(identity, arguments)) is not None:
            before = len(self._shared.taken)
            self._shared.taken.add(found.number)
            if len(self._shared.taken) > before:
                break
        return found

    @property
    def place(self) -> tuple[str, str]:
        """For `Entry.place`: the place of the call, and the nearest place before it in which another call was made."""
        self._read()
        return self._lineage.place, self._before

    def _sources(self, thread: ThreadRow) -> Iterator[EarlierJournal]:
        number = thread.position.thread
        before = dict(row.place for row in scan.entries(self._store, number) if row.place is not None)
        nearest = self._lineage.nearest(before) if before else None
        self._before = nearest or ""
        if nearest is not None and nearest == self._lineage.place:
            self._before = before[nearest]  # another call of the same checkpoint
        places: set[str] = set()
        at = nearest or ""
        while at and at not in places:
            places.add(at)
            at = before.get(at, "")
        if len(places) < len(before):
            yield EarlierJournal(number, None, _Branch(places))


class _Branch:
    """The places on the present branch in which calls were made."""

    def __init__(self, places: set[str]) -> None:
        self._places = places

    def has(self, row: Entry) -> bool:
        return row.place is None or row.place[0] in self._places
