"""Fingerprints of all threads of a store, to be kept outside of it.

A store can be replaced by an older copy of itself, in which everything is sound. A fingerprint that is newer than the
copy shows this: a thread never loses a checkpoint number or a move, unless it is dropped.

The text has one JSON list per thread, in the order of their names: [name, moves, last checkpoint, its digest, head, its
digest, journal entries]. The first line names the format, the last line signs the text.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

import msgspec

from holdfast.errors import Damaged, InvalidArgument
from holdfast.stores.contract import Store, ThreadRow
from holdfast.threads.scan import checkpoint_at, thread_named, threads
from holdfast.types import Problem

_FIRST: Final = "holdfast fingerprint 1"
_DIGEST: Final = 32  # hex digits of a digest: half of it
_NAMED_MAX: Final = 10_000  # checkpoints that are named if a thread has lost some
_INVALID: Final = "the text is not a fingerprint that hf.fingerprint() returned"


class ThreadPrint(msgspec.Struct, frozen=True, array_like=True):
    """The line of a thread."""

    name: str
    move: int
    last: int
    last_digest: str
    head: int
    head_digest: str
    entries: int


def fingerprint(store: Store, namespace: str) -> str:
    """The fingerprint of all threads of a namespace. Raises Damaged if one cannot be read."""
    made = datetime.now(UTC).isoformat(timespec="seconds")
    lines = [f"{_FIRST} {made} {_quoted(namespace)}"]
    for thread in threads(store):
        try:
            lines.append(_line(_print(store, thread)))
        except Damaged:
            now = thread_named(store, thread.name)
            if now is not None and now.position.thread == thread.position.thread:
                raise
            # It was dropped after it was listed, so it is left out.
    text = "".join(f"{line}\n" for line in lines)
    return f"{text}{_signature(store, text)}\n"


def compared(store: Store, namespace: str, text: str) -> Iterator[Problem]:
    """The threads that are older than in a fingerprint, or missing.

    Raises InvalidArgument if the text is not a fingerprint of this namespace.
    """
    for then in _read(store, namespace, text):
        try:
            thread = thread_named(store, then.name)
            if thread is None:
                yield Problem(then.name, (), "it is missing: it was dropped after the fingerprint was made, or lost")
                continue
            for seqs, what in _differences(store, thread, then):
                yield Problem(then.name, seqs, what)
        except Damaged as damage:
            yield Problem(then.name, (), f"it cannot be compared with the fingerprint: {damage}")


def _differences(store: Store, thread: ThreadRow, then: ThreadPrint) -> Iterator[tuple[tuple[int, ...], str]]:
    now = thread.position
    if now.last < then.last:
        lost = tuple(range(now.last + 1, min(then.last, now.last + _NAMED_MAX) + 1))
        yield lost, f"it is older than the fingerprint: it has {now.last} checkpoints, and had {then.last}"
        return
    if now.move < then.move:
        yield (), f"it is older than the fingerprint: it has {now.move} moves, and had {then.move}"
    for seq, digest in ((then.last, then.last_digest), (then.head, then.head_digest)):
        row = checkpoint_at(store, now.thread, seq)
        if row is None or row.digest.hex()[:_DIGEST] != digest:
            yield (seq,), "it is not the checkpoint that was there when the fingerprint was made"
            break
    entries = store.last_entry(now.thread)
    if entries < then.entries:
        yield (), f"its journal is older than the fingerprint: it has {entries} entries, and had {then.entries}"


def _print(store: Store, thread: ThreadRow) -> ThreadPrint:
    at = thread.position
    last = _digest(store, thread, at.last)
    head = last if at.head == at.last else _digest(store, thread, at.head)
    return ThreadPrint(thread.name, at.move, at.last, last, at.head, head, store.last_entry(at.thread))


def _digest(store: Store, thread: ThreadRow, seq: int) -> str:
    row = checkpoint_at(store, thread.position.thread, seq)
    if row is None:
        raise Damaged(f"checkpoint {seq} of the thread with number {thread.position.thread} is missing")
    return row.digest.hex()[:_DIGEST]


def _read(store: Store, namespace: str, text: str) -> Iterator[ThreadPrint]:
    if type(text) is not str or not text.isascii() or not text.startswith(f"{_FIRST} "):
        raise InvalidArgument(_INVALID)
    lines = text.splitlines()
    body = "".join(f"{line}\n" for line in lines[:-1])
    if not hmac.compare_digest(lines[-1].encode(), _signature(store, body).encode()):
        raise InvalidArgument("the fingerprint was changed or cut short, or it belongs to a store with other keys")
    if lines[0].split(" ", 4)[-1] != _quoted(namespace):
        raise InvalidArgument("the fingerprint belongs to another namespace")
    try:
        return iter([msgspec.convert(json.loads(line), ThreadPrint) for line in lines[1:-1]])
    except (ValueError, RecursionError, msgspec.ValidationError) as cause:
        raise InvalidArgument(_INVALID) from cause


def _signature(store: Store, text: str) -> str:
    hasher = store.hashing.signature()
    hasher.update(b"holdfast fingerprint 1\0" + text.encode())
    return hasher.digest().hex()


def _line(printed: ThreadPrint) -> str:
    # Not msgspec's JSON: a name may hold half of a surrogate pair, for which JSON has an escape.
    return json.dumps(msgspec.structs.astuple(printed))


def _quoted(text: str) -> str:
    return json.dumps(text)
