"""Read verbs: functions of a transaction, each on one snapshot and if possible in one round trip."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from holdfast.errors import Damaged
from holdfast.stores import pieces, rows, sharing
from holdfast.stores.contract import Cells, CheckpointRow, Span, ThreadRow
from holdfast.stores.postgres.locking import read_thread
from holdfast.stores.postgres.session import Query, Transaction
from holdfast.stores.rows import MAX_SEQ, MAX_THREAD, StoredThread

# Rows fetched at once when tombstones must be skipped.
_CHUNK: Final = 256
# The columns of the subqueries in `thread_by_name`, after those of the thread.
_NEWEST: Final = -2
_HEAD: Final = -1


def name_digest(namespace: bytes, name: bytes) -> bytes:
    """A digest that finds a thread without the index on names, and keeps names unique."""
    return hashlib.sha256(b"%d:%b%d:%b" % (len(namespace), namespace, len(name), name)).digest()


def look_up(namespace: bytes, name: bytes) -> tuple[Query, Query]:
    """The two queries that find a thread by its name."""
    return ("thread_by_name", (namespace, name)), ("thread_by_digest", (namespace, name_digest(namespace, name)))


def looked_up(by_name: Sequence[Any], by_digest: Sequence[Any]) -> StoredThread | None:
    """The thread that both queries found; None if neither did. `Damaged` if they disagree."""
    if [row[:_NEWEST] for row in by_name] != list(by_digest):
        raise _disagreeing()
    return read_thread(by_name[0]) if by_name else None


def look_up_number(namespace: bytes, name: bytes) -> Query:
    """One query for a thread's name in a write transaction, where two queries could see different moments."""
    return "number_of_name", (namespace, name, name_digest(namespace, name))


def looked_up_number(answer: Sequence[Any]) -> int:
    """The number of the thread with the name; 0 if there is none. `Damaged` if the two lookups disagree."""
    [(by_name, by_digest)] = answer
    if by_name != by_digest:
        raise _disagreeing()
    return by_name or 0


def _disagreeing() -> Damaged:
    return Damaged("two lookups of a thread's name disagree; run hf.verify() to see what is affected")


def thread(session: Transaction, name: bytes) -> ThreadRow | None:
    by_name, by_digest = session.ask(*look_up(session.namespace, name))
    found = looked_up(by_name, by_digest)
    if found is None:
        return None
    # A third lookup: the thread's row must agree with the checkpoints.
    if by_name[0][_NEWEST] != rows.key(found.thread_no, found.last) or by_name[0][_HEAD] is None:
        raise found.disagreeing(by_name[0][_NEWEST])
    return found.record()


def find_number(session: Transaction, number: int, *more: Query) -> tuple[StoredThread | None, list[Any]]:
    """The thread with this number, None if this namespace does not have it; also the answers to other queries."""
    if not 1 <= number <= MAX_THREAD:
        return None, [[] for _ in more]
    found, *answers = session.ask(("thread_by_number", (number,)), *more)
    if not found:
        if session.rows("has_rows", number) != [(False,)]:
            raise Damaged(
                f"the record of the thread with number {number} is missing, but its checkpoints exist; "
                "run hf.verify() to see what is affected"
            )
        return None, answers
    stored = read_thread(found[0])
    return (stored if stored.namespace == session.namespace else None), answers


def threads(session: Transaction, prefix: bytes, after: bytes | None, limit: int) -> list[ThreadRow]:
    if after is None or after < prefix:
        found = session.rows("threads_from", session.namespace, prefix, limit)
    else:
        found = session.rows("threads_after", session.namespace, after, limit)
    page: list[ThreadRow] = []
    for row in found:
        stored = read_thread(row)
        # Names are ordered by their bytes, so the first one without the prefix is the end.
        if stored.name is None or not stored.name.startswith(prefix):
            break
        page.append(stored.record())
    return page


def name_of(session: Transaction, number: int) -> str | None:
    found, _ = find_number(session, number)
    return None if found is None or found.name is None else rows.to_text(found.name)


def told(session: Transaction) -> dict[int, str]:
    """The names of all threads with an undamaged record. A damaged record does not hide the following ones."""
    names: dict[int, str] = {}
    after = 0
    while page := session.rows("told", session.namespace, after, _CHUNK):
        for row in page:
            with suppress(Damaged):
                stored = read_thread(row)
                if stored.name is not None:
                    names[stored.thread_no] = rows.to_text(stored.name)
        after = page[-1][0]
    return names


def numbers(session: Transaction) -> list[int]:
    return [number for (number,) in session.rows("thread_numbers", session.namespace)]


def checkpoint(session: Transaction, number: int, seq: int) -> CheckpointRow | None:
    if not 1 <= seq <= MAX_SEQ:
        seq = 0  # no row has this seq
    found, answers = find_number(session, number, ("checkpoint", (rows.key(min(max(number, 0), MAX_THREAD), seq),)))
    if found is None or found.name is None:
        return None
    if answers[0]:
        return rows.decode(*answers[0][0])
    if 1 <= seq <= found.last:
        raise Damaged(f"checkpoint {seq} of the thread with number {number} is missing")
    return None


