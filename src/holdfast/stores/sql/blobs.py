"""Blobs in SQL tables: each is stored once per namespace, in pieces that are compressed when that helps."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from holdfast.errors import Damaged
from holdfast.stores import rules, segments
from holdfast.stores.contract import Blob
from holdfast.stores.sql.transaction import Query, Row, Transaction

# A blob's pieces are keyed by `blob_no << _PIECE_BITS | index`.
_PIECE_BITS: Final = 24
# A blob that another commit has just stored is visible in the next round. Only a sweep in between needs another round.
_ROUNDS: Final = 20


class Packed(NamedTuple):
    """A piece as stored: its size before compression (0 if stored raw) and its bytes."""

    size: int
    data: bytes


def pack(blob: Blob) -> list[Packed]:
    """The pieces of a blob in stored form."""
    packed: list[Packed] = []
    for piece in blob.pieces:
        stored = segments.compress(piece)
        packed.append(Packed(0, piece) if stored is None else Packed(len(piece), stored))
    return packed


# -- reading --------------------------------------------------------------------------------------------------------


def blob(tx: Transaction, digest: bytes) -> list[bytes]:
    found = tx.rows("blob", tx.namespace, digest)
    if not found:
        raise Damaged(f"blob {digest.hex()} is missing")
    [(number, count)] = found
    return _unpack(digest, count, tx.rows("pieces", number))


def stored(tx: Transaction, digests: Sequence[bytes]) -> set[bytes]:
    """The digests that are already stored, so that packing these blobs is probably unnecessary."""
    answers = tx.ask(*(("blob", (tx.namespace, digest)) for digest in digests))
    return {digest for digest, found in zip(digests, answers, strict=True) if found}


def _unpack(digest: bytes, count: int, stored: Iterable[tuple[int, bytes]]) -> list[bytes]:
    """The pieces of a blob, in order. `Damaged` if they do not match its digest."""
    whole = hashlib.sha256()
    pieces: list[bytes] = []
    try:
        for size, data in stored:
            piece = segments.decompress(data, size) if size else data
            whole.update(piece)
            pieces.append(piece)
    except TypeError as error:  # the type code of a column is damaged
        raise Damaged(f"blob {digest.hex()} cannot be read") from error
    if len(pieces) != count or whole.digest() != digest:
        raise Damaged(f"blob {digest.hex()} does not match its digest")
    return pieces


# -- a commit stores the blobs that are new, and stamps the others with the current epoch ------------------------------


def queries_for(tx: Transaction, wanted: Sequence[Blob]) -> list[Query]:
    """The queries that a commit with blobs needs first. They lock the epoch until the commit is done."""
    if not wanted:
        return []
    digests = sorted({blob.digest for blob in wanted})
    locks: list[Query] = [("lock_blob", (tx.namespace, digest)) for digest in digests]
    return [("insert_epoch", (tx.namespace,)), ("lock_epoch", (tx.namespace,)), *locks]


def keep(
    tx: Transaction, wanted: Sequence[Blob], packed: Sequence[list[Packed] | None], answers: Sequence[list[Row]]
) -> None:
    """Store each blob, or stamp the stored one."""
    _, [(epoch,)], *locked = answers
    stored = [row for answer in locked for row in answer]
    brought = {blob.digest: (blob, ready) for blob, ready in zip(wanted, packed, strict=True)}
    for _ in range(_ROUNDS):
        for _, number, stamp in stored:
            if stamp < epoch:
                tx.put("stamp_blob", number, epoch)
        new = sorted(set(brought).difference(digest for digest, _, _ in stored))
        if not new:
            return
        # Ordered by digest, like the locks. If another transaction is storing the same blob, the insert waits for it.
        ready = {digest: brought[digest][1] or pack(brought[digest][0]) for digest in new}
        inserted = tx.ask(*(("insert_blob", (tx.namespace, digest, len(ready[digest]), epoch)) for digest in new))
        for digest, answer in zip(new, inserted, strict=True):
            if answer:
                del brought[digest]
                for index, piece in enumerate(ready[digest]):
                    tx.put("insert_piece", answer[0][0] << _PIECE_BITS | index, piece.size, piece.data)
        if all(inserted):
            return
        answers = tx.ask(*(("lock_blob", (tx.namespace, digest)) for digest in sorted(brought)))
        stored = [row for answer in answers for row in answer]
    raise rules.damaged("stored blobs cannot be found; nothing was stored")


# -- a sweep drops those that no thread uses and whose stamp is older than the epoch -----------------------------------


def old(tx: Transaction, epoch: int, after: int, limit: int) -> list[Row]:
    """A page of blobs stamped before `epoch`: their numbers and digests."""
    return tx.rows("old_blobs", tx.namespace, epoch, after, limit)


def remove(tx: Transaction, dead: Sequence[Row], epoch: int) -> list[bytes]:
    """Drop the blobs, given as (number, digest), that are still stamped before `epoch`; return their digests."""
    removed = tx.ask(*(("delete_blob", (number, epoch)) for number, _ in dead))
    gone = [row for row, found in zip(dead, removed, strict=True) if found]
    for number, _ in gone:
        tx.put("delete_pieces", number)
    return [digest for _, digest in gone]
