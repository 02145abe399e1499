"""Blobs: stored once per namespace, stamped by every commit that contains or refers to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from holdfast.errors import Damaged
from holdfast.stores.contract import Blob
from holdfast.stores.postgres.session import Query, Transaction
from holdfast.stores.sharing import Packed, pack

_PIECE_BITS: Final = 24
# A blob that another commit stores is visible in the next round, unless it was swept. That hardly happens twice.
_ROUNDS: Final = 20


def questions(namespace: bytes, values: Sequence[Blob]) -> list[Query]:
    """The queries that a commit with blobs needs first. They lock the epoch until the commit is done."""
    if not values:
        return []
    digests = sorted({value.digest for value in values})
    return [("begin_epochs", (namespace,)), ("epoch", (namespace,)), ("lock_values", (namespace, digests))]


def keep(
    session: Transaction,
    values: Sequence[Blob],
    packed: Sequence[list[Packed] | None],
    answers: Sequence[list[tuple[object, ...]]],
) -> None:
    """Store each blob, or stamp the stored one."""
    if not values:
        return
    _, [(stamped,)], stored = answers
    epoch = int(str(stamped))
    brought = {value.digest: (value, ready) for value, ready in zip(values, packed, strict=True)}
    for _ in range(_ROUNDS):
        old = [number for _, number, stamp in stored if int(str(stamp)) < epoch]
        if old:
            session.put("stamp_values", old, epoch)
        new = sorted(set(brought).difference(digest for digest, _, _ in stored))
        if not new:
            return
        numbers = session.rows("next_value_numbers", len(new))
        # Ordered by digest, like the locks. If another transaction is storing the same blob, the insert waits for it.
        ready = {digest: brought[digest][1] or pack(brought[digest][0]) for digest in new}
        inserted = session.ask(
            *(
                ("insert_value", (number, session.namespace, digest, len(ready[digest]), epoch))
                for digest, (number,) in zip(new, numbers, strict=True)
            )
        )
        for digest, (number,), done in zip(new, numbers, inserted, strict=True):
            if done:
                del brought[digest]
                for index, piece in enumerate(ready[digest]):
                    session.put("insert_piece", number << _PIECE_BITS | index, piece.size, piece.data)
        if all(inserted):
            return
        stored = session.rows("lock_values", session.namespace, sorted(brought))
    raise Damaged("stored blobs cannot be found; nothing was stored. Run hf.verify() to see what is affected.")


def remove(session: Transaction, numbers: Sequence[int], epoch: int) -> int:
    """Drop the blobs that are still stamped before `epoch`; return how many."""
    gone = [number for (number,) in session.rows("delete_values", list(numbers), epoch)]
    for number in gone:
        session.put("delete_pieces", number)
    return len(gone)


def advance(session: Transaction) -> int:
    """Start a new epoch after every commit that saw the old one is done; return it."""
    [(epoch,)] = session.rows("advance_epoch", session.namespace)
    return int(epoch)