def checkpoints(
    session: Transaction, number: int, before: int | None, limit: int, label: bytes | None, step: int | None
) -> list[CheckpointRow]:
    found, _ = find_number(session, number)
    if found is None or found.name is None or limit <= 0:
        return []
    top = found.last if before is None else min(before - 1, found.last)
    page: list[CheckpointRow] = []
    while top > 0:
        size = _CHUNK if step is not None else min(limit - len(page), _CHUNK)
        ends = (rows.key(number, 1), rows.key(number, top), size)
        if label is None:
            chunk = session.rows("checkpoints_down", *ends)
        else:
            chunk = session.rows("checkpoints_by_label", *ends, label)
        for fields in chunk:
            row = rows.decode(*fields)
            # Tombstones keep their rows, so a gap means damage.
            if label is None:
                _expect(number, row.seq, top)
            top = row.seq - 1
            # Steps are compared here, after a row is verified: a WHERE clause would miss a row with a damaged step.
            if not row.deleted and (step is None or row.step == step):
                page.append(row)
                if len(page) == limit:
                    return page
        if len(chunk) < size:
            if label is None and top > 0:
                _expect(number, 0, top)
            break
    return page


def walk(session: Transaction, number: int, after: int, limit: int) -> list[CheckpointRow | Damaged]:
    """Complete checkpoints of a range of seqs; an unreadable one is represented by its error."""
    found, _ = find_number(session, number)
    if found is None or found.name is None or limit <= 0:
        return []
    first, last = max(after, 0) + 1, min(max(after, 0) + limit, found.last)
    stored: dict[int, CheckpointRow | Damaged] = {}
    for row in session.rows("walk", rows.key(number, min(first, MAX_SEQ)), rows.key(number, last)):
        try:
            stored[row[0] & MAX_SEQ] = rows.decode(*row)
        except Damaged as damage:
            stored[row[0] & MAX_SEQ] = damage
    return [stored.get(seq) or _missing(number, seq) for seq in range(first, last + 1)]


def refs(session: Transaction, number: int, after: int, limit: int) -> list[CheckpointRow]:
    """A page of checkpoints with refs. A gap is `Damaged`: a sweep would drop the cells of a missing checkpoint."""
    found, _ = find_number(session, number)
    if found is None or found.name is None:
        return []
    expected = max(after, 0) + 1
    page: list[CheckpointRow] = []
    while expected <= found.last and len(page) < limit:
        size = min(limit - len(page), _CHUNK)
        chunk = session.rows("refs", rows.key(number, expected), rows.key(number, MAX_SEQ), size)
        for fields in chunk:
            row = rows.decode(*fields, keep_meta=False)
            _expect(number, row.seq, expected)
            expected += 1
            if not row.deleted:
                page.append(row)
        if not chunk:
            _expect(number, 0, expected)
    return page


def cells(session: Transaction, spans: Sequence[Span]) -> list[Cells]:
    wanted = {number: pieces.Wanted(own) for number, own in pieces.by_thread(spans).items()}
    if not wanted:
        return pieces.assemble(spans, {})
    queries: list[Query] = [("threads_by_number", (sorted(n for n in wanted if 1 <= n <= MAX_THREAD),))]
    owners: list[pieces.Wanted] = []
    for number, own in wanted.items():
        if 1 <= number <= MAX_THREAD:
            for first, last in own.commits():
                keys = rows.key(number, first), rows.key(number, last)
                queries += [("cells", keys), ("segments", keys)]
                owners += [own, own]
    stored, *answers = session.ask(*queries)
    there = {found.thread_no for found in map(read_thread, stored) if found.namespace == session.namespace}
    for number in wanted:
        if number not in there:
            raise Damaged(f"cells of the thread with number {number} are missing: the thread does not exist")
    for own, found in zip(owners, answers, strict=True):
        own.add(found)
    return pieces.assemble(spans, {number: own.pieces() for number, own in wanted.items()})


def value(session: Transaction, digest: bytes) -> list[bytes]:
    row = session.row("value", session.namespace, digest)
    if row is None:
        raise sharing.missing(digest)
    number, count = row
    return sharing.unpack(digest, count, session.rows("value_pieces", number))


def values_known(session: Transaction, digests: Sequence[bytes]) -> set[bytes]:
    """The digests that are already stored, so that packing these blobs is probably unnecessary."""
    return {digest for (digest,) in session.rows("values_known", session.namespace, list(digests))}


def last(session: Transaction, number: int) -> int:
    found, _ = find_number(session, number)
    return 0 if found is None else found.last


def forks(session: Transaction, number: int) -> list[int]:
    found, answers = find_number(session, number, ("forks", (number,)))
    return [] if found is None else using(number, answers[0])


def using(number: int, registered: Sequence[Any]) -> list[int]:
    """The registered forks that use cells. Sweep and drop rely on this list: `Damaged` if a fork is missing."""
    found: list[int] = []
    for fork, name, is_there in registered:
        if not is_there:
            raise Damaged(
                f"the thread with number {fork}, a fork of the thread with number {number}, is missing; "
                "run hf.verify() to see what is affected"
            )
        # A dropped thread stays registered, so that forks of it find its origins, but it uses no cells.
        if name is not None:
            found.append(fork)
    return found


def _expect(number: int, seq: int, expected: int) -> None:
    if seq != expected:
        raise _missing(number, expected)


def _missing(number: int, seq: int) -> Damaged:
    return Damaged(f"checkpoint {seq} of the thread with number {number} is missing")
