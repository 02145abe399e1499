"""Read many threads at once, each table in one ordered scan: all their rows, or the metadata of checkpoints."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

from holdfast.errors import Damaged
from holdfast.stores import rules
from holdfast.stores.abilities import Scanned, Searched, Totals
from holdfast.stores.contract import CheckpointRow
from holdfast.stores.rows import (
    ENTRIES_COLUMN,
    StoredThread,
    check_listed,
    is_whole_checkpoint,
    read_checkpoint,
    read_entry,
    read_run,
    read_thread,
    to_text,
    whole_number,
)
from holdfast.stores.segments import MAX_SEQ, SEQ_BITS, key
from holdfast.stores.sql.reads import require_all
from holdfast.stores.sql.transaction import Row, Transaction, growing

# Threads with more checkpoints, or with a longer journal, are read on their own, page by page.
LONG: Final = 32
_METADATA: Final = 2_000  # checkpoints whose metadata is read at once
# Threads to search at once, and the number of checkpoints after which no further thread is added.
_THREADS: Final = 1024
_CHECKPOINTS: Final = 16_384


class Rows(NamedTuple):
    """The rows of one thread, in order. If it `is_long`, they were not read."""

    stored: StoredThread
    checkpoints: Iterable[Row]
    moves: Iterable[Row]
    segments: Iterable[Row]
    run: Row | None
    entries: Iterable[Row]
    is_long: bool = False


def rows_of(tx: Transaction, numbers: Sequence[int], *, whole: bool) -> list[Rows]:
    """The rows of the threads with these numbers, in order; without `whole`, not their moves and segments.

    Threads whose own record cannot be read are left out. `Damaged` if a page of a table cannot be read.
    """
    ends = tx.namespace, numbers[0], numbers[-1]
    small = *ends, LONG
    names = ("many_checkpoints", "many_entries", "many_moves", "many_segments")[: 4 if whole else 2]
    found, runs, *keyed = tx.ask(("many_threads", ends), ("many_runs", ends), *((name, small) for name in names))
    checkpoints, entries, moves, segments = (_by_thread(keyed[at] if at < len(keyed) else ()) for at in range(4))
    of_run = {row[0]: row for row in runs}
    threads: list[Rows] = []
    for row in found:
        try:
            stored = read_thread(row)
        except Damaged:
            continue
        at, run = stored.thread_no, of_run.get(stored.thread_no)
        is_long = stored.last > LONG or (run is not None and whole_number(run[ENTRIES_COLUMN]) > LONG)
        threads.append(Rows(stored, checkpoints[at], moves[at], segments[at], run, entries[at], is_long))
    return threads


def _by_thread(rows: Sequence[Row]) -> defaultdict[int, list[Row]]:
    groups: defaultdict[int, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row[0] >> SEQ_BITS].append(row)
    return groups


def scan(tx: Transaction, numbers: Sequence[int]) -> dict[int, Scanned]:
    """See `Scanning`."""
    found: dict[int, Scanned] = {}
    try:
        origins = {number for (number,) in tx.rows("many_forks", numbers[0], numbers[-1])} if numbers else set()
        threads = rows_of(tx, numbers, whole=False) if numbers else []
    except Damaged:
        return found
    for rows in threads:
        stored = rows.stored
        if stored.name is None or rows.is_long:
            continue
        try:
            checkpoints = [read_checkpoint(*row) for row in rows.checkpoints]
            run = None if rows.run is None else read_run(rows.run)
            entries = [read_entry(row_key, record) for row_key, record, _ in rows.entries]
        except Damaged:
            continue
        count = 0 if rows.run is None else rows.run[ENTRIES_COLUMN]
        if (
            [row.seq for row in checkpoints] == list(range(1, stored.last + 1))
            and [entry.number for entry in entries] == list(range(1, count + 1))
            and (rows.run is None or rows.run[1] == stored.namespace)
        ):
            found[stored.thread_no] = Scanned(checkpoints, run, entries, stored.thread_no in origins)
    return found


def totals(tx: Transaction, read: Callable[[Sequence[bytes], Sequence[bool]], None]) -> Totals:
    """See `Totalling`. The numbers of rows in both tables must agree, so that no lost or damaged row is overlooked."""
    tally = tx.rows("tally", tx.namespace)
    found = [0, 0, 0]
    for page in _metadata(tx, 0):
        check_listed(page)
        metas, heads = [row[4] for row in page], [row[5] for row in page]
        found = [found[0] + len(page), found[1] + metas.count(b""), found[2] + sum(heads)]
        read(metas, heads)
    statuses: Counter[str] = Counter()
    for status, count, *_ in tally:
        statuses[to_text(status)] += count
    expected = [sum(row[at] for row in tally) for at in (3, 4, 1)]
    if found != expected:
        raise rules.damaged("the records of threads do not match their checkpoints")
    return Totals(dict(statuses), sum(row[2] for row in tally))


def tally(tx: Transaction) -> dict[tuple[str, str | None], int]:
    """See `Totalling`."""
    rows = tx.rows("tally", tx.namespace)
    return {(to_text(row[0]), None if row[5] is None else to_text(row[5])): row[1] for row in rows}


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
    for row in chain.from_iterable(_metadata(tx, key(after, MAX_SEQ))):
        number = row[0] >> SEQ_BITS
        if number > last:
            break
        if row[0] & MAX_SEQ <= lasts.get(number, 0) and is_whole_checkpoint(*row[:5]):
            readable[number] += 1
            if having in row[4]:
                checkpoint = read_checkpoint(*row[:5])
                if not checkpoint.deleted:
                    found.append((number, checkpoint))
    # A checkpoint that is missing is unreadable, too.
    unread = {number: end - readable[number] for number, end in lasts.items() if end != readable[number]}
    return Searched(found, unread, last)


def _metadata(tx: Transaction, after: int) -> Iterator[Sequence[Row]]:
    """Pages of checkpoints with keys above `after`: their columns up to the metadata, and whether each is a head."""
    while page := growing(tx.rows("metadata", tx.namespace, after, _METADATA), after + 1):
        yield page
        after = page[-1][0]
