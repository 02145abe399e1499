"""All threads of a store, as far as they can be told where it is damaged."""

from __future__ import annotations

from typing import Final, NamedTuple

from holdfast.errors import Damaged
from holdfast.stores.contract import Store
from holdfast.stores.walking import told

_PAGE: Final = 200


class Listed(NamedTuple):
    """The numbers of threads, in order, and the names of those that have one and that it could be read of.

    Without problems, those without a name were dropped, and are there for what their forks use.
    """

    numbers: list[int]
    names: dict[int, str]
    problems: list[str]


def listed(store: Store) -> Listed:
    names: dict[int, str] = {}
    problems: list[str] = []
    after: str | None = None
    try:
        while page := store.threads(prefix="", after=after, limit=_PAGE):
            names.update((thread.position.thread, thread.name) for thread in page)
            after = page[-1].name
    except Damaged as damage:
        problems.append(str(damage))
        try:
            names |= told(store)
        except Damaged as worse:
            problems.append(str(worse))
    try:
        numbers = sorted(store.thread_numbers())
    except Damaged as damage:
        # Some cannot be told: those that were listed can.
        numbers = sorted(names)
        problems.append(str(damage))
    return Listed(numbers, names, problems)
