"""Data keys that nothing uses: of creations that were cut off, and of dropped threads whose last fork is gone.

Safe beside writers. Who creates a thread stores its key, then the thread, then sees whether the key is still as it was
stored. Here a key that nothing uses is first written anew, then threads are looked at once more, and only what is as it
was written is removed. So either the thread is seen here, or its writer finds the key changed and writes it again.
"""

from __future__ import annotations

from typing import Final

from holdfast.crypto.records import key_of_checkpoint
from holdfast.crypto.ring import Ring
from holdfast.crypto.sealing import key_id
from holdfast.errors import Damaged
from holdfast.stores.contract import Span, Store
from holdfast.stores.walking import walk

KEYS_LEFT: Final = (
    "data keys that nothing uses were not removed, as something that is left does not say which of them it needs; "
    "hf.verify() says what is damaged"
)

_PAGE: Final = 50
_WAVES_MAX: Final = 1_000  # as deep as states are nested, and more


def remove_unused(store: Store, ring: Ring) -> None:
    """Remove the keys of threads that nothing in the store is sealed by.

    `Damaged`, with none removed, if something does not say which key it needs: it cannot be read, or is left of a
    dropped thread for forks that do not name it any more, until it is swept. `NotEncrypted` if it is in clear.
    """
    unused = ring.of_threads()
    if unused:
        used = _used(store)
        unused = [row for row in unused if row.id not in used]
    if not unused:
        return
    suspected = [written for row in unused if (written := ring.suspect(row)) is not None]
    used = _used(store)
    for row in suspected:
        if row.id not in used:
            ring.remove_suspect(row)


def key_in_clear(store: Store, thread: int) -> bytes | None:
    """The id of the key that a thread's checkpoints say they are sealed by; None if it has none. `Damaged` if lost."""
    try:
        newest = store.checkpoints(thread, before=None, limit=1)
    except Damaged:
        newest = None
    if newest is not None:
        return key_of_checkpoint(newest[0]) if newest else None
    # Any other says the same. Not looked for above, as errors would refer to that one, and keep its read under way.
    after = 0
    while page := walk(store, thread, after=after, limit=_PAGE):
        for row in page:
            if not isinstance(row, Damaged) and (id := key_of_checkpoint(row)) is not None:
                return id
        after += len(page)
    raise Damaged(f"no checkpoint of thread number {thread} can be read that says which data key it has")


def _used(store: Store) -> set[bytes]:
    used: set[bytes] = set()
    for thread in store.thread_numbers():
        id = key_in_clear(store, thread) or _key_of_cells(store, thread)
        if id is not None:
            used.add(id)
        elif thread in store.thread_numbers():
            raise Damaged(f"nothing says which data key thread number {thread} has")
    return used


def _key_of_cells(store: Store, thread: int) -> bytes | None:
    """The key of a thread that was dropped: its cells are there as long as forks name one. None if none does."""
    read: set[int] = set()
    # Asked for until there are no new ones: a fork may be forked, and dropped, meanwhile.
    while forks := [fork for fork in store.forks(thread) if fork not in read]:
        for fork in forks:
            named = _named(store, fork, thread)
            if named is not None:
                (cells,) = store.cells([Span(thread, named.log, named.start, 1, named.first, named.last)])
                return key_id(cells.cells[0])
        read.update(forks)
    return None


def _named(store: Store, fork: int, thread: int) -> Span | None:
    """A span of a thread's cells that a fork of it names, directly or through cells."""
    seen: set[Span] = set()
    after = 0
    while page := store.refs(fork, after=after, limit=_PAGE):
        wave = {_seen_from(span, fork) for row in page for span in row.refs.spans} - seen
        for _ in range(_WAVES_MAX):
            if not wave:
                break
            for span in wave:
                if span.thread == thread:
                    return span
            seen |= wave
            spans = list(wave)
            wave = {
                _seen_from(inner, span.thread)
                for span, cells in zip(spans, store.cells(spans), strict=True)
                for refs in cells.refs
                for inner in refs.spans
            } - seen
        else:
            raise Damaged("records refer to each other without end")
        after = page[-1].seq
    return None


def _seen_from(span: Span, owner: int) -> Span:
    return span if span.thread else Span(owner, span.log, span.start, span.count, span.first, span.last)
