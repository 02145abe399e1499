"""Marks: where every thread stands, as a text that is kept outside of the store.

Whoever can write a store can put an older copy in its place, and all in that is sound. Beside a later mark it shows:
what a thread has been given it never loses, but by being dropped.

The text is one line of a JSON list per thread, in order of their names, between a first line that says what it is and a
last one that signs it: [name, moves, last checkpoint, its digest, head, its digest, journal entries].
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

import msgspec

from holdfast.errors import Damaged, InvalidArgument
from holdfast.stores.contract import Problem, Store, ThreadRow

_FIRST: Final = "holdfast mark 1"
_PAGE: Final = 200
_DIGEST: Final = 32  # hex digits of a digest: half of it
_NAMED_MAX: Final = 10_000  # checkpoints that are named where a thread went back


class Standing(msgspec.Struct, frozen=True, array_like=True):
    """Where a thread stood."""

    name: str
    move: int
    last: int
    last_digest: str
    head: int
    head_digest: str
    entries: int


def mark(store: Store, namespace: str) -> str:
    """A mark of all threads of a namespace, as they stand now. `Damaged` if one cannot be read."""
    made = datetime.now(UTC).isoformat(timespec="seconds")
    lines = [f"{_FIRST} {made} {_quoted(namespace)}"]
    for thread in _threads(store):
        try:
            lines.append(_line(_standing(store, thread)))
        except Damaged:
            now = store.thread(thread.name)
            if now is not None and now.position.thread == thread.position.thread:
                raise
            # Dropped since it was listed: there is nothing of it any more.
    text = "".join(f"{line}\n" for line in lines)
    return f"{text}{_signature(store, text)}\n"


def compared(store: Store, namespace: str, text: str) -> Iterator[Problem]:
    """Which threads went back behind a mark, or are gone. InvalidArgument if it is no mark of this namespace."""
    for standing in _read(store, namespace, text):
        try:
            thread = store.thread(standing.name)
            if thread is None:
                yield Problem(standing.name, (), "it is gone: it was dropped since the mark, or lost")
                continue
            for seqs, what in _differences(store, thread, standing):
                yield Problem(standing.name, seqs, what)
        except Damaged as damage:
            yield Problem(standing.name, (), f"it cannot be compared with the mark: {damage}")


def _differences(store: Store, thread: ThreadRow, then: Standing) -> Iterator[tuple[tuple[int, ...], str]]:
    now = thread.position
    if now.last < then.last:
        lost = tuple(range(now.last + 1, min(then.last, now.last + _NAMED_MAX) + 1))
        yield lost, f"it went back: it has {now.last} checkpoints, and had {then.last}"
        return
    if now.move < then.move:
        yield (), f"it went back: {now.move} moves were made, and {then.move} had been"
    for seq, digest in ((then.last, then.last_digest), (then.head, then.head_digest)):
        row = store.checkpoint(now.thread, seq)
        if row is None or row.digest.hex()[:_DIGEST] != digest:
            yield (seq,), "it is another checkpoint than the one that was there"
            break
    entries = store.last_effect(now.thread)
    if entries < then.entries:
        yield (), f"its journal went back: it has {entries} entries, and had {then.entries}"


def _standing(store: Store, thread: ThreadRow) -> Standing:
    at = thread.position
    last = _digest(store, thread, at.last)
    head = last if at.head == at.last else _digest(store, thread, at.head)
    return Standing(thread.name, at.move, at.last, last, at.head, head, store.last_effect(at.thread))


def _digest(store: Store, thread: ThreadRow, seq: int) -> str:
    row = store.checkpoint(thread.position.thread, seq)
    if row is None:
        raise Damaged(f"checkpoint {seq} of thread number {thread.position.thread} is missing")
    return row.digest.hex()[:_DIGEST]


def _threads(store: Store) -> Iterator[ThreadRow]:
    after: str | None = None
    while page := store.threads(prefix="", after=after, limit=_PAGE):
        yield from page
        after = page[-1].name


def _read(store: Store, namespace: str, text: str) -> Iterator[Standing]:
    if type(text) is not str or not text.isascii() or not text.startswith(f"{_FIRST} "):
        raise InvalidArgument("the text is not a mark that hf.mark() gave")
    lines = text.splitlines()
    body = "".join(f"{line}\n" for line in lines[:-1])
    if not hmac.compare_digest(lines[-1].encode(), _signature(store, body).encode()):
        raise InvalidArgument("the mark was changed or cut short, or is of a store with other keys")
    if lines[0].split(" ", 4)[-1] != _quoted(namespace):
        raise InvalidArgument("the mark is of another namespace")
    try:
        return iter([msgspec.convert(json.loads(line), Standing) for line in lines[1:-1]])
    except (ValueError, RecursionError, msgspec.ValidationError) as cause:
        raise InvalidArgument("the text is not a mark that hf.mark() gave") from cause


def _signature(store: Store, text: str) -> str:
    hasher = store.hashing.signature()
    hasher.update(b"holdfast mark 1\0" + text.encode())
    return hasher.digest().hex()


def _line(standing: Standing) -> str:
    # Not msgspec's: a name may hold half of a surrogate pair, which is no text but has an escape.
    return json.dumps(msgspec.structs.astuple(standing))


def _quoted(text: str) -> str:
    return json.dumps(text)
