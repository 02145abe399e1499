"""The common part of session stores: the store they use, names of threads, races of writers, repairs."""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final, TypeVar
from urllib.parse import quote

from holdfast.adapters.seam import current
from holdfast.aio.executor import to_the_end
from holdfast.aio.handle import AsyncHoldfast
from holdfast.errors import Conflict, EffectsAhead
from holdfast.handle import Holdfast
from holdfast.handle import open as open_handle
from holdfast.runs.drivers import current_call
from holdfast.stores.contract import Store

T = TypeVar("T")
StoreLike = Holdfast | AsyncHoldfast | Store | str | os.PathLike[str]

MESSAGES: Final = "messages"  # the key of the list in the state of a conversation's thread
INTERRUPTED: Final = "The call was interrupted, and its outcome is unknown. Do not assume that it happened."
_RACES: Final = 100


class StoreOwner:
    """Keeps data in a store. `store` is what `holdfast.open` takes, or an open handle, which stays open."""

    def __init__(self, store: StoreLike) -> None:
        given = store.sync if isinstance(store, AsyncHoldfast) else store
        self._is_owned: Final = not isinstance(given, Holdfast)
        self._hf: Final = given if isinstance(given, Holdfast) else open_handle(given)

    def close(self) -> None:
        """Close the store, if it was opened here."""
        if self._is_owned:
            self._hf.close()


def quoted_part(part: str) -> str:
    """A part of a thread's name, without the separator of parts."""
    return quote(part, safe=" ~") or "%"


def insist(name: str, work: Callable[[], T]) -> T:
    """Do work on a thread, again if another writer was faster. Conflict if that happens too often.

    EffectsAhead is raised at once: the work would drop a call of the thread's run, however often it is repeated.
    """
    for _ in range(_RACES):
        try:
            return work()
        except EffectsAhead:
            raise
        except Conflict:
            continue
    raise Conflict(f"{name}: other writers were faster {_RACES} times; nothing was changed. Try again.")


async def recorded_verb(name: str, key: str, work: Callable[[str | None], Any], *, effect: str = "idempotent") -> Any:
    """Do the work of a session's verb in a thread of the pool. In a run, the call is recorded.

    `work` gets a text that is unique for the call, or None outside a run. A cancelled caller waits for the end of the
    work: the framework must know whether something was stored.
    """
    seam = current()
    if seam is None:
        return await to_the_end(lambda: work(None))

    async def call() -> Any:
        made = current_call()
        unique = None if made is None or effect == "read" else made.idempotency_key
        return await to_the_end(lambda: work(unique))

    return await seam.tool(name, call, {}, key=key, declare={name: {"effect": effect}})


def unpaired(items: Iterable[tuple[str | None, Hashable]]) -> tuple[set[int], set[int]]:
    """Find the calls without a result, and the results without a call before them; return their positions.

    An item is "call" or "result" with the id of the call, or something else. Ids may repeat: a result belongs to the
    last call before it that has none.
    """
    calls: dict[Hashable, list[int]] = defaultdict(list)
    orphans: set[int] = set()
    for at, (kind, id_) in enumerate(items):
        if kind == "call":
            calls[id_].append(at)
        elif kind == "result" and calls[id_]:
            calls[id_].pop()
        elif kind == "result":
            orphans.add(at)
    return {at for each in calls.values() for at in each}, orphans


def report_repairs(name: str, repairs: Iterable[str]) -> None:
    """Log what was wrong with a conversation that was loaded, and what was changed."""
    for repair in repairs:
        logging.getLogger("holdfast").warning("conversation %r: %s", name, repair)
