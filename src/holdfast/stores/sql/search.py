"""Search the metadata of all checkpoints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from holdfast.stores.abilities import Searched
from holdfast.stores.contract import CheckpointRow
from holdfast.stores.rows import is_whole_checkpoint, read_checkpoint, read_thread
from holdfast.stores.segments import MAX_SEQ, SEQ_BITS, key
from holdfast.stores.sql.reads import require_all
from holdfast.stores.sql.transaction import Row, Transaction, in_order

# Threads to search at once, and the number of checkpoints after which no further thread is added.
_THREADS: Final = 1024
_CHECKPOINTS: Final = 16_384
_READ: Final = 2048


def search(tx: Transaction, having: bytes, *, after: int) -> Searched:
    """See `Searching`. Every row is verified; only rows with the bytes are decoded."""
    if not after:
        require_all(tx)
    found: list[tuple[int, CheckpointRow]] = []
    lasts: dict[int, int] = {}
    last = count = 0
    for row in tx.rows("threads_by_number", tx.namespace, after, _THREADS):
        thread = read_thread(row)
        last = thread.thread_no
        if thread.name is not None:
            lasts[last] = thread.last
            count += thread.last
        if count > _CHECKPOINTS:
            break
    readable: Counter[int] = Counter()
    for row in _checkpoints(tx, after + 1, last):
        number = row[0] >> SEQ_BITS
        if row[0] & MAX_SEQ <= lasts.get(number, 0) and is_whole_checkpoint(*row):
            readable[number] += 1
            if having in row[4]:
                checkpoint = read_checkpoint(*row)
                if not checkpoint.deleted:
                    found.append((number, checkpoint))
    # A checkpoint that is missing is unreadable, too.
    unread = {number: end - readable[number] for number, end in lasts.items() if end != readable[number]}
    return Searched(found, unread, last)


def _checkpoints(tx: Transaction, first: int, last: int) -> Iterator[Row]:
    high = key(last, MAX_SEQ)
    return in_order(lambda low: tx.rows("metadata_for_search", tx.namespace, low, high, _READ), key(first, 0))
